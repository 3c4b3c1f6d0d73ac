//! The power-cut lab: boots a real kernel with an NVDIMM, has a client outside write to a real
//! database in it, cuts the power, boots again, and looks for everything that was acknowledged.
//! lab/powercut/README.md says how, docs/durability.md what it proves.
//!
//! `machine` is the machine and its cut, `disk` and `nbd` its disks, `flash` what is special where
//! one is a flash cache, `boots`, `lab`, `mariadb` and `postgres` what it boots; `ledger`
//! remembers, over `client`; `workload` lists what runs and when it is cut, `plan` what of it,
//! `chain` does it, `cycle` is what came of it, `evidence` keeps what a loss leaves, `report` says
//! it.

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
mod nats;
mod nbd;
mod plan;
mod postgres;
mod report;
mod workload;

use chain::Chain;
use clap::Parser;
use cycle::Cycle;
use forebay_guest::accelerator::Accelerator;
use lab::{Lab, PoolOn};
use plan::Task;
use report::Report;
use std::{
    collections::VecDeque,
    fs, io,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
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
    after_long_help = listed()
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
    /// What runs the machines
    #[arg(long, value_name = "NAME", value_enum, default_value_t = Accel::Tcg)]
    accel: Accel,
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
    /// Write the report to this file too, as Markdown; what it has of other workloads stays
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

/// As [`Accelerator`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Accel {
    /// QEMU's emulation
    Tcg,
    /// This machine's processors
    Kvm,
}

impl From<Accel> for Accelerator {
    fn from(accel: Accel) -> Self {
        match accel {
            Accel::Kvm => Self::Kvm,
            Accel::Tcg => Self::Tcg,
        }
    }
}

/// The end of the help: what there is to run.
fn listed() -> String {
    let names = |of: &[Workload], with: fn(&Workload) -> bool| {
        let these = of.iter().filter(|workload| with(workload));
        let names: Vec<&str> = these.map(|workload| workload.name).collect();
        names.join(", ")
    };
    format!(
        "Workloads under Forebay: {}. Controls: {}, and, with --failpoints, Forebay broken on purpose: {}.\n\n\
         Every cycle prints one line. Exit status: 0 if everything was as expected; 1 if a workload lost anything, or if a \
         control that must lose something lost nothing: a lab that cannot see loss proves nothing; 2 if the lab could not do \
         its work.",
        names(&WORKLOADS, |_| true),
        names(&CONTROLS, |workload| workload.broken.is_none()),
        names(&CONTROLS, |workload| workload.broken.is_some()),
    )
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

fn run(options: &Options) -> Result<bool, Failure> {
    let begun = Instant::now();
    let seed = options.seed.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(1, |now| u64::from(now.subsec_nanos()))
    });
    let tasks = plan::tasks(options, seed)?;
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
    let mut lab = Lab::new(
        home.path(),
        &programs,
        failpoints,
        &pools,
        &servers,
        flash,
        options.accel.into(),
    )?;
    lab.keep.clone_from(&options.keep);
    lab.moments.clone_from(&options.moment);
    let (cycles, trouble) = run_chains(&lab, tasks, options.jobs);
    let mut command = command(options, seed);
    if ended() {
        command += &format!("  # ended after {} of {total} cycles", cycles.len());
    }
    let run = Report {
        command,
        seed,
        commit: commit(),
        accelerator: Accelerator::from(options.accel).name(),
        seconds: begun.elapsed().as_secs(),
        cycles: Vec::new(),
        unexpected: Vec::new(),
    };
    let report = Report::new(run, cycles);
    say(options, &report)?;
    // The other chains are worth their report.
    match trouble {
        Some(what) => Err(what.into()),
        None => Ok(report.good()),
    }
}

/// Writes and prints the report, as the user wants it.
fn say(options: &Options, report: &Report) -> Result<(), Failure> {
    if let Some(path) = &options.report {
        keep(path, report).map_err(|e| format!("writing {}: {e}", path.display()))?;
    }
    if options.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        println!("{}", report.markdown(""));
    }
    Ok(())
}

/// Puts the report into a file, whole or not at all: what that has of other workloads stays.
fn keep(path: &Path, report: &Report) -> io::Result<()> {
    let earlier = match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        // Another's words that cannot be read are not written over.
        read => read?,
    };
    let mut beside = path.as_os_str().to_owned();
    beside.push(".partial");
    fs::write(&beside, report.markdown(&earlier))?;
    fs::rename(&beside, path)
}

/// Runs chains, so many at the same time: their cycles, and the first that kept one from being run.
fn run_chains(lab: &Lab, tasks: VecDeque<Task>, jobs: usize) -> (Vec<Cycle>, Option<String>) {
    let total: u64 = tasks.iter().map(|task| task.cycles).sum();
    let tasks = Mutex::new(tasks);
    let cycles = Mutex::new(Vec::new());
    let trouble: Mutex<Option<String>> = Mutex::new(None);
    thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while let Some(task) = next(&tasks) {
                    let mut told = |cycle: Cycle| {
                        let mut cycles = lock(&cycles);
                        cycles.push(cycle.clone());
                        eprintln!("{}/{total} {}", cycles.len(), cycle.line());
                    };
                    let place = (task.seed, task.pool);
                    if let Err(failure) = Chain::run(
                        lab,
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
    let trouble = lock(&trouble).take();
    (cycles, trouble)
}

/// The revision of the repository that this was built in, with a `+` if there are changes besides.
fn commit() -> String {
    let git = |words: &[&str]| {
        let mut git = Command::new("git");
        git.args(["-C", env!("CARGO_MANIFEST_DIR")]).args(words);
        let said = git.output().ok().filter(|done| done.status.success());
        said.map(|done| String::from_utf8_lossy(&done.stdout).trim().to_owned())
    };
    let Some(revision) = git(&["rev-parse", "--short=8", "HEAD"]) else {
        return "unknown".to_owned();
    };
    let changes = git(&["status", "--porcelain", "--untracked-files=no"]);
    match changes.is_some_and(|changes| changes.is_empty()) {
        true => revision,
        false => revision + "+",
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
    if options.accel == Accel::Kvm {
        command += " ACCEL=kvm";
    }
    if let Some(pool) = options.pool {
        command += &format!(" POOL={}", pool.name());
    }
    command
}
