//! NATS under `forebay run`: a Go program, whose JetStream syncs the block of a stream at each
//! message.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    Sandbox,
    agents::{Served, absorbed_paths, copied, no_disk, under_forebay, was_served, write_and_cut},
    cut::put_back,
    databases::{absorbed_writes, random, small_pool},
    disk::Disk,
    installed,
};
use forebay_databases::nats::{
    client::{Connection, Limits, StreamState, Wanted},
    server::{ALWAYS, configure, program},
};
use rustix::process::Signal;
use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::Command,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// Its blocks take all.
const STREAM: &str = "orders";
/// Blocks of 32 kB, of which the oldest go all the time.
const RECENT: &str = "recent";
const RECENT_LIMITS: Limits = Limits {
    per_subject: None,
    bytes: Some(128_000),
};
/// The last message of each subject: a block of which half has gone is written anew, under another
/// name, which is then given the block's.
const LAST: &str = "last";
const LAST_LIMITS: Limits = Limits {
    per_subject: Some(1),
    bytes: None,
};
/// Blocks are written anew from 2 MB on.
const LONG: usize = 100_000;

/// Messages that are published at least before a cut.
const MESSAGES: u64 = 300;
/// Turns of a [`Ledger`] before one.
const TURNS: u64 = 120;

/// What a stream has that never had anything.
const NOTHING: StreamState = StreamState {
    first: 0,
    last: 0,
    messages: 0,
};

/// The message that has this number in the stream.
fn message(number: u64) -> Vec<u8> {
    format!("message {number}; ").repeat(64).into_bytes()
}

/// Starts a server with its data in `data` of a directory.
fn start(dir: &Path, errors: &Path, sync: &str, before: impl Fn() -> Command) -> Served {
    let command = |ports: [u16; 2]| {
        let mut command = before();
        let settings = configure(dir, ports[0], sync).unwrap();
        command.arg("-c").arg(settings).current_dir(dir);
        command
    };
    // JetStream answers once it has read the streams.
    let serves = |port| {
        Connection::new(port).is_ok_and(|mut it| it.make_stream(STREAM, Limits::default()).is_ok())
    };
    Served::start(command, errors, serves)
}

fn start_under_forebay(sandbox: &Sandbox, dir: &Path, pool: &Path, boot: usize) -> Served {
    let program = program().unwrap();
    start(dir, &sandbox.file("errors"), ALWAYS, || {
        under_forebay(sandbox, pool, boot, &program)
    })
}

/// Publishes until the server is gone, message by message; the last number that was acknowledged.
fn publish(mut connection: Connection, last: u64, acknowledged: &AtomicU64) -> u64 {
    let mut last = last;
    let subject = format!("{STREAM}.new");
    while let Ok(number) = connection.publish(&subject, &message(last + 1)) {
        assert_eq!(number, last + 1, "a message was lost, or came twice");
        last = number;
        acknowledged.fetch_add(1, Relaxed);
    }
    last
}

/// All messages of the stream are right; the last one's number.
fn check(served: &Served) -> u64 {
    let mut connection = Connection::new(served.port).unwrap();
    let state = connection.state(STREAM).unwrap();
    assert_eq!(state.messages, state.last, "{state:?}");
    for number in 1..=state.last {
        let found = connection.message(STREAM, Wanted::Number(number)).unwrap();
        let found = found.unwrap_or_else(|| panic!("no message {number}"));
        assert_eq!(found.payload, message(number), "message {number}");
    }
    state.last
}

/// Promise (programs): What NATS acknowledged is there after a power cut that took the page cache.
#[test]
fn nats_has_what_it_acknowledged_after_a_power_cut() {
    let Some(program) = installed(program()) else {
        return;
    };
    let (sandbox, pool) = (Sandbox::new(), small_pool());
    let mut random = random("nats_has_what_it_acknowledged_after_a_power_cut");
    let (mut acknowledged, mut has_lost) = (0, false);
    let mut boot = 0;
    // On a busy machine a cut may come when the disk has all of it.
    while boot < 3 || !has_lost && boot < 12 {
        let nats = start_under_forebay(&sandbox, sandbox.path(), pool.path(), boot);
        let there = check(&nats);
        // One more may have been written that nobody was told of.
        let expected = acknowledged..=acknowledged + 1;
        assert!(expected.contains(&there), "{there} of {acknowledged}");
        let connection = Connection::new(nats.port).unwrap();
        acknowledged = write_and_cut(nats, no_disk, (MESSAGES, &mut random), |count| {
            publish(connection, there, count)
        });
        was_served(&sandbox.file("errors"), "nats");
        put_back(&sandbox.file("synced"));
        let without = copied(&sandbox, &["data"], &format!("without{boot}"));
        let plain = start(&without, &sandbox.file("plain"), ALWAYS, || {
            Command::new(&program)
        });
        let last = Connection::new(plain.port).unwrap().state(STREAM).unwrap();
        plain.cut();
        // A supervisor that dies last may have synced all of it.
        has_lost |= last.last < acknowledged;
        boot += 1;
    }
    // What this test is about: without a recovery they are not there.
    assert!(has_lost, "the cuts took nothing");
    let nats = start_under_forebay(&sandbox, sandbox.path(), pool.path(), boot);
    assert!(check(&nats) >= acknowledged);
}

/// What was acknowledged of streams whose blocks come and go.
#[derive(Default)]
struct Ledger {
    /// The last number in `recent`.
    last: u64,
    /// By subject of `last`: the last payload.
    payloads: BTreeMap<String, Vec<u8>>,
    /// What was on its way.
    begun: Option<(String, Vec<u8>)>,
    /// `recent` was being emptied, and nobody was told yet that it is.
    is_emptying: bool,
}

impl Ledger {
    /// Publishes to both streams until the server is gone, and shortens and empties one of them;
    /// when the cut may come, every few messages.
    fn write(&mut self, mut connection: Connection, acknowledged: &AtomicU64) {
        let mut turn = || -> std::io::Result<()> {
            let count = acknowledged.load(Relaxed);
            let number = self.last + 1;
            assert_eq!(connection.publish("recent.new", &message(number))?, number);
            self.last = number;
            let subject = format!("last.{}", number % 7);
            let payload = format!("{number} ").repeat(LONG / 8).into_bytes();
            self.begun = Some((subject.clone(), payload.clone()));
            connection.publish(&subject, &payload)?;
            self.begun = None;
            self.payloads.insert(subject, payload);
            match count % 100 {
                40 => connection.purge(RECENT, 7)?,
                80 => self.empty(&mut connection)?,
                _ if count > TURNS && count % 10 == 5 => self.empty(&mut connection)?,
                number if number % 30 == 20 => connection.remove(RECENT, self.last - 3)?,
                _ => {}
            }
            acknowledged.fetch_add(1, Relaxed);
            Ok(())
        };
        while turn().is_ok() {}
    }

    /// NATS renames the directory of the blocks, makes a new one, and syncs its first block, which
    /// alone has the last number from then on. Whatever commits the file system's journal in
    /// between (another file's sync, the kernel by itself) makes a power cut take the number, with
    /// Forebay or without. The purge was not acknowledged then.
    fn empty(&mut self, connection: &mut Connection) -> std::io::Result<()> {
        self.is_emptying = true;
        connection.purge(RECENT, 0)?;
        self.is_emptying = false;
        Ok(())
    }

    /// What a server has is what was acknowledged, and perhaps what was on its way.
    fn compare(&mut self, connection: &mut Connection) -> Result<(), String> {
        let state = connection.state(RECENT).map_err(|e| e.to_string())?;
        if std::mem::take(&mut self.is_emptying) && state == NOTHING {
            self.last = 0;
        }
        if !(self.last..=self.last + 1).contains(&state.last) {
            return Err(format!("{state:?} of {} acknowledged", self.last));
        }
        self.last = state.last;
        let (mut next, mut messages) = (state.first, 0);
        while let Some(found) = connection.message(RECENT, Wanted::From(next)).unwrap() {
            if found.payload != message(found.number) {
                return Err(format!("message {} is another", found.number));
            }
            (next, messages) = (found.number + 1, messages + 1);
        }
        if messages != state.messages {
            return Err(format!("{messages} messages of {state:?}"));
        }
        let begun = self.begun.take();
        for (subject, payload) in &mut self.payloads {
            let found = connection.message(LAST, Wanted::LastOf(subject)).unwrap();
            let found = found.map_or(Vec::new(), |found| found.payload);
            let is_begun = |it: &(String, Vec<u8>)| it.0 == *subject && it.1 == found;
            if found != *payload && !begun.as_ref().is_some_and(is_begun) {
                return Err(format!("{subject} has {} other bytes", found.len()));
            }
            *payload = found;
        }
        Ok(())
    }
}

/// Cuts the file system off, so many times, under a server whose blocks are made, written anew,
/// shortened and unlinked all the time: what was wrong then. None where there can be no such disk.
/// A server is started in the directory, and with the pool, in a boot of this number.
fn cut_off(
    start: impl Fn(&Sandbox, &Path, &Path, usize) -> Served,
    cuts: usize,
) -> Option<Result<(), String>> {
    let (sandbox, pool) = (Sandbox::new(), small_pool());
    let mut disk = Disk::make(sandbox.path(), "ext4")?;
    let mut random = random("nats_streams_are_whole_after_their_disk_is_cut_off");
    let mut ledger = Ledger::default();
    for boot in 0..=cuts {
        let nats = start(&sandbox, &disk.at, pool.path(), boot);
        let mut connection = Connection::new(nats.port).unwrap();
        connection.make_stream(RECENT, RECENT_LIMITS).unwrap();
        connection.make_stream(LAST, LAST_LIMITS).unwrap();
        if boot == 0 {
            disk.sync();
        } else if let Err(why) = ledger.compare(&mut connection) {
            return Some(Err(format!("after cut {boot}: {why}")));
        }
        if boot < cuts {
            // It looks at no answer of a sync: of one that the cut makes fail, it would acknowledge
            // the message.
            let power_off = |nats: &Served| {
                nats.stop();
                disk.cut();
            };
            write_and_cut(nats, power_off, (TURNS, &mut random), |count| {
                ledger.write(connection, count);
            });
            disk.mount_again();
        }
    }
    Some(Ok(()))
}

/// Promise: as `nats_has_what_it_acknowledged_after_a_power_cut`.
#[test]
fn nats_streams_are_whole_after_their_disk_is_cut_off() {
    if installed(program()).is_some()
        && let Some(found) = cut_off(start_under_forebay, 4)
    {
        found.unwrap();
    }
}

/// The first control: no more is asked of it than what it keeps by itself.
#[test]
fn nats_alone_is_whole_after_its_disk_is_cut_off() {
    let Some(program) = installed(program()) else {
        return;
    };
    let alone = |sandbox: &Sandbox, dir: &Path, _: &Path, _| {
        start(dir, &sandbox.file("errors"), ALWAYS, || {
            Command::new(&program)
        })
    };
    if let Some(found) = cut_off(alone, 2) {
        found.unwrap();
    }
}

/// The second: the same cut takes messages of a server that does not sync them.
#[test]
fn nats_without_syncs_loses_when_its_disk_is_cut_off() {
    let Some(program) = installed(program()) else {
        return;
    };
    let found = cut_off(
        |sandbox, dir, _, _| {
            start(dir, &sandbox.file("errors"), "2m", || {
                Command::new(&program)
            })
        },
        1,
    );
    assert!(!matches!(found, Some(Ok(()))), "nothing was lost");
}

/// A server that ends in the orderly way says what was absorbed.
#[test]
fn a_streams_blocks_are_absorbed_and_nothing_beside_them() {
    if installed(program()).is_none() {
        return;
    }
    let (sandbox, pool) = (Sandbox::new(), small_pool());
    let nats = start_under_forebay(&sandbox, sandbox.path(), pool.path(), 0);
    let mut connection = Connection::new(nats.port).unwrap();
    for number in 1..=50 {
        let stored = connection.publish(&format!("{STREAM}.new"), &message(number));
        assert_eq!(stored.unwrap(), number);
    }
    assert!(nats.end(Signal::INT).success());
    let said = fs::read_to_string(sandbox.file("errors")).unwrap();
    assert!(absorbed_writes(&said, "msgs/1.blk") >= 50, "{said}");
    for path in absorbed_paths(&said) {
        assert!(path.ends_with(".blk"), "{path}: {said}");
    }
}
