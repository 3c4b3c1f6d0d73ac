//! Hidden subcommands: the processes that benchmarks and the demonstration start and kill.

use crate::{demo, failed};
use clap::Subcommand;
use forebay_bench::{pool_bench, relay, wisckey, ycsb};
use forebay_cli::failure::Failure;
use std::{net::SocketAddr, path::PathBuf, time::Duration};

#[derive(Subcommand)]
pub enum Command {
    /// Fill a store, say so, and go on until killed
    Fill {
        /// What to do, as JSON
        order: String,
    },
    /// Run YCSB's workloads on a new store
    Ycsb {
        /// What to do, as JSON
        order: String,
    },
    /// Append to a shared lane, as told on standard input
    Append {
        /// Descriptors of the pool and of the lane's state, and the member's number
        order: String,
    },
    /// Relay connections to a server, whose answers come so much later
    Relay {
        /// Where it is reached
        listen: SocketAddr,
        /// Where the server is
        server: SocketAddr,
        /// Microseconds that each answer takes longer
        delay_us: u64,
    },
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
            Self::Fill { order } => wisckey::fill_until_killed(&order).map_err(failed)?,
            Self::Ycsb { order } => ycsb::run_order(&order).map_err(failed)?,
            Self::Append { order } => pool_bench::serve(&order).map_err(failed)?,
            Self::Relay {
                listen,
                server,
                delay_us,
            } => relay::serve(listen, server, Duration::from_micros(delay_us))
                .map_err(Failure::io("relaying at", listen))?,
            Self::Write { dir, pool } => {
                demo::store::write_until_killed(&dir, &pool).map_err(failed)?
            }
        }
        Ok(())
    }
}
