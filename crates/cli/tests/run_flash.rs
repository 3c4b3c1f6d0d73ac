//! MariaDB's page files behind a flash cache: what was acknowledged is there after SIGKILL, without a doublewrite buffer; the cache goes on warm; and a
//! server that is started without Forebay does not come up until the cache was flushed.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    FOREBAY, Ran, Sandbox,
    cut::{Cut, cut},
    databases::{Strike, boot_anew, moment, random, small_pool},
    disk::{Disk, Loop},
    mariadb::{check, faults, make_table},
    writers::Writer,
};
use forebay_bench::{
    BenchError,
    mariadb::{
        client::Connection,
        server::{self, Launch, Server, copy},
    },
    sql::Client,
};
use rustix::process::Signal;
use std::{
    ffi::OsString,
    fs,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
};
use tempfile::TempDir;

/// Small, so that pages leave the buffer pool, and the queue turns.
const FLASH: &str = "14MiB";

/// A data directory that was just made; none without MariaDB. It stays, for the next run of the tests with the same version of the server.
fn template() -> Option<&'static Path> {
    static MADE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        let programs = ["mariadbd", "mariadb-install-db", "mariadb"];
        if let Some(missing) = programs.iter().find_map(|name| server::program(name).err()) {
            assert!(std::env::var_os("CI").is_none(), "{missing}");
            println!("skipped: {missing}");
            return None;
        }
        let program = server::program("mariadbd").unwrap();
        let version = Command::new(program).arg("--version").output().unwrap();
        let version = forebay_pool::crc32c([version.stdout.as_slice()]);
        let tests = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let at = tests.join(format!("mariadb-{version:08x}"));
        if !at.exists() {
            let dir = TempDir::new_in(tests).unwrap();
            server::create(&dir.path().join("data")).unwrap();
            // Whichever of two processes is first.
            if fs::rename(dir.path(), &at).is_err() {
                assert!(at.exists(), "{} cannot be made", at.display());
            }
        }
        Some(at)
    });
    made.as_deref()
}

/// A server with a data directory and a flash cache of its own.
struct World {
    sandbox: Sandbox,
    launch: Launch,
}

impl World {
    fn new() -> Option<Self> {
        template()?;
        let sandbox = Sandbox::on_disk();
        let dir = sandbox.path().to_owned();
        Self::within(sandbox, &dir)
    }

    /// With everything of the server and the cache in `dir`.
    fn within(sandbox: Sandbox, dir: &Path) -> Option<Self> {
        let template = template()?;
        let mut launch = Launch::new(dir).unwrap();
        copy(&template.join("data"), &launch.data()).unwrap();
        let options = [
            "--innodb-doublewrite=0",
            "--innodb-buffer-pool-size=6M",
            "--innodb-log-file-size=16M",
            "--log-bin=changes",
            "--sync-binlog=1",
            // So that pages are written all the time.
            "--innodb-max-dirty-pages-pct-lwm=0.001",
        ];
        launch.options = options.map(str::to_owned).to_vec();
        launch.environment = vec![("FOREBAY_RUN_DIR".into(), sandbox.file("run").into())];
        let mut world = Self { sandbox, launch };
        world.launch.wrapper = world.wrapper(&["--flash-size", FLASH]);
        // Flash and files are on one disk here: by itself the cache would find that flash does not pay.
        fs::write(
            world.launch.dir.join("flash.settings"),
            r#"{"policy":"back"}"#,
        )
        .unwrap();
        Some(world)
    }

    fn flash(&self) -> PathBuf {
        self.launch.dir.join("flash")
    }

    fn wrapper(&self, options: &[&str]) -> Vec<OsString> {
        let mut line: Vec<OsString> = [FOREBAY, "run", "--explain", "--flash"]
            .map(OsString::from)
            .to_vec();
        line.push(self.flash().into());
        line.extend(options.iter().map(OsString::from));
        line.push("--".into());
        line
    }

    fn start(&self) -> Server {
        Server::start(&self.launch).unwrap()
    }

    /// The same server without Forebay.
    fn plain(&self) -> Result<Server, BenchError> {
        let launch = Launch {
            wrapper: Vec::new(),
            ..self.launch.clone()
        };
        Server::start(&launch)
    }

    /// `forebay` with these arguments.
    fn forebay(&self, line: &str) -> Ran {
        let mut command = self.sandbox.command(line);
        Ran::of(
            command
                .env("FOREBAY_RUN_DIR", self.sandbox.file("run"))
                .output()
                .unwrap(),
        )
    }

    fn flush(&self) -> Ran {
        self.forebay("flush --flash flash")
    }

    /// A start that must fail: what was said.
    fn refused(&self) -> String {
        match Server::start(&self.launch) {
            Ok(_) => panic!("the server came up"),
            Err(_) => fs::read_to_string(self.launch.dir.join("server.out")).unwrap(),
        }
    }
}

/// A table larger than the buffer pool.
fn fill(server: &Server) {
    server
        .sql(
            "CREATE DATABASE IF NOT EXISTS stock; \
             CREATE TABLE stock.s (id INT PRIMARY KEY, k INT, v VARCHAR(300), KEY(k)); \
             INSERT INTO stock.s SELECT seq, seq * 7919 % 10007, REPEAT('s', 300) FROM stock.seq_1_to_20000",
            "",
        )
        .unwrap();
}

/// Changes rows all over the table until the connection breaks, or `done`.
fn churn(server: &Server, done: &AtomicBool) {
    let Ok(mut connection) = Connection::connect(server.socket()) else {
        return;
    };
    for round in 1u64.. {
        let update = format!(
            "UPDATE stock.s SET k = k + 1 WHERE id % 997 = {}",
            round * 31 % 997
        );
        if done.load(Relaxed) || connection.query(&update).is_err() {
            return;
        }
    }
}

fn sound(server: &Server, table: &str) {
    let said = server
        .sql(&format!("CHECK TABLE {table} EXTENDED"), "")
        .unwrap();
    let last = said.lines().last().unwrap_or_default();
    assert!(last.ends_with("status\tOK"), "{said}");
}

/// Kills `strikes` times under load; each start goes on with what is in the cache.
fn storm(name: &str, strikes: usize, world: &World) {
    let mut random = random(name);
    let mut writers = Writer::several(3, &mut random);
    for number in 0..strikes {
        let mut server = world.start();
        match number {
            0 => {
                make_table(&server);
                fill(&server);
            }
            _ => {
                let said = server.output();
                assert!(!said.contains("flash: 0 pages"), "not warm: {said}");
                check(&server, &mut writers);
                sound(&server, "stock.s");
            }
        }
        let strike = Strike::number(number);
        let (done, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
        let wait = moment(&mut random, 1500);
        thread::scope(|scope| {
            for writer in &mut writers {
                scope.spawn(|| writer.write::<Connection>(server.socket(), &done, &acknowledged));
            }
            scope.spawn(|| churn(&server, &done));
            thread::sleep(wait);
            strike.strike(server.server(), server.outer(), || {});
        });
        let status = server.wait().unwrap();
        println!(
            "{name}, strike {number}, {strike:?}: {} acknowledged",
            acknowledged.load(Relaxed)
        );
        strike.check(status);
        let refused: Vec<_> = writers.iter().filter_map(|w| w.refused.clone()).collect();
        assert!(refused.is_empty(), "{refused:?}");
    }
    let server = world.start();
    check(&server, &mut writers);
    sound(&server, "stock.s");
    server.stop().unwrap();
    // What is in the cache is in the files, too, when it was flushed.
    world.flush().ok();
    let server = world.plain().unwrap();
    check(&server, &mut writers);
    sound(&server, "stock.s");
    server.stop().unwrap();
}

#[test]
fn nothing_acknowledged_is_lost_and_no_page_is_torn_whoever_is_killed() {
    if let Some(world) = World::new() {
        storm("killed", 4, &world);
    }
}

#[test]
fn with_the_redo_log_in_a_pool_nothing_acknowledged_is_lost_either() {
    let pool = small_pool();
    let Some(mut world) = World::new() else {
        return;
    };
    let pool = pool.path().to_str().unwrap();
    let contents = ["--flash-contents", "all"];
    let options = ["--flash-size", FLASH, "--pool", pool];
    world.launch.wrapper = world.wrapper(&[options.as_slice(), &contents].concat());
    storm("with a pool", 3, &world);
}

impl Cut for World {
    type Server = Server;

    fn start(&mut self, boot: usize) -> Result<Server, BenchError> {
        boot_anew(&mut self.launch.environment, boot);
        Server::start(&self.launch)
    }

    fn make_table(server: &Server) {
        make_table(server);
        fill(server);
    }

    fn write(server: &Server, writer: &mut Writer, all: &AtomicU64) {
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| churn(server, &done));
            writer.write::<Connection>(server.socket(), &AtomicBool::new(false), all);
            done.store(true, Relaxed);
        });
    }

    fn kill(server: &Server) {
        server.outer().signal(Signal::KILL);
        server.server().signal(Signal::KILL);
    }

    fn faults(server: &Server, writers: &mut [Writer]) -> Result<(), String> {
        faults(server, writers)?;
        sound(server, "stock.s");
        Ok(())
    }
}

/// The logs are in a pool on ext4: a sync that is under way when an ext4 is shut down may return as if it had succeeded, which would be taken for
/// a loss of the binary log.
#[test]
fn nothing_acknowledged_is_lost_when_data_and_flash_are_cut_off_at_once() {
    for kind in ["ext4", "xfs"] {
        let pool = small_pool();
        let sandbox = Sandbox::new();
        let mut random = random(kind);
        let Some(mut disk) = Disk::make(sandbox.path(), kind) else {
            return;
        };
        let dir = disk.at.join("mariadb");
        fs::create_dir(&dir).unwrap();
        let Some(mut world) = World::within(sandbox, &dir) else {
            return;
        };
        if kind == "ext4" {
            let pool = pool.path().to_str().unwrap();
            world.launch.wrapper = world.wrapper(&["--flash-size", FLASH, "--pool", pool]);
        }
        let rounds = std::env::var("FOREBAY_CUTS").map_or(2, |rounds| rounds.parse().unwrap());
        cut(&mut world, &mut disk, rounds, &mut random).unwrap();
    }
}

/// A checkpoint of InnoDB's overtakes the names of files, which nothing else makes durable so soon.
#[test]
fn a_table_that_was_rebuilt_or_replaced_before_a_checkpoint_is_whole_after_the_file_system_is_cut_off()
 {
    let pool = small_pool();
    let sandbox = Sandbox::new();
    let Some(mut disk) = Disk::make(sandbox.path(), "ext4") else {
        return;
    };
    let dir = disk.at.join("mariadb");
    fs::create_dir(&dir).unwrap();
    let Some(mut world) = World::within(sandbox, &dir) else {
        return;
    };
    let path = pool.path().to_str().unwrap().to_owned();
    world.launch.wrapper = world.wrapper(&["--flash-size", FLASH, "--pool", &path]);
    const CHANGES: [&str; 3] = [
        "ALTER TABLE t.other FORCE",
        "CREATE OR REPLACE TABLE t.other (id INT PRIMARY KEY, v VARCHAR(200)) SELECT seq AS id, 'z' AS v FROM t.seq_1_to_40",
        "TRUNCATE TABLE t.other",
    ];
    disk.sync();
    for (boot, change) in (0..).zip(CHANGES) {
        let server = Cut::start(&mut world, boot).unwrap();
        let mut connection = Connection::connect(server.socket()).unwrap();
        let mut run = |statement: &str| connection.query(statement).unwrap();
        if boot == 0 {
            run("CREATE DATABASE t");
            run(
                "CREATE TABLE t.other (id INT PRIMARY KEY, v VARCHAR(200)) SELECT seq AS id, 'y' AS v FROM t.seq_1_to_40",
            );
            disk.sync();
        }
        run(change);
        run("SET GLOBAL innodb_max_dirty_pages_pct = 0");
        // Until nothing that was changed is younger than the checkpoint.
        let mut age = || {
            let row = run("SHOW GLOBAL STATUS LIKE 'Innodb_checkpoint_age'");
            let text = row[0][1].clone().unwrap_or_default();
            String::from_utf8(text).unwrap().parse::<u64>().unwrap()
        };
        let begun = std::time::Instant::now();
        while age() > 200 && begun.elapsed().as_secs() < 4 {
            thread::sleep(std::time::Duration::from_millis(20));
        }
        disk.cut();
        <World as Cut>::kill(&server);
        drop(server);
        disk.mount_again();
        let server = Cut::start(&mut world, 10 + boot).unwrap();
        let mut connection = Connection::connect(server.socket()).unwrap();
        let rows = connection.query("CHECK TABLE t.other EXTENDED").unwrap();
        let said = rows.last().and_then(|row| row.last()?.clone());
        assert_eq!(said.as_deref(), Some(&b"OK"[..]), "{change}: {rows:?}");
        let count = connection.query("SELECT COUNT(*) FROM t.other").unwrap();
        let expected: &[u8] = if change.starts_with("TRUNCATE") {
            b"0"
        } else {
            b"40"
        };
        assert_eq!(count[0][0].as_deref(), Some(expected), "{change}");
        drop(connection);
        server.stop().unwrap();
        disk.sync();
    }
}

#[test]
fn a_server_without_forebay_comes_up_only_after_a_flush() {
    let Some(world) = World::new() else { return };
    let server = world.start();
    fill(&server);
    let status = world.forebay("status").ok().text();
    assert!(status.contains("flash cache"), "{status}");
    let said = server.stop().unwrap();
    assert!(
        said.contains("before the server is started without"),
        "{said}"
    );

    let error = world.plain().map(drop).unwrap_err().to_string();
    assert!(error.contains("ibdata1"), "{error}");
    let doctor = world.forebay("doctor data");
    assert_eq!(doctor.code, Some(1));
    assert!(doctor.text().contains("forebay flush --flash"));

    let flushed = world.flush().ok().text();
    assert!(
        flushed.contains("may be started without Forebay"),
        "{flushed}"
    );
    assert!(world.forebay("doctor data").ok().text().contains("no pool"));
    let server = world.plain().unwrap();
    sound(&server, "stock.s");
    server.sql("UPDATE stock.s SET k = -1", "").unwrap();
    server.stop().unwrap();
    // Nothing of what the cache had then is believed now.
    let server = world.start();
    let rows = server.sql("SELECT COUNT(*) FROM stock.s WHERE k = -1", "");
    assert_eq!(rows.unwrap().trim(), "20000");
    sound(&server, "stock.s");
    server.stop().unwrap();
    world.flush().ok();
    assert!(world.flush().ok().text().contains(": 0 pages"));
}

#[test]
fn tables_that_are_truncated_dropped_and_altered_stay_so_after_a_kill() {
    let Some(mut world) = World::new() else {
        return;
    };
    let undo = [
        "--innodb-undo-tablespaces=3",
        "--innodb-max-undo-log-size=10M",
    ];
    let undo = undo.iter().chain(&["--innodb-undo-log-truncate=1"]);
    world.launch.options.extend(undo.map(|o| (*o).to_owned()));
    let mut server = world.start();
    fill(&server);
    server
        .sql(
            "CREATE TABLE t LIKE s; INSERT INTO t SELECT * FROM s; CREATE TABLE d LIKE s; INSERT INTO d SELECT * FROM s LIMIT 9000; \
             CREATE TABLE a LIKE s; INSERT INTO a SELECT * FROM s LIMIT 9000; CREATE TABLE r LIKE s; INSERT INTO r SELECT * FROM s LIMIT 500; \
             CREATE TABLE z (id INT PRIMARY KEY, v VARCHAR(300)) ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=8; INSERT INTO z SELECT id, v FROM s LIMIT 5000; \
             CREATE TABLE p (id INT PRIMARY KEY, v VARCHAR(300)) PAGE_COMPRESSED=1; INSERT INTO p SELECT id, v FROM s LIMIT 5000; \
             TRUNCATE TABLE t; INSERT INTO t SELECT * FROM s LIMIT 100; DROP TABLE d; CREATE TABLE d LIKE s; INSERT INTO d SELECT * FROM s LIMIT 50; \
             ALTER TABLE a ADD COLUMN n INT DEFAULT 7, ALGORITHM=COPY; RENAME TABLE r TO q; ALTER TABLE q ADD INDEX (v), ALGORITHM=INPLACE; \
             UPDATE s SET v = REPEAT('u', 300); SET GLOBAL innodb_purge_rseg_truncate_frequency = 1; DELETE FROM s WHERE id % 2 = 0",
            "stock",
        )
        .unwrap();
    let said = server.output();
    for table in ["/z.ibd stays plain", "/p.ibd stays plain"] {
        assert!(said.contains(table), "{table}: {said}");
    }
    Strike::Database.strike(server.server(), server.outer(), || {});
    server.wait().unwrap();
    let checked = |server: &Server| {
        for table in ["t", "d", "a", "q", "z", "p", "s"] {
            sound(server, &format!("stock.{table}"));
        }
        let counts = server.sql(
            "SELECT COUNT(*) FROM t; SELECT COUNT(*) FROM d; SELECT COUNT(*), SUM(n) FROM a; SELECT COUNT(*) FROM q; SELECT COUNT(*) FROM s WHERE v LIKE 'uu%'",
            "stock",
        );
        assert_eq!(counts.unwrap(), "100\n50\n9000\t63000\n500\n10000\n");
    };
    let server = world.start();
    checked(&server);
    server.stop().unwrap();
    world.flush().ok();
    let server = world.plain().unwrap();
    checked(&server);
    server.stop().unwrap();
}

#[test]
fn a_cache_that_does_not_go_with_the_data_is_refused_and_kept() {
    let Some(world) = World::new() else { return };
    let server = world.start();
    fill(&server);
    // Another server with the same cache.
    let Some(mut other) = World::new() else {
        return;
    };
    other.launch.wrapper = world.launch.wrapper.clone();
    let said = other.refused();
    assert!(said.contains("in use by another process"), "{said}");
    let busy = world.flush();
    busy.fails(1, &["in use by another process"]);
    server.stop().unwrap();

    // Another data directory.
    let said = other.refused();
    assert!(said.contains("pages of another data directory"), "{said}");
    // A copy that was made while the pages were in the cache.
    let data = other.launch.data();
    fs::remove_dir_all(&data).unwrap();
    copy(&world.launch.data(), &data).unwrap();
    let said = other.refused();
    assert!(said.contains("it is a copy"), "{said}");
    assert_eq!(other.forebay("doctor data").code, Some(1));
    // The data directory moved, and with its name.
    let (here, there) = (world.launch.data(), world.sandbox.file("moved"));
    fs::rename(&here, &there).unwrap();
    world.flush().fails(1, &["is not there", "--data"]);
    world.forebay("flush --flash flash --data moved").ok();
    fs::rename(&there, &here).unwrap();
    let server = world.plain().unwrap();
    sound(&server, "stock.s");
    server.stop().unwrap();
}

#[test]
fn a_page_that_is_damaged_on_flash_is_named_and_the_older_one_is_not_served() {
    let Some(world) = World::new() else { return };
    let server = world.start();
    fill(&server);
    server.stop().unwrap();
    let whole = fs::read(world.flash()).unwrap();
    // The slots; the headers and the checkpoints are in front of them.
    let mut damaged = whole.clone();
    let slots = damaged.len() / 8;
    damaged[slots..].iter_mut().for_each(|byte| *byte ^= 1);
    fs::write(world.flash(), &damaged).unwrap();
    let said = world.refused();
    assert!(said.contains("is damaged in the flash cache"), "{said}");
    world.flush().fails(1, &["are damaged in the flash cache"]);
    assert!(world.plain().is_err(), "the guard was lifted");
    fs::write(world.flash(), &whole).unwrap();
    let server = world.start();
    sound(&server, "stock.s");
    server.stop().unwrap();
}

#[test]
fn written_through_everything_is_in_the_files_after_a_sync() {
    let Some(mut world) = World::new() else {
        return;
    };
    let options = ["--flash-size", FLASH, "--flash-policy", "through"];
    world.launch.wrapper = world.wrapper(&options);
    let server = world.start();
    fill(&server);
    sound(&server, "stock.s");
    let said = server.stop().unwrap();
    assert!(
        said.contains("of them 0 newer than in the files; "),
        "{said}"
    );
    assert!(
        !said.contains("before the server is started without"),
        "{said}"
    );
    world.flush().ok();
    let server = world.plain().unwrap();
    sound(&server, "stock.s");
    server.stop().unwrap();
}

#[test]
fn a_tablespace_that_was_written_to_without_the_cache_is_refused() {
    let Some(world) = World::new() else { return };
    let before = fs::read(world.launch.data().join("ibdata1")).unwrap();
    let server = world.start();
    fill(&server);
    server.stop().unwrap();
    let path = world.launch.data().join("ibdata1");
    let tablespace = fs::OpenOptions::new().write(true).open(path).unwrap();
    let page: Vec<u8> = before[..16 << 10].to_vec();
    tablespace.write_all_at(&page, 0).unwrap();
    let said = world.refused();
    assert!(
        said.contains("was written to without the flash cache"),
        "{said}"
    );
    world
        .flush()
        .fails(1, &["was written to without the flash cache"]);
}

#[test]
fn what_is_no_flash_cache_or_cannot_be_one_is_refused_in_a_sentence() {
    let sandbox = Sandbox::new();
    let run = |line: &str| {
        let line = format!("run {line} -- mariadbd --no-defaults --help");
        let mut command = sandbox.command(&line);
        Ran::of(
            command
                .env("FOREBAY_RUN_DIR", sandbox.file("r"))
                .output()
                .unwrap(),
        )
    };
    if server::program("mariadbd").is_err() {
        return;
    }
    run("--flash f").fails(2, &["--flash-size"]);
    run("--flash f --flash-size 1MiB").fails(1, &["cannot be made"]);
    assert!(!sandbox.file("f").exists() && !sandbox.file("f.lane").exists());
    fs::write(sandbox.file("f"), vec![7; 1 << 20]).unwrap();
    run("--flash f").fails(1, &["f.lane", "not there"]);
    fs::remove_file(sandbox.file("f")).unwrap();
    run("--flash f --flash-size 16MiB").ok();
    run("--flash f --flash-size 32MiB").fails(2, &["is there and has 16 MiB"]);
    fs::rename(sandbox.file("f.lane"), sandbox.file("kept")).unwrap();
    run("--flash f").fails(1, &["nobody knows which pages"]);
    fs::rename(sandbox.file("f"), sandbox.file("g")).unwrap();
    fs::rename(sandbox.file("kept"), sandbox.file("f.lane")).unwrap();
    run("--flash f --flash-size 16MiB").fails(1, &["metadata of a cache"]);
    fs::rename(sandbox.file("g"), sandbox.file("f")).unwrap();
    sandbox.edit("f", |bytes| bytes[..8192].fill(7));
    run("--flash f").fails(1, &["is not a flash cache"]);
    let other = sandbox.run("run --flash h --flash-size 16MiB -- cat");
    other.fails(2, &["a flash cache is for MariaDB"]);
    let line =
        "run --flash h --flash-size 16MiB -- mariadbd --innodb_flush_method=O_DIRECT_NO_FSYNC";
    sandbox.run(line).fails(2, &["does not sync its pages"]);
}

impl World {
    /// From now on flash fails to do what `faults` names, in this world's processes.
    fn break_flash(&self, faults: &str) {
        fs::write(self.launch.dir.join("faults"), faults).unwrap();
    }

    fn mend_flash(&self) {
        fs::remove_file(self.launch.dir.join("faults")).unwrap();
    }

    fn breakable() -> Option<Self> {
        let mut world = Self::new()?;
        let faults = world.launch.dir.join("faults");
        let environment = &mut world.launch.environment;
        environment.push(("FOREBAY_TEST_FLASH_FAULT".into(), faults.into()));
        Some(world)
    }

    fn status(&self) -> serde_json::Value {
        let bytes = fs::read(self.launch.dir.join("flash.status")).unwrap();
        serde_json::from_slice(&bytes).unwrap()
    }

    /// Waits until the server's log says it.
    fn says(&self, server: &Server, what: &str) {
        for _ in 0..300 {
            if server.output().contains(what) {
                return;
            }
            thread::sleep(std::time::Duration::from_millis(100));
        }
        panic!("{what:?} is not said: {}", server.output());
    }

    /// Waits until the status says it.
    fn until(&self, what: &str, is: impl Fn(&serde_json::Value) -> bool) {
        for _ in 0..300 {
            if is(&self.status()) {
                return;
            }
            thread::sleep(std::time::Duration::from_millis(100));
        }
        panic!("never {what}: {}", self.status());
    }
}

fn sum(server: &Server) -> String {
    let rows = server.sql("SELECT COUNT(*), SUM(k) FROM stock.s", "");
    rows.unwrap().trim().to_owned()
}

#[test]
fn flash_that_takes_no_pages_is_written_around_and_nothing_is_lost_or_torn_by_a_kill() {
    let Some(world) = World::breakable() else {
        return;
    };
    let mut server = world.start();
    fill(&server);
    world.break_flash("write");
    let update = "UPDATE stock.s SET k = k + 1";
    let updated = server.sql(update, "");
    assert!(updated.is_ok(), "{updated:?}: {}", server.output());
    world.says(&server, "are written to their files at once");
    server
        .sql("UPDATE stock.s SET k = k + 1 WHERE id % 3 = 0", "")
        .unwrap();
    let before = sum(&server);
    world.until("everything is home", |status| {
        status["dirty_pages"] == 0 && status["around_pages"].as_u64() > Some(100)
    });
    let said = world.forebay("status").ok().text();
    assert!(said.contains("Pages go straight to the files"), "{said}");
    Strike::Database.strike(server.server(), server.outer(), || {});
    server.wait().unwrap();
    // Still broken, and then not any more.
    let server = world.start();
    assert_eq!(sum(&server), before);
    sound(&server, "stock.s");
    server.sql("UPDATE stock.s SET k = k + 1", "").unwrap();
    world.says(&server, "are written to their files at once");
    world.mend_flash();
    let before = sum(&server);
    world.says(&server, "the flash cache takes pages again");
    server
        .sql("UPDATE stock.s SET k = k + 1 WHERE id % 7 = 0", "")
        .unwrap();
    sound(&server, "stock.s");
    let after = sum(&server);
    assert_ne!(before, after);
    server.stop().unwrap();
    world.flush().ok();
    let server = world.plain().unwrap();
    assert_eq!(sum(&server), after);
    sound(&server, "stock.s");
    server.stop().unwrap();
}

#[test]
fn pages_that_flash_cannot_give_are_named_and_the_server_never_gets_older_ones() {
    let Some(world) = World::breakable() else {
        return;
    };
    let server = world.start();
    fill(&server);
    server.sql("UPDATE stock.s SET k = 7", "").unwrap();
    server.stop().unwrap();
    world.break_flash("read write");
    // A checkpoint of the metadata must be read, before anything else.
    let said = world.refused();
    assert!(
        said.contains("flash") && !said.contains("ready for connections"),
        "{said}"
    );
    world.mend_flash();

    let mut server = world.start();
    world.break_flash("read write");
    let dirty = world.status()["dirty_pages"].as_u64().unwrap();
    assert!(dirty > 0, "{}", world.status());
    server
        .sql("UPDATE stock.s SET v = 'x' WHERE id = 1", "")
        .ok();
    // Whatever it still answers is right.
    for id in (1..20_000).step_by(1117) {
        match server.sql(&format!("SELECT k FROM stock.s WHERE id = {id}"), "") {
            Ok(found) => assert_eq!(found.trim(), "7", "of {id}"),
            Err(_) => break,
        }
    }
    server.server().signal(Signal::KILL);
    let _ = server.wait();
    let said = fs::read_to_string(world.launch.dir.join("server.out")).unwrap();
    assert!(
        said.contains("could not be read from flash") || said.contains("cannot be read from flash"),
        "{said}"
    );
    assert!(said.contains("stock/s.ibd"), "{said}");
    world.mend_flash();

    let server = world.start();
    let rows = server.sql("SELECT COUNT(*) FROM stock.s WHERE k = 7", "");
    assert_eq!(rows.unwrap().trim(), "20000");
    sound(&server, "stock.s");
    server.stop().unwrap();
}

#[test]
fn a_copy_of_the_cache_on_another_disk_is_flushed_as_well_as_the_cache() {
    let Some(world) = World::new() else { return };
    let server = world.start();
    fill(&server);
    let before = sum(&server);
    server.stop().unwrap();
    for (from, to) in [("flash", "rescued"), ("flash.lane", "rescued.lane")] {
        fs::copy(world.launch.dir.join(from), world.launch.dir.join(to)).unwrap();
    }
    world.forebay("flush --flash rescued").ok();
    let server = world.plain().unwrap();
    assert_eq!(sum(&server), before);
    sound(&server, "stock.s");
    server.stop().unwrap();
    // The one that was left behind is of another state of the data by now.
    let said = world.refused();
    assert!(
        said.contains("was written to without the flash cache"),
        "{said}"
    );
}

#[test]
fn after_writing_through_a_cache_that_is_lost_can_be_given_up_and_nothing_is_missing() {
    let Some(mut world) = World::new() else {
        return;
    };
    world.launch.wrapper = world.wrapper(&["--flash-size", FLASH, "--flash-policy", "through"]);
    let server = world.start();
    fill(&server);
    let before = sum(&server);
    server.stop().unwrap();
    let give_up = "flush --cache-is-lost --data data";
    world
        .forebay(give_up)
        .fails(1, &["is there", "forebay flush --flash"]);
    fs::remove_file(world.flash()).unwrap();
    fs::remove_file(world.launch.dir.join("flash.lane")).unwrap();
    assert!(world.plain().is_err());
    let said = world.forebay(give_up).ok().text();
    assert!(said.contains("may be started without Forebay"), "{said}");
    world.forebay(give_up).fails(1, &["nothing to give up"]);
    let server = world.plain().unwrap();
    assert_eq!(sum(&server), before);
    sound(&server, "stock.s");
    server.stop().unwrap();
}

#[test]
fn policies_are_switched_while_the_server_writes_and_a_kill_at_any_time_loses_nothing() {
    let Some(world) = World::new() else { return };
    let mut server = world.start();
    fill(&server);
    let set = |line: &str| world.forebay(&format!("flash set --flash flash {line}"));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| churn(&server, &done));
        for policy in ["through", "around", "back", "off", "back", "around"] {
            let said = set(&format!("--policy {policy}")).ok().text();
            assert!(said.contains("kept for its next runs"), "{said}");
            assert_eq!(world.status()["settings"]["policy"], policy);
            thread::sleep(std::time::Duration::from_millis(400));
        }
        set("--policy off --home-limit 500MiB --low 10 --high 20").ok();
        done.store(true, Relaxed);
    });
    server.sql("UPDATE stock.s SET k = k + 1", "").unwrap();
    world.until("empty", |status| {
        status["slots_used"].as_u64() < Some(70) && status["dirty_pages"] == 0
    });
    let before = sum(&server);
    Strike::Both.strike(server.server(), server.outer(), || {});
    let _ = server.wait();
    // What was set is kept, and the command line goes before it.
    let server = world.start();
    assert_eq!(world.status()["settings"]["policy"], "off");
    assert_eq!(world.status()["settings"]["high"], 20);
    assert_eq!(sum(&server), before);
    sound(&server, "stock.s");
    server.stop().unwrap();
    let mut other = world;
    other.launch.wrapper = other.wrapper(&["--flash-policy", "back", "--flash-home-limit", "1MiB"]);
    let server = other.start();
    assert_eq!(other.status()["settings"]["policy"], "back");
    assert_eq!(other.status()["settings"]["home_bytes_per_second"], 1 << 20);
    assert_eq!(other.status()["settings"]["high"], 20);
    server.stop().unwrap();
    let kept = other
        .forebay("flash set --flash flash --policy back")
        .ok()
        .text();
    assert!(kept.contains("no server runs with it"), "{kept}");
    other
        .forebay("flash set --flash flash")
        .fails(2, &["nothing is to be set"]);
    other
        .forebay("flash set --flash flash --low 30 --high 20")
        .fails(2, &["must not be above"]);
    other
        .forebay("flash set --flash nowhere --policy back")
        .fails(1, &["nowhere"]);
}

#[test]
fn a_cache_of_another_size_has_nothing_that_was_not_written_to_it() {
    let Some(mut world) = World::new() else {
        return;
    };
    let server = world.start();
    fill(&server);
    let before = sum(&server);
    let resize = |size: &str| world.forebay(&format!("flash resize --flash flash {size}"));
    resize("24MiB").fails(1, &["in use by another process"]);
    server.stop().unwrap();
    resize("1MiB").fails(1, &["cannot be made"]);
    let said = resize("24MiB").ok().text();
    assert!(said.contains("24 MiB now"), "{said}");
    world.launch.wrapper = world.wrapper(&[]);
    let server = world.start();
    assert_eq!(sum(&server), before);
    sound(&server, "stock.s");
    server.sql("UPDATE stock.s SET k = k + 1", "").unwrap();
    let before = sum(&server);
    server.stop().unwrap();
    world.forebay("flash resize --flash flash 9MiB").ok();
    let server = world.start();
    assert_eq!(sum(&server), before);
    sound(&server, "stock.s");
    server.stop().unwrap();
}

#[test]
fn a_cache_may_be_on_a_device_that_is_nobodys_and_its_metadata_beside_a_link_to_it() {
    let Some(mut world) = World::new() else {
        return;
    };
    let image = world.launch.dir.join("image");
    fs::write(&image, vec![0; 16 << 20]).unwrap();
    let Some(device) = Loop::of(&image, 4096) else {
        return;
    };
    let line = |flash: &str, size: &str| {
        world.forebay(&format!(
            "run --flash {flash} --flash-size {size} -- mariadbd --no-defaults --help"
        ))
    };
    line(&device.path, "14MiB").fails(1, &["in memory", "ln -s"]);
    std::os::unix::fs::symlink(&device.path, world.flash()).unwrap();
    line("flash", "32MiB").fails(1, &["16777216 bytes"]);
    let write = |at: u64, bytes: &[u8]| {
        let file = fs::OpenOptions::new()
            .write(true)
            .open(&device.path)
            .unwrap();
        file.write_all_at(bytes, at).unwrap();
        file.sync_all().unwrap();
    };
    // Of a partition table whose beginning is gone, and of an array, only the end tells.
    let array = 0xA92B_4EFC_u32.to_le_bytes();
    let held: [(u64, &[u8], &str); 4] = [
        (65536 + 64, b"_BHRfS_M", "a Btrfs file system"),
        ((16 << 20) - 512, b"EFI PART", "a partition table (GPT)"),
        (
            (16 << 20) - 8192,
            &array,
            "a member of a Linux software RAID",
        ),
        (100_000, b"mine", "data of a kind that is not known"),
    ];
    for (at, bytes, what) in held {
        write(at, bytes);
        let words = ["it holds", what, "wipefs", "Nothing was changed"];
        line("flash", "14MiB").fails(1, &words);
        write(at, &vec![0; bytes.len()]);
    }
    assert!(!world.launch.dir.join("flash.lane").exists());

    world.launch.wrapper = world.wrapper(&["--flash-size", FLASH]);
    let mut server = world.start();
    fill(&server);
    let busy = world.flush();
    busy.fails(1, &["in use by another process"]);
    let before = sum(&server);
    Strike::Both.strike(server.server(), server.outer(), || {});
    let _ = server.wait();
    world.launch.wrapper = world.wrapper(&[]);
    let server = world.start();
    assert_eq!(sum(&server), before);
    sound(&server, "stock.s");
    server.stop().unwrap();
    world.flush().ok();
    let server = world.plain().unwrap();
    assert_eq!(sum(&server), before);
    server.stop().unwrap();
}

#[test]
fn a_table_that_is_imported_is_read_as_it_was_copied_in_also_after_a_kill() {
    let Some(world) = World::new() else { return };
    let server = world.plain().unwrap();
    fill(&server);
    let before = sum(&server);
    let data = world.launch.data();
    // The lock that is left by the connection's end is not needed: nothing writes.
    server
        .sql("FLUSH TABLES stock.s FOR EXPORT; SYSTEM cp DATA/stock/s.ibd DATA/stock/s.cfg DATA/..; UNLOCK TABLES".replace("DATA", data.to_str().unwrap()).as_str(), "")
        .unwrap();
    server.stop().unwrap();
    let mut server = world.start();
    assert!(
        server
            .output()
            .contains("on the same file system as the data"),
        "{}",
        server.output()
    );
    server
        .sql(
            "UPDATE s SET k = 0; CREATE TABLE i LIKE s; ALTER TABLE i DISCARD TABLESPACE",
            "stock",
        )
        .unwrap();
    for kind in ["ibd", "cfg"] {
        let to = data.join("stock").join(format!("i.{kind}"));
        fs::copy(data.join("..").join(format!("s.{kind}")), to).unwrap();
    }
    server
        .sql("ALTER TABLE i IMPORT TABLESPACE", "stock")
        .unwrap();
    let imported = |server: &Server| {
        let rows = server
            .sql("SELECT COUNT(*), SUM(k) FROM stock.i", "")
            .unwrap();
        assert_eq!(rows.trim(), before);
        sound(server, "stock.i");
        sound(server, "stock.s");
    };
    imported(&server);
    Strike::Database.strike(server.server(), server.outer(), || {});
    server.wait().unwrap();
    let server = world.start();
    imported(&server);
    server.stop().unwrap();
    world.flush().ok();
    let server = world.plain().unwrap();
    imported(&server);
    server.stop().unwrap();
}
