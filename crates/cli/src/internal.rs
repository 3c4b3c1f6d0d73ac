//! The hidden subcommand: the process that the demonstration starts and kills.

use crate::{demo, failure::Failure};
use clap::Subcommand;
use std::path::PathBuf;

#[derive(Subcommand)]
pub enum Command {
    /// Put pairs into a new store, saying so of each, until killed
    Write {
        /// The store's directory
        dir: PathBuf,
        /// The pool that its log begins in
        pool: PathBuf,
    },
}

impl Command {
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Self::Write { dir, pool } => demo::store::write_until_killed(&dir, &pool),
        }
    }
}
