//! A run that was cut off with its supervisor: the command that a unit runs before the database
//! brings everything to the files, and a PostgreSQL that is started before it does not come up.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    FOREBAY, Ran, Sandbox,
    cut::put_back,
    databases::{PATIENCE, boot_anew, random, small_pool},
    disk::Disk,
    postgres::{Strike, backend, check, launch_on, make_table, write_some},
    writers::Writer,
};
use forebay_bench::{
    postgres::{
        client::Connection,
        server::{Launch, Server},
    },
    scratch::ScratchPool,
    sql::Client,
};
use rustix::process::Signal;
use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

const SENTENCE: &str = "first-run.forebay-recover--for-this-data-directory";
const UNITS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/systemd");
const UNIT: &str = "forebay-recover@.service";

/// What the unit runs for a directory, with this forebay.
fn command_of_the_unit(data: &Path) -> String {
    let unit = fs::read_to_string(Path::new(UNITS).join(UNIT)).unwrap();
    let line = unit
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart="));
    line.unwrap()
        .replace("/usr/bin/forebay", FOREBAY)
        .replace("%f", data.to_str().unwrap())
}

/// Runs it, in the boot with this number.
fn as_the_unit(data: &Path, boot: usize) -> Ran {
    let mut environment = Vec::new();
    boot_anew(&mut environment, boot);
    let line = command_of_the_unit(data);
    let mut words = line.split(' ');
    let mut command = Command::new(words.next().unwrap());
    Ran::of(command.args(words).envs(environment).output().unwrap())
}

#[test]
fn the_unit_is_one_that_systemd_takes() {
    if Command::new("systemd-analyze")
        .arg("--version")
        .output()
        .is_err()
    {
        println!("skipped: systemd-analyze is not installed");
        return;
    }
    let sandbox = Sandbox::new();
    let unit = fs::read_to_string(Path::new(UNITS).join(UNIT)).unwrap();
    let unit = unit.replace("/usr/bin/forebay", FOREBAY);
    fs::write(sandbox.file(UNIT), unit).unwrap();
    let instance = "forebay-recover@var-lib-postgresql-15-main.service";
    symlink(UNIT, sandbox.file(instance)).unwrap();
    let below = sandbox.file("database.service.d");
    fs::create_dir(&below).unwrap();
    let dropped = Path::new(UNITS).join("recover-first.conf");
    fs::copy(dropped, below.join("recover-first.conf")).unwrap();
    let database = "[Service]\nExecStart=/bin/true\n";
    fs::write(sandbox.file("database.service"), database).unwrap();
    for name in [instance, "database.service"] {
        let mut command = Command::new("systemd-analyze");
        command
            .args(["verify", "--man=no", "--recursive-errors=no"])
            .arg(sandbox.file(name));
        let ran = Ran::of(command.output().unwrap()).ok();
        let ours =
            |line: &&str| line.contains("forebay-recover") || line.contains("database.service");
        let said: Vec<&str> = ran.stderr.lines().filter(ours).collect();
        assert!(said.is_empty(), "{said:?}");
    }
}

/// Writes to `pg_wal/a.log`, and what a process of the run and one outside see in `pg_replslot`;
/// then `END`.
const SERVER: &str = r#"
import os, signal, subprocess
os.makedirs("pg_replslot", exist_ok=True)
if not os.path.exists("pg_wal"):
    os.mkdir("pg_wal")
fd = os.open("pg_wal/a.log", os.O_RDWR | os.O_CREAT, 0o600)
os.fsync(fd); os.write(fd, b"a" * 100); os.fsync(fd)
without = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
seen = subprocess.run(["ls", "pg_replslot"], env=without, capture_output=True, text=True).stdout.split()
print(len(os.listdir("pg_replslot")), len(seen), flush=True)
"#;
const KILL_BOTH: &str =
    "os.kill(os.getppid(), signal.SIGKILL); os.kill(os.getpid(), signal.SIGKILL)";

/// A pool, and a data directory in which a run with the profile of PostgreSQL wrote to a log.
struct Place {
    sandbox: Sandbox,
    pool: ScratchPool,
}

impl Place {
    fn new() -> Self {
        let (sandbox, pool) = (Sandbox::new(), small_pool());
        fs::create_dir(sandbox.file("data")).unwrap();
        Self { sandbox, pool }
    }

    fn data(&self) -> PathBuf {
        self.sandbox.file("data")
    }

    fn run(&self, options: &str, end: &str) -> Ran {
        let line = format!(
            "run --profile postgres --absorb pg_wal/*.log --absorb x/*.log {options} --pool"
        );
        let mut environment = Vec::new();
        boot_anew(&mut environment, 1);
        let mut command = self.sandbox.command(&line);
        command
            .arg(self.pool.path())
            .args(["--", "python3", "-c", &format!("{SERVER}{end}")])
            .current_dir(self.data())
            .env("FOREBAY_RUN_DIR", self.sandbox.file("run"))
            .env("FOREBAY_TEST_SYNCED", self.sandbox.file("synced"))
            .envs(environment);
        Ran::of(command.output().unwrap())
    }

    /// The guards in a data directory.
    fn guards(data: &Path) -> Vec<String> {
        let entries = fs::read_dir(data.join("pg_replslot")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with(SENTENCE)).collect()
    }

    fn doctor(&self, data: &Path) -> Ran {
        self.sandbox.run(&format!("doctor {}", data.display()))
    }
}

#[test]
fn a_guard_stands_as_long_as_its_run_and_hidden_from_it() {
    let place = Place::new();
    let ran = place.run("", "").ok();
    assert_eq!(ran.text(), "0 1\n", "{}", ran.stderr);
    assert!(Place::guards(&place.data()).is_empty());
    place.doctor(&place.data()).ok();

    // Not if it is not wanted.
    fs::write(
        place.sandbox.file("c.toml"),
        "[profile.postgres]\nguard = \"none\"\n",
    )
    .unwrap();
    for options in ["--no-guard", "--config ../c.toml"] {
        assert_eq!(place.run(options, "").ok().text(), "0 0\n", "{options}");
    }
}

/// Promise (guards): `forebay recover --for DIR` succeeds only if the directory's pools have
/// nothing for its files, no run with files there uses them, and no flash cache may have newer
/// pages.
#[test]
fn a_units_recovery_finds_its_directorys_pool_and_lifts_guards() {
    for is_linked in [false, true] {
        let place = Place::new();
        let data = place.data();
        if is_linked {
            fs::create_dir(place.sandbox.file("x")).unwrap();
            symlink("../x", data.join("pg_wal")).unwrap();
        }
        place.run("", KILL_BOTH);
        put_back(&place.sandbox.file("synced"));
        assert_eq!(fs::read(data.join("pg_wal/a.log")).unwrap(), b"");
        assert_eq!(Place::guards(&data).len(), 1);
        assert_eq!(place.doctor(&data).code, Some(1));
        as_the_unit(&data, 2).ok();
        assert_eq!(fs::read(data.join("pg_wal/a.log")).unwrap(), [b'a'; 100]);
        assert!(Place::guards(&data).is_empty());
        let report = place
            .sandbox
            .run(&format!("doctor --json {}", data.display()));
        assert_eq!(report.ok().json()["pools"], serde_json::json!([]));
        // Again, it has nothing to do.
        as_the_unit(&data, 2).ok();
    }
}

#[test]
fn a_recovery_of_the_pool_and_another_run_lift_the_guard_too() {
    for command in ["recover --pool", "recover --discard --pool"] {
        let place = Place::new();
        place.run("", KILL_BOTH);
        assert_eq!(Place::guards(&place.data()).len(), 1);
        let mut recover = place.sandbox.command(command);
        let mut environment = Vec::new();
        boot_anew(&mut environment, 1);
        recover.arg(place.pool.path()).envs(environment);
        Ran::of(recover.output().unwrap()).ok();
        assert!(Place::guards(&place.data()).is_empty(), "{command}");
    }
    let place = Place::new();
    place.run("", KILL_BOTH);
    assert_eq!(place.run("", "").ok().text(), "0 1\n");
    assert!(Place::guards(&place.data()).is_empty());
}

#[test]
fn guards_of_copies_and_lost_pools_are_lifted_on_request_only() {
    let place = Place::new();
    place.run("", KILL_BOTH);
    let (data, copy) = (place.data(), place.sandbox.file("copy"));
    let copied = Command::new("cp").arg("-a").args([&data, &copy]).status();
    assert!(copied.unwrap().success());
    as_the_unit(&data, 1).ok();
    let said = place.doctor(&copy);
    assert_eq!(said.code, Some(1));
    assert!(
        said.text().contains("a copy that was made"),
        "{}",
        said.text()
    );
    let ran = as_the_unit(&copy, 1);
    assert_eq!(ran.code, Some(1), "{}", ran.text());
    assert!(ran.text().contains("--lift"), "{}", ran.text());
    assert_eq!(Place::guards(&copy).len(), 1);
    let lift = |data: &Path| {
        place
            .sandbox
            .run(&format!("recover --lift --for {}", data.display()))
    };
    lift(&copy).ok();
    assert!(Place::guards(&copy).is_empty());
    place.doctor(&copy).ok();

    place.run("", KILL_BOTH);
    fs::remove_file(place.pool.path()).unwrap();
    let ran = as_the_unit(&data, 1);
    assert_eq!(ran.code, Some(1), "{}", ran.text());
    assert!(ran.text().contains("Bring it back"), "{}", ran.text());
    lift(&data).ok();
    assert!(Place::guards(&data).is_empty());
    place.doctor(&data).ok();
}

/// Starts the server without Forebay.
fn plainly(launch: &Launch) -> Launch {
    let mut plain = launch.clone();
    plain.wrapper.clear();
    plain
}

/// Cuts off a server that three clients write to, starts it too early, and then after the unit's
/// command. With `is_renewed`, its processes were started anew before, without seeing the guard,
/// and its last checkpoint is in the pool only.
fn cut_off(is_renewed: bool) {
    let sandbox = Sandbox::new();
    let pool = small_pool();
    let Some(mut disk) = Disk::make(sandbox.path(), "ext4") else {
        return;
    };
    let Some(mut launch) = launch_on(&disk, &sandbox, &pool) else {
        return;
    };
    boot_anew(&mut launch.environment, 1);
    let server = Server::start(&launch).unwrap();
    make_table(&server);
    disk.sync();
    let mut writers = Writer::several(3, &mut random("guard"));
    write_some(&server, &mut writers, 100);
    if is_renewed {
        let mut connection = Connection::connect(server.socket()).unwrap();
        let killed = backend(&mut connection);
        killed.signal(Signal::KILL);
        assert!(killed.wait_gone(PATIENCE));
        let begun = Instant::now();
        while Connection::connect(server.socket()).is_err() {
            assert!(begun.elapsed() < PATIENCE, "{}", server.output());
            thread::sleep(Duration::from_millis(20));
        }
        write_some(&server, &mut writers, 100);
    }
    disk.cut();
    Strike::All.strike(&server, || {});
    drop(server);
    disk.mount_again();

    let failed = Server::start(&plainly(&launch)).map(drop);
    let said = failed.unwrap_err().to_string();
    assert!(said.contains(SENTENCE), "{said}");
    let ran = as_the_unit(&launch.data(), 2).ok();
    // Of processes that were started anew while old ones still had the log open, it stays plain:
    // then its real syncs were before the cut.
    assert!(
        is_renewed || ran.text().contains("written to them"),
        "{}",
        ran.text()
    );
    let server = Server::start(&plainly(&launch)).unwrap();
    check(&server, &mut writers);
    server.stop().unwrap();
    // And under Forebay again, which leaves no guard in the end.
    boot_anew(&mut launch.environment, 3);
    let server = Server::start(&launch).unwrap();
    write_some(&server, &mut writers, 20);
    assert_eq!(Place::guards(&launch.data()).len(), 1);
    server.stop().unwrap();
    let server = Server::start(&plainly(&launch)).unwrap();
    check(&server, &mut writers);
    server.stop().unwrap();
}

/// Promise (guards): PostgreSQL does not start without Forebay while a pool that survives power
/// cuts may hold acknowledged records, and its log names the remedy.
/// Promise: as `a_postgres_that_lost_its_last_checkpoint_recovers_everything`.
#[test]
fn a_postgres_started_too_early_names_the_remedy_without_loss() {
    cut_off(false);
}

/// Promise (guards): A PostgreSQL that a guard kept from starting has everything after the
/// recovery.
#[test]
fn a_postgres_that_lost_its_last_checkpoint_recovers_everything() {
    cut_off(true);
}
