//! `forebay run`: an unmodified database whose fsync costs a memory copy.
//!
//! In order:
//!
//! 1. what is to be absorbed (`forebay_files::policy`), and whether the program can be run so
//!    ([`program`]);
//! 2. the pool ([`pool`]), and what an earlier run left in it;
//! 3. the supervisor;
//! 4. the program, whose signals and exit status are passed through ([`child`]).
//!
//! A laboratory runs programs in the same way with something of its own under them ([`layer`]).

mod agent;
mod child;
mod child_agent;
mod explain;
mod flash;
mod inherited_signals;
mod layer;
mod library;
mod metrics;
mod pool;
mod program;
mod resource_limits;
mod run_dir;
mod sanitizer;

pub use agent::main as agent_main;
pub use explain::{is_refused, is_well, lanes, running};
pub use flash::RunningCaches as RunningFlash;
pub(crate) use inherited_signals::ignored_here;
pub use layer::RunLayer;
pub use library::PreloadLibrary;
pub use pool::open_default;
pub use program::{FrontEnd, RunProgram};
pub use run_dir::{existing_run_dir, run_dir, whose, whose_runs};

use crate::{
    failure::Failure,
    size,
    standard_error::{complain, say},
};
use child::Signals;
use clap::Args;
use flash::{NotedRun, RunCache};
use forebay_files::{
    policy::{self, AbsorbPolicy, PolicyConfig},
    replay::{self, RecoverOptions},
    supervisor::{
        self, FrontEndChoice, RunFrontEnd, Supervisor, SupervisorOptions, SupervisorStatus, preload,
    },
};
use forebay_pool::{Pool, disks::BackingStore};
use metrics::{MetricsOptions, RunMetrics};
use pool::RunPool;
use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

/// Of the help, and of the manual page.
const EXAMPLES: &str = "Examples:\n  \
        forebay pool create /fast/forebay.pool --disk --size 128MiB    once\n  \
        forebay run --pool /fast/forebay.pool -- redis-server --appendonly yes --appendfsync always\n  \
        forebay run --emulated 64MiB -- redis-server --appendonly yes --appendfsync always\n  \
        forebay run --emulated 64MiB --explain -- db_bench --benchmarks=fillrandom --sync=1 --db=/tmp/db\n  \
        forebay run --pool p --profile rocksdb -- ./my-service\n  \
        forebay run --pool p --absorb '*.wal' --absorb 'journal/*' -- ./my-service\n  \
        forebay run --flash /fast/cache --flash-size 20GiB -- mariadbd --innodb-doublewrite=0";

/// The choice of the profile, and the list of profiles.
fn profiles() -> String {
    let names: Vec<String> = (policy::built_in().into_iter())
        .map(|profile| profile.name)
        .filter(|name| name != policy::ANY)
        .collect();
    format!(
        "A profile, chosen by the program's name, says which files are logs: {}. A program that none names \
         has the profile {}: files with the names of these databases' logs.",
        names.join(", "),
        policy::ANY
    )
}

/// Run an unmodified database; its log files' fsync costs a memory copy
#[derive(Args)]
#[command(
    long_about = format!("Runs a program, and copies its writes to log files into a pool as well. That copy makes a write \
                  durable: fsync and fdatasync of those files return at once, and forebay syncs the files themselves later. \
                  All other files are left as they are.\n\n\
                  {0} --absorb adds patterns, --config changes profiles.\n\n\
                  Terminal, environment, signals (also those sent to forebay) and exit status are passed through. \
                  First, forebay recovers the records that an earlier run left in the pool.", profiles()),
    after_help = format!("{EXAMPLES}\n\n{}\n\n\
        Exit status: the program's; 128+N if signal N killed it; 127 and 126 as a shell's; 1 if forebay could not do its part; 2 if the command line is wrong.", profiles()),
    after_long_help = format!("{EXAMPLES}\n\n\
        A configuration file:\n  \
        absorb = [\"*.aof\"]                  # instead of the profile's patterns\n  \
        [profile.mydb]                      # a new profile, or changes to one that is built in\n  \
        programs = [\"mydb-server\"]\n  \
        absorb = [\"*.wal\", \"journal/*\"]     # a pattern with a slash matches the end of the path\n\n\
        A program that is linked to the GNU C library gets a library, any other one an agent (see --front-end). It should stay in the foreground (redis: --daemonize no); if it goes into the background, forebay stays for it.\n\n\
        Exit status: that of the program; 128+N if signal N killed it; 127 if it is not found, 126 if it cannot be run so; \
        1 if forebay could not do its part; 2 if the command line is wrong.")
)]
pub struct RunCommand {
    /// The pool [default: forebay.pool on mounted persistent memory]
    #[arg(long, value_name = "PATH", conflicts_with = "emulated")]
    pool: Option<PathBuf>,
    /// Use a pool in ordinary memory: it survives a process crash only
    ///
    /// It is made, of this size, if it is not there.
    #[arg(long, value_name = "SIZE", value_parser = size::parse_positive)]
    emulated: Option<u64>,
    /// Use no pool: nothing is absorbed
    ///
    /// Every file is as without Forebay, also with --flash alone.
    #[arg(long, conflicts_with_all = ["pool", "emulated"])]
    no_pool: bool,
    #[command(flatten)]
    flash: flash::FlashOptions,
    /// The profile, if the program's name does not say it
    ///
    /// "any" is that of a program whose name says nothing; "generic" the one of --absorb alone.
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Read profiles and patterns from this file (TOML)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Absorb files that match this too; may be given several times
    #[arg(long, value_name = "GLOB")]
    absorb: Vec<String>,
    /// Absorb preallocated logs on the pool's own disk too
    ///
    /// Logs that have their size before they are written (PostgreSQL's, InnoDB's redo log) stay
    /// plain by default where they lie on the disk of the pool, since their own syncs are as fast.
    #[arg(long)]
    absorb_preallocated: bool,
    /// Lay no guard against a start without Forebay (PostgreSQL)
    ///
    /// While a guard lies there, a database without Forebay refuses to start: the pool may hold
    /// acknowledged writes of its files.
    #[arg(long)]
    no_guard: bool,
    /// Segments of the pool to begin with; a run takes more as needed
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    segments: u16,
    /// The front end that sees the program's calls
    ///
    /// "preload" puts a library before a program with the GNU C library. "notify" does the system
    /// calls on logs from outside, for Go, static and musl programs (experimental). "auto" looks at
    /// the program or its interpreter, and announces "notify".
    #[arg(long, value_name = "HOW", value_enum, default_value_t)]
    front_end: FrontEnd,
    #[command(flatten)]
    metrics: MetricsOptions,
    /// Let a program that has an agent lose the right to gain rights
    ///
    /// Without CAP_SYS_ADMIN, a program that is executed by one with the library has an agent only
    /// if it may lose that: nothing that it executes gains rights then, as sudo does.
    #[arg(long)]
    no_new_privs: bool,
    /// At the end, list each file with its writes and syncs
    #[arg(long)]
    explain: bool,
    /// The program and its arguments, best after --
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

impl RunCommand {
    /// Runs it.
    ///
    /// # Errors
    /// [`Failure::Passed`] with the program's status, if that is not 0; and what kept it from
    /// running, or its files from being in order.
    pub fn run(self) -> Result<(), Failure> {
        self.run_on(&RunLayer::default())
    }

    /// True if the outcome of each file is to be told at the end.
    #[must_use]
    pub fn explains(&self) -> bool {
        self.explain
    }

    /// Runs it with a laboratory's layer under it.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_on(&self, layer: &RunLayer) -> Result<(), Failure> {
        let config = match &self.config {
            Some(path) => PolicyConfig::read(path)?,
            None => PolicyConfig::default(),
        };
        let without = self.no_pool || layer.needs_no_pool || self.flash.is_wanted();
        let source = RunPool::of(self.pool.as_deref(), self.emulated, without, &self.command)?;
        let program = RunProgram::find(&self.command)?;
        let metrics = self.metrics.bind()?;
        let flash = self
            .flash
            .prepare(&program, self.profile.as_deref(), &config)?;
        let flash = flash.as_ref();
        let status = match source {
            Some(source) => self.with_pool(&config, &source, &program, layer, (flash, metrics))?,
            None => plainly(&program, layer, (flash, metrics))?,
        };
        if let Some(flash) = flash {
            flash.finish(self.explain);
        }
        match status {
            0 => Ok(()),
            status => Err(Failure::Passed(status)),
        }
    }

    /// Runs the program with its log files absorbed; gives its status.
    fn with_pool(
        &self,
        config: &PolicyConfig,
        source: &RunPool,
        program: &RunProgram,
        layer: &RunLayer,
        (flash, metrics): (Option<&RunCache>, RunMetrics),
    ) -> Result<u8, Failure> {
        let policy = policy::choose(policy::PolicyRequest {
            programs: &program.names(),
            profile: self.profile.as_deref(),
            config,
            absorb: &self.absorb,
        })?;
        let only_library = flash.is_some() || layer.needs_library();
        let choice = program.choose(self.front_end, only_library)?;
        let library = match choice.front_end {
            RunFrontEnd::Library => Some(layer.library.find()?),
            _ => None,
        };
        // A limit on the size of files ends no process of Forebay's.
        forebay_files::ignore_signals();
        resource_limits::check()?;
        let pool = open_recovered(source)?;
        room_for_lane(&pool, self.segments)?;
        announce(&policy, &pool, self.segments);
        announce_holes(&pool);
        announce_memory(&pool);
        announce_neighbours(&pool)?;

        // Before the supervisor's threads start, so that they leave all signals to us.
        let mut signals = Signals::block()?;
        let options = self.supervisor_options(&policy, program, layer, choice.clone())?;
        let supervisor = Supervisor::start(pool, options)?;
        complain!("forebay: {}", explain::outside(supervisor.outside()));
        let has_children = library.is_some() && !only_library && agent::can_be_agent();
        if has_children && self.front_end == FrontEnd::Auto {
            child_agent::serve_children(&supervisor, self.no_new_privs);
        }
        let mut environment = supervisor.environment();
        environment.extend(beside(flash, layer));
        let mut noted = flash.map(RunCache::begin).transpose()?;
        // To the end of all, the drain included.
        let _served = metrics.serve(Some(&supervisor), flash)?;
        let ended = match &library {
            Some(library) => {
                environment.push(preload(library));
                environment.extend(sanitizer::environment(program));
                child::run(program, environment, &mut signals)
            }
            None => {
                agent::announce(&choice.reason);
                agent::run_below(program, environment, &supervisor, &mut signals)
            }
        };
        noted.iter_mut().for_each(NotedRun::end);
        // Whatever is known of the program's end: what it left in the pool goes to its files.
        let outlasted = child::outlast(program, &supervisor, &mut signals);
        // From now on it is the files that are waited for, and no server.
        drop(noted);
        let absorbed = supervisor.finish();
        outlasted?;
        self.report(&policy, absorbed)?;
        ended
    }

    fn supervisor_options(
        &self,
        policy: &AbsorbPolicy,
        program: &RunProgram,
        layer: &RunLayer,
        front_end: FrontEndChoice,
    ) -> Result<SupervisorOptions, Failure> {
        Ok(SupervisorOptions {
            patterns: policy.patterns.clone(),
            preallocated: match self.absorb_preallocated {
                true => Vec::new(),
                false => policy.preallocated.clone(),
            },
            refuse_io_uring: policy.refuse_io_uring,
            guard: policy.guard.clone().filter(|_| !self.no_guard),
            segments: self.segments,
            run_dir: run_dir()?,
            program: program.name().to_string_lossy().into_owned(),
            front_end,
            layer: layer.supervisor.clone(),
        })
    }

    /// Reports the outcome. An error only if acknowledged bytes are not in their files, whatever
    /// the program's status.
    fn report(
        &self,
        policy: &AbsorbPolicy,
        absorbed: Result<SupervisorStatus, forebay_files::FilesError>,
    ) -> Result<(), Failure> {
        let status = absorbed?;
        if status.files.is_empty() {
            complain!("forebay: {}", explain::without_effect(&status));
        }
        if let Some(line) = explain::clean_end(&status) {
            complain!("forebay: {line}");
        }
        if self.explain {
            say(format_args!("{}", explain::summary(policy, &status)));
        }
        Ok(())
    }
}

/// Runs the program with nothing absorbed, since there is no pool; gives its status.
fn plainly(
    program: &RunProgram,
    layer: &RunLayer,
    (flash, metrics): (Option<&RunCache>, RunMetrics),
) -> Result<u8, Failure> {
    let mut environment = beside(flash, layer);
    if !environment.is_empty() {
        program.choose(FrontEnd::Auto, true)?;
        environment.push(preload(&layer.library.find()?));
        environment.extend(sanitizer::environment(program));
    }
    complain!("forebay: no pool: nothing is absorbed");
    let _noted = flash.map(RunCache::begin).transpose()?;
    let mut signals = Signals::block()?;
    let _served = metrics.serve(None, flash)?;
    child::run(program, environment, &mut signals)
}

/// Variables that a flash cache and a layer want in the program's environment.
fn beside(flash: Option<&RunCache>, layer: &RunLayer) -> Vec<(OsString, OsString)> {
    let flash = flash.map(RunCache::environment).unwrap_or_default();
    let layer = layer.environment.iter().cloned();
    flash.into_iter().chain(layer).collect()
}

/// Brings what earlier runs left in the pool to its files.
fn recover_first(pool: &Pool) -> Result<(), Failure> {
    let reports = replay::recover(pool, &RecoverOptions::default())?;
    for line in lanes(&reports) {
        complain!("forebay: {line}");
    }
    if reports.iter().any(is_refused) {
        return Err(Failure::Failed(format!(
            "the pool holds acknowledged writes of an earlier run that cannot be brought to their files as things are, and keeps them. \
             Look at the reasons above, then: forebay recover --pool {0} (or --force to write them nevertheless, or --discard to give them up)",
            pool.path().display()
        )));
    }
    Ok(())
}

/// Refuses a pool that has no room for the run's lane: all files would stay plain.
fn room_for_lane(pool: &Pool, segments: u16) -> Result<(), Failure> {
    let free = pool.segments_free().map_err(Failure::Failed)?;
    if free >= u64::from(segments) {
        return Ok(());
    }
    Err(Failure::Failed(format!(
        "{0} has {free} free segments of {1}, and the run needs {segments}. Make a larger pool, or one of smaller \
         segments (forebay pool create --segment-size), or give fewer with --segments; forebay pool status {0} shows the owners of the others",
        pool.path().display(),
        size::show(pool.geometry().segment_bytes)
    )))
}

fn announce(policy: &AbsorbPolicy, pool: &Pool, segments: u16) {
    complain!(
        "forebay: profile {}, absorbing {} into {}, which {}; {segments} segments of {}",
        policy.profile,
        policy::patterns_in_short(&policy.patterns),
        pool.path().display(),
        pool.durability(),
        size::show(pool.geometry().segment_bytes)
    );
}

/// Opens the pool, with nothing left in it of runs before.
fn open_recovered(source: &RunPool) -> Result<Pool, Failure> {
    let pool = source.open().map_err(resource_limits::beside)?;
    recover_first(&pool)?;
    if !pool.is_elsewhere() {
        return Ok(pool);
    }
    // A pool on legs has one writer: the recovery was it, and the run is next.
    drop(pool);
    source.open()
}

/// Says that a commit may cost more than it has to.
fn announce_holes(pool: &Pool) {
    if let Some(holes) = pool.holes().filter(|bytes| *bytes > 0) {
        let (path, bytes) = (pool.path().display(), pool.geometry().pool_bytes);
        complain!(
            "forebay: {path} has holes of {}: until they are filled, commits cost the file system's own work too, and fail when it is full. \
             Fill them while no program uses the pool: fallocate -l {bytes} {path}",
            size::show(holes)
        );
    }
}

/// Says that a pool which was made as one on a disk lies in memory, under a loop device or a
/// volume.
fn announce_memory(pool: &Pool) {
    let ground = (pool.descriptor())
        .filter(|_| pool.needs_commit() && !pool.is_elsewhere())
        .map(BackingStore::of);
    for what in ground.into_iter().flat_map(|ground| ground.memory) {
        complain!(
            "forebay: {} lies in memory ({what}), so a power cut takes its records, acknowledged writes too. Make another on a disk",
            pool.path().display()
        );
    }
}

/// Says which other runs use the pool. Notes of runs that were killed are removed on the way.
fn announce_neighbours(pool: &Pool) -> Result<(), Failure> {
    let path = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let own = path(pool.path());
    let running = supervisor::status_of_running(&run_dir()?)?;
    for pid in running.silent {
        complain!("forebay: the supervisor {pid} does not answer, and may use the pool too");
    }
    let neighbours: Vec<String> = (running.statuses.into_iter())
        .filter(|status| path(&status.pool) == own)
        .map(|status| format!("{} (forebay {})", status.program, status.pid))
        .collect();
    if !neighbours.is_empty() {
        complain!(
            "forebay: the pool is shared with {}: each run has segments of its own",
            neighbours.join(", ")
        );
    }
    Ok(())
}
