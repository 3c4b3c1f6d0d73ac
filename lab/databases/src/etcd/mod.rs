//! etcd: what a put that survives a power cut takes, and what it takes under `forebay run`.
//!
//! One member, which syncs its log before it answers; several clients' puts share a sync.
//! [`closed_loop`](crate::closed_loop) has the load, [`client`] its client.

pub mod client;
mod grpc;
pub mod server;

use crate::{
    MeasureError,
    closed_loop::{self, Config, Looped, Stage, Writer},
    contest::Report,
};
use client::Connection;
use serde_json::{Map, Value, json};
use server::{Launch, Server};
use std::{
    io,
    path::{Path, PathBuf},
};

/// Runs it all. `note` is told what is being done.
///
/// # Errors
/// The first thing that goes wrong; [`MeasureError::Config`] if etcd is not installed.
pub fn run(config: &Config, note: &dyn Fn(&str)) -> Result<Report, MeasureError> {
    closed_loop::run::<Server>(("etcd", "puts"), config, note)
}

impl Writer for Connection {
    fn write(&mut self, key: u64, value: &[u8]) -> io::Result<()> {
        self.put(format!("key{key:08}").as_bytes(), value)
    }
}

/// etcd's histogram of its log's syncs, up to a bucket.
const WAL_SYNCS: &str = "etcd_disk_wal_fsync_duration_seconds";

impl Looped for Server {
    type Client = Connection;

    fn program() -> Result<PathBuf, String> {
        server::program()
    }

    fn start(stage: &Stage, program: &Path) -> Result<Self, MeasureError> {
        let launch: Launch = stage.launch(program);
        Self::start(&launch)
    }

    fn client(&self) -> io::Result<Connection> {
        self.connect()
    }

    fn counts(&self) -> Map<String, Value> {
        let text = self.metrics().unwrap_or_default();
        let count = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().parse::<f64>().ok()
        };
        let below = count(&format!("{WAL_SYNCS}_bucket{{le=\"0.001\"}}"));
        let all = count(&format!("{WAL_SYNCS}_count"));
        let seconds = count(&format!("{WAL_SYNCS}_sum"));
        let counts = [("below_1_ms", below), ("all", all), ("seconds", seconds)];
        let counts = counts.map(|(name, count)| (name.to_owned(), json!(count)));
        counts.into_iter().collect()
    }

    fn figures(before: &Map<String, Value>, after: &Map<String, Value>) -> Map<String, Value> {
        let more = |name: &str| {
            let number = |counts: &Map<String, Value>| counts.get(name)?.as_f64();
            Some(number(after)? - number(before)?)
        };
        let all = more("all").filter(|syncs| *syncs > 0.0);
        let share = |part: Option<f64>| Some(part? / all?);
        let figures = [
            ("wal_syncs", all),
            ("wal_syncs_below_1_ms", share(more("below_1_ms"))),
            (
                "wal_sync_mean_us",
                share(more("seconds")).map(|mean| mean * 1e6),
            ),
        ];
        let figures = figures.map(|(name, figure)| (name.to_owned(), json!(figure)));
        figures.into_iter().collect()
    }

    fn end(self) -> Result<(), MeasureError> {
        self.end()
    }
}
