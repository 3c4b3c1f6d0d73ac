//! Common options of commands that measure: the place, the number of rounds, the pools. Nothing is
//! left behind.

use clap::Args;
use forebay_bench::{
    contest::Pools,
    device::{Effort, file_system},
    processes, scratch,
};
use forebay_cli::failure::Failure;
use forebay_device::block;
use std::path::PathBuf;

/// Ends processes, unmounts emulated devices and removes scratch directories when this one is told
/// to end.
///
/// # Errors
/// [`Failure::Failed`] if signals cannot be handled.
pub fn clean_up_on_signals() -> Result<(), Failure> {
    const INTERRUPTED: i32 = 130;
    ctrlc::set_handler(|| {
        processes::kill_all();
        block::unmount_all();
        scratch::remove_all();
        std::process::exit(INTERRUPTED);
    })
    .map_err(|e| Failure::Failed(format!("handling signals: {e}")))
}

/// A directory on a disk, if one is at hand: the system's for temporary files, or else the current
/// one.
#[must_use]
pub fn default_dir() -> PathBuf {
    let temporary = std::env::temp_dir();
    match file_system(&temporary) {
        Some(fs) if !fs.is_memory() => temporary,
        _ => PathBuf::from("."),
    }
}

/// This program, for measurements that start it again.
///
/// # Errors
/// I/O errors.
pub fn own_program() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(Failure::io("finding", "this program"))
}

/// How large a measurement is, and how its report is printed.
#[derive(Args)]
pub struct RunForm {
    /// Toy size: shows that it runs, not how fast
    #[arg(long)]
    pub quick: bool,
    /// Report as JSON
    #[arg(long)]
    pub json: bool,
}

/// Where a database and its pools are, and how often it is measured.
#[derive(Args)]
pub struct Options {
    /// Where databases are made, in a directory that is removed again [default: the one for
    /// temporary files, if that is on a disk]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Use this pool instead of one that is emulated in memory
    #[arg(long, value_name = "PATH")]
    pub pool: Option<PathBuf>,
    /// Besides, measure with the pool on a disk, in a file that is made in DIR and removed again;
    /// may be given several times
    #[arg(long, value_name = "DIR")]
    pub pool_disk: Vec<PathBuf>,
    /// Rounds, of which the median counts [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: Option<u32>,
    #[command(flatten)]
    pub form: RunForm,
}

impl Options {
    /// Where it is measured.
    #[must_use]
    pub fn dir(&self) -> PathBuf {
        self.dir.clone().unwrap_or_else(default_dir)
    }

    /// How often.
    #[must_use]
    pub fn rounds(&self) -> usize {
        let usual = if self.form.quick { 1 } else { 3 };
        self.rounds.map_or(usual, |rounds| rounds as usize)
    }

    /// How much is written to know the disk.
    #[must_use]
    pub fn effort(&self) -> Effort {
        match self.form.quick {
            true => Effort::QUICK,
            false => Effort::SHORT,
        }
    }

    /// The pools that it is measured with, of the usual size.
    #[must_use]
    pub fn pools(&self) -> Pools {
        Pools {
            disks: self.pool_disk.clone(),
            ..Pools::of(self.pool.clone().into())
        }
    }
}
