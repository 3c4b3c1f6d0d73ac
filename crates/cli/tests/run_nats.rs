//! NATS under `forebay run`: a Go program, whose JetStream syncs the block of a stream at each
//! message.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use common::{
    Sandbox,
    cut::put_back,
    databases::{PATIENCE, ProcessGroup, absorbed_writes, boot_anew, moment, random, small_pool},
    have,
};
use forebay_bench::{data::Random, processes::find_program};
use forebay_databases::nats::{client::Connection, server::configure};
use forebay_measure::server::free_port;
use rustix::process::Signal;
use std::{
    fs::{self, File},
    path::Path,
    process::{Command, Stdio},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

const STREAM: &str = "orders";

/// Messages that are published at least before a cut.
const MESSAGES: u64 = 300;

struct Nats {
    run: ProcessGroup,
    port: u16,
}

impl Nats {
    /// Starts a server in `dir`, by the words before its program, with its output in `errors`.
    fn start(dir: &Path, mut command: Command, errors: &Path) -> Self {
        let port = free_port().unwrap();
        command
            .arg("-c")
            .arg(configure(dir, port).unwrap())
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(errors).unwrap());
        let nats = Self {
            run: ProcessGroup::start(&mut command),
            port,
        };
        let begun = Instant::now();
        while Connection::new(port).is_err() {
            let errors = || fs::read_to_string(errors).unwrap();
            assert!(begun.elapsed() < PATIENCE, "{}", errors());
            thread::sleep(Duration::from_millis(20));
        }
        nats
    }

    fn connect(&self) -> Connection {
        Connection::new(self.port).unwrap()
    }

    /// The number of the last message, once JetStream has read the stream.
    fn last(&self) -> u64 {
        let begun = Instant::now();
        loop {
            match self.connect().last(STREAM) {
                Ok(last) => return last,
                Err(error) => assert!(begun.elapsed() < PATIENCE, "{error}"),
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Kills the server, what does its calls, and its supervisor.
    fn cut(mut self) {
        self.run.kill();
    }
}

/// The message that has this number in the stream.
fn message(number: u64) -> String {
    format!("message {number}; ").repeat(64)
}

/// Starts a server under Forebay, which believes that the machine was booted anew.
fn under_forebay(sandbox: &Sandbox, pool: &Path, boot: usize) -> Nats {
    let mut environment = Vec::new();
    boot_anew(&mut environment, boot);
    let mut command =
        sandbox.command("run --front-end notify --absorb-preallocated --explain --pool");
    command
        .arg(pool)
        .arg("--")
        .arg(find_program("nats-server").unwrap())
        .env("FOREBAY_RUN_DIR", sandbox.file("run"))
        .env("FOREBAY_TEST_SYNCED", sandbox.file("synced"))
        .envs(environment);
    Nats::start(sandbox.path(), command, &sandbox.file("errors"))
}

/// Publishes until the server is gone, message by message; the last number that was acknowledged.
fn publish(mut connection: Connection, last: u64, acknowledged: &AtomicU64) -> u64 {
    let mut last = last;
    while let Ok(number) =
        connection.publish(&format!("{STREAM}.new"), message(last + 1).as_bytes())
    {
        assert_eq!(number, last + 1, "a message was lost, or came twice");
        last = number;
        acknowledged.fetch_add(1, Relaxed);
    }
    last
}

/// The messages of a server are right; the last one's number.
fn check(nats: &Nats) -> u64 {
    let (there, mut connection) = (nats.last(), nats.connect());
    for number in (1..=there).step_by(7).chain((there > 0).then_some(there)) {
        let found = connection.message(STREAM, number).unwrap();
        assert_eq!(found, STANDARD.encode(message(number)), "message {number}");
    }
    there
}

/// Publishes behind the message `there`, and kills everything amid that; the last number that was
/// acknowledged.
fn publish_and_cut(nats: Nats, there: u64, random: &mut Random) -> u64 {
    let count = AtomicU64::new(0);
    let acknowledged = thread::scope(|scope| {
        let connection = nats.connect();
        let publishing = scope.spawn(|| publish(connection, there, &count));
        let begun = Instant::now();
        while count.load(Relaxed) < MESSAGES && begun.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(5));
        }
        thread::sleep(moment(random, 100));
        nats.cut();
        publishing.join().unwrap()
    });
    assert!(count.load(Relaxed) >= MESSAGES, "{}", count.load(Relaxed));
    acknowledged
}

/// The last message that a server has of a copy of the data, plainly and without a recovery.
fn last_without_recovery(sandbox: &Sandbox) -> u64 {
    let without = sandbox.file("without");
    fs::create_dir(&without).unwrap();
    let mut copy = Command::new("cp");
    let copied = copy.arg("-a").arg(sandbox.file("data")).arg(&without);
    assert!(copied.status().unwrap().success());
    let plain = Command::new(find_program("nats-server").unwrap());
    let nats = Nats::start(&without, plain, &sandbox.file("plain"));
    let last = nats.last();
    nats.cut();
    last
}

/// Promise (programs): What NATS acknowledged is there after a power cut that took the page cache.
#[test]
fn nats_has_what_it_acknowledged_after_a_power_cut() {
    if !have("nats-server") {
        return;
    }
    let (sandbox, pool) = (Sandbox::new(), small_pool());
    let mut random = random("nats_has_what_it_acknowledged_after_a_power_cut");
    let mut acknowledged = 0;
    for boot in 0..3 {
        let nats = under_forebay(&sandbox, pool.path(), boot);
        if boot == 0 {
            nats.connect().make_stream(STREAM).unwrap();
        }
        let there = check(&nats);
        // One more may have been written that nobody was told of.
        let expected = acknowledged..=acknowledged + 1;
        assert!(expected.contains(&there), "{there} of {acknowledged}");
        acknowledged = publish_and_cut(nats, there, &mut random);
        let said = fs::read_to_string(sandbox.file("errors")).unwrap();
        assert!(said.contains("profile nats"), "{said}");
        put_back(&sandbox.file("synced"));
    }
    // What this test is about: without a recovery they are not there.
    let last = last_without_recovery(&sandbox);
    assert!(
        last < acknowledged,
        "{last} of {acknowledged}: nothing was cut"
    );
    let nats = under_forebay(&sandbox, pool.path(), 3);
    assert!(check(&nats) >= acknowledged);
}

/// A server that ends in the orderly way says what was absorbed.
#[test]
fn a_streams_blocks_are_absorbed_and_nothing_beside_them() {
    if !have("nats-server") {
        return;
    }
    let (sandbox, pool) = (Sandbox::new(), small_pool());
    let nats = under_forebay(&sandbox, pool.path(), 0);
    let mut connection = nats.connect();
    connection.make_stream(STREAM).unwrap();
    for number in 1..=50 {
        let stored = connection.publish(&format!("{STREAM}.new"), message(number).as_bytes());
        assert_eq!(stored.unwrap(), number);
    }
    assert!(nats.run.end(Signal::INT).success());
    let said = fs::read_to_string(sandbox.file("errors")).unwrap();
    assert!(absorbed_writes(&said, "msgs/1.blk") >= 50, "{said}");
    assert_eq!(absorbed_writes(&said, "index.db"), 0, "{said}");
}
