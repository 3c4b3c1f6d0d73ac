//! `forebay pool`: make and inspect pools.

mod check;
mod create;
mod status;

use crate::failure::Failure;
use clap::Subcommand;

#[derive(Subcommand)]
pub enum PoolCommand {
    Create(create::Create),
    Status(status::PoolStatus),
    Check(check::Check),
}

impl PoolCommand {
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Self::Create(create) => create.run(),
            Self::Status(status) => status.run(),
            Self::Check(check) => check.run(),
        }
    }
}
