//! Reports of commands on standard output, to a reader that may have gone away, and as JSON; and
//! their exit status.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{Ran, Sandbox, databases::boot_anew};
use forebay_innodb::{BootTime, CacheStatus};
use forebay_pool::{ClaimOptions, PoolOptions};
use rustix::fs::XattrFlags;
use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{Write, pipe},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};
use uuid::Uuid;

/// A directory `data` whose mark names a pool that is not there.
fn marked(sandbox: &Sandbox) {
    let data = sandbox.file("data");
    fs::create_dir(&data).unwrap();
    let gone = sandbox.file("gone.pool");
    mark(&data, gone.as_os_str());
}

fn mark(directory: &Path, pool: &OsStr) {
    let name = "user.forebay.pools";
    rustix::fs::setxattr(directory, name, pool.as_bytes(), XattrFlags::empty()).unwrap();
}

/// A pool `p` with records of a file that is gone, and one whose first lane has no state any more,
/// `damaged`.
fn pools(sandbox: &Sandbox) {
    sandbox.pool();
    let mut run = sandbox.command("run --absorb *.log --pool p -- python3 -c");
    run.arg(
        "import os, signal; fd = os.open('a.log', os.O_WRONLY | os.O_CREAT); os.fsync(fd); os.write(fd, b'a'); os.fsync(fd)\n\
         os.kill(os.getppid(), signal.SIGKILL); os.kill(os.getpid(), signal.SIGKILL)",
    );
    run.env("FOREBAY_RUN_DIR", sandbox.file("run"));
    assert!(!run.output().unwrap().status.success());
    fs::remove_file(sandbox.file("a.log")).unwrap();
    sandbox
        .run("pool create damaged --emulated --size 6MiB --segment-size 1MiB")
        .ok();
    let pool = PoolOptions::new().open(sandbox.file("damaged")).unwrap();
    drop(pool.claim(Uuid::new_v4(), &ClaimOptions::new()).unwrap());
    drop(pool);
    sandbox.edit("damaged", |bytes| {
        for at in [8192 + 20, 8192 + 64 + 20] {
            bytes[at] ^= 1;
        }
    });
}

#[test]
fn a_resize_that_is_given_up_is_said_with_its_status() {
    let sandbox = Sandbox::new();
    sandbox.run("flash create --flash f 8MiB").ok();
    let cancel = || sandbox.run("flash resize --flash f --cancel");
    cancel().fails(1, &["no resize is under way, and nothing is given up"]);
    fs::write(sandbox.file("f.resize"), r#"{"bytes":25165824}"#).unwrap();
    let said = cancel().ok().stderr;
    assert!(
        said.contains("no server was at the resize, and none goes on with it"),
        "{said}"
    );
    assert!(!sandbox.file("f.resize").exists());
    cancel().fails(1, &["no resize is under way"]);
}

/// A store `s` with a damaged value.
fn store(sandbox: &Sandbox) {
    sandbox
        .feed("store import --dir s --format tsv", b"key\tthe value\n")
        .ok();
    let file = fs::read_dir(sandbox.file("s/vlog"))
        .unwrap()
        .next()
        .unwrap();
    let name = format!("s/vlog/{}", file.unwrap().file_name().display());
    sandbox.edit(&name, |bytes| {
        let at = bytes.windows(9).position(|found| found == b"the value");
        bytes[at.unwrap()] ^= 1;
    });
}

/// A run of this process with a flash cache, which has begun with the boot and goes on.
struct Running {
    run: Uuid,
    flash: PathBuf,
    _note: File,
}

impl Running {
    fn begin(sandbox: &Sandbox) -> Self {
        Self::with(sandbox, "flash")
    }

    /// With the cache on the flash file of this name.
    fn with(sandbox: &Sandbox, name: &str) -> Self {
        let dir = sandbox.file("run");
        fs::create_dir_all(&dir).unwrap();
        let run = Uuid::new_v4();
        let note = dir.join(format!("{}-{run}.flash", std::process::id()));
        let mut note = File::create_new(note).unwrap();
        note.lock().unwrap();
        let flash = sandbox.file(name);
        let said = serde_json::json!({"begun": 0, "flash": flash.as_os_str(), "has_ended": false});
        note.write_all(said.to_string().as_bytes()).unwrap();
        Self {
            run,
            flash,
            _note: note,
        }
    }

    /// What its server would say now: that all is well.
    fn goes_on(&self) -> CacheStatus {
        CacheStatus {
            pid: std::process::id(),
            run: self.run,
            said_at: BootTime::now(),
            ..CacheStatus::default()
        }
    }

    /// Or that its flash fails.
    fn fails(&self) -> CacheStatus {
        CacheStatus {
            trouble: Some("it is worn out".to_owned()),
            ..self.goes_on()
        }
    }

    /// Has this said of its flash cache.
    fn say(&self, status: &CacheStatus) {
        let said = serde_json::to_vec(status).unwrap();
        fs::write(self.flash.with_extension("status"), said).unwrap();
    }
}

/// A command in a sandbox in which nothing is well, after a reboot.
fn unwell(sandbox: &Sandbox, line: &str) -> Command {
    let mut environment = vec![("FOREBAY_RUN_DIR".into(), sandbox.file("run").into())];
    boot_anew(&mut environment, 1);
    let mut command = sandbox.command(line);
    command.envs(environment);
    command
}

#[test]
fn a_reader_that_went_away_makes_nothing_well() {
    let sandbox = Sandbox::new();
    marked(&sandbox);
    pools(&sandbox);
    store(&sandbox);
    let running = Running::begin(&sandbox);
    running.say(&running.fails());
    for line in [
        "doctor data",
        "recover --for data",
        "recover --pool p",
        "pool check damaged",
        "pool status damaged",
        "store verify --dir s",
        "status",
        "flash status",
    ] {
        let said = Ran::of(unwell(&sandbox, line).output().unwrap());
        assert_eq!(said.code, Some(1), "{line}: {}", said.stderr);
        assert!(!said.stdout.is_empty(), "{line}: {}", said.stderr);
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let status = unwell(&sandbox, line)
            .stdout(writer)
            .stderr(Stdio::null())
            .status();
        assert_eq!(status.unwrap().code(), Some(1), "{line}");
    }
    // And nothing unwell.
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    let status = sandbox.command("pool status p").stdout(writer).status();
    assert_eq!(status.unwrap().code(), Some(0));
}

#[test]
fn a_runs_status_has_its_flash_cache_as_json_and_fails_with_it() {
    let sandbox = Sandbox::new();
    sandbox.pool();
    let run = |options: &str, script: &str| {
        let mut run = sandbox.command(&format!("run --absorb *.log --pool p {options} -- sh -c"));
        run.arg(script).env("FOREBAY", common::FOREBAY);
        run.env("FOREBAY_RUN_DIR", sandbox.file("run"));
        Ran::of(run.output().unwrap()).ok().json()
    };
    // Of the run that asks, whose process is the shell's parent.
    let runs = run("", "$FOREBAY status --json");
    assert!(runs[0]["flash"].is_null(), "{runs}");
    let with_flash = "--profile mariadb --flash well --flash-size 16MiB";
    let said = CacheStatus {
        hits: 7,
        ..CacheStatus::default()
    };
    fs::write(sandbox.file("said"), serde_json::to_vec(&said).unwrap()).unwrap();
    let says = "python3 -c '\
import json, os, time
said = json.load(open(\"said\"))
said |= {\"pid\": os.getppid(), \"run\": os.environ[\"FOREBAY_FLASH_RUN\"], \"said_at\": int(time.monotonic())}
json.dump(said, open(\"well.status\", \"w\"))
'; $FOREBAY status --json";
    let runs = run(with_flash, says);
    assert_eq!(runs.as_array().unwrap().len(), 1, "{runs}");
    assert_eq!(
        (&runs[0]["program"], &runs[0]["flash"]["hits"]),
        (&"sh".into(), &7.into())
    );

    // Of one without a pool there is nothing else.
    let running = Running::begin(&sandbox);
    let status = |line: &str| {
        running.say(&running.fails());
        Ran::of(unwell(&sandbox, line).output().unwrap())
    };
    let caches = status("flash status --json").fails(1, &[]).json();
    assert_eq!(caches[0]["trouble"], "it is worn out");
    let runs = status("status --json").fails(1, &[]).json();
    assert_eq!(runs[0]["pid"], std::process::id());
    assert_eq!(runs[0]["flash"]["trouble"], "it is worn out");
    assert_eq!(runs[0].as_object().unwrap().len(), 2, "{runs}");
    let lines = status("flash status").fails(1, &[]).text();
    assert!(
        lines.contains("flash cache: it is worn out. Pages go"),
        "{lines}"
    );
    assert_eq!(status("status").fails(1, &[]).text(), lines);
}

#[test]
fn a_run_with_a_server_silent_about_its_cache_fails_by_name() {
    let sandbox = Sandbox::new();
    let running = Running::begin(&sandbox);
    let now = || running.fails();
    let of_an_earlier_run = CacheStatus {
        run: Uuid::new_v4(),
        ..now()
    };
    let of_long_ago = CacheStatus {
        said_at: BootTime::default(),
        ..now()
    };
    for status in [of_an_earlier_run, of_long_ago] {
        running.say(&status);
        let named = format!("forebay {}: no server says how it is", std::process::id());
        for line in ["status", "flash status"] {
            let ran = |line: &str| Ran::of(unwell(&sandbox, line).output().unwrap());
            let lines = ran(line).fails(1, &[]).text();
            assert!(lines.contains(&named), "{line}: {lines}");
            assert!(!lines.contains("worn out"), "{line}: {lines}");
            let ran = ran(&format!("{line} --json")).fails(1, &[&named]);
            assert_eq!(ran.json(), serde_json::json!([]), "{line}");
        }
    }
}

/// As its number may be one of another PID namespace, and as the next one of the run may be about
/// to start.
#[test]
fn a_servers_recent_status_counts_though_its_pid_is_unknown() {
    let sandbox = Sandbox::new();
    let running = Running::begin(&sandbox);
    for line in ["status", "flash status"] {
        let said = CacheStatus {
            pid: u32::MAX,
            ..running.goes_on()
        };
        running.say(&said);
        let ran = unwell(&sandbox, line).output().unwrap();
        let lines = Ran::of(ran).ok().text();
        assert!(lines.contains("reads that found their page"), "{lines}");
    }
}

#[test]
fn two_containers_runs_with_one_process_id_are_both_reported() {
    let sandbox = Sandbox::new();
    let runs = ["one", "other"].map(|name| Running::with(&sandbox, name));
    let reports = [
        ("status --json", "/flash/trouble"),
        ("flash status --json", "/trouble"),
    ];
    for fails in [0, 1] {
        for (line, trouble) in reports {
            for (at, run) in runs.iter().enumerate() {
                run.say(&if at == fails {
                    run.fails()
                } else {
                    run.goes_on()
                });
            }
            let ran = unwell(&sandbox, line).output().unwrap();
            let said = Ran::of(ran).fails(1, &[]).json();
            let said = said.as_array().unwrap().iter();
            let mut troubles: Vec<_> = said.map(|one| one.pointer(trouble).unwrap()).collect();
            troubles.sort_by_key(|trouble| trouble.is_null());
            assert_eq!(
                troubles,
                [&"it is worn out".into(), &serde_json::Value::Null]
            );
        }
    }
}

#[test]
fn another_users_run_directory_is_refused_with_the_remedy() {
    let sandbox = Sandbox::new();
    let run = sandbox.file("run");
    fs::create_dir(&run).unwrap();
    // Root makes one; for any other user root's is one.
    let dir = match std::os::unix::fs::chown(&run, Some(65_534), None) {
        Ok(()) => run,
        Err(_) => "/".into(),
    };
    let mut command = sandbox.command("flash status");
    let refused = command.env("FOREBAY_RUN_DIR", &dir).output().unwrap();
    let remedy = format!("env FOREBAY_RUN_DIR={} forebay status", dir.display());
    Ran::of(refused).fails(1, &["belongs to user", &remedy]);
}

#[test]
fn a_path_that_is_no_text_is_reported_as_json_all_the_same() {
    let sandbox = Sandbox::on_disk();
    let path = |name: &[u8]| sandbox.path().join(OsStr::from_bytes(name));
    let (pool, data) = (path(b"p\xff"), path(b"data\xff"));
    fs::create_dir(&data).unwrap();
    let json = |line: &str, path: &Path| {
        let mut command = sandbox.command(line);
        Ran::of(command.arg(path).output().unwrap()).ok().json()
    };
    json(
        "pool create --emulated --size 6MiB --segment-size 1MiB --json",
        &pool,
    );
    let shown = pool.display().to_string();
    assert!(shown.ends_with("p\u{fffd}"));
    mark(&data, pool.as_os_str());
    for (line, at, pointer) in [
        ("pool status --json", &pool, "/path"),
        ("pool check --json", &pool, "/path"),
        ("recover --json --pool", &pool, "/pool"),
        ("doctor --json", &data, "/pools/0/pool"),
        ("recover --json --for", &data, "/pools/0/pool"),
    ] {
        let report = json(line, at);
        assert_eq!(
            report.pointer(pointer).unwrap(),
            &*shown,
            "{line}: {report}"
        );
    }
    let flash = path(b"flash\xff");
    for line in [
        "flash create 8MiB --contents all --json --flash",
        "flash set --policy through --json --flash",
        "flash resize 9MiB --json --flash",
        "flash flush --json --flash",
        "flash remove --json --flash",
    ] {
        let report = json(line, &flash);
        assert_eq!(report["flash"], flash.display().to_string(), "{line}");
    }
}

#[test]
fn a_new_flash_cache_has_no_settings_of_an_earlier_one() {
    let sandbox = Sandbox::new();
    let settings = |line| sandbox.json(line)["settings"].clone();
    settings("flash create --flash f 8MiB --policy off --low 20 --json");
    for left in ["f", "f.lane"] {
        fs::remove_file(sandbox.file(left)).unwrap();
    }
    let new = settings("flash create --flash f 8MiB --high 80 --json");
    assert_eq!(new, serde_json::json!({"high": 80}));
    let kept = settings("flash set --flash f --contents all --json");
    assert_eq!(kept, serde_json::json!({"contents": "all", "high": 80}));
}

#[test]
fn why_there_is_no_report_is_json_where_that_was_asked_for() {
    let sandbox = Sandbox::new();
    sandbox.pool();
    sandbox
        .feed("store import --dir s --format tsv", b"key\tvalue\n")
        .ok();
    for (line, status, words) in [
        ("doctor --json nowhere", 1, "nowhere"),
        ("recover --json --pool nowhere", 1, "nowhere"),
        ("pool status nowhere --json", 1, "nowhere"),
        ("store get --dir s --json absent", 1, "no key"),
        (
            "flash set --flash nowhere --json",
            2,
            "nothing is to be set",
        ),
    ] {
        let ran = sandbox.run(line).fails(status, &["error: ", words]);
        let said = ran.json();
        assert!(
            said["error"].as_str().unwrap().contains(words),
            "{line}: {said}"
        );
    }
    // Without it, and where it is the program's.
    for line in [
        "doctor nowhere",
        "run --absorb x --pool nowhere -- cat --json",
    ] {
        assert_eq!(sandbox.run(line).fails(1, &["nowhere"]).text(), "");
    }
}
