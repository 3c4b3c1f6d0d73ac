//! A PostgreSQL server under `forebay run`, and what must be true after a crash.

use super::{
    Sandbox,
    cut::Database,
    databases::{PATIENCE, forebay_run},
    disk::Disk,
    skip,
    writers::{self, Writer},
};
use forebay_bench::{
    BenchError,
    postgres::{
        Postgres,
        client::Connection,
        server::{self, Launch, Server},
    },
    processes::Watched,
    scratch::ScratchPool,
    sql::Client,
};
use rustix::process::Signal;
use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

/// The ways in which PostgreSQL makes its log durable.
pub const SYNC_METHODS: [&str; 4] = ["fdatasync", "fsync", "open_datasync", "open_sync"];

/// A server in `dir` under forebay with `pool`, which becomes the server's user's; none without
/// PostgreSQL. Its segments are small, so that it begins and recycles many.
pub fn launch(dir: &Path, pool: &ScratchPool) -> Option<Launch> {
    if let Some(missing) = server::lacking() {
        skip(&missing);
        return None;
    }
    Some(launch_of(Launch::new(dir).unwrap(), pool))
}

/// As [`launch`], on a disk that is to be cut. Its run directory lies in the sandbox, which its
/// user may reach.
pub fn launch_on(disk: &Disk, sandbox: &Sandbox, pool: &ScratchPool) -> Option<Launch> {
    sandbox.let_in();
    let mut launch = launch(&disk.at.join("postgres"), pool)?;
    let run = sandbox.file("run");
    fs::create_dir(&run).unwrap();
    if let Some(user) = &launch.user {
        user.give(&run).unwrap();
    }
    let run_dir = ("FOREBAY_RUN_DIR".into(), run.into());
    launch.environment.push(run_dir);
    Some(launch)
}

/// As [`launch`], of whatever PostgreSQL `launch` is.
pub fn launch_of(mut launch: Launch, pool: &ScratchPool) -> Launch {
    if !launch.data().exists() {
        server::create(&launch, &["--data-checksums", "--wal-segsize=1"]).unwrap();
    }
    if let Some(user) = &launch.user {
        user.check_reaches(Path::new(super::FOREBAY)).unwrap();
        user.give(pool.path().parent().unwrap()).unwrap();
    }
    launch.wrapper = forebay_run(pool.path());
    launch.environment = vec![("FOREBAY_RUN_DIR".into(), launch.dir.join("run").into())];
    launch.options = [
        "max_wal_size=8MB",
        "min_wal_size=4MB",
        "shared_buffers=16MB",
        // What killed servers leave goes with their directories.
        "dynamic_shared_memory_type=mmap",
    ]
    .map(str::to_owned)
    .to_vec();
    launch
}

/// As [`launch`], in a sandbox.
pub fn launch_in(sandbox: &Sandbox, pool: &ScratchPool) -> Option<Launch> {
    sandbox.let_in();
    launch(&sandbox.file("postgres"), pool)
}

/// Sets a setting, or sets it anew.
pub fn set(launch: &mut Launch, name: &str, value: &str) {
    let ours = format!("{name}=");
    launch.options.retain(|setting| !setting.starts_with(&ours));
    launch.options.push(ours + value);
}

/// Makes the table that [`Writer`]s write to.
pub fn make_table(server: &Server) {
    let made = format!(
        "CREATE EXTENSION amcheck; CREATE SCHEMA ledger; CREATE TABLE {}",
        writers::TABLE
    );
    server.sql(&made).unwrap();
}

/// Has the writers write until so many more transactions are acknowledged.
pub fn write_some(server: &Server, writers: &mut [Writer], transactions: u64) {
    writers::write_some::<Connection>(server.socket(), writers, transactions);
}

/// Everything that was acknowledged is in the table, each transaction whole; at most one more of
/// each writer; table and index are sound. From now on what was found counts as acknowledged.
#[track_caller]
pub fn check(server: &Server, writers: &mut [Writer]) {
    faults(server, writers).unwrap();
}

/// As [`check`]: what is wrong.
pub fn faults(server: &Server, writers: &mut [Writer]) -> Result<(), String> {
    let mut connection = Connection::connect(server.socket()).map_err(|e| e.to_string())?;
    let found = writers::found(&mut connection).map_err(|e| e.to_string())?;
    writers::compare(&found, writers)?;
    let index = "SELECT bt_index_check('ledger.t_pkey', heapallindexed => true)";
    connection.query(index).map_err(|e| e.to_string())?;
    let damaged = connection.query("SELECT blkno, msg FROM verify_heapam('ledger.t')");
    match damaged.map_err(|e| e.to_string())?.len() {
        0 => Ok(()),
        damaged => Err(format!("the table is damaged in {damaged} places")),
    }
}

/// The server's processes: those whose working directory is the data directory.
pub fn processes(launch: &Launch) -> Vec<Watched> {
    let data = launch.data().canonicalize().unwrap();
    let numbers = fs::read_dir("/proc").unwrap().flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    numbers
        .filter(|number| fs::read_link(format!("/proc/{number}/cwd")).is_ok_and(|dir| dir == data))
        .filter_map(|number| Watched::of(number).ok())
        .collect()
}

/// Waits until no process of the server is left, and the table of processes has neither one of
/// `them` nor the postmaster any more. A server takes a number that is in use for another server.
/// One that is dying already has no working directory to be found by, so the postmaster may not be
/// among `them`. What we started ourselves is there until we ask for its end.
#[track_caller]
pub fn wait_gone(server: &Server, them: &[Watched]) {
    let begun = Instant::now();
    let is_there = |pid| pid != server.outer().pid() && Path::new(&format!("/proc/{pid}")).exists();
    let is_any_there =
        || is_there(server.server().pid()) || them.iter().any(|one| is_there(one.pid()));
    while is_any_there() || !processes(server.launch()).is_empty() {
        assert!(begun.elapsed() < PATIENCE, "processes of the server stay");
        thread::sleep(Duration::from_millis(5));
    }
}

/// The process of the server that serves the client of this connection.
pub fn backend(connection: &mut Connection) -> Watched {
    let rows = connection.query("SELECT pg_backend_pid()").unwrap();
    let number = String::from_utf8(rows[0][0].clone().unwrap()).unwrap();
    Watched::of(number.parse().unwrap()).unwrap()
}

/// Segments of the log that `--explain` lists in the end, with the writes and syncs that were
/// absorbed, and those that are not absorbed to the end.
#[derive(Debug, Default)]
pub struct Segments {
    pub absorbed: usize,
    pub writes: u64,
    pub plain: Vec<String>,
}

impl Segments {
    /// Out of what forebay printed.
    pub fn of(output: &str) -> Self {
        let mut segments = Self::default();
        let listed = output
            .lines()
            .skip_while(|line| !line.starts_with("absorbed what was written by"));
        for line in listed.filter(|line| line.contains("/pg_wal/")) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let writes = words.get(1).map(|word| word.replace(',', ""));
            let writes: Option<u64> = writes.and_then(|number| number.parse().ok());
            match (writes, words.last()) {
                (Some(writes), Some(&"absorbed")) => {
                    segments.absorbed += 1;
                    segments.writes += writes;
                }
                _ => segments.plain.push(line.trim().to_owned()),
            }
        }
        segments
    }
}

/// Runs forebay itself with these words as the server's user.
pub fn forebay(launch: &Launch, words: &[&str]) -> super::Ran {
    let mut command = launch.command(&[], Path::new(super::FOREBAY));
    super::Ran::of(command.args(words).output().unwrap())
}

/// Who is killed, with SIGKILL, or told to end at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strike {
    /// The process that started all others, which end when they notice.
    Postmaster,
    /// The supervisor. The server goes on, with real syncs, and is killed later.
    Supervisor,
    /// All processes of the server at once.
    Server,
    /// All of them, and the supervisor.
    All,
    /// The server ends at once, without a checkpoint (an immediate shutdown).
    Immediate,
}

/// Each in turn.
pub const STRIKES: [Strike; 5] = [
    Strike::Postmaster,
    Strike::All,
    Strike::Supervisor,
    Strike::Server,
    Strike::Immediate,
];

impl Strike {
    /// Strikes. `meanwhile` is called between the supervisor's death and the server's.
    pub fn strike(self, server: &Server, meanwhile: impl FnOnce()) {
        let kill = |all: &[Watched]| all.iter().for_each(|one| one.signal(Signal::KILL));
        let all = processes(server.launch());
        match self {
            Self::Postmaster => server.server().signal(Signal::KILL),
            Self::Immediate => server.server().signal(Signal::QUIT),
            Self::Server => kill(&all),
            Self::All => {
                server.outer().signal(Signal::KILL);
                kill(&all);
            }
            Self::Supervisor => {
                server.outer().signal(Signal::KILL);
                assert!(server.outer().wait_gone(PATIENCE));
                meanwhile();
                let ended = server.server().wait_gone(Duration::ZERO);
                kill(&processes(server.launch()));
                assert!(!ended, "the server ended with its supervisor");
            }
        }
        assert!(server.server().wait_gone(PATIENCE));
        wait_gone(server, &all);
    }
}

impl Database for Postgres {
    type Client = Connection;

    fn start(launch: &Launch) -> Result<Server, BenchError> {
        Server::start(launch)
    }

    fn make_table(server: &Server) {
        make_table(server);
    }

    fn kill(server: &Server) {
        Strike::All.strike(server, || {});
    }

    fn faults(server: &Server, writers: &mut [Writer]) -> Result<(), String> {
        faults(server, writers)
    }
}
