//! A directory of a test's own, and the program run in it. The laboratory's tests have it too, for
//! its program.

use std::{
    ffi::OsString,
    fs,
    io::Write,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};
use tempfile::TempDir;

/// A directory in which the program is run.
pub struct Sandbox {
    dir: TempDir,
}

/// What is mounted in it is not any more: or it could not be removed, and what is mounted may be
/// another's that lives a little longer.
impl Drop for Sandbox {
    fn drop(&mut self) {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let places = mounts.lines().filter_map(|line| line.split(' ').nth(1));
        for place in places.filter(|place| Path::new(place).starts_with(self.dir.path())) {
            let _ = Command::new("umount").args(["-l", place]).output();
        }
    }
}

/// What a run of the program left behind.
pub struct Ran {
    pub stdout: Vec<u8>,
    pub stderr: String,
    pub code: Option<i32>,
}

impl Ran {
    pub fn of(output: Output) -> Self {
        Self {
            stdout: output.stdout,
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            code: output.status.code(),
        }
    }

    /// The line of standard error that has this in it.
    #[track_caller]
    pub fn told(&self, what: &str) -> &str {
        let told = self.stderr.lines().find(|line| line.contains(what));
        told.unwrap_or_else(|| panic!("{what:?} is not in: {}", self.stderr))
    }

    /// Standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8(self.stdout.clone()).unwrap()
    }

    /// Standard output as JSON, which is all there is on it.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.stdout).unwrap_or_else(|e| panic!("{e} in {}", self.text()))
    }

    /// The run succeeded.
    #[track_caller]
    pub fn ok(self) -> Self {
        assert_eq!(
            self.code,
            Some(0),
            "stderr: {}\nstdout: {}",
            self.stderr,
            self.text()
        );
        self
    }

    /// The run failed with `code`, and its message has all of `words`.
    #[track_caller]
    pub fn fails(self, code: i32, words: &[&str]) -> Self {
        assert_eq!(
            self.code,
            Some(code),
            "stderr: {}\nstdout: {}",
            self.stderr,
            self.text()
        );
        for word in words {
            assert!(
                self.stderr.contains(word),
                "{word:?} is not in: {}",
                self.stderr
            );
        }
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        self
    }
}

/// True if the tests' pools are to lie on a disk instead of in memory (`make test-long` runs some
/// of them so).
pub fn pools_on_disk() -> bool {
    std::env::var_os("FOREBAY_TEST_POOLS").is_some_and(|where_| where_ == "disk")
}

impl Sandbox {
    pub fn new() -> Self {
        if pools_on_disk() {
            return Self::on_disk();
        }
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    /// One where the tests are, which is more often a real disk than the directory of temporary
    /// files.
    pub fn on_disk() -> Self {
        Self {
            dir: TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap(),
        }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Lets other users pass through it to what is theirs in it.
    pub fn let_in(&self) {
        fs::set_permissions(self.path(), fs::Permissions::from_mode(0o711)).unwrap();
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Where it is said what fails: `forebay_pool::failpoint::error`.
    pub fn faults(&self) -> PathBuf {
        let faults = self.file("faults");
        fs::create_dir_all(&faults).unwrap();
        faults
    }

    /// From now on calls of this name fail with `EIO`.
    pub fn fail(&self, call: &str) {
        fs::write(self.faults().join(call), "5").unwrap();
    }

    /// They fail no more.
    pub fn mend(&self, call: &str) {
        fs::remove_file(self.faults().join(call)).unwrap();
    }

    /// The program with the words of `line` as arguments, about to be run.
    pub fn command(&self, line: &str) -> Command {
        let makes_pool = line.starts_with("pool create");
        let words = line.split_whitespace().map(|word| match word {
            "--emulated" if makes_pool && pools_on_disk() => "--disk",
            word => word,
        });
        let mut command = Command::new(super::FOREBAY);
        command.args(words).current_dir(self.path());
        command
    }

    /// Recovers a pool in this environment.
    #[track_caller]
    pub fn recover(&self, pool: &Path, environment: &[(OsString, OsString)]) -> Output {
        let mut command = self.command("recover --pool");
        let environment = environment.iter().cloned();
        let recovered = command.arg(pool).envs(environment).output().unwrap();
        assert!(recovered.status.success(), "{recovered:?}");
        recovered
    }

    /// Runs the program with the words of `line` as arguments.
    pub fn run(&self, line: &str) -> Ran {
        Ran::of(self.command(line).stdin(Stdio::null()).output().unwrap())
    }

    /// What it prints for `line`, with which it succeeds, as JSON.
    #[track_caller]
    pub fn json(&self, line: &str) -> serde_json::Value {
        self.run(line).ok().json()
    }

    /// Each of these lines fails with its code and a message that has all of its words.
    #[track_caller]
    pub fn refuses(&self, lines: &[(&str, i32, &[&str])]) {
        for (line, code, words) in lines {
            self.run(line).fails(*code, words);
        }
    }

    /// Runs it with something on standard input.
    pub fn feed(&self, line: &str, input: &[u8]) -> Ran {
        let mut child = self
            .command(line)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A program that stops reading is what some tests are about.
        drop(child.stdin.take().unwrap().write_all(input));
        Ran::of(child.wait_with_output().unwrap())
    }

    /// An emulated pool `p`, large enough for two stores.
    pub fn pool(&self) {
        self.run("pool create p --emulated --size 6MiB --segment-size 1MiB --lanes 4")
            .ok();
    }

    /// Every file below the directory `name` with its contents, to compare.
    pub fn contents(&self, name: &str) -> Vec<(PathBuf, Vec<u8>)> {
        let mut files = Vec::new();
        collect(&self.file(name), &mut files);
        files.sort();
        files
    }

    /// Changes a file's bytes.
    pub fn edit(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let path = self.file(name);
        let mut bytes = fs::read(&path).unwrap();
        change(&mut bytes);
        fs::write(&path, bytes).unwrap();
    }
}

/// Files at the start of which enough stands to notice a change; value-log files are preallocated.
const COMPARED_BYTES: usize = 4 << 20;

fn collect(path: &Path, files: &mut Vec<(PathBuf, Vec<u8>)>) {
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            collect(&entry.unwrap().path(), files);
        }
    } else if path.is_file() {
        use std::io::Read;
        let mut bytes = Vec::new();
        let file = fs::File::open(path).unwrap();
        file.take(COMPARED_BYTES as u64)
            .read_to_end(&mut bytes)
            .unwrap();
        files.push((path.to_owned(), bytes));
    }
}
