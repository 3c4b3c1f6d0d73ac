//! `forebay pool`: make, inspect and remove pools.

mod check;
mod create;
mod pool_creation;
mod remove;
mod status;

pub use pool_creation::make;

use crate::failure::Failure;
use clap::{Args, Subcommand};
use forebay_pool::{Pool, PoolError, PoolOptions};
use std::path::{Path, PathBuf};

/// The pool that a command is about.
#[derive(Args)]
struct PoolArguments {
    /// The pool
    path: PathBuf,
    /// Open a pool that was made on persistent memory and lies elsewhere now
    #[arg(long)]
    emulated: bool,
}

impl PoolArguments {
    fn open(&self) -> Result<Pool, PoolError> {
        self.open_at(&self.path)
    }

    /// Opens it where it lies now.
    fn open_at(&self, path: &Path) -> Result<Pool, PoolError> {
        PoolOptions::new().emulated(self.emulated).open(path)
    }
}

#[derive(Subcommand)]
pub enum PoolCommand {
    Create(create::Create),
    Status(status::PoolStatus),
    Check(check::Check),
    Remove(remove::RemovePool),
}

impl PoolCommand {
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Self::Create(create) => create.run(),
            Self::Status(status) => status.run(),
            Self::Check(check) => check.run(),
            Self::Remove(remove) => remove.run(),
        }
    }
}
