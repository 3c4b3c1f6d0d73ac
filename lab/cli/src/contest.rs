//! What `forebay-lab redis`, `rocksdb`, `sqlite`, `mariadb` and `postgres` have in common.

use clap::Args;
use forebay_bench::{
    contest::{Mode, Pools, Report, Setup},
    device::Effort,
    scratch::PoolSource,
};
use forebay_cli::{
    failure::Failure,
    measuring::{default_dir, own_program},
    output, size,
};
use std::path::PathBuf;

/// Where a database and its pools are, and how often it is measured.
#[derive(Args)]
pub struct Common {
    /// Rounds [default: 3]
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
    /// Where databases are made, in a directory that is removed again [default: the one for temporary files, if that is on a disk]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Put the data on an emulated device: hdd-7200, …, or the path of a profile; with DIR= before it, below DIR
    #[arg(long, value_name = "[DIR=]PROFILE")]
    device: Option<String>,
    /// Use this pool instead of emulated ones
    #[arg(long, value_name = "PATH")]
    pool: Option<PathBuf>,
    /// Besides, measure with the pool on a disk, in a file that is made in DIR and removed again: mode forebay_disk; may be given several times
    #[arg(long, value_name = "DIR")]
    pool_disk: Vec<PathBuf>,
    /// Bytes of a segment of a pool that is made
    #[arg(long, value_name = "SIZE", value_parser = size::parse_positive, default_value = "8MiB", conflicts_with = "pool")]
    buffer_size: u64,
    /// Segments that the database gets; while the disk is behind it takes more
    #[arg(long, value_name = "N", default_value_t = 2)]
    buffers: u16,
    /// Toy size: shows that it runs, not how fast
    #[arg(long)]
    pub quick: bool,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

impl Common {
    /// The setup of a contest in `modes`.
    pub fn setup(&self, modes: Vec<Mode>) -> Result<Setup, Failure> {
        let device = self.device.as_deref();
        let placed = device.and_then(|device| device.rsplit_once('='));
        let dir = self.dir.clone();
        let dir = dir.or_else(|| placed.map(|(dir, _)| PathBuf::from(dir)));
        let device = placed.map(|(_, profile)| profile).or(device);
        let source = self.pool.clone();
        let source = source.map_or(PoolSource::Emulated, PoolSource::At);
        Ok(Setup {
            dir: dir.unwrap_or_else(default_dir),
            modes,
            pools: Pools {
                disks: self.pool_disk.clone(),
                buffers: self.buffers,
                buffer_bytes: self.buffer_size,
                ..Pools::of(source)
            },
            device: device.map(str::to_owned),
            rounds: self.rounds.unwrap_or(if self.quick { 1 } else { 3 }),
            forebay: crate::forebay()?,
            emulator: Some(own_program()?),
            effort: match self.quick {
                true => Effort::QUICK,
                false => Effort::SHORT,
            },
        })
    }

    /// Prints what a contest gave.
    pub fn print(&self, report: &Report) -> Result<(), Failure> {
        output::report(self.json, report, Report::table)
    }
}

/// Says what is being done.
pub fn note(note: &str) {
    eprintln!("{note}");
}
