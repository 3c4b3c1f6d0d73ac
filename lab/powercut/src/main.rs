//! The power-cut lab: boots a machine with persistent memory, has a client outside write to a real
//! database in it, cuts the power, boots again, and looks for everything that was acknowledged.
//! lab/powercut/README.md says how, docs/durability.md what it proves.
//!
//! `machine` is the machine and its cut, `disk`, `shared_disk` and `nbd` its disks, `flash` what is
//! special where one is a flash cache, `boots`, `lab`, `mariadb` and `postgres` what it boots;
//! `ledger` remembers, over `client`; `workload` lists what runs and when it is cut, `plan` what of
//! it, `chain` does it, `cycle` is what came of it, `evidence` keeps what a loss leaves, `results`
//! adds up what is of the same `sources`, `report` says it.

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
mod results;
mod shared_disk;
mod sources;
mod workload;

use chain::Chain;
use clap::Parser;
use cycle::Cycle;
use forebay_device::block::{self, ScratchMemory};
use forebay_guest::accelerator::Accelerator;
use lab::{FileSystem, Lab, LabNeeds, PoolOn};
use machine::MachineKind;
use plan::Task;
use report::Report;
use results::{ResultLine, ResultsFile};
use std::{
    collections::VecDeque,
    fs, io,
    path::{Path, PathBuf},
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
    /// Where the pool is: on the NVDIMM, in memory, or on a second disk [default: mostly fsdax, now
    /// and then devdax; in namespaces mostly memory, now and then a disk]
    #[arg(long, value_name = "KIND", value_enum)]
    pool: Option<PoolOn>,
    /// What the machines are
    #[arg(long, value_name = "KIND", value_enum, default_value_t = MachineKind::Emulated)]
    machine: MachineKind,
    /// The file system of the data
    #[arg(long, value_name = "NAME", value_enum, default_value_t = FileSystem::Ext4)]
    file_system: FileSystem,
    /// What runs emulated machines
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
    /// Append each cycle to this file as a line of JSON, and count those that it has of the same
    /// sources: --cycles and --controls say how many there are to be with them. The report is of
    /// all that it has
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
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
    let options = Options::parse();
    match own_mounts(&options).and_then(|()| run(&options)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::from(2)
        }
    }
}

/// Machines in namespaces need mounts that go with this process, however it ends.
fn own_mounts(options: &Options) -> Result<(), Failure> {
    if options.machine == MachineKind::Emulated {
        return match options.file_system {
            FileSystem::Ext4 => Ok(()),
            FileSystem::Xfs => Err("--file-system xfs needs --machine namespace".into()),
        };
    }
    if !rustix::process::geteuid().is_root() {
        return Err("--machine namespace mounts file systems: run it as root".into());
    }
    Ok(block::in_own_namespace()?)
}

/// The directory of all that the lab makes. That of machines in namespaces is in memory.
struct LabHome {
    // Unmounted before the directory goes.
    _memory: Option<ScratchMemory>,
    dir: tempfile::TempDir,
}

impl LabHome {
    fn make(machine: MachineKind) -> Result<Self, Failure> {
        let dir = tempfile::Builder::new()
            .prefix("forebay-powercut-")
            .tempdir()?;
        let memory = match machine {
            MachineKind::Emulated => None,
            MachineKind::Namespace => Some(ScratchMemory::mount(dir.path())?),
        };
        Ok(Self {
            _memory: memory,
            dir,
        })
    }
}

fn run(options: &Options) -> Result<bool, Failure> {
    let begun = Instant::now();
    let seed = options.seed.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(1, |now| u64::from(now.subsec_nanos()))
    });
    let results = options.results.as_deref().map(ResultsFile::open);
    let results = results.transpose()?;
    let commit = sources::revision();
    let had = |workload: &Workload| {
        let count = |file: &ResultsFile| file.count(&commit, options.machine, workload.name);
        results.as_ref().map_or(0, count)
    };
    let tasks = plan::tasks(options, seed, had)?;
    let total: u64 = tasks.iter().map(|task| task.cycles).sum();
    eprintln!("seed {seed}: {total} cycles in {} chains", tasks.len());
    let home = LabHome::make(options.machine)?;
    end_by_signals(home.dir.path().to_owned())?;
    let lab = prepare(options, home.dir.path(), &tasks)?;
    let command = command(options, seed);
    let accelerator = match options.machine {
        MachineKind::Emulated => Accelerator::from(options.accel).name(),
        MachineKind::Namespace => "namespace",
    };
    let keep_line = |cycle: &Cycle| {
        let line = || ResultLine {
            commit: commit.clone(),
            seed,
            command: command.clone(),
            accelerator: accelerator.to_owned(),
            cycle: cycle.clone(),
        };
        results.as_ref().map_or(Ok(()), |file| file.add(line()))
    };
    let (cycles, trouble) = run_chains(&lab, tasks, options.jobs, &keep_line);
    let ended = match ended() {
        true => format!("  # ended after {} of {total} cycles", cycles.len()),
        false => String::new(),
    };
    let run = Report {
        command: command.clone() + &ended,
        seeds: vec![seed],
        commit: commit.clone(),
        accelerator: accelerator.to_owned(),
        machine: options.machine,
        seconds: begun.elapsed().as_secs(),
        cycles: Vec::new(),
        unexpected: Vec::new(),
    };
    let reports: Vec<Report> = match &results {
        None => vec![Report::new(run, cycles)],
        Some(file) => {
            let groups = file.newest();
            let reports = groups.iter().filter_map(|it| Report::of_lines(it));
            reports.collect()
        }
    };
    say(options, &reports)?;
    // The other chains are worth their report.
    match trouble {
        Some(what) => Err(what.into()),
        None => Ok(reports.iter().all(Report::good)),
    }
}

/// After a signal no more cycles begin; after a second one this process ends at once.
fn end_by_signals(home: PathBuf) -> Result<(), Failure> {
    Ok(ctrlc::set_handler(move || {
        if ENDED.swap(true, Relaxed) {
            // Ended twice, it leaves nothing behind all the same.
            block::unmount_all();
            let _ = fs::remove_dir_all(&home);
            std::process::exit(130);
        }
        eprintln!("ends after the cycles that are running; again to end at once");
    })?)
}

/// The lab, with all that these chains need.
fn prepare(options: &Options, home: &Path, tasks: &VecDeque<Task>) -> Result<Lab, Failure> {
    let mut pools: Vec<PoolOn> = tasks.iter().map(|task| task.pool).collect();
    pools.sort();
    pools.dedup();
    let servers = tasks.iter().filter_map(|task| task.workload.beside);
    let mut servers: Vec<_> = servers.collect();
    servers.sort();
    servers.dedup();
    let programs = match &options.programs {
        Some(programs) => programs.clone(),
        None => std::env::current_exe()?
            .parent()
            .map(PathBuf::from)
            .unwrap_or_default(),
    };
    let needs = LabNeeds {
        programs: &programs,
        aimed: options.failpoints.as_deref(),
        pools: &pools,
        servers: &servers,
        flash: tasks.iter().any(|task| task.workload.flash),
        machine: options.machine,
        accelerator: options.accel.into(),
        file_system: options.file_system,
    };
    let mut lab = Lab::new(home, &needs)?;
    lab.keep.clone_from(&options.keep);
    lab.moments.clone_from(&options.moment);
    Ok(lab)
}

/// Writes and prints the report, as the user wants it.
fn say(options: &Options, reports: &[Report]) -> Result<(), Failure> {
    if let Some(path) = &options.report {
        keep(path, reports).map_err(|e| format!("writing {}: {e}", path.display()))?;
    }
    if options.json {
        println!("{}", serde_json::to_string_pretty(reports)?);
    } else {
        println!("{}", markdown(reports, String::new()));
    }
    Ok(())
}

/// The reports as one, with what an earlier one has of other workloads.
fn markdown(reports: &[Report], earlier: String) -> String {
    let commit = sources::revision();
    let add = |text: String, report: &Report| report.markdown(&text, &commit);
    reports.iter().fold(earlier, add)
}

/// Puts the reports into a file, whole or not at all: what that has of other workloads stays.
fn keep(path: &Path, reports: &[Report]) -> io::Result<()> {
    let earlier = match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        // Another's words that cannot be read are not written over.
        read => read?,
    };
    let mut beside = path.as_os_str().to_owned();
    beside.push(".partial");
    fs::write(&beside, markdown(reports, earlier))?;
    fs::rename(&beside, path)
}

/// Runs chains, so many at the same time: their cycles, and the first that kept one from being run.
/// `keep` takes each cycle once it is over.
fn run_chains(
    lab: &Lab,
    tasks: VecDeque<Task>,
    jobs: usize,
    keep: &(dyn Fn(&Cycle) -> io::Result<()> + Sync),
) -> (Vec<Cycle>, Option<String>) {
    let total: u64 = tasks.iter().map(|task| task.cycles).sum();
    let tasks = Mutex::new(tasks);
    let cycles = Mutex::new(Vec::new());
    let trouble: Mutex<Option<String>> = Mutex::new(None);
    thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while let Some(task) = next(&tasks) {
                    let mut told = |cycle: Cycle| {
                        if let Err(why) = keep(&cycle) {
                            let what = format!("keeping a cycle's result: {why}");
                            lock(&trouble).get_or_insert(what);
                        }
                        let mut cycles = lock(&cycles);
                        eprintln!("{}/{total} {}", cycles.len() + 1, cycle.line());
                        cycles.push(cycle);
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
    if options.machine == MachineKind::Namespace {
        command += " MACHINE=namespace";
    }
    if options.file_system == FileSystem::Xfs {
        command += " FILE_SYSTEM=xfs";
    }
    if let Some(pool) = options.pool {
        command += &format!(" POOL={}", pool.name());
    }
    if let Some(results) = &options.results {
        command += &format!(" RESULTS={}", results.display());
    }
    command
}
