//! Common parts of `forebay-lab redis`, `rocksdb`, `sqlite`, `tenants`, `mariadb`, `postgres`,
//! `etcd` and `nats`.

use crate::{
    failed,
    measuring::{Options, own_program},
};
use clap::Args;
use forebay_bench::{
    BenchError,
    contest::{Mode, Pools, Report, Setup},
};
use forebay_cli::{failure::Failure, output, size};

/// Where a database and its pools are, and how often it is measured.
#[derive(Args)]
pub struct Common {
    /// Modes; each command says which it has, and which it measures without this
    #[arg(long, value_name = "MODE,…", value_delimiter = ',')]
    modes: Vec<String>,
    #[command(flatten)]
    pub options: Options,
    /// Put the data on an emulated device: hdd-7200, …, or the path of a profile; with DIR= before
    /// it, below DIR
    #[arg(long, value_name = "[DIR=]PROFILE")]
    device: Option<String>,
    /// Bytes of a segment of a pool that is made
    #[arg(long, value_name = "SIZE", value_parser = size::parse_positive, default_value = "8MiB", conflicts_with = "pool")]
    segment_size: u64,
    /// Segments that the database gets; while the disk is behind it takes more
    #[arg(long, value_name = "N", default_value_t = 2)]
    segments: u16,
}

/// Clients of a server.
#[derive(Args)]
pub struct Clients {
    /// Numbers of clients, each with one operation in flight
    #[arg(
        id = "clients",
        long = "clients",
        value_name = "N,…",
        value_delimiter = ','
    )]
    pub numbers: Vec<u64>,
}

impl Common {
    /// The setup of a contest in the modes that are asked for, of those that `known` has.
    pub fn setup(&self, known: &[Mode]) -> Result<Setup, Failure> {
        let modes = self.modes.iter().map(|name| Mode::named(known, name));
        let modes = modes.collect::<Result<_, _>>().map_err(Failure::Usage)?;
        let device = self.device.as_deref();
        let placed = device.and_then(|device| device.rsplit_once('='));
        Ok(Setup {
            dir: match (&self.options.dir, placed) {
                (None, Some((dir, _))) => dir.into(),
                _ => self.options.dir(),
            },
            modes,
            pools: Pools {
                lane_segments: self.segments,
                segment_bytes: self.segment_size,
                ..self.options.pools()
            },
            device: placed
                .map(|(_, profile)| profile)
                .or(device)
                .map(str::to_owned),
            rounds: self.options.rounds(),
            forebay: crate::forebay()?,
            emulator: Some(own_program()?),
            effort: self.options.effort(),
        })
    }

    /// True if the data is on an emulated device.
    pub fn emulates(&self) -> bool {
        self.device.is_some()
    }

    /// Seconds of a round, if no number is given: so many, or one at toy size.
    pub fn seconds(&self, given: Option<u64>, usual: u64) -> u64 {
        given.unwrap_or(if self.options.form.quick { 1 } else { usual })
    }

    /// Prints what a contest gave.
    pub fn print(&self, measured: Result<Report, BenchError>) -> Result<(), Failure> {
        let report = measured.map_err(failed)?;
        output::report(self.options.form.json, &report, Report::table)
    }
}

/// Says what is being done.
pub fn note(note: &str) {
    eprintln!("{note}");
}
