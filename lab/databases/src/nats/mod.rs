//! NATS: what a JetStream message that survives a power cut takes (`sync_interval: always`), and
//! what it takes under `forebay run`.
//!
//! One server and one stream in files. [`closed_loop`](crate::closed_loop) has the load,
//! [`client`] its client.

pub mod client;
pub mod server;

use crate::{
    MeasureError,
    closed_loop::{self, Config, Looped, Stage, Writer},
    contest::Report,
};
use client::{Connection, Limits};
use serde_json::{Map, Value};
use server::{Launch, Server};
use std::{
    io,
    path::{Path, PathBuf},
};

/// The stream that is published to.
const STREAM: &str = "bench";

/// Runs it all. `note` is told what is being done.
///
/// # Errors
/// The first thing that goes wrong; [`MeasureError::Config`] if NATS is not installed.
pub fn run(config: &Config, note: &dyn Fn(&str)) -> Result<Report, MeasureError> {
    closed_loop::run::<Server>(("nats", "messages"), config, note)
}

impl Writer for Connection {
    fn write(&mut self, key: u64, value: &[u8]) -> io::Result<()> {
        self.publish(&format!("{STREAM}.{key}"), value).map(drop)
    }
}

impl Looped for Server {
    type Client = Connection;

    fn program() -> Result<PathBuf, String> {
        server::program()
    }

    fn start(stage: &Stage, program: &Path) -> Result<Self, MeasureError> {
        let launch: Launch = stage.launch(program);
        let server = Self::start(&launch)?;
        let made = server
            .connect()
            .and_then(|mut it| it.make_stream(STREAM, Limits::default()));
        made.map_err(MeasureError::io("making a stream of", program))?;
        Ok(server)
    }

    fn client(&self) -> io::Result<Connection> {
        self.connect()
    }

    fn counts(&self) -> Map<String, Value> {
        Map::new()
    }

    fn figures(_before: &Map<String, Value>, _after: &Map<String, Value>) -> Map<String, Value> {
        Map::new()
    }

    fn end(self) -> Result<(), MeasureError> {
        self.end()
    }
}
