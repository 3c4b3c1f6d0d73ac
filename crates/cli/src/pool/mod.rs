//! `forebay pool`: make and inspect pools.

mod check;
mod create;
mod status;

use crate::failure::Failure;
use clap::Subcommand;

#[derive(Subcommand)]
pub enum Command {
    Create(create::Create),
    Status(status::Status),
    Check(check::Check),
}

impl Command {
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Self::Create(create) => create.run(),
            Self::Status(status) => status.run(),
            Self::Check(check) => check.run(),
        }
    }
}
