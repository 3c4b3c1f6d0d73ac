//! Databases under `forebay run` that are killed: how they are started, struck, and compared with
//! what they acknowledged.

use super::{FOREBAY, Sandbox, pools_on_disk, skip};
use forebay_bench::{
    data::{Random, fresh_seed},
    processes::{Handle, Process, Watched, kill_group},
    scratch::{PoolSource, ScratchPool},
};
use forebay_pool::PoolOptions;
use rustix::process::{Pid, Signal, kill_process_group};
use std::{
    ffi::{OsStr, OsString},
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

/// Longer than anything takes here.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A process and all that it starts: a supervisor, an agent, a database. All of them are killed
/// when this is dropped, since a database goes on without its supervisor.
pub struct ProcessGroup {
    first: Process,
    is_gone: bool,
}

impl ProcessGroup {
    /// Starts it.
    pub fn start(command: &mut Command) -> Self {
        Self {
            first: Process::spawn(command.process_group(0)).unwrap(),
            is_gone: false,
        }
    }

    /// Has the first one end by `signal`, which it passes on, and waits for the end of all.
    pub fn end(mut self, signal: Signal) -> ExitStatus {
        self.first.handle().signal(signal);
        let status = self.first.wait(PATIENCE).unwrap();
        self.kill();
        status
    }

    /// True if the first one has ended.
    pub fn has_ended(&mut self) -> bool {
        self.first.ended().is_some()
    }

    /// The first one's process id.
    pub fn pid(&self) -> i32 {
        self.first.handle().pid()
    }

    /// Waits until the first one has ended. The others may go on.
    pub fn outlast(&mut self) -> ExitStatus {
        self.first.wait(PATIENCE).unwrap()
    }

    /// Stops all of them: see [`stop_group`].
    pub fn stop(&self) {
        stop_group(self.pid());
    }

    /// Kills all of them at once, and waits until they are gone.
    pub fn kill(&mut self) {
        if !std::mem::replace(&mut self.is_gone, true) {
            let group = Pid::from_raw(self.first.handle().pid());
            let is_gone = group.is_some_and(kill_group) && self.first.wait(PATIENCE).is_ok();
            assert!(is_gone || thread::panicking(), "it does not end");
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Stops all processes of a group, and waits until none of their threads is in its own code. One
/// may be in a call of the kernel that no signal interrupts: it stops before it comes back. So a
/// disk that is cut off then refuses them nothing, as a machine without power does not.
pub fn stop_group(group: i32) {
    kill_process_group(Pid::from_raw(group).unwrap(), Signal::STOP).unwrap();
    let begun = Instant::now();
    while !thread_states(group).iter().all(|it| "TtDZX".contains(*it)) {
        assert!(begun.elapsed() < PATIENCE, "it does not stop");
        thread::sleep(Duration::from_millis(1));
    }
}

/// What the threads of a process group are at, by the letters of proc(5).
fn thread_states(group: i32) -> Vec<char> {
    let entries = |path: PathBuf| fs::read_dir(path).into_iter().flatten().flatten();
    let processes = entries("/proc".into()).filter(|it| it.path().join("task").exists());
    let threads = processes.flat_map(|it| entries(it.path().join("task")));
    let state = |thread: fs::DirEntry| {
        let stat = fs::read_to_string(thread.path().join("stat")).ok()?;
        // NUMBER (NAME) STATE PARENT GROUP …
        let (_, fields) = stat.rsplit_once(") ")?;
        let mut fields = fields.split(' ');
        let state = fields.next()?.chars().next()?;
        (fields.nth(1)?.parse() == Ok(group)).then_some(state)
    };
    threads.filter_map(state).collect()
}

/// A pool of several small segments, removed in the end.
pub fn small_pool() -> ScratchPool {
    if pools_on_disk() {
        return on_disk(12, 256 << 10);
    }
    ScratchPool::new(&PoolSource::Emulated, 12, 256 << 10).unwrap()
}

/// The same on a disk, in a directory of files that are written anew by every run of the tests.
fn on_disk(segments: u64, segment_bytes: u64) -> ScratchPool {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let name = format!("pool-{}-{}", std::process::id(), MADE.fetch_add(1, Relaxed));
    // Of its own: it is given to the server's user.
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    drop(fs::remove_dir_all(&dir));
    fs::create_dir(&dir).unwrap();
    let path = dir.join("pool");
    let options = PoolOptions::new()
        .size((segments + 1) * segment_bytes)
        .segment_size(segment_bytes)
        .lanes(4)
        .on_disk(true);
    drop(options.create(&path).unwrap());
    ScratchPool::new(&PoolSource::At(path), 0, 0).unwrap()
}

/// Builds the program that keeps a LevelDB database; none without the library.
pub fn leveldb(sandbox: &Sandbox) -> Option<PathBuf> {
    if !Path::new("/usr/include/leveldb/c.h").exists() {
        skip("libleveldb-dev is not installed");
        return None;
    }
    let program = sandbox.file("leveldb");
    let built = Command::new("cc")
        .args(["-O1", "-Wall", "-o"])
        .arg(&program)
        .arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/programs/leveldb.c"
        ))
        .arg("-lleveldb")
        .status()
        .unwrap();
    assert!(built.success());
    Some(program)
}

/// What stands before a command so that it runs under forebay with `pool`.
pub fn forebay_run(pool: &Path) -> Vec<OsString> {
    let words = ["run", "--explain", "--pool"].map(OsString::from);
    let mut line = vec![OsString::from(FOREBAY)];
    line.extend(words);
    line.push(pool.into());
    // The tests' data may lie on the same disk.
    line.extend(pools_on_disk().then(|| "--absorb-preallocated".into()));
    line.push("--".into());
    line
}

/// Every start with this environment believes that the machine was booted anew, and that the pool,
/// which is emulated, survived it.
pub fn boot_anew(environment: &mut Vec<(OsString, OsString)>, number: usize) {
    let ours = ["FOREBAY_TEST_BOOT_ID", "FOREBAY_TEST_POOL_SURVIVED"];
    environment.retain(|(name, _)| !ours.iter().any(|our| *name == **our));
    let boot = format!("00000000-0000-4000-8000-{number:012}");
    environment.extend([(ours[0].into(), boot.into()), (ours[1].into(), "1".into())]);
}

/// The lines of `--explain` of a file whose name ends so: its name, writes, bytes, syncs and state.
pub fn explained(output: &str, name: &str) -> Option<Vec<String>> {
    let line = output.lines().find(|line| {
        let mut words = line.split_whitespace();
        words.next().is_some_and(|path| path.ends_with(name)) && words.next().is_some()
    })?;
    Some(line.split_whitespace().map(str::to_owned).collect())
}

/// The writes that `--explain` says were absorbed of such a file; 0 if it was not absorbed.
pub fn absorbed_writes(output: &str, name: &str) -> u64 {
    let Some(words) = explained(output, name) else {
        return 0;
    };
    let is_absorbed = words.last().is_some_and(|state| state == "absorbed");
    let writes = words
        .get(1)
        .and_then(|number| number.replace(',', "").parse().ok());
    writes.filter(|_| is_absorbed).unwrap_or(0)
}

/// The random numbers of a test: those of `FOREBAY_SEED` if it is set. Says which.
pub fn random(test: &str) -> Random {
    let seed =
        std::env::var("FOREBAY_SEED").map_or_else(|_| fresh_seed(), |seed| seed.parse().unwrap());
    println!("{test}: FOREBAY_SEED={seed}");
    Random::new(seed)
}

/// A moment to strike at, up to `ms_max` from now.
pub fn moment(random: &mut Random, ms_max: u64) -> Duration {
    Duration::from_millis(random.below(ms_max))
}

/// Whom a strike kills, with SIGKILL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strike {
    /// The database. Its supervisor drains and ends with status 137.
    Database,
    /// The supervisor. The database goes on, with real syncs, and is killed later.
    Supervisor,
    /// Both at once.
    Both,
}

impl Strike {
    /// Each in turn.
    pub fn number(n: usize) -> Self {
        [Self::Database, Self::Supervisor, Self::Both][n % 3]
    }

    /// Kills. `meanwhile` is called between the supervisor's death and the database's.
    pub fn strike(self, database: &Watched, supervisor: &Watched, meanwhile: impl FnOnce()) {
        match self {
            Self::Database => database.signal(Signal::KILL),
            Self::Supervisor => {
                supervisor.signal(Signal::KILL);
                assert!(supervisor.wait_gone(PATIENCE));
                meanwhile();
                assert!(
                    !database.wait_gone(Duration::ZERO),
                    "the database ended with its supervisor"
                );
                database.signal(Signal::KILL);
            }
            Self::Both => {
                supervisor.signal(Signal::KILL);
                database.signal(Signal::KILL);
            }
        }
        assert!(database.wait_gone(PATIENCE));
    }

    /// What the supervisor's end must look like.
    #[track_caller]
    pub fn check(self, status: ExitStatus) {
        match self {
            Self::Database => assert_eq!(status.code(), Some(137), "{status}"),
            Self::Supervisor | Self::Both => assert_eq!(status.code(), None, "{status}"),
        }
    }
}

/// Waits until more is `acknowledged` than there was, by a database whose supervisor is gone. False
/// if nothing is for as long as the slowest disk takes to sync.
pub fn goes_on(acknowledged: &AtomicU64) -> bool {
    const EACH: Duration = Duration::from_millis(10);
    // What was on its way when the supervisor died does not count.
    thread::sleep(EACH);
    let before = acknowledged.load(Relaxed);
    let begun = Instant::now();
    while acknowledged.load(Relaxed) < before + 10 {
        if begun.elapsed() >= PATIENCE {
            return false;
        }
        thread::sleep(EACH);
    }
    true
}

/// A program under forebay that is told things on its standard input and answers on its standard
/// output.
pub struct Spoken {
    process: Process,
    database: Handle,
    answers: BufReader<std::process::ChildStdout>,
}

impl Spoken {
    /// Starts `program` with `arguments`, in `dir`, under forebay with `options`.
    pub fn start(
        pool: &Path,
        dir: &Path,
        options: &[&str],
        program: &OsStr,
        arguments: &[&OsStr],
    ) -> Self {
        let line = forebay_run(pool);
        let mut process = Process::spawn(
            Command::new(&line[0])
                .args(&line[1..line.len() - 1])
                .args(options)
                .arg("--")
                .arg(program)
                .args(arguments)
                .current_dir(dir)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::inherit()),
        )
        .unwrap();
        let answers = BufReader::new(process.child().stdout.take().unwrap());
        let database = process
            .first_child(PATIENCE)
            .expect("the program did not start");
        Self {
            process,
            database,
            answers,
        }
    }

    /// Says a line. It may have been killed.
    pub fn say(&mut self, line: &str) {
        let input = self.process.child().stdin.as_mut().unwrap();
        drop(writeln!(input, "{line}"));
    }

    /// Its next line; none if it has ended.
    pub fn answer(&mut self) -> Option<String> {
        let mut line = String::new();
        match self.answers.read_line(&mut line) {
            Ok(0) | Err(_) => None,
            // What was cut off was not said.
            Ok(_) => line.strip_suffix('\n').map(str::to_owned),
        }
    }

    /// The two processes: database and supervisor.
    pub fn both(&self) -> (Watched, Watched) {
        (
            Watched::clone(&self.database),
            Watched::clone(self.process.handle()),
        )
    }

    /// Waits for its end after it was killed. What it still had to say has been said.
    pub fn wait(mut self) -> ExitStatus {
        let status = self.process.wait(PATIENCE).unwrap();
        assert!(self.database.wait_gone(PATIENCE));
        status
    }
}
