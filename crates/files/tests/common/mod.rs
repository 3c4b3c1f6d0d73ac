//! A laboratory: a pool, a directory, and processes that are killed.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each test file uses a part of it"
)]

mod content;
pub mod disk;
pub mod many_logs;
mod running;

#[allow(unused_imports, reason = "each test file uses a part of it")]
pub use content::content;
pub use running::Running;

use forebay_measure::processes::Watched;
use forebay_pool::{PoolOptions, failpoint};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::Signal,
};
use serde_json::Value;
use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    os::unix::{fs::OpenOptionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::{Duration, Instant, UNIX_EPOCH},
};

const _: () = assert!(failpoint::BUILT_IN, "built without `failpoints`");

pub const SEGMENT: u64 = 64 << 10;
/// Patterns of the files that are absorbed here.
pub const PATTERNS: [&str; 2] = ["*.log", "*.aof"];

pub fn lab() -> PathBuf {
    // target/PROFILE/deps/test → target/PROFILE/examples/lab
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    path.join("examples/lab")
}

pub struct Lab {
    pub home: tempfile::TempDir,
    /// Whose processes they are, if not this one's.
    pub user: Option<u32>,
}

/// After so long a test waits in vain for a sync that is to be held up.
const HELD_WAIT: Duration = Duration::from_secs(60);
/// A user that owns nothing else.
const NOBODY: u32 = 65_534;

impl Lab {
    pub fn new() -> Self {
        // A real disk rather than tmpfs, if the tests are there.
        Self::within(lab().parent().unwrap())
    }

    /// Its processes are an ordinary user's: where the tests are root's, another user's.
    pub fn of_an_ordinary_user() -> Self {
        Self::new().given_to_an_ordinary_user()
    }

    pub fn given_to_an_ordinary_user(mut self) -> Self {
        if rustix::process::geteuid().is_root() {
            self.user = Some(NOBODY);
            self.give_to(NOBODY);
        }
        self
    }

    /// Everything in it belongs to `user`.
    pub fn give_to(&self, user: u32) {
        for path in ["", "pool", "data", "synced", "run", "faults"] {
            let path = self.home.path().join(path);
            std::os::unix::fs::chown(path, Some(user), Some(user)).unwrap();
        }
    }

    pub fn within(directory: &Path) -> Self {
        let home = tempfile::tempdir_in(directory).unwrap();
        let options = PoolOptions::new()
            .size(4 << 20)
            .segment_size(SEGMENT)
            .emulated(true);
        drop(options.create(home.path().join("pool")).unwrap());
        for directory in ["data", "synced", "run", "faults"] {
            fs::create_dir(home.path().join(directory)).unwrap();
        }
        Self { home, user: None }
    }

    /// With a pool on a disk, in an ordinary file.
    pub fn on_disk() -> Self {
        let lab = Self::new();
        fs::remove_file(lab.pool()).unwrap();
        let options = PoolOptions::new()
            .size(4 << 20)
            .segment_size(SEGMENT)
            .on_disk(true);
        drop(options.create(lab.pool()).unwrap());
        lab
    }

    pub fn pool(&self) -> PathBuf {
        self.home.path().join("pool")
    }

    pub fn data(&self, name: &str) -> PathBuf {
        self.home.path().join("data").join(name)
    }

    /// Where it is said what fails: `forebay_pool::failpoint::error`.
    pub fn faults(&self) -> PathBuf {
        self.home.path().join("faults")
    }

    /// The error of syncs.
    pub fn fault_file(&self) -> PathBuf {
        self.faults().join("sync")
    }

    /// The next syncs fail with `errno`, `count` times; `u64::MAX` for all, until this is called
    /// again.
    pub fn inject(&self, errno: i32, count: u64) {
        let how = match count {
            u64::MAX => errno.to_string(),
            _ => format!("{errno} {count}"),
        };
        fs::write(self.fault_file(), how).unwrap();
    }

    pub fn run(&self) -> Running {
        self.run_with(|_| {})
    }

    /// A run whose database has `a.log` open as `a`, and where that is.
    pub fn run_with_log(&self, flags: i32) -> (Running, PathBuf) {
        let (mut run, path) = (self.run(), self.data("a.log"));
        assert_eq!(run.open("a", &path, flags), 1);
        (run, path)
    }

    /// A run whose standard error no process reads.
    pub fn run_unheard(&self) -> Running {
        let mut run = self.run_with(|command| {
            command.stderr(Stdio::piped());
        });
        drop(run.supervisor.stderr.take());
        run
    }

    pub fn run_with(&self, change: impl FnOnce(&mut Command)) -> Running {
        let mut command = self.command();
        command
            .arg("run")
            .arg(self.pool())
            .arg(self.home.path().join("run"))
            .args(PATTERNS)
            .env("FOREBAY_TEST_SYNCED", self.home.path().join("synced"))
            .env("FOREBAY_TEST_FAULTS", self.faults())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0);
        change(&mut command);
        let mut supervisor = command.spawn().unwrap();
        let input = supervisor.stdin.take();
        let mut output = BufReader::new(supervisor.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let database = line.trim().strip_prefix("pid ").unwrap().parse().unwrap();
        Running {
            supervisor,
            input,
            output,
            database,
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(lab());
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        command
    }

    pub fn recover_command(&self, options: &[&str]) -> Command {
        let mut command = self.command();
        command.arg("recover").arg(self.pool()).args(options);
        command
    }

    /// Recovers as if in `boot` (this one, if none): the reports.
    pub fn recover(&self, boot: Option<&str>, options: &[&str]) -> Vec<Value> {
        self.recover_with(boot, options, |_| {})
    }

    /// Recovers as [`recover`](Self::recover) does, with this outcome for the first lane.
    #[track_caller]
    pub fn recover_to(&self, outcome: &str, boot: Option<&str>, options: &[&str]) -> Vec<Value> {
        let reports = self.recover(boot, options);
        assert_eq!(reports[0]["outcome"], outcome, "{reports:?}");
        reports
    }

    pub fn recover_with(
        &self,
        boot: Option<&str>,
        options: &[&str],
        change: impl FnOnce(&mut Command),
    ) -> Vec<Value> {
        let mut command = self.recover_command(options);
        change(&mut command);
        if let Some(boot) = boot {
            command
                .env("FOREBAY_TEST_BOOT_ID", boot)
                .env("FOREBAY_TEST_POOL_SURVIVED", "1");
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// A recovery in another boot with an emulated pool that is nothing but emulated, or one that
    /// has to fail: its reports or its words.
    pub fn recover_really(&self, boot: &str, options: &[&str]) -> Result<Vec<Value>, String> {
        let mut command = self.recover_command(options);
        let output = command.env("FOREBAY_TEST_BOOT_ID", boot).output().unwrap();
        match output.status.success() {
            true => Ok(serde_json::from_slice(&output.stdout).unwrap()),
            false => Err(output_of(&output)),
        }
    }

    /// A recovery that is cut after so many steps; false if it took fewer.
    pub fn cut(&self, boot: Option<&str>, steps: usize) -> bool {
        let mut command = self.recover_command(&[]);
        command.env("FOREBAY_FAILPOINT", format!("replay:step={steps}:die"));
        if let Some(boot) = boot {
            command
                .env("FOREBAY_TEST_BOOT_ID", boot)
                .env("FOREBAY_TEST_POOL_SURVIVED", "1");
        }
        !command.output().unwrap().status.success()
    }

    /// What a power cut does: every absorbed file is put back to what was really synced last.
    pub fn power_cut(&self) {
        for entry in fs::read_dir(self.home.path().join("data")).unwrap() {
            let path = entry.unwrap().path();
            let synced = self.synced(&path);
            if let Ok(file) = fs::File::options().write(true).open(&synced) {
                let times = fs::metadata(&path).unwrap().modified().unwrap();
                file.set_modified(times).unwrap();
                put_back(&synced, &path);
            }
        }
    }

    pub fn synced(&self, path: &Path) -> PathBuf {
        self.home
            .path()
            .join("synced")
            .join(path.strip_prefix("/").unwrap())
    }

    /// The supervisor's syncs of this file wait until the pipe is read ([`held_up`]), as for a disk
    /// that is slow.
    pub fn slow_syncs(&self, path: &Path) -> PathBuf {
        let mut name = self.synced(path).into_os_string();
        name.push(".partial");
        let pipe = PathBuf::from(name);
        fs::create_dir_all(pipe.parent().unwrap()).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        std::os::unix::fs::chown(&pipe, self.user, self.user).unwrap();
        pipe
    }

    /// The label of the only lane.
    pub fn label(&self) -> String {
        let lanes = PoolOptions::new().open(self.pool()).unwrap().lanes();
        lanes[0].label.clone()
    }

    /// Lanes that are taken in the pool.
    pub fn lanes(&self) -> usize {
        PoolOptions::new().open(self.pool()).unwrap().lanes().len()
    }
}

/// The file has these contents, one behind the other: seed and bytes of each.
#[track_caller]
pub fn holds(path: &Path, parts: &[(u64, usize)]) {
    let expected: Vec<u8> = (parts.iter())
        .flat_map(|&(seed, bytes)| content(seed, bytes))
        .collect();
    let found = fs::read(path).unwrap();
    let same = found.iter().zip(&expected).take_while(|(a, b)| a == b);
    let (same, path) = (same.count(), path.display());
    assert!(
        found == expected,
        "{path} has {} bytes instead of {}, of which the first {same} are the same",
        found.len(),
        expected.len()
    );
}

/// Returns when the supervisor has all of a file that it is to copy, which is more than a pipe
/// takes, and waits for the other end to be read: that.
pub fn held_up(pipe: &Path) -> File {
    let open = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(pipe)
        .unwrap();
    let limit = Timespec::try_from(HELD_WAIT).unwrap();
    let is_there = poll(&mut [PollFd::new(&open, PollFlags::IN)], Some(&limit));
    assert_eq!(is_there, Ok(1), "nothing is copied");
    open
}

/// Until `done` says so, or too long.
pub fn eventually(mut done: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(120) {
        if done() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

pub fn kill(process: &Watched) {
    process.signal(Signal::KILL);
    assert!(process.wait_gone(Duration::from_secs(60)));
}

/// Deterministic random numbers.
pub struct Rng(pub u64);

impl Rng {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

pub fn seed() -> u64 {
    let seed = std::env::var("FOREBAY_SEED").map_or_else(
        |_| u64::from(UNIX_EPOCH.elapsed().unwrap().subsec_nanos()),
        |seed| seed.parse().unwrap(),
    );
    println!("FOREBAY_SEED={seed}");
    seed
}

pub fn output_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Copies a program, by one of its own: had this process the copy open for writing, a child that
/// another thread starts at that moment would have so, too, and the copy could not be executed.
pub fn copy(program: &str, to: &Path) {
    let copied = Command::new("cp").arg(program).arg(to).status().unwrap();
    assert!(copied.success());
}

/// Puts what `from` has, and its time, into the file `to`, which stays the same: by another
/// program, as [`copy`] does it. A child of this one that had it open for writing would keep a
/// recovery from a lease on it.
pub fn put_back(from: &Path, to: &Path) {
    let mut copy = Command::new("cp");
    copy.arg("--preserve=timestamps").args([from, to]);
    assert!(copy.status().unwrap().success());
}

/// Runs a command: what it said, if it failed.
pub fn succeed(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|e| e.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(output_of(&output)),
    }
}
