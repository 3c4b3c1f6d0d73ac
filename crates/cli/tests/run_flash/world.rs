//! Shared by the tests of the flash cache: a MariaDB server with a data directory and a cache of
//! its own, and the table that they change.

use crate::common::{FOREBAY, Ran, Sandbox, skip};
use forebay_bench::{
    BenchError,
    mariadb::{
        client::Connection,
        server::{self, Launch, Server, copy},
    },
    sql::Client,
};
use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};
use tempfile::TempDir;

/// Small, so that pages leave the buffer pool, and the queue turns.
pub const FLASH: &str = "14MiB";

/// A data directory that was just made; none without MariaDB. It stays, for the next run of the
/// tests with the same version of the server.
fn template() -> Option<&'static Path> {
    static MADE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        let programs = ["mariadbd", "mariadb-install-db", "mariadb"];
        if let Some(missing) = programs.iter().find_map(|name| server::program(name).err()) {
            skip(&missing);
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
pub struct World {
    pub sandbox: Sandbox,
    pub launch: Launch,
}

impl World {
    pub fn new() -> Option<Self> {
        template()?;
        let sandbox = Sandbox::on_disk();
        let dir = sandbox.path().to_owned();
        Self::within(sandbox, &dir)
    }

    /// One whose server has begun and has a table larger than its buffer pool ([`fill`]).
    pub fn filled() -> Option<(Self, Server)> {
        let world = Self::new()?;
        let server = world.start();
        fill(&server);
        Some((world, server))
    }

    /// With everything of the server and the cache in `dir`.
    pub fn within(sandbox: Sandbox, dir: &Path) -> Option<Self> {
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
        Some(world)
    }

    pub fn flash(&self) -> PathBuf {
        self.launch.dir.join("flash")
    }

    pub fn wrapper(&self, options: &[&str]) -> Vec<OsString> {
        let mut line: Vec<OsString> = [FOREBAY, "run", "--explain", "--flash"]
            .map(OsString::from)
            .to_vec();
        line.push(self.flash().into());
        line.extend(options.iter().map(OsString::from));
        line.push("--".into());
        line
    }

    pub fn start(&self) -> Server {
        Server::start(&self.launch).unwrap()
    }

    /// The same server without Forebay.
    pub fn plain(&self) -> Result<Server, BenchError> {
        let launch = Launch {
            wrapper: Vec::new(),
            ..self.launch.clone()
        };
        Server::start(&launch)
    }

    /// `forebay` with these arguments.
    pub fn forebay(&self, line: &str) -> Ran {
        let mut command = self.sandbox.command(line);
        Ran::of(
            command
                .env("FOREBAY_RUN_DIR", self.sandbox.file("run"))
                .output()
                .unwrap(),
        )
    }

    /// Makes the cache with these settings, before a run does it.
    pub fn create(&self, settings: &str) {
        let flash = self.flash();
        let line = format!(
            "flash create --flash {} {FLASH} {settings}",
            flash.display()
        );
        self.forebay(&line).ok();
    }

    pub fn flush(&self) -> Ran {
        self.forebay("flash flush --flash flash")
    }

    /// A start that must fail: what was said.
    pub fn refused(&self) -> String {
        match Server::start(&self.launch) {
            Ok(_) => panic!("the server came up"),
            Err(_) => fs::read_to_string(self.launch.dir.join("server.out")).unwrap(),
        }
    }

    pub fn breakable() -> Option<Self> {
        let mut world = Self::new()?;
        let faults = world.sandbox.faults();
        let environment = &mut world.launch.environment;
        environment.push(("FOREBAY_TEST_FAULTS".into(), faults.into()));
        Some(world)
    }

    pub fn status(&self) -> serde_json::Value {
        let bytes = fs::read(self.launch.dir.join("flash.status")).unwrap();
        serde_json::from_slice(&bytes).unwrap()
    }

    /// Waits until the server's log says it.
    pub fn says(&self, server: &Server, what: &str) {
        for _ in 0..1200 {
            if server.output().contains(what) {
                return;
            }
            thread::sleep(std::time::Duration::from_millis(100));
        }
        panic!("{what:?} is not said: {}", server.output());
    }

    /// Waits until the status says it.
    pub fn until(&self, what: &str, is: impl Fn(&serde_json::Value) -> bool) {
        for _ in 0..1200 {
            if is(&self.status()) {
                return;
            }
            thread::sleep(std::time::Duration::from_millis(100));
        }
        panic!("never {what}: {}", self.status());
    }
}

/// A table larger than the buffer pool.
pub fn fill(server: &Server) {
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
pub fn churn(server: &Server, done: &AtomicBool) {
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

pub fn sound(server: &Server, table: &str) {
    let said = server
        .sql(&format!("CHECK TABLE {table} EXTENDED"), "")
        .unwrap();
    let last = said.lines().last().unwrap_or_default();
    assert!(last.ends_with("status\tOK"), "{said}");
}

pub fn sum(server: &Server) -> String {
    let rows = server.sql("SELECT COUNT(*), SUM(k) FROM stock.s", "");
    rows.unwrap().trim().to_owned()
}

/// What the server has is in its files once it is stopped and the cache is flushed: a server
/// without Forebay finds it, whole.
pub fn has_flushed(world: &World, server: Server, expected: &str) {
    server.stop().unwrap();
    world.flush().ok();
    let server = world.plain().unwrap();
    assert_eq!(sum(&server), expected);
    sound(&server, "stock.s");
    server.stop().unwrap();
}
