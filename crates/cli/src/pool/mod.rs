//! `forebay pool`: make, inspect and remove pools.

mod check;
mod create;
mod pool_creation;
mod remove;
mod status;

pub use pool_creation::make;

use crate::failure::Failure;
use clap::Subcommand;

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
