//! `forebay-lab`: what is measured, and a demonstration.
//!
//! Workloads beside their peers, in all modes, on this disk and on emulated devices; the papers'
//! experiments and their report. One module a subcommand; lab/bench measures. Databases run under
//! the `forebay` that lies beside this program, with its libforebay.so; on emulated devices under
//! this program itself ([`run`]), with its libforebay_lab.so.

mod closed_loop;
mod commit;
mod contest;
mod demo;
mod device;
mod fam;
mod internal;
mod measuring;
mod paper;
mod pool;
mod progress;
mod redis;
mod report;
mod rocksdb;
mod run;
mod sql;
mod sqlite;
mod synced_write;
mod tenants;
mod wisckey;
mod ycsb;

use clap::{Args, CommandFactory, Parser, Subcommand};
use forebay_bench::BenchError;
use forebay_cli::failure::Failure;
use forebay_device::memory::Profile;
use measuring::{clean_up_on_signals, own_program};
use std::{fmt::Display, path::PathBuf, process::ExitCode, str::FromStr};

/// Measure Forebay beside its peers, and the papers' tables again
#[derive(Parser)]
#[command(
    name = "forebay-lab",
    version,
    propagate_version = true,
    max_term_width = 100,
    arg_required_else_help = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(run::EmulatedRun),
    Demo(demo::Demo),
    Pool(pool::Pool),
    Commit(commit::Commit),
    SyncedWrite(synced_write::SyncedWrite),
    Device(device::Device),
    Wisckey(wisckey::Wisckey),
    Ycsb(ycsb::Ycsb),
    Redis(redis::Redis),
    Rocksdb(rocksdb::Rocksdb),
    Mariadb(sql::Mariadb),
    #[command(name = "postgres")]
    Postgresql(sql::Postgresql),
    Sqlite(sqlite::Sqlite),
    Tenants(tenants::Tenants),
    Etcd(closed_loop::Etcd),
    Nats(closed_loop::Nats),
    Fam(fam::Fam),
    Paper(paper::Paper),
    Report(report::Report),
    // For the package (scripts/package.sh).
    #[command(hide = true)]
    Completions(forebay_cli::Completions),
    #[command(hide = true)]
    Man(forebay_cli::Man),
    /// Processes that are started and killed
    #[command(subcommand, hide = true)]
    Internal(internal::Command),
}

fn main() -> ExitCode {
    dispatch(Cli::parse().command)
        .err()
        .map_or(ExitCode::SUCCESS, |failure| failure.report(false))
}

fn dispatch(command: Command) -> Result<(), Failure> {
    // A run passes signals on, and the processes that are killed have nothing to clean up.
    if !matches!(command, Command::Run(_) | Command::Internal(_)) {
        clean_up_on_signals()?;
    }
    match command {
        Command::Run(run) => run.run(),
        Command::Demo(demo) => demo.run(),
        Command::Pool(pool) => pool.run(),
        Command::Commit(commit) => commit.run(),
        Command::SyncedWrite(it) => it.run(),
        Command::Device(device) => device.run(),
        Command::Wisckey(wisckey) => wisckey.run(),
        Command::Ycsb(ycsb) => ycsb.run(),
        Command::Redis(redis) => redis.run(),
        Command::Rocksdb(rocksdb) => rocksdb.run(),
        Command::Mariadb(mariadb) => mariadb.run(),
        Command::Sqlite(sqlite) => sqlite.run(),
        Command::Tenants(tenants) => tenants.run(),
        Command::Etcd(etcd) => etcd.run(),
        Command::Nats(nats) => nats.run(),
        Command::Postgresql(postgresql) => postgresql.run(),
        Command::Fam(fam) => fam.run(),
        Command::Paper(paper) => paper.run(),
        Command::Report(report) => report.run(),
        Command::Completions(completions) => completions.run(Cli::command()),
        Command::Man(man) => man.run(Cli::command()),
        Command::Internal(command) => command.run(),
    }
}

/// The `forebay` beside this program, for measurements that run programs under it.
fn forebay() -> Result<PathBuf, Failure> {
    let beside = own_program()?.with_file_name("forebay");
    match beside.is_file() {
        true => Ok(beside),
        false => Err(Failure::Failed(format!(
            "{} is missing, which programs are run under: build it where this program is (cargo build -p forebay -p forebay-preload -p forebay-lab-preload)",
            beside.display()
        ))),
    }
}

/// How the command fails when a measurement does.
fn failed(error: BenchError) -> Failure {
    match error {
        BenchError::Config(what) => Failure::Usage(what),
        error => Failure::Failed(error.to_string()),
    }
}

/// A slower device's latency.
#[derive(Args)]
struct Slowed {
    /// Slow the pool down to a device: dram, nvdimm-n, pcm, xpoint-mm, xpoint-sm, gen-z-uc,
    /// gen-z-wt, gen-z-wc
    #[arg(long, value_name = "DEVICE", value_parser = profile)]
    profile: Option<Profile>,
}

/// The profile that a name means.
fn profile(name: &str) -> Result<Profile, String> {
    Profile::named(name).ok_or_else(|| {
        let names: Vec<&str> = Profile::ALL.iter().map(|p| p.name).collect();
        format!("there is no such device; there are {}", names.join(", "))
    })
}

/// A number of what has to be there.
fn positive<N: FromStr<Err: Display> + PartialOrd + From<u8>>(text: &str) -> Result<N, String> {
    let number: N = text.parse().map_err(|e: N::Err| e.to_string())?;
    let is_positive = number > N::from(0);
    is_positive
        .then_some(number)
        .ok_or_else(|| "must be more than 0".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
