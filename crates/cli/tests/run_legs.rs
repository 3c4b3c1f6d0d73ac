//! Redis under `forebay run` whose pool lies in two other machines' memory: two servers of nbdkit.
//! Its machine is lost again and again, with the memory and all that its disk had not synced, and a
//! leg before that or not at all. What was acknowledged is there, on a machine of another boot.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    DURABLE_REDIS, FOREBAY, Ran, Sandbox,
    databases::{boot_anew, forebay_run, goes_on},
    disk::{Disk, patiently},
    have, skip, stop,
};
use forebay_bench::{
    processes::{Watched, find_program},
    redis::{
        resp::{Connection, Reply, is_ok},
        server::{Launch, Server, free_port},
    },
};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    ffi::OsString,
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    thread,
    time::Duration,
};

fn url(port: u16) -> String {
    format!("nbd://127.0.0.1:{port}/forebay")
}

/// A machine whose memory is a leg. It ends with the test.
struct LegServer {
    port: u16,
    child: Option<Child>,
}

impl LegServer {
    fn start() -> Self {
        let mut server = Self {
            port: free_port().unwrap(),
            child: None,
        };
        server.go_on();
        server
    }

    /// Starts it, with empty memory.
    fn go_on(&mut self) {
        let port = self.port.to_string();
        let child = Command::new("nbdkit")
            .args([
                "--foreground",
                // With more it aborts now and then when a client is gone: docs/legs.md.
                "--threads",
                "1",
                "--ipaddr",
                "127.0.0.1",
                "--port",
                &port,
                "memory",
                "24M",
            ])
            .stdin(Stdio::null())
            .spawn();
        self.child = Some(child.unwrap());
        patiently(|| {
            TcpStream::connect(("127.0.0.1", self.port))
                .map(drop)
                .map_err(|e| e.to_string())
        });
    }

    /// Its memory is gone.
    fn lose(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn signal(&self, signal: Signal) {
        let id = self.child.as_ref().unwrap().id();
        kill_process(Pid::from_raw(id.cast_signed()).unwrap(), signal).unwrap();
    }

    fn url(&self) -> String {
        url(self.port)
    }
}

impl Drop for LegServer {
    fn drop(&mut self) {
        self.lose();
    }
}

/// The network to a leg: held, nothing gets through it any more.
struct Relay {
    port: u16,
    is_held: Arc<AtomicBool>,
}

impl Relay {
    fn to(leg: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let is_held = Arc::new(AtomicBool::new(false));
        let held = Arc::clone(&is_held);
        // It ends with the test's process.
        thread::spawn(move || {
            for from in listener.incoming().flatten() {
                let Ok(to) = TcpStream::connect(("127.0.0.1", leg)) else {
                    continue;
                };
                for stream in [&from, &to] {
                    stream.set_nodelay(true).unwrap();
                }
                let back = (to.try_clone().unwrap(), from.try_clone().unwrap());
                for (from, to) in [(from, to), back] {
                    let held = Arc::clone(&held);
                    thread::spawn(move || relay(from, to, &held));
                }
            }
        });
        Self { port, is_held }
    }

    fn url(&self) -> String {
        url(self.port)
    }
}

fn relay(mut from: TcpStream, mut to: TcpStream, is_held: &AtomicBool) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        // What is on the way is lost.
        if is_held.load(SeqCst) || to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    if is_held.load(SeqCst) {
        // Nobody is told.
        thread::sleep(Duration::from_secs(60));
    }
    let _ = to.shutdown(Shutdown::Both);
}

/// The machine that Redis runs on: its disk, with the pool's file, and what it was promised.
struct Machine {
    disk: Disk,
    launch: Launch,
    port: u16,
    boots: usize,
    /// Every key below has its number.
    acknowledged: u64,
}

impl Machine {
    fn new(sandbox: &Sandbox, legs: &[String]) -> Option<Self> {
        let program = find_program("redis-server");
        if program.is_none() {
            skip("redis-server is not installed: scripts/setup.sh test");
            return None;
        }
        let disk = Disk::make(sandbox.path(), "ext4")?;
        let pool = disk.at.join("redis.pool");
        let mut words = vec![
            "pool",
            "create",
            pool.to_str().unwrap(),
            "--size",
            "16MiB",
            "--segment-size",
            "512KiB",
        ];
        for leg in legs {
            words.extend(["--leg", leg]);
        }
        forebay(&words).ok();
        disk.sync();
        let launch = Launch {
            wrapper: forebay_run(&pool),
            environment: vec![
                ("FOREBAY_RUN_DIR".into(), sandbox.file("run").into()),
                ("FOREBAY_TEST_WAITS".into(), "legs-takeover=200".into()),
            ],
            options: DURABLE_REDIS.map(str::to_owned).to_vec(),
            ..Launch::of(program.unwrap(), &disk.at.join("data"))
        };
        let port = free_port().unwrap();
        Some(Self {
            disk,
            launch,
            port,
            boots: 0,
            acknowledged: 0,
        })
    }

    fn pool(&self) -> PathBuf {
        self.disk.at.join("redis.pool")
    }

    /// Starts Redis in another boot, and looks for all that it acknowledged: which is lost.
    fn start(&mut self) -> Result<(Server, Vec<u64>), String> {
        self.boots += 1;
        boot_anew(&mut self.launch.environment, self.boots);
        let server = Server::start_on(&self.launch, self.port).map_err(|e| e.to_string())?;
        let mut connection = server.connect().unwrap();
        let mut is_there = |number: u64| {
            let key = number.to_string();
            let found = connection.command(&[b"GET", key.as_bytes()]).unwrap();
            found == Reply::BulkString(value(number))
        };
        let lost = (0..self.acknowledged)
            .filter(|number| !is_there(*number))
            .collect();
        Ok((server, lost))
    }

    /// Recovers, which asks for this leg, without it.
    fn recover_without(&self, leg: &str) {
        let pool = self.pool();
        let pool = pool.to_str().unwrap();
        forebay(&["recover", "--pool", pool]).fails(1, &[leg, "--lost-leg"]);
        let mut recover = Command::new(FOREBAY);
        recover.args(["recover", "--pool", pool, "--lost-leg", leg]);
        recover.envs(self.launch.environment.iter().cloned());
        Ran::of(recover.output().unwrap()).ok();
    }

    /// Writes until the server is gone, or `done`.
    fn write(&mut self, done: &AtomicBool, all: &AtomicU64) {
        let Ok(mut connection) = Connection::new(self.port) else {
            return;
        };
        while !done.load(Relaxed) {
            let (number, key) = (self.acknowledged, self.acknowledged.to_string());
            match connection.command(&[b"SET", key.as_bytes(), &value(number)]) {
                Ok(reply) => assert!(is_ok(&reply), "{reply:?}"),
                Err(_) => return,
            }
            self.acknowledged += 1;
            all.fetch_add(1, Relaxed);
        }
    }

    /// Writes while something happens, then loses the machine.
    fn lose_after(&mut self, server: Server, meanwhile: impl FnOnce(&AtomicU64)) {
        let (done, all) = (AtomicBool::new(false), AtomicU64::new(0));
        let at = self.disk.at.clone();
        thread::scope(|scope| {
            scope.spawn(|| self.write(&done, &all));
            let _stop = WritersEnd(&done);
            assert!(goes_on(&all), "no write was acknowledged");
            meanwhile(&all);
            // Not in the middle of a real sync, which the shutdown of the file system may let
            // return 0.
            let both = [server.outer(), server.server()];
            stop(&both.map(|it| Watched::of(it.pid()).unwrap()));
            common::disk::run("xfs_io", &["-x", "-c", "shutdown", at.to_str().unwrap()]).unwrap();
            server.outer().signal(Signal::KILL);
            server.server().signal(Signal::KILL);
        });
        drop(server);
        self.disk.mount_again();
        println!("{} acknowledged", all.load(Relaxed));
    }
}

/// The writer ends, also when the test fails.
struct WritersEnd<'a>(&'a AtomicBool);

impl Drop for WritersEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

fn value(number: u64) -> Vec<u8> {
    let length = usize::try_from(number * 37 % 900).unwrap();
    format!("{number:0>width$}", width = length + 8).into_bytes()
}

fn forebay(words: &[&str]) -> Ran {
    Ran::of(Command::new(FOREBAY).args(words).output().unwrap())
}

/// True if both legs are complete, as they say themselves.
fn are_complete(pool: &Path) -> bool {
    let shown = forebay(&["pool", "status", pool.to_str().unwrap()]).text();
    shown.matches("(complete)").count() == 2
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    patiently(|| match is_so() {
        true => Ok(()),
        false => Err(format!("{what} did not come")),
    });
}

/// Promise (programs): What a program under `forebay run` synced survives the loss of its machine,
/// and of one leg before that.
#[test]
fn redis_outlives_its_machine_by_its_legs() {
    if !have("nbdkit") {
        return;
    }
    let sandbox = Sandbox::new();
    let mut legs = [LegServer::start(), LegServer::start()];
    let urls = legs.each_ref().map(LegServer::url);
    let Some(mut machine) = Machine::new(&sandbox, &urls) else {
        return;
    };
    for round in 0..5 {
        let (server, lost) = machine.start().unwrap();
        assert_eq!(lost, [0; 0], "round {round}");
        let pool = machine.pool();
        machine.lose_after(server, |all| {
            // The one that was away before is needed now.
            until("two complete legs", || are_complete(&pool));
            let leg = &mut legs[round % 2];
            match round {
                0 => {}
                // Gone for good while the machine lives.
                1 => {
                    leg.lose();
                    until("degradation", || !are_complete(&pool));
                    assert!(goes_on(all));
                }
                // Gone, and back empty: it is made complete while Redis writes.
                2 | 3 => {
                    leg.lose();
                    until("degradation", || !are_complete(&pool));
                    leg.go_on();
                    until("a complete leg", || are_complete(&pool));
                    assert!(goes_on(all));
                }
                // It does not answer for a while.
                _ => {
                    leg.signal(Signal::STOP);
                    until("degradation", || !are_complete(&pool));
                    leg.signal(Signal::CONT);
                    until("a complete leg", || are_complete(&pool));
                    assert!(goes_on(all));
                }
            }
        });
        if round == 1 {
            legs[1].go_on();
        }
    }
    let (server, lost) = machine.start().unwrap();
    assert_eq!(lost, [0; 0]);
    server.stop().unwrap();
    let pool = machine.pool();
    let pool = pool.to_str().unwrap();
    let shown = forebay(&["pool", "status", pool]).ok().text();
    assert!(shown.contains("loss of this machine"), "{shown}");
    assert!(shown.contains("(complete)"), "{shown}");
    forebay(&["pool", "check", pool]).ok();
    forebay(&["recover", "--pool", pool]).ok();
}

/// What is left of `acknowledged` writes when the machine and the leg that answered first are lost,
/// while nothing got through to the other one any more.
fn lost_with_first_leg(broken: Option<&str>) -> Option<Result<usize, String>> {
    if !have("nbdkit") {
        return None;
    }
    let sandbox = Sandbox::new();
    let mut legs = [LegServer::start(), LegServer::start()];
    let relay = Relay::to(legs[1].port);
    let urls = [legs[0].url(), relay.url()];
    let mut machine = Machine::new(&sandbox, &urls)?;
    if let Some(broken) = broken {
        let broken: OsString = broken.into();
        machine
            .launch
            .environment
            .push(("FOREBAY_BROKEN".into(), broken));
    }
    let (server, lost) = machine.start().unwrap();
    assert_eq!(lost, [0; 0]);
    machine.lose_after(server, |_| {
        relay.is_held.store(true, SeqCst);
        thread::sleep(Duration::from_millis(300));
    });
    legs[0].lose();
    relay.is_held.store(false, SeqCst);
    machine
        .launch
        .environment
        .retain(|(name, _)| name != "FOREBAY_BROKEN");
    machine.recover_without(&urls[0]);
    // Redis refuses a file with a gap.
    Some(machine.start().map(|(_, lost)| lost.len()))
}

/// Promise (programs): What was acknowledged is on each leg: the machine and any one of two may be
/// lost at once.
#[test]
fn machine_and_leg_may_be_lost_at_once() {
    let lost = lost_with_first_leg(None);
    assert!(matches!(lost, None | Some(Ok(0))), "{lost:?}");
}

#[test]
fn acknowledging_after_the_first_leg_loses_writes() {
    let lost = lost_with_first_leg(Some("legs-ack-first"));
    assert!(!matches!(lost, Some(Ok(0))), "nothing was lost");
}

/// Promise (programs): With a leg on a disk, what was acknowledged survives the loss of all
/// machines' memory at once.
#[test]
fn redis_outlives_all_memory_by_a_leg_on_a_disk() {
    if !have("nbdkit") {
        return;
    }
    let sandbox = Sandbox::new();
    let mut leg = LegServer::start();
    // On another disk than the data, and so than the pool's file.
    let disk = sandbox.file("leg").to_str().unwrap().to_owned();
    let urls = [leg.url(), disk];
    let Some(mut machine) = Machine::new(&sandbox, &urls) else {
        return;
    };
    let pool = machine.pool();
    for round in 0..3 {
        let (server, lost) = machine.start().unwrap();
        assert_eq!(lost, [0; 0], "round {round}");
        machine.lose_after(server, |all| {
            until("two complete legs", || are_complete(&pool));
            assert!(goes_on(all));
        });
        leg.lose();
        leg.go_on();
        machine.recover_without(&urls[0]);
    }
    let (server, lost) = machine.start().unwrap();
    assert_eq!(lost, [0; 0]);
    server.stop().unwrap();
}

/// Promise (programs): Once no leg can be reached a program goes on plainly, and what it removes
/// from then on no recovery asks for.
#[test]
fn a_log_removed_after_its_legs_failed_is_not_missed() {
    if !have("nbdkit") {
        return;
    }
    let sandbox = Sandbox::new();
    let legs = [LegServer::start(), LegServer::start()];
    let urls = legs.each_ref().map(LegServer::url);
    let Some(mut machine) = Machine::new(&sandbox, &urls) else {
        return;
    };
    let (server, _) = machine.start().unwrap();
    let (port, logs) = (machine.port, machine.disk.at.join("data/appendonlydir"));
    machine.lose_after(server, |all| {
        for leg in &legs {
            leg.signal(Signal::STOP);
        }
        let before = all.load(Relaxed);
        until("plain writes", || all.load(Relaxed) > before + 20);
        let mut connection = Connection::new(port).unwrap();
        connection.command(&[b"BGREWRITEAOF"]).unwrap();
        let first = logs.join("appendonly.aof.1.incr.aof");
        until("another log", || !first.exists());
        assert!(goes_on(all));
        for leg in &legs {
            leg.signal(Signal::CONT);
        }
    });
    let (server, lost) = machine.start().unwrap();
    assert_eq!(lost, [0; 0]);
    server.stop().unwrap();
}

/// What `forebay doctor` says of a leg.
#[test]
fn doctor_asks_a_leg_and_writes_nothing_to_it() {
    if !have("nbdkit") {
        return;
    }
    let sandbox = Sandbox::new();
    let leg = LegServer::start();
    let (url, dir) = (leg.url(), sandbox.path().to_str().unwrap().to_owned());
    let doctor =
        |more: &[&str]| forebay(&[&["doctor", "--dir", &dir, "--leg", &url], more].concat());
    let report = doctor(&["--json"]).ok().json();
    let found = &report["legs"];
    assert!(found["legs"][0]["round_trip_us"].as_f64().unwrap() > 0.0);
    assert!(found["gain"].as_f64().unwrap() > 0.0, "{found}");
    assert!(found["survives"].to_string().contains("name two legs"));
    assert!(found["warnings"].to_string().contains("tunnel"));
    // It was not written to: a pool can be made there still.
    let pool = sandbox.file("pool");
    let words = ["pool", "create", pool.to_str().unwrap(), "--leg", &url];
    forebay(&[&words[..], &["--size", "16MiB", "--segment-size", "1MiB"]].concat()).ok();
    let second = LegServer::start();
    let text = doctor(&["--leg", &second.url()]).ok().text();
    for said in ["a page and back in", "of one of these 2 legs"] {
        assert!(text.contains(said), "{said}: {text}");
    }
    let text = doctor(&["--leg", "nbd://127.0.0.1:1/x"]).ok().text();
    assert!(
        text.contains("nbd://127.0.0.1:1/x: can be no leg"),
        "{text}"
    );
    doctor(&["--leg", "nbd://192.0.2.1/x"]).ok();
}

#[test]
fn legs_that_can_be_none_are_refused_with_the_remedy() {
    if !have("nbdkit") {
        return;
    }
    let sandbox = Sandbox::new();
    let leg = LegServer::start();
    let path = sandbox.file("pool");
    let pool = path.to_str().unwrap();
    let create = |legs: &[&str], more: &[&str]| {
        let mut words = vec!["pool", "create", pool];
        for leg in legs {
            words.extend(["--leg", leg]);
        }
        words.extend(more);
        forebay(&words)
    };
    let url = leg.url();
    create(&[&url, &url], &[]).fails(1, &["named twice"]);
    create(&["nbd://192.0.2.1/x"], &[]).fails(1, &["--insecure", "tunnel"]);
    create(&["nbds://127.0.0.1/x"], &[]).fails(1, &["ca-cert.pem", "tls-certificates"]);
    create(&[&url], &["--size", "1GiB"]).fails(1, &["--size", &url]);
    create(&[&url], &["--copies", "2"]).fails(1, &["2 copies"]);
    assert!(!path.exists());
    create(&[&url], &["--size", "16MiB", "--segment-size", "1MiB"]).ok();
    let dir = sandbox.file("store");
    let put = ["store", "put", "--pool", pool, "--dir"];
    let words = [&put[..], &[dir.to_str().unwrap(), "key", "value"]].concat();
    forebay(&words).fails(1, &["other machines' memory"]);
    let other = sandbox.file("other");
    let again = [
        "pool",
        "create",
        other.to_str().unwrap(),
        "--leg",
        &url,
        "--size",
        "16MiB",
        "--segment-size",
        "1MiB",
    ];
    forebay(&again).fails(1, &["holds data", "--force"]);
    drop(leg);
    forebay(&["pool", "status", pool]).fails(1, &["refused", "Start"]);
}
