//! The power-cut lab: boots a real kernel with an NVDIMM, has a client outside write to a real
//! database in it, cuts the power, boots again, and looks for everything that was acknowledged.
//! lab/powercut/README.md says how, docs/durability.md what it proves.
//!
//! `machine` is the machine and its cut, `disk` and `nbd` its disks, `flash` what is special where
//! one is a flash cache, `boots`, `lab`, `mariadb` and `postgres` what it boots; `ledger`
//! remembers, over `client`; `workload` lists what runs and when it is cut, `chain` does it,
//! `cycle` is what came of it, `evidence` keeps what a loss leaves, `report` says it.

mod boots;
mod chain;
mod client;
mod cut_moments;
mod cycle;
mod disk;
mod etcd;
mod evidence;
mod flash;
mod lab;
mod ledger;
mod machine;
mod mariadb;
mod nbd;
mod postgres;
mod report;
mod workload;

use chain::Chain;
use clap::Parser;
use forebay_random::Rng;
use lab::{Lab, PoolOn};
use report::Report;
use std::{
    collections::VecDeque,
    fs,
    path::PathBuf,
    process::ExitCode,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Instant,
};
use workload::{CONTROLS, WORKLOADS, Workload};

/// The lab got a signal to end: no more cycles are begun.
static ENDED: AtomicBool = AtomicBool::new(false);

/// Anything that keeps the lab from working, in words.
pub use forebay_guest::Failure;

/// Cuts the power of a machine in the middle of a database's writes, again and again
#[derive(Parser)]
#[command(
    max_term_width = 100,
    after_long_help = "Workloads under Forebay: store, redis, valkey, rocksdb, sqlite (WAL), sqlite-journal, logs (a program with rotating log \
                       files), mariadb, postgres, etcd, mariadb-flash (its pages behind a flash cache), sqlite-processes (several processes that write to one database). Controls: mariadb-plain, mariadb-no-sync, \
                       mariadb-eatmydata, mariadb-no-doublewrite, postgres-plain, postgres-no-sync, postgres-eatmydata, etcd-plain, sqlite-processes-eatmydata, redis-always, redis-everysec, redis-no, redis-eatmydata, logs-plain, and, with --failpoints, Forebay \
                       broken on purpose: redis-not-committed and redis-not-flushed (with the pool on a disk), redis-released-early, store-released-early, etcd-released-early, logs-unregistered, redis-no-checksum, \
                       store-no-checksum, mariadb-flash-metadata-first, mariadb-flash-no-home-sync.\n\n\
                       Every cycle prints one line. Exit status: 0 if everything was as expected; 1 if a workload lost anything, or if a \
                       control that must lose something lost nothing: a lab that cannot see loss proves nothing; 2 if the lab could not do \
                       its work."
)]
struct Options {
    /// Cycles of each workload: write, cut, boot, compare
    #[arg(long, value_name = "N", default_value_t = 20)]
    cycles: u64,
    /// Workloads, or "all" (of those under Forebay)
    #[arg(
        long,
        value_name = "NAME,…",
        value_delimiter = ',',
        default_value = "all"
    )]
    workload: Vec<String>,
    /// Also so many cycles of each control
    #[arg(long, value_name = "N", default_value_t = 0)]
    controls: u64,
    /// Where the pool is: on the NVDIMM, or on a second disk [default: mostly fsdax, now and then
    /// devdax]
    #[arg(long, value_name = "KIND", value_enum)]
    pool: Option<PoolOn>,
    /// What the random numbers begin with [default: the clock]
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
    /// Directory of forebay, libforebay.so and forebay-lab-server [default: this program's]
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
    /// Directory of the same, built with failpoints: every second cut is aimed at a hard moment
    #[arg(long, value_name = "DIR")]
    failpoints: Option<PathBuf>,
    /// Aim only at moments with this in their names
    #[arg(long, value_name = "TEXT", default_value = "", requires = "failpoints")]
    moment: String,
    /// Keep the images and the console after each cut of a cycle in which something was lost
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Machines at the same time
    #[arg(long, value_name = "N", default_value_t = 2)]
    jobs: usize,
    /// Write the report to this file too, as Markdown
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::from(2)
        }
    }
}

/// Cycles of a chain at most.
const CHAIN: u64 = 4;

/// A chain that is to be run.
struct Task {
    workload: &'static Workload,
    seed: u64,
    pool: PoolOn,
    first: u64,
    cycles: u64,
}

fn run(options: &Options) -> Result<bool, Failure> {
    let begun = Instant::now();
    let seed = options.seed.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(1, |now| u64::from(now.subsec_nanos()))
    });
    let tasks = tasks(options, seed)?;
    let total: u64 = tasks.iter().map(|task| task.cycles).sum();
    let mut pools: Vec<PoolOn> = tasks.iter().map(|task| task.pool).collect();
    pools.sort();
    pools.dedup();
    eprintln!("seed {seed}: {total} cycles in {} chains", tasks.len());
    let mut servers: Vec<_> = tasks
        .iter()
        .filter_map(|task| task.workload.beside)
        .collect();
    let flash = tasks.iter().any(|task| task.workload.flash);
    servers.sort();
    servers.dedup();
    let home = tempfile::Builder::new()
        .prefix("forebay-powercut-")
        .tempdir()?;
    let left = home.path().to_owned();
    ctrlc::set_handler(move || {
        if ENDED.swap(true, Relaxed) {
            // Ended twice, it leaves nothing behind all the same.
            let _ = fs::remove_dir_all(&left);
            std::process::exit(130);
        }
        eprintln!("ends after the cycles that are running; again to end at once");
    })?;
    let programs = match &options.programs {
        Some(programs) => programs.clone(),
        None => std::env::current_exe()?
            .parent()
            .map(PathBuf::from)
            .unwrap_or_default(),
    };
    let failpoints = options.failpoints.as_deref();
    let mut lab = Lab::new(home.path(), &programs, failpoints, &pools, &servers, flash)?;
    lab.keep.clone_from(&options.keep);
    lab.moments.clone_from(&options.moment);
    let tasks = Mutex::new(tasks);
    let cycles = Mutex::new(Vec::new());
    let trouble: Mutex<Option<String>> = Mutex::new(None);
    thread::scope(|scope| {
        for _ in 0..options.jobs.max(1) {
            scope.spawn(|| {
                while let Some(task) = next(&tasks) {
                    let mut told = |cycle: cycle::Cycle| {
                        let mut cycles = lock(&cycles);
                        cycles.push(cycle.clone());
                        eprintln!("{}/{total} {}", cycles.len(), cycle.line());
                    };
                    let place = (task.seed, task.pool);
                    if let Err(failure) = Chain::run(
                        &lab,
                        task.workload,
                        place,
                        (task.first, task.cycles),
                        &mut told,
                    ) {
                        let what = format!("{} {:016x}: {failure}", task.workload.name, task.seed);
                        eprintln!("{what}");
                        lock(&trouble).get_or_insert(what);
                    }
                }
            });
        }
    });
    let cycles = std::mem::take(&mut *lock(&cycles));
    let mut command = command(options, seed);
    if ended() {
        command += &format!("  # ended after {} of {total} cycles", cycles.len());
    }
    let report = Report::new(command, begun.elapsed().as_secs(), cycles);
    if let Some(path) = &options.report {
        fs::write(path, report.markdown())
            .map_err(|e| format!("writing {}: {e}", path.display()))?;
    }
    if options.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        println!("{}", report.markdown());
    }
    // The other chains are worth their report.
    match lock(&trouble).take() {
        Some(what) => Err(what.into()),
        None => Ok(report.good()),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn next(tasks: &Mutex<VecDeque<Task>>) -> Option<Task> {
    if ended() {
        None
    } else {
        lock(tasks).pop_front()
    }
}

/// True if no more cycles are to be begun.
fn ended() -> bool {
    ENDED.load(Relaxed)
}

/// The chains. A workload's are the same whichever others run with it.
fn tasks(options: &Options, seed: u64) -> Result<VecDeque<Task>, Failure> {
    let mut chosen: Vec<(&'static Workload, u64)> = Vec::new();
    for name in &options.workload {
        if name == "all" {
            chosen.extend(WORKLOADS.iter().map(|workload| (workload, options.cycles)));
            continue;
        }
        let workload = workload::find(name)
            .ok_or_else(|| format!("unknown workload {name:?}; --help lists them"))?;
        chosen.push((workload, options.cycles));
    }
    if options.controls > 0 {
        chosen.extend(CONTROLS.iter().map(|workload| (workload, options.controls)));
    }
    if options.failpoints.is_none() {
        if let Some((workload, _)) = chosen
            .iter()
            .find(|(w, _)| w.broken.is_some() && options.workload.iter().any(|n| n == w.name))
        {
            return Err(format!(
                "{} needs a Forebay with failpoints: --failpoints DIR",
                workload.name
            )
            .into());
        }
        chosen.retain(|(workload, _)| workload.broken.is_none());
    }
    let mut rows: Vec<VecDeque<Task>> = chosen
        .into_iter()
        .map(|(workload, cycles)| {
            let mut random = Rng(workload
                .name
                .bytes()
                .fold(seed, |hash, byte| Rng(hash ^ u64::from(byte)).next()));
            // Redis on a device first: it disables huge pages, which the device needs.
            let device = u64::from(workload.name != "redis");
            (0..cycles.div_ceil(CHAIN))
                .map(|chain| Task {
                    workload,
                    seed: random.next(),
                    pool: place(workload, options.pool, chain, device),
                    first: chain * CHAIN / 2,
                    cycles: CHAIN.min(cycles - chain * CHAIN),
                })
                .collect()
        })
        .collect();
    // One of each in turn: so a run that is ended early has seen all of them.
    let mut tasks = VecDeque::new();
    while rows.iter().any(|row| !row.is_empty()) {
        tasks.extend(rows.iter_mut().filter_map(VecDeque::pop_front));
    }
    Ok(tasks)
}

/// Where the pool of a chain is.
fn place(workload: &Workload, wanted: Option<PoolOn>, chain: u64, device: u64) -> PoolOn {
    match wanted {
        Some(pool) if pool.is_disk() || !workload.on_disk => pool,
        _ if workload.on_disk => PoolOn::Disk,
        _ if chain % 3 == device => PoolOn::Devdax,
        _ => PoolOn::Fsdax,
    }
}

/// What gives the same run again.
fn command(options: &Options, seed: u64) -> String {
    let mut command = format!(
        "make powercut N={} WORKLOAD={} SEED={seed}",
        options.cycles,
        options.workload.join(",")
    );
    if options.controls > 0 {
        command += &format!(" CONTROLS={}", options.controls);
    }
    if let Some(pool) = options.pool {
        command += &format!(" POOL={}", pool.name());
    }
    command
}
