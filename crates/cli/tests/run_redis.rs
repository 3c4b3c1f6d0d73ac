//! Redis and Valkey under `forebay run`, killed again and again with SIGKILL: every acknowledged
//! write is there with its exact bytes, whichever process was killed, also while the append-only
//! file is rewritten.
//!
//! Promise (programs): Redis and Valkey have every acknowledged command after SIGKILL.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    DURABLE_REDIS, Sandbox,
    databases::{PATIENCE, Strike, boot_anew, forebay_run, goes_on, moment, random, small_pool},
    skip,
};
use forebay_bench::{
    data::Random,
    processes::{Handle, Process, find_program},
    redis::{
        resp::{Connection, Reply, is_ok},
        server::{Kind, Launch, Server, free_port},
    },
};
use rustix::process::Signal;
use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

/// What a key's value may be: one thing, once the server has said so; two while it has not.
type Possible = Vec<Option<Vec<u8>>>;

/// One connection's keys, and what it was promised about them.
struct Keeper {
    number: usize,
    random: Random,
    known: BTreeMap<Vec<u8>, Possible>,
    acknowledged: u64,
}

impl Keeper {
    fn new(number: usize, random: Random) -> Self {
        Self {
            number,
            random,
            known: BTreeMap::new(),
            acknowledged: 0,
        }
    }

    /// Writes until the connection breaks or `done`. Every write is remembered before it is sent,
    /// and settled once acknowledged.
    fn write(&mut self, port: u16, done: &AtomicBool, all: &AtomicU64) {
        let Ok(mut connection) = Connection::new(port) else {
            return;
        };
        while !done.load(Relaxed) {
            let key = format!("{}:{}", self.number, self.random.below(2000)).into_bytes();
            let value = (self.random.below(8) > 0).then(|| {
                // Mostly small; at times one that fills much of a segment.
                let bytes_max = if self.random.below(200) == 0 {
                    100_000
                } else {
                    300
                };
                let mut value = vec![0; usize::try_from(self.random.below(bytes_max)).unwrap()];
                self.random.fill(&mut value);
                value
            });
            let before = self.known.entry(key.clone()).or_insert_with(|| vec![None]);
            before.push(value.clone());
            let reply = match &value {
                Some(value) => connection.command(&[b"SET", &key, value]),
                None => connection.command(&[b"DEL", &key]),
            };
            match reply {
                Ok(reply) if is_ok(&reply) => {}
                Ok(Reply::Integer(_)) if value.is_none() => {}
                Ok(other) => panic!("the server answered {other:?}"),
                Err(_) => return,
            }
            self.known.insert(key, vec![value]);
            self.acknowledged += 1;
            all.fetch_add(1, Relaxed);
        }
    }

    /// Every key has a value that it may have; from now on it must have that one.
    fn compare(&mut self, connection: &mut Connection) {
        for (key, possible) in &mut self.known {
            let found = match connection.command(&[b"GET", key]) {
                Ok(Reply::BulkString(found)) => Some(found),
                Ok(Reply::Null) => None,
                other => panic!("GET failed: {other:?}"),
            };
            assert!(
                possible.contains(&found),
                "{}: {} possible values, found {:?} bytes",
                String::from_utf8_lossy(key),
                possible.len(),
                found.map(|f| f.len())
            );
            *possible = vec![found];
        }
    }
}

/// Options beside those of any durable one.
const OPTIONS: [&str; 4] = [
    "--auto-aof-rewrite-min-size",
    "1mb",
    "--enable-debug-command",
    "no",
];

fn launch(kind: Kind, dir: &Path, pool: &Path) -> Option<Launch> {
    match kind.program() {
        Ok(program) => Some(Launch {
            wrapper: forebay_run(pool),
            environment: vec![("FOREBAY_RUN_DIR".into(), dir.join("run").into())],
            options: (DURABLE_REDIS.iter().chain(&OPTIONS).copied())
                .map(str::to_owned)
                .collect(),
            ..Launch::of(program, &dir.join("data"))
        }),
        Err(missing) => {
            skip(&missing);
            None
        }
    }
}

/// Kills `strikes` times. With `other_boots`, every start believes that the machine was booted
/// anew, so that everything in the pool is written to the files again.
fn storm(kind: Kind, strikes: usize, rewriting: bool, other_boots: bool) {
    let mut random = random(&format!("{kind}"));
    let sandbox = Sandbox::new();
    let pool = small_pool();
    let Some(mut launch) = launch(kind, sandbox.path(), pool.path()) else {
        return;
    };
    let port = free_port().unwrap();
    let mut keepers: Vec<Keeper> = (0..4)
        .map(|number| Keeper::new(number, Random::new(random.below(u64::MAX))))
        .collect();
    for number in 0..strikes {
        if other_boots {
            boot_anew(&mut launch.environment, number);
        }
        let mut server = Server::start_on(&launch, port).unwrap();
        let mut connection = server.connect().unwrap();
        keepers
            .iter_mut()
            .for_each(|keeper| keeper.compare(&mut connection));

        let strike = Strike::number(number);
        let (done, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
        let (wait, then) = (moment(&mut random, 500), moment(&mut random, 200));
        let mut went_on = true;
        thread::scope(|scope| {
            for keeper in &mut keepers {
                scope.spawn(|| keeper.write(port, &done, &acknowledged));
            }
            if rewriting {
                scope.spawn(|| save_and_rewrite(port));
            }
            thread::sleep(wait);
            strike.strike(server.server(), server.outer(), || {
                went_on = goes_on(&acknowledged);
                thread::sleep(then);
            });
        });
        assert!(went_on, "no write was acknowledged without the supervisor");
        let status = server.wait().unwrap();
        println!(
            "{kind}, strike {number}, {strike:?}: {} acknowledged; {}",
            acknowledged.load(Relaxed),
            server
                .output()
                .lines()
                .filter(|line| line.starts_with("forebay: lane"))
                .collect::<Vec<_>>()
                .join("; ")
        );
        strike.check(status);
    }
    let server = Server::start_on(&launch, port).unwrap();
    let mut connection = server.connect().unwrap();
    keepers
        .iter_mut()
        .for_each(|keeper| keeper.compare(&mut connection));
    server.stop().unwrap();
    check_files(&launch.dir);
    assert!(
        keepers
            .iter()
            .map(|keeper| keeper.acknowledged)
            .sum::<u64>()
            > 100,
        "the writers hardly wrote"
    );
}

/// Asks for a rewrite of the append-only file and for a snapshot, in turn, until the server is
/// gone.
fn save_and_rewrite(port: u16) {
    let Ok(mut connection) = Connection::new(port) else {
        return;
    };
    for command in ["BGREWRITEAOF", "BGSAVE"].iter().cycle() {
        if connection.line(command).is_err() {
            return;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// redis-check-aof finds nothing wrong with what was appended.
fn check_files(dir: &Path) {
    let Some(check) = find_program("redis-check-aof") else {
        println!("skipped: redis-check-aof is not installed");
        return;
    };
    let mut files = 0;
    for entry in fs::read_dir(dir.join("appendonlydir")).unwrap() {
        let path = entry.unwrap().path();
        if path.to_string_lossy().ends_with(".incr.aof") {
            let said = Command::new(&check).arg(&path).output().unwrap();
            let text = String::from_utf8_lossy(&said.stdout).into_owned();
            assert!(
                said.status.success() && !text.contains("not valid"),
                "{}: {text}",
                path.display()
            );
            files += 1;
        }
    }
    assert!(files > 0);
}

#[test]
fn redis_loses_nothing_in_21_kills() {
    storm(Kind::Redis, 21, false, false);
}

#[test]
fn valkey_loses_nothing_in_21_kills() {
    storm(Kind::Valkey, 21, false, false);
}

#[test]
fn redis_loses_nothing_in_9_kills_while_it_rewrites_and_saves() {
    storm(Kind::Redis, 9, true, false);
}

#[test]
fn redis_loses_nothing_in_9_kills_with_replays_of_the_pool() {
    storm(Kind::Redis, 9, false, true);
}

#[test]
fn valkey_loses_nothing_in_9_kills_with_replays_and_rewrites() {
    storm(Kind::Valkey, 9, true, true);
}

#[test]
fn an_orderly_end_leaves_nothing_in_the_pool() {
    let sandbox = Sandbox::new();
    let pool = small_pool();
    let Some(launch) = launch(Kind::Redis, sandbox.path(), pool.path()) else {
        return;
    };
    let server = Server::start(&launch).unwrap();
    let mut connection = server.connect().unwrap();
    for n in 0..1000 {
        let reply = connection.line(&format!("SET key:{n} value:{n}"));
        assert!(is_ok(&reply.unwrap()));
    }
    let mut status = sandbox.command("status --json");
    let status = common::Ran::of(
        status
            .env("FOREBAY_RUN_DIR", sandbox.file("run"))
            .output()
            .unwrap(),
    )
    .ok()
    .json();
    let file = &status[0]["files"][0];
    assert!(
        file["path"].as_str().unwrap().ends_with(".incr.aof"),
        "{status}"
    );
    assert!(
        file["writes"].as_u64().unwrap() >= 1000 && file["syncs"].as_u64().unwrap() >= 1000,
        "{status}"
    );
    assert_eq!(status[0]["program"], "redis-server");

    let output = sandbox.file("data/server.out");
    server.stop().unwrap();
    let said = fs::read_to_string(output).unwrap();
    assert!(
        said.contains("forebay: profile redis") && said.contains(".incr.aof"),
        "{said}"
    );
    let recover = sandbox
        .run(&format!("recover --pool {} --json", pool.path().display()))
        .ok()
        .json();
    assert_eq!(recover["lanes"], serde_json::json!([]), "{recover}");
    assert_eq!(recover["done"], true);
}

/// Promise (programs): A server that puts itself into the background is absorbed there, and its
/// supervisor stays.
#[test]
fn a_redis_that_goes_into_the_background_is_absorbed_there() {
    const WRITES: u32 = 200;
    let sandbox = Sandbox::new();
    let pool = small_pool();
    let Some(launch) = launch(Kind::Redis, sandbox.path(), pool.path()) else {
        return;
    };
    fs::create_dir_all(&launch.dir).unwrap();
    let (pid_file, said) = (sandbox.file("pid"), sandbox.file("said"));
    for (signal, status) in [(Signal::TERM, 0), (Signal::KILL, 137)] {
        let _ = fs::remove_file(&pid_file);
        let port = free_port().unwrap();
        let mut command = Command::new(&launch.wrapper[0]);
        command
            .args(&launch.wrapper[1..])
            .arg(&launch.program)
            .args(&launch.options)
            .args([
                "--daemonize",
                "yes",
                "--port",
                &port.to_string(),
                "--pidfile",
            ])
            .arg(&pid_file)
            .arg("--dir")
            .arg(&launch.dir)
            .envs(launch.environment.iter().cloned())
            .stderr(fs::File::create(&said).unwrap());
        let mut forebay = Process::spawn(&mut command).unwrap();
        let mut connection = None;
        for _ in 0..600 {
            thread::sleep(Duration::from_millis(100));
            // It takes connections before it has read its log.
            let serving = |mut connection: Connection| {
                let size = connection.line("DBSIZE").ok()?;
                matches!(size, Reply::Integer(_)).then_some(connection)
            };
            connection = Connection::new(port).ok().and_then(serving);
            if connection.is_some() && pid_file.exists() {
                break;
            }
        }
        let mut connection = connection.expect("the server does not serve");
        let pid = fs::read_to_string(&pid_file).unwrap();
        let daemon = Handle::of(pid.trim().parse().unwrap()).unwrap();
        for n in 0..WRITES {
            let key = format!("{signal:?}{n}");
            let reply = connection
                .command(&[b"SET", key.as_bytes(), b"value"])
                .unwrap();
            assert!(is_ok(&reply), "{reply:?}");
        }
        let told = || fs::read_to_string(&said).unwrap();
        let until = Instant::now() + PATIENCE;
        while !told().contains("went into the background") && Instant::now() < until {
            thread::sleep(Duration::from_millis(20));
        }
        // To whom, if not to the one in the background, which alone can be killed.
        match signal {
            Signal::TERM => forebay.handle().signal(signal),
            _ => daemon.signal(signal),
        }
        let ended = forebay.wait(Duration::from_secs(60)).unwrap();
        let said = fs::read_to_string(&said).unwrap();
        assert_eq!(ended.code(), Some(status), "{said}");
        assert!(said.contains("went into the background"), "{said}");
        let row = said.lines().find(|line| line.contains(".incr.aof"));
        let row = row.unwrap_or_else(|| panic!("nothing was absorbed: {said}"));
        let writes = row.split_whitespace().nth(1).unwrap().parse::<u32>();
        assert!(writes.unwrap() >= WRITES, "{said}");
    }
    // Another one in the foreground has what both acknowledged.
    let server = Server::start(&launch).unwrap();
    let size = server.connect().unwrap().line("DBSIZE").unwrap();
    assert!(
        matches!(size, Reply::Integer(n) if n == i64::from(2 * WRITES)),
        "{size:?}"
    );
    server.stop().unwrap();
}
