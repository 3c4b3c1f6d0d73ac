//! The `forebay` command: databases run under it, pools, stores, and a look at the machine.
//!
//! One module a subcommand. What they share, and share with `forebay-lab` (lab/cli): [`failure`]
//! (exit codes), [`output`] (standard output that may close), [`size`] (arguments), [`progress`]
//! (bars on standard error), [`Man`] and [`Completions`], and [`RunCommand`], under which a
//! laboratory may put a [`RunLayer`]. Reports go to standard output, everything else to standard
//! error.

mod completions;
mod disk_loss;
mod disk_mounts;
mod doctor;
mod encoding;
pub mod failure;
mod flash;
mod found_runs;
mod help;
mod learn;
mod man;
mod metrics;
pub mod output;
mod pool;
pub mod progress;
mod rates;
mod recover;
mod run;
pub mod size;
mod standard_error;
mod status;
mod store;
mod top;
mod units;
mod users;

pub use completions::Completions;
pub use man::Man;
pub use run::{PreloadLibrary, RunCommand, RunLayer};

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use std::{ffi::OsString, process::ExitCode};

/// Tests and laboratories ask for it: only a build with failpoints obeys them.
const VERSION: &str = match forebay_pool::failpoint::BUILT_IN {
    true => concat!(env!("CARGO_PKG_VERSION"), " with failpoints"),
    false => env!("CARGO_PKG_VERSION"),
};

/// Persistent memory in front of the disk: durable writes at memory speed
#[derive(Parser)]
#[command(
    name = "forebay",
    version = VERSION,
    propagate_version = true,
    max_term_width = 100,
    arg_required_else_help = true,
    long_about = "Forebay puts a few megabytes of persistent memory in front of the disk, so that a write that \
                  must not be lost costs a memory copy instead of an fsync.\n\n\
                  A *pool* is that memory. *forebay run* starts an unmodified database (Redis, RocksDB, SQLite, …) whose log \
                  writes are durable once they are in the pool. A *store* is an embedded key-value store (WiscKey) whose log \
                  begins in a pool.",
    after_long_help = "Examples:\n  \
        forebay doctor                                    this machine's memory and disks, and the next steps\n  \
        forebay learn -- python3 app.py                   the files that a program syncs, and the cost\n  \
        forebay run --emulated 64MiB -- redis-server --appendonly yes --appendfsync always\n  \
        forebay pool create /dev/shm/try.pool --emulated  a pool to try things with\n  \
        forebay store put --dir s --pool /dev/shm/try.pool greeting hello\n  \
        forebay store get --dir s --pool /dev/shm/try.pool greeting\n\n\
        Exit status: 0 done; 1 it failed, or damage was found, or a key is absent; 2 the command line is wrong. \
        forebay run has its own: see its help. With --json a command that cannot report prints {\"error\": \"…\"}."
)]
struct Cli {
    #[command(subcommand)]
    command: MainCommand,
}

#[derive(Subcommand)]
enum MainCommand {
    Run(run::RunCommand),
    Recover(recover::Recover),
    Enable(units::EnableUnit),
    Disable(units::DisableUnit),
    Status(status::StatusCommand),
    Top(top::TopCommand),
    /// Make, inspect and remove pools
    #[command(subcommand)]
    Pool(pool::PoolCommand),
    /// Set, resize, flush, look at and remove flash caches
    #[command(subcommand)]
    Flash(flash::FlashCommand),
    /// Read and write a store
    #[command(subcommand)]
    Store(store::StoreCommand),
    Doctor(doctor::Doctor),
    Learn(learn::Learn),
    Completions(completions::Completions),
    Man(man::Man),
}

/// Obeys the command line. The status of the process.
#[must_use]
pub fn main() -> ExitCode {
    if let Some(done) = run::agent_main() {
        return done
            .err()
            .map_or(ExitCode::SUCCESS, |failure| failure.report(false));
    }
    let (cli, json) = parse(std::env::args_os()).unwrap_or_else(|error| error.exit());
    let done = match cli.command {
        MainCommand::Run(run) => run.run(),
        MainCommand::Recover(recover) => recover.run(),
        MainCommand::Enable(enable) => enable.run(),
        MainCommand::Disable(disable) => disable.run(),
        MainCommand::Status(status) => status.run(),
        MainCommand::Top(top) => top.run(),
        MainCommand::Pool(command) => command.run(),
        MainCommand::Flash(command) => command.run(),
        MainCommand::Store(command) => command.run(),
        MainCommand::Doctor(doctor) => doctor.run(),
        MainCommand::Learn(learn) => learn.run(),
        MainCommand::Completions(completions) => completions.run(Cli::command()),
        MainCommand::Man(man) => man.run(Cli::command()),
    };
    done.err()
        .map_or(ExitCode::SUCCESS, |failure| failure.report(json))
}

/// The command, and whether its report is to be JSON.
fn parse(line: impl IntoIterator<Item = OsString>) -> Result<(Cli, bool), clap::Error> {
    let mut command = help::short(Cli::command());
    let mut matches = command.try_get_matches_from_mut(line)?;
    let json = is_json(&matches);
    let cli = Cli::from_arg_matches_mut(&mut matches);
    Ok((cli.map_err(|error| error.format(&mut command))?, json))
}

/// True if the subcommand has an option `--json`, and was given it.
fn is_json(matches: &ArgMatches) -> bool {
    match matches.subcommand() {
        Some((_, below)) => is_json(below),
        None => matches!(matches.try_get_one::<bool>("json"), Ok(Some(true))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
