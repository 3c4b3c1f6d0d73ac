//! `forebay status` of unusual runs: those whose note is gone, that lost their supervisor, that
//! left records, and that absorb nothing. And the run's own words in that case.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{FOREBAY, Ran, Sandbox};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::{fs::chown, process::CommandExt},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

const NOBODY: u32 = 65534;

/// Begins a program: `log(name)` writes to a log and syncs it; `status()` is what the command says,
/// with its exit status.
const BEGIN: &str = r#"
import ctypes, os, shutil, signal, subprocess, sys, time
def log(name, flags=0):
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | flags, 0o600)
    written(fd)
    return fd
def written(fd):
    os.write(fd, b"x" * 100)
    os.fdatasync(fd)
def status(named=True):
    environment = dict(os.environ)
    if not named:
        del environment["FOREBAY_RUN_DIR"]
    ran = subprocess.run([os.environ["FOREBAY"], "status"], capture_output=True, text=True, env=environment)
    return ran.returncode, ran.stdout + ran.stderr
"#;

/// A run of such a program, with a small pool.
struct World(Sandbox);

impl World {
    fn new() -> Self {
        let sandbox = Sandbox::new();
        sandbox.pool();
        Self(sandbox)
    }

    fn forebay(&self, line: &str) -> Command {
        let mut command = self.0.command(line);
        command
            .env("FOREBAY", FOREBAY)
            .env("FOREBAY_TEST_FAULTS", self.0.faults())
            .env("FOREBAY_RUN_DIR", self.0.file("run"));
        command
    }

    /// The program, by way of `before`.
    fn python(&self, options: &str, before: &str, script: &str) -> Command {
        let line = format!("run --pool p --absorb *.log {options} -- {before} python3 -c");
        let mut command = self.forebay(&line);
        command.arg(format!("{BEGIN}{script}"));
        command
    }

    fn run(&self, script: &str) -> Ran {
        Ran::of(self.python("--explain", "", script).output().unwrap())
    }

    fn status(&self) -> Ran {
        Ran::of(self.forebay("status").output().unwrap())
    }

    /// Begins one, and returns when it says that it is ready.
    fn begin(&self, before: &str, script: &str) -> Child {
        let script = format!("{script}\nopen('ready', 'w').close()\ntime.sleep(60)");
        let mut command = self.python("", before, &script);
        // A run's own output may go to a file that a pattern names.
        let output = fs::File::create(self.0.file("output.log")).unwrap();
        let child = command.stdout(output).stderr(Stdio::piped());
        let child = child.spawn().unwrap();
        self.until("ready", || self.0.file("ready").exists());
        child
    }

    fn until(&self, what: &str, is_so: impl Fn() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < Duration::from_secs(60), "never {what}");
            thread::sleep(Duration::from_millis(50));
        }
    }
}

fn kill(pid: u32) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
}

/// A child of a process.
fn child_of(pid: u32) -> u32 {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    children.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn run_is_found_whatever_was_removed_of_what_it_left() {
    let ran = World::new().run(
        r#"
log("a.log")
for gone in (lambda: None, lambda: shutil.rmtree(os.environ["FOREBAY_RUN_DIR"]), lambda: os.unlink(os.environ["FOREBAY_TABLE"])):
    gone()
    for named in (True, False):
        code, said = status(named)
        assert os.getcwd() + "/a.log" in said, said
        assert "nothing runs" not in said, said
        assert not named or code == 0, said
"#,
    );
    ran.ok();
}

/// `$XDG_RUNTIME_DIR` is gone, and named no more.
#[test]
fn run_is_found_after_the_logout_that_took_its_directory() {
    let world = World::new();
    let (session, program) = (world.0.file("session"), world.0.file("forebay"));
    fs::create_dir(&session).unwrap();
    // Other users may not reach the tests' own program and library.
    common::copy_forebay(world.0.path());
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        for place in [world.0.path(), &session, &world.0.file("p")] {
            chown(place, Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }
    let own = |words: &[&str]| {
        let mut command = Command::new(&program);
        command.args(words).current_dir(world.0.path());
        command
            .env_remove("FOREBAY_RUN_DIR")
            .env_remove("XDG_RUNTIME_DIR");
        if is_root {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    };
    let script = format!("{BEGIN}log('a.log')\nopen('ready', 'w').close()\ntime.sleep(60)");
    let words = [
        "run", "--pool", "p", "--absorb", "*.log", "--", "python3", "-c", &script,
    ];
    let mut run = own(&words)
        .env("XDG_RUNTIME_DIR", &session)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    world.until("ready", || world.0.file("ready").exists());
    assert!(fs::read_dir(session.join("forebay")).unwrap().count() > 0);
    fs::remove_dir_all(&session).unwrap();
    let said = Ran::of(own(&["status"]).output().unwrap()).text();
    kill(child_of(run.id()));
    run.wait().unwrap();
    assert!(
        said.contains(world.0.file("a.log").to_str().unwrap()),
        "{said}"
    );
}

#[test]
fn watched_status_says_in_a_pipe_what_a_second_brought() {
    let world = World::new();
    let script = r#"
import threading
fd = log("a.log")
def go_on():
    while True:
        written(fd)
        time.sleep(0.005)
threading.Thread(target=go_on, daemon=True).start()
"#;
    let mut run = world.begin("", script);
    let json = Ran::of(world.forebay("status --json").output().unwrap());
    let json = json.ok().json();
    let persistence = match common::pools_on_disk() {
        true => "power_cut_once_committed",
        false => "process_crash",
    };
    assert_eq!(json[0]["persistence"], persistence, "{json}");
    assert!(
        json[0]["survives"].as_str().unwrap().contains(' '),
        "{json}"
    );
    assert!(json[0].get("rates").is_none(), "{json}");
    let mut watch = world.forebay("status --watch");
    let mut watch = watch.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let lines = lines.map(Result::unwrap).inspect(|line| {
        assert!(!line.contains('\x1b'), "{line:?}");
    });
    let mut rates = lines.filter(|line| line.starts_with("a second: "));
    let line = rates.next().unwrap();
    watch.kill().unwrap();
    watch.wait().unwrap();
    assert!(!line.contains(" 0 writes"), "{line}");
    assert!(line.contains(" syncs saved, "), "{line}");
    kill(child_of(run.id()));
    run.wait().unwrap();
}

#[test]
fn run_without_its_supervisor_and_what_it_leaves_are_told() {
    let world = World::new();
    // Nothing of it comes to its file.
    let script = "fd = log('a.log')\nopen('faults/sync', 'w').write('5')\nwritten(fd)";
    let mut run = world.begin("", script);
    let program = child_of(run.id());
    kill(run.id());
    run.wait().unwrap();
    let said = world.status().fails(1, &[]).text();
    let named = format!("python3 (process {program})");
    assert!(
        said.contains("WITHOUT FOREBAY") && said.contains(&named),
        "{said}"
    );
    kill(program);
    let pool = world.0.file("p");
    world.until("waiting", || world.status().text().contains("WAITING"));
    let said = world.status().fails(1, &[]).text();
    assert!(
        said.contains(pool.to_str().unwrap()) && said.contains("records"),
        "{said}"
    );
    let json = Ran::of(world.forebay("status --json").output().unwrap());
    let json = json.fails(1, &[]).json();
    assert!(json[0]["waiting"]["records"].as_u64() > Some(0), "{json}");
    world.0.run("recover --pool p").ok();
    let said = world.status().ok().text();
    assert!(said.contains("nothing runs"), "{said}");
}

#[test]
fn program_without_the_library_is_told_then_and_at_the_end() {
    for (script, writes) in [("log('a.log')", true), ("pass", false)] {
        let world = World::new();
        let mut run = world.begin("env -u LD_PRELOAD", script);
        let is_told = || world.status().text().contains("without Forebay's library");
        world.until("told", is_told);
        let said = world.status().fails(1, &[]).text();
        assert_eq!(said.contains(" writes to "), writes, "{said}");
        assert_eq!(said.contains("a.log"), writes, "{said}");
        kill(child_of(run.id()));
        let ended = run.wait_with_output_in_time();
        for words in [
            "nothing absorbed so far: python3",
            "nothing was absorbed: python3",
        ] {
            assert!(ended.contains(words), "{words:?}: {ended}");
        }
    }
}

/// Reads what a run said once it has ended.
trait Ends {
    fn wait_with_output_in_time(&mut self) -> String;
}

impl Ends for Child {
    fn wait_with_output_in_time(&mut self) -> String {
        use std::io::Read;
        let mut said = String::new();
        let mut stderr = self.stderr.take().unwrap();
        stderr.read_to_string(&mut said).unwrap();
        self.wait().unwrap();
        said
    }
}

#[test]
fn run_whose_log_stays_plain_says_so_when_it_is_opened() {
    let world = World::new();
    let ran = world.run(
        r#"
import fcntl
ring = ctypes.create_string_buffer(256)
ctypes.CDLL(None).syscall(425, 4, ring)
log("a.log")
code, said = status()
assert code == 1 and "a.log stays plain" in said and "io_uring" in said, said
"#,
    );
    let said = ran.ok().stderr;
    for words in ["nothing absorbed so far: ", "nothing was absorbed: "] {
        assert!(said.contains(words), "{words:?}: {said}");
    }
    let said = world.run("log('b.log')").ok().stderr;
    assert!(
        !said.contains("nothing absorbed") && !said.contains("nothing was"),
        "{said}"
    );
}

#[test]
fn process_that_sees_no_proc_is_told_that_it_does_not() {
    if !common::root_can("change the root directory") {
        return;
    }
    let ran = World::new().run("os.mkdir('jail'); os.chroot('jail'); os.chdir('/'); log('a.log')");
    let said = ran.ok().stderr;
    assert!(
        said.contains("a.log stays plain") && said.contains("/proc"),
        "{said}"
    );
    assert!(!said.contains("none that matches"), "{said}");
}

#[test]
fn log_is_listed_by_its_newest_name_with_what_its_writes_save() {
    let ran = World::new().run(
        r#"
fd = log("a.log")
os.rename("a.log", "b.log")
written(fd)
os.close(fd)
each = os.open("each.log", os.O_WRONLY | os.O_CREAT | os.O_DSYNC, 0o600)
for _ in range(7):
    os.write(each, b"x")
"#,
    );
    let said = ran.ok().stderr;
    let row = |name: &str| {
        let rows = said.lines().filter(|line| line.contains(name));
        let words = rows.map(|row| row.split_whitespace().map(str::to_owned).collect());
        let found: Vec<Vec<String>> = words.collect();
        found
    };
    assert!(row("/a.log").is_empty(), "{said}");
    assert_eq!(row("/b.log")[0][1], "2", "{said}");
    let each = &row("/each.log")[0];
    assert_eq!((each[1].as_str(), each[4].as_str()), ("7", "7"), "{said}");
}

#[test]
fn orderly_end_with_a_child_that_ends_soon_is_no_background() {
    let world = World::new();
    let run = |script: &str| {
        let mut command = world.forebay("run --pool p --absorb *.log -- sh -c");
        Ran::of(command.arg(script).output().unwrap()).ok().stderr
    };
    let said = run("sleep 0.05 & exit 0");
    assert!(!said.contains("went into the background"), "{said}");
    let said = run("sleep 1 & exit 0");
    assert!(said.contains("went into the background"), "{said}");
}

#[test]
fn root_sees_other_users_runs_with_all_and_nobody_else_does() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root has other users");
        return;
    }
    let world = World::new();
    for place in [world.0.path().to_owned(), world.0.file("p")] {
        chown(place, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let own = |command: &mut Command| {
        command.uid(NOBODY).gid(NOBODY);
    };
    let script = "log('a.log')\nopen('ready', 'w').close()\ntime.sleep(60)";
    let mut command = world.python("", "", script);
    own(&mut command);
    let Ok(mut run) = command.stderr(Stdio::null()).spawn() else {
        println!("skipped: another user cannot run the program here");
        return;
    };
    let limit = Instant::now() + Duration::from_secs(30);
    while !world.0.file("ready").exists() && Instant::now() < limit {
        thread::sleep(Duration::from_millis(50));
    }
    if !world.0.file("ready").exists() {
        println!("skipped: another user cannot run the program here");
        let _ = run.kill();
        return;
    }
    let log = world.0.file("a.log").display().to_string();
    let said = world.0.run("status --all").text();
    assert!(said.contains(&log), "{said}");
    let mut refused = world.forebay("status --all");
    own(&mut refused);
    Ran::of(refused.output().unwrap()).fails(2, &["--all is for root"]);
    kill(child_of(run.id()));
    run.wait().unwrap();
}

/// True where no other run's table lies in /dev/shm. Otherwise runs this test once more where that
/// is so, as root.
fn has_tables_of_its_own(test: &str) -> bool {
    const ALONE: &str = "TEST_HAS_TABLES_OF_ITS_OWN";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let own = r#"mount -t tmpfs none /dev/shm && exec "$@""#;
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", own, "sh"]);
    command.arg(std::env::current_exe().unwrap());
    command
        .args(["--exact", test, "--nocapture"])
        .env(ALONE, "");
    if rustix::process::geteuid().is_root() {
        Ran::of(command.output().unwrap()).ok();
    } else {
        println!("skipped: needs root");
    }
    false
}

/// Writes to a log in the background until there is `enough`, and then says how often.
const COUNTED: &str = r#"
import threading
fd = log("a.log")
def go_on():
    count = 1
    while not os.path.exists("enough"):
        written(fd)
        count += 1
        time.sleep(0.005)
    with open("counted", "w") as counted:
        counted.write(str(count))
    os.rename("counted", "count")
threading.Thread(target=go_on, daemon=True).start()
"#;

/// Promise (files): Where two versions of Forebay run side by side, a run is shown by both, no file
/// is absorbed by both, and nothing acknowledged is lost.
#[test]
fn two_versions_side_by_side_do_each_others_files_no_harm() {
    // Other tests' runs would meet the other version, too.
    if !has_tables_of_its_own("two_versions_side_by_side_do_each_others_files_no_harm") {
        return;
    }
    let world = World::new();
    let mut old = world.begin("", COUNTED);
    let ran = |command: &mut Command| {
        let command = command.env("FOREBAY_BROKEN", "next-version");
        Ran::of(command.output().unwrap())
    };
    let shown = ran(&mut world.forebay("status"));
    let log = world.0.file("a.log").display().to_string();
    let silent = format!("forebay {} does not answer", old.id());
    let said = format!("{}{}", shown.text(), shown.stderr);
    assert!(said.contains(&log) && !said.contains(&silent), "{said}");

    // A new run has its own files, and is refused those of the old one.
    let both =
        "log('b.log')\ntry:\n    log('a.log')\nexcept OSError as error:\n    print(error.errno)";
    let pool = "pool create q --emulated --size 6MiB --segment-size 1MiB";
    world.0.run(pool).ok();
    let options = "run --pool q --absorb *.log --explain --";
    let mut command = world.forebay(&format!("{options} python3 -c"));
    let new = ran(command.arg(format!("{BEGIN}{both}"))).ok();
    assert_eq!(new.text(), "5\n", "{}", new.stderr);
    for words in [
        "cannot be opened for writing",
        "another version of forebay",
        "/b.log",
    ] {
        assert!(new.stderr.contains(words), "{words}: {}", new.stderr);
    }

    // A new library under an old supervisor: its logs are plain.
    let line = format!("{options} env FOREBAY_BROKEN=next-version python3 -c");
    let mut command = world.forebay(&line);
    let command = command.arg(format!("{BEGIN}log('c.log')"));
    let mixed = Ran::of(command.output().unwrap()).ok().stderr;
    for words in [
        "the library speaks version",
        "of one release",
        "nothing was absorbed",
    ] {
        assert!(mixed.contains(words), "{words}: {mixed}");
    }
    fs::write(world.0.file("enough"), "").unwrap();
    world.until("counted", || world.0.file("count").exists());
    kill(child_of(old.id()));
    old.wait().unwrap();
    let count: u64 = fs::read_to_string(world.0.file("count"))
        .unwrap()
        .parse()
        .unwrap();
    for (name, count) in [("a.log", count), ("b.log", 1), ("c.log", 1)] {
        let size = fs::metadata(world.0.file(name)).unwrap().len();
        assert_eq!(size, 100 * count, "{name}");
    }
    for pool in ["p", "q"] {
        let check = world.0.json(&format!("pool check {pool} --json"));
        assert!(check["lanes"].as_array().unwrap().is_empty(), "{check}");
    }
}
