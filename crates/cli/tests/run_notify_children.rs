//! Programs that the library does not fit, and that one with the library executes: each has an
//! agent of its own, and is the process that it would be without.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    FOREBAY, Ran, Sandbox,
    cut::put_back,
    databases::{PATIENCE, ProcessGroup, boot_anew, small_pool},
    have,
    recovered::{Disk, run_and_recovered, same},
};
use forebay_bench::processes::find_program;
use std::{
    fs::{self, File, Permissions},
    net::TcpListener,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// What a run says of an agent that begins to serve.
const SAID: &str = "an agent does the system calls on logs of";
const ABSORBED: &str = "syncs that cost nothing";

/// Builds one of `programs`, statically.
fn build(name: &str, into: &Path) {
    let source = format!("{}/tests/programs/{name}.c", env!("CARGO_MANIFEST_DIR"));
    let options = ["-O1", "-static", "-pthread", "-w", "-o", name, &source];
    let mut compiler = Command::new("cc");
    let built = compiler.args(options).current_dir(into);
    assert!(built.status().unwrap().success());
}

/// One in which `calls` is, with a pool.
fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    build("calls", sandbox.path());
    sandbox.pool();
    sandbox
}

/// Runs a shell script with `options` beside, and lists what became of its files.
fn explained(sandbox: &Sandbox, options: &str, script: &str) -> Ran {
    let mut run = sandbox.command(&format!(
        "run --absorb *.log --explain{options} --pool p -- sh -c"
    ));
    run.arg(script).env("FOREBAY_RUN_DIR", sandbox.file("run"));
    Ran::of(run.stdin(Stdio::null()).output().unwrap())
}

/// Promise (programs): A static program that a shell script executes has its logs absorbed by an
/// agent of its own, and its writes outlast a power cut.
#[test]
fn a_shells_static_program_outlasts_a_power_cut() {
    for (disk, script) in [
        (Disk::Synced, "./calls data; :"),
        (Disk::All, "exec ./calls names"),
        (Disk::All, "./calls dsync & wait"),
        (Disk::Synced, "./calls forked; :"),
    ] {
        let sandbox = Sandbox::new();
        build("calls", sandbox.path());
        let mut run = sandbox.command("run --absorb *.log --pool");
        // What ends its process group ends nothing else.
        run.process_group(0);
        same(run_and_recovered(
            disk,
            &sandbox,
            run,
            &["sh", "-c", script],
        ));
    }
}

#[test]
fn each_program_of_a_script_has_the_front_end_that_fits_it() {
    let sandbox = sandbox();
    let python = "import os; fd = os.open('b.log', os.O_WRONLY | os.O_CREAT); assert fd < 512; os.write(fd, b'x'); os.fsync(fd)";
    let status = format!("{FOREBAY} status --json");
    let ran = explained(
        &sandbox,
        "",
        &format!("python3 -c \"{python}\"; ./calls data 0; ./calls executes {status}; exit 7"),
    );
    let told = ran.text();
    ran.fails(7, &[SAID, "a.log", "b.log", ABSORBED]);
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told[0]["front_end"], "library", "{told}");
    assert_eq!(told[0]["child_agents"][0]["program"], "calls", "{told}");
}

/// How many agents each program of `programs/tells.py` has, in its order: none below a limit on
/// memory, none that is executed by its descriptor, and none whose path depends on what is done
/// before it.
const AGENTS: [u32; 13] = [1, 1, 1, 0, 1, 1, 0, 1, 0, 1, 1, 1, 1];

/// Promise (programs): A program that gets an agent as another one's child has the process, the
/// descriptors, the signals and the errors that it would have without.
#[test]
fn a_child_with_an_agent_is_what_it_is_without() {
    let sandbox = Sandbox::new();
    build("told", sandbox.path());
    sandbox.pool();
    let make = |name: &str, bytes: &[u8], mode: u32| {
        fs::write(sandbox.file(name), bytes).unwrap();
        fs::set_permissions(sandbox.file(name), Permissions::from_mode(mode)).unwrap();
    };
    let program = fs::read(sandbox.file("told")).unwrap();
    make("unexecutable", &program, 0o644);
    make("broken", &program[..100], 0o755);
    make("text", b"exit 4\n", 0o755);
    make("script", b"#!./told -z\n", 0o755);
    // One whose loader is not there.
    let mut loaded = fs::read("/bin/true").unwrap();
    let at = loaded
        .windows(7)
        .position(|part| part == b"ld-linu")
        .unwrap();
    loaded[at..at + 7].copy_from_slice(b"ld-musl");
    make("without-loader", &loaded, 0o755);
    let tells = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/tells.py");
    let mut plain = Command::new("python3");
    plain.args([tells, "./told"]).current_dir(sandbox.path());
    let mut run = sandbox.command("run --absorb *.log --pool p -- python3");
    run.args([tells, "./told"]);
    let said = |command: &mut Command, filters: &str| {
        command.env("FOREBAY_RUN_DIR", sandbox.file("run"));
        command.env("FOREBAY_TEST_FILTERS", sandbox.file(filters));
        command.env("FOREBAY_FAILPOINT", "").stdin(Stdio::null());
        let text = Ran::of(command.output().unwrap()).ok().text();
        let filters = fs::read_to_string(sandbox.file(filters)).unwrap();
        let filters = filters.lines().map(|line| line.parse().unwrap());
        (text, filters.collect::<Vec<u32>>())
    };
    let (without, none) = said(&mut plain, "none");
    let (with, more) = said(&mut run, "more");
    let differ = without
        .lines()
        .zip(with.lines())
        .find(|(one, other)| one != other);
    assert_eq!(differ, None, "{without}\n--- with:\n{with}");
    assert_eq!(without.lines().count(), with.lines().count());
    let more = more.iter().zip(&none).map(|(with, without)| with - without);
    assert_eq!(more.collect::<Vec<u32>>(), AGENTS);
    assert_eq!(none.len(), AGENTS.len());
}

/// Promise (programs): A static launcher decides for nobody: the program behind it has the library,
/// unless the launcher has opened a log itself.
#[test]
fn a_program_behind_a_static_launcher_has_the_library() {
    let sandbox = sandbox();
    let python = |least: &str| {
        format!(
            "python3 -c \"import os; fd = os.open('b.log', os.O_WRONLY | os.O_CREAT); assert fd {least}, fd; os.write(fd, b'x'); os.fsync(fd)\""
        )
    };
    // Busybox is static.
    if have("busybox") {
        let script = format!("busybox env {}; exit 7", python("< 512"));
        let ran = explained(&sandbox, "", &script);
        assert!(!ran.stderr.contains(SAID), "{}", ran.stderr);
        ran.fails(7, &["b.log", ABSORBED]);
        fs::remove_file(sandbox.file("b.log")).unwrap();
    }
    fs::write(
        sandbox.file("behind"),
        format!("#!/bin/sh\nexec {}\n", python(">= 512")),
    )
    .unwrap();
    fs::set_permissions(sandbox.file("behind"), Permissions::from_mode(0o755)).unwrap();
    let ran = explained(&sandbox, "", "./calls executes ./behind; exit $((7 + $?))");
    ran.fails(7, &[SAID, "a.log", "b.log", ABSORBED]);
}

#[test]
fn a_run_with_the_library_alone_gives_no_agents() {
    let sandbox = sandbox();
    let ran = explained(&sandbox, " --front-end preload", "./calls data 7; exit $?");
    assert!(!ran.stderr.contains(SAID), "{}", ran.stderr);
    assert!(!ran.stderr.contains(ABSORBED), "{}", ran.stderr);
    ran.fails(7, &[]);
}

/// Promise (programs): No program loses the right to gain rights by an agent that nobody asked for.
#[test]
fn an_agent_that_costs_rights_is_to_be_asked_for() {
    if !common::root_can("drop a right") {
        return;
    }
    let sandbox = sandbox();
    let script = "grep NoNewPrivs /proc/self/status; ./calls data 7; exit $?";
    for (options, absorbs) in [("", false), (" --no-new-privs", true)] {
        let mut run = Command::new("setpriv");
        let rights = "-sys_admin";
        run.args(["--bounding-set", rights, "--inh-caps", rights, FOREBAY]);
        run.args(["run", "--absorb", "*.log", "--explain"]);
        run.args(options.split_whitespace());
        run.args(["--pool", "p", "--", "sh", "-c", script]);
        run.current_dir(sandbox.path())
            .env("FOREBAY_RUN_DIR", sandbox.file("run"));
        let ran = Ran::of(run.stdin(Stdio::null()).output().unwrap());
        assert_eq!(ran.stderr.contains(SAID), absorbs, "{}", ran.stderr);
        // The shell itself keeps its rights.
        assert_eq!(ran.text().trim(), "NoNewPrivs:\t0");
        ran.fails(7, &[]);
        let _ = fs::remove_file(sandbox.file("a.log"));
    }
}

#[test]
fn a_program_whose_agent_dies_before_it_begins_runs_plainly() {
    let sandbox = sandbox();
    // It is the death that leaves it plain: without one it is served.
    for (failpoint, is_served) in [
        ("", true),
        ("notify:ready=1:die", false),
        ("notify:entered=1:die", false),
    ] {
        let mut run = sandbox.command("run --absorb *.log --pool p -- sh -c");
        run.args(["./calls data 7; echo ended $?"]);
        run.env("FOREBAY_RUN_DIR", sandbox.file("run"));
        run.env("FOREBAY_FAILPOINT", failpoint);
        let ran = Ran::of(run.stdin(Stdio::null()).output().unwrap()).ok();
        assert_eq!(ran.text().trim(), "ended 7", "{failpoint}: {}", ran.stderr);
        let says = ran.stderr.contains(SAID);
        assert_eq!(says, is_served, "{failpoint}: {}", ran.stderr);
        let _ = fs::remove_file(sandbox.file("a.log"));
    }
}

fn ports<const N: usize>() -> [u16; N] {
    let open = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    open.map(|socket| socket.local_addr().unwrap().port())
}

/// A shell script that runs Redis and etcd.
struct Both {
    run: ProcessGroup,
    redis: u16,
    etcd: u16,
}

fn start_both(sandbox: &Sandbox, pool: &Path, boot: usize) -> Both {
    let [redis, etcd, peer] = ports();
    let mut environment = Vec::new();
    boot_anew(&mut environment, boot);
    let server = find_program("redis-server").unwrap();
    let server = server.display();
    let script = format!(
        "mkdir -p redis; {server} --port {redis} --dir redis --appendonly yes --appendfsync always --save '' >/dev/null & \
         exec etcd --data-dir data --name one --listen-client-urls http://127.0.0.1:{etcd} --advertise-client-urls http://127.0.0.1:{etcd} \
         --listen-peer-urls http://127.0.0.1:{peer} --initial-advertise-peer-urls http://127.0.0.1:{peer} --initial-cluster one=http://127.0.0.1:{peer} \
         --force-new-cluster >/dev/null 2>&1"
    );
    let mut command = sandbox.command("run --absorb-preallocated --explain --pool");
    command
        .arg(pool)
        .args(["--", "sh", "-c", &script])
        .env("FOREBAY_RUN_DIR", sandbox.file("run"))
        .env("FOREBAY_TEST_SYNCED", sandbox.file("synced"))
        .envs(environment)
        .stdin(Stdio::null())
        .stderr(File::create(sandbox.file("errors")).unwrap());
    let both = Both {
        run: ProcessGroup::start(&mut command),
        redis,
        etcd,
    };
    let begun = Instant::now();
    while both.etcd(&["endpoint", "health"]).is_none() || both.redis(&["ping"]).is_none() {
        let errors = || fs::read_to_string(sandbox.file("errors")).unwrap();
        assert!(begun.elapsed() < PATIENCE, "{}", errors());
        thread::sleep(Duration::from_millis(50));
    }
    both
}

impl Both {
    fn etcd(&self, words: &[&str]) -> Option<String> {
        let mut command = Command::new("etcdctl");
        command.args(["--endpoints", &format!("http://127.0.0.1:{}", self.etcd)]);
        said(command.env("ETCDCTL_API", "3").args(words))
    }

    fn redis(&self, words: &[&str]) -> Option<String> {
        let mut command = Command::new("redis-cli");
        said(
            command
                .args(["-e", "-p", &self.redis.to_string()])
                .args(words),
        )
    }
}

/// What a client says, if it succeeds.
fn said(client: &mut Command) -> Option<String> {
    let output = client.output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    output.status.success().then(|| said.trim().to_owned())
}

/// Promise (programs): Redis and etcd that one shell script starts have what they acknowledged
/// after a power cut that took the page cache, each by its own front end.
#[test]
fn redis_and_etcd_of_one_script_outlast_power_cuts() {
    const KEYS: usize = 10;
    if !["etcd", "etcdctl", "redis-server", "redis-cli"]
        .into_iter()
        .all(have)
    {
        return;
    }
    let (sandbox, pool) = (Sandbox::new(), small_pool());
    for boot in 0..3 {
        let mut both = start_both(&sandbox, pool.path(), boot);
        for key in 0..boot * KEYS {
            let (name, value) = (format!("key{key}"), format!("value{key}"));
            let get = ["get", "--print-value-only", &name];
            assert_eq!(both.etcd(&get).as_deref(), Some(&*value), "etcd");
            assert_eq!(
                both.redis(&["get", &name]).as_deref(),
                Some(&*value),
                "Redis"
            );
        }
        for key in boot * KEYS..(boot + 1) * KEYS {
            let (name, value) = (format!("key{key}"), format!("value{key}"));
            assert_eq!(both.etcd(&["put", &name, &value]).as_deref(), Some("OK"));
            assert_eq!(both.redis(&["set", &name, &value]).as_deref(), Some("OK"));
        }
        let mut status = sandbox.command("status --json");
        status.env("FOREBAY_RUN_DIR", sandbox.file("run"));
        let told = Ran::of(status.output().unwrap()).ok().json();
        assert_eq!(told[0]["child_agents"][0]["program"], "etcd", "{told}");
        assert_eq!(
            told[0]["degraded"].as_array().map(Vec::len),
            Some(0),
            "{told}"
        );
        let files = told[0]["files"].as_array().unwrap();
        for name in [".wal", ".aof"] {
            let absorbs = |file: &serde_json::Value| {
                file["path"].as_str().unwrap().ends_with(name) && file["syncs"].as_u64() > Some(0)
            };
            assert!(files.iter().any(absorbs), "{name}: {told}");
        }
        both.run.kill();
        thread::sleep(Duration::from_millis(100));
        put_back(&sandbox.file("synced"));
    }
}
