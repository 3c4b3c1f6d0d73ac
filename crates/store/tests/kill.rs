//! SIGKILL at random moments on one and the same store, again and again.
//!
//! A child process opens the store (in any variant), writes from several threads, to the default
//! keyspace and to others, and says over a socket what was acknowledged; it closes the store if it
//! comes that far. It is killed at a random moment: while it opens and recovers, while it writes,
//! while it closes. Each writer's keys must then be as they were after its last acknowledged
//! operation, or after the one that was in flight. That holds for `nosync` too: what a killed
//! process wrote is the kernel's.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    Rng, VARIANTS,
    oracle::{Known, OracleWriter, apply, operations},
    tiny, within,
};
use forebay_pool::PoolOptions;
use forebay_store::{Durability, KeyspaceOptions, Store, StoreOptions};
use std::{
    collections::HashMap,
    io::{Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Mutex,
    thread,
    time::Duration,
};

const WRITERS: u64 = 3;
/// Operations of each writer in one life of the child, which then closes the store.
const OPERATIONS: u64 = 1000;
const KILLS: u64 = 24;
/// Acknowledged operations at least.
const ACKNOWLEDGED: usize = 1000;
/// With so many rounds, of which each has up to 0.7 s, a store acknowledges hardly anything.
const ROUNDS_MAX: u32 = 400;
/// Of the tiny stores of the tests.
const SEGMENT_BYTES: u64 = 64 << 10;
const ORDER: &str = "FOREBAY_STORE_KILL_TEST";

/// As many segments mean a resident store.
const RESIDENT: Durability = Durability::Buffered(40);

/// A way to open the store.
fn way(number: u64) -> Durability {
    VARIANTS.get(number as usize).copied().unwrap_or(RESIDENT)
}

/// Segments, files and most values are so many times longer than the tiny ones.
fn options(variant: Durability, longer: u64) -> StoreOptions {
    let buffers = match variant {
        Durability::Buffered(n) => u64::from(n),
        _ => longer,
    };
    tiny(variant)
        .compression(common::compression(buffers))
        .segment_size(SEGMENT_BYTES * longer)
        .file_size(longer << 20)
        .space_amplification_max(1.3)
        .resident(variant == RESIDENT)
}

fn open(dir: &Path, variant: Durability, longer: u64) -> Store {
    let pool = PoolOptions::new()
        .emulated(true)
        .open(dir.join("pool"))
        .unwrap();
    options(variant, longer)
        .open(dir.join("store"), &pool)
        .unwrap()
}

/// How writers make keyspaces of their own.
fn keyspaces(longer: u64) -> KeyspaceOptions {
    match longer {
        1 => KeyspaceOptions::new(),
        _ => KeyspaceOptions::new().ttl(Duration::from_secs(1_000_000)),
    }
}

fn writers_operations(seed: u64, writer: u64, longer: u64) -> Vec<Vec<common::oracle::Change>> {
    operations(writer, &mut Rng(seed + writer), OPERATIONS, longer)
}

#[test]
#[ignore = "the process that is killed; run by the test below"]
fn child() {
    let Ok(order) = std::env::var(ORDER) else {
        return;
    };
    let mut words = order.split(' ');
    let seed: u64 = words.next().unwrap().parse().unwrap();
    let variant: Durability = words.next().unwrap().parse().unwrap();
    let longer: u64 = words.next().unwrap().parse().unwrap();
    let dir = PathBuf::from(words.next().unwrap());
    let store = open(&dir, variant, longer);
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (store, socket) = (&store, dir.join("socket"));
            scope.spawn(move || {
                let mut parent = UnixStream::connect(socket).unwrap();
                parent.write_all(&(writer as u32).to_le_bytes()).unwrap();
                let oracle = OracleWriter::begin(store, writer, keyspaces(longer));
                for (done, operation) in (1u32..).zip(writers_operations(seed, writer, longer)) {
                    oracle.perform(&operation);
                    parent.write_all(&done.to_le_bytes()).unwrap();
                }
            });
        }
    });
    store.close().unwrap();
}

/// What the parent's last connection says instead of a writer's number.
const LAST: u32 = u32::MAX;

/// Hears how many operations each writer has had acknowledged, until a connection says that it is
/// the last. One that says nothing is of a child that was killed before it could.
fn listen(listener: &UnixListener) -> HashMap<u32, u32> {
    let heard = Mutex::new(HashMap::new());
    thread::scope(|scope| {
        loop {
            let (mut connection, _) = listener.accept().unwrap();
            let mut number = move || {
                let mut bytes = [0; 4];
                let complete = connection.read_exact(&mut bytes).is_ok();
                complete.then_some(u32::from_le_bytes(bytes))
            };
            let writer = match number() {
                Some(LAST) => break,
                Some(writer) => writer,
                None => continue,
            };
            let heard = &heard;
            scope.spawn(move || {
                while let Some(done) = number() {
                    heard.lock().unwrap().insert(writer, done);
                }
            });
        }
    });
    heard.into_inner().unwrap()
}

/// How a life of the child ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Killed,
    Closed,
}

/// Starts a child and kills it after `lives`; what its writers had acknowledged.
fn strike(dir: &Path, order: &str, lives: Duration) -> (HashMap<u32, u32>, End) {
    let socket = dir.join("socket");
    // Nothing is there the first time.
    let _ = std::fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", "child"])
        .env(ORDER, format!("{order} {}", dir.display()))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    thread::scope(|scope| {
        let heard = scope.spawn(|| listen(&listener));
        thread::sleep(lives);
        child.kill().unwrap();
        let status = child.wait().unwrap();
        // The last connection in the queue, behind all of the child's.
        let mut last = UnixStream::connect(&socket).unwrap();
        last.write_all(&LAST.to_le_bytes()).unwrap();
        let end = match status.code() {
            None => End::Killed,
            Some(0) => End::Closed,
            Some(code) => panic!("the child failed with {code}: {order}"),
        };
        (heard.join().unwrap(), end)
    })
}

/// Promise (store): An operation that was in flight at a kill is there as a whole or not at all.
/// Promise: as `a_reader_beside_a_killed_owner_changes_nothing`.
/// Promise: as `kills_with_megabyte_values_and_segments_lose_no_write`.
#[test]
fn every_acknowledged_write_is_there_after_each_of_many_kills() {
    let pool = PoolOptions::new().emulated(true);
    within(Duration::from_secs(300), "killing", || {
        kill_again_and_again(pool, 1)
    });
}

/// Promise: as `every_write_committed_to_a_disk_survives_two_power_cuts`.
/// Promise: as `kills_with_megabyte_values_and_segments_lose_no_write`.
#[test]
fn many_kills_with_a_pool_on_a_disk_cost_no_acknowledged_write() {
    let pool = PoolOptions::new().on_disk(true);
    within(Duration::from_secs(300), "killing", || {
        kill_again_and_again(pool, 1)
    });
}

/// Promise (store): A process that is killed at any moment loses nothing that its store
/// acknowledged, in any variant, `nosync` included.
#[test]
fn kills_with_megabyte_values_and_segments_lose_no_write() {
    let pool = PoolOptions::new().emulated(true);
    within(Duration::from_secs(300), "killing", || {
        kill_again_and_again(pool, 16)
    });
}

fn kill_again_and_again(pool: PoolOptions, longer: u64) {
    let seed = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64 >> 8;
    let mut rng = Rng(seed);
    let dir = tempfile::tempdir().unwrap();
    let pool = pool.size(longer * (4 << 20)).lanes(4);
    let pool = pool.segment_size(longer * SEGMENT_BYTES);
    drop(pool.create(dir.path().join("pool")).unwrap());
    let mut known = Known::nothing(WRITERS, keyspaces(longer));
    let (mut killed, mut closed, mut acknowledged) = (0, 0, 0);
    for round in 0.. {
        // A machine with much else to do takes more rounds.
        if killed >= KILLS && acknowledged > ACKNOWLEDGED {
            break;
        }
        assert!(
            round < ROUNDS_MAX,
            "{killed} kills, {acknowledged} acknowledged operations after {round} rounds"
        );
        let variant = way(rng.below(7));
        let seed = rng.next();
        // One in four while it opens; the others anywhere up to its close.
        let lives_ms = if round % 4 == 0 {
            rng.below(40)
        } else {
            rng.below(700)
        };
        let order = format!("{seed} {variant} {longer}");
        let (heard, end) = strike(dir.path(), &order, Duration::from_millis(lives_ms));
        match end {
            End::Killed => killed += 1,
            End::Closed => closed += 1,
        }
        for writer in 0..WRITERS {
            let done = heard.get(&(writer as u32)).copied().unwrap_or(0) as usize;
            acknowledged += done;
            let mut state = known.writers[writer as usize][0].clone();
            let operations = writers_operations(seed, writer, longer);
            operations[..done]
                .iter()
                .for_each(|op| apply(&mut state, op));
            let mut allowed = vec![state.clone()];
            if let Some(in_flight) = operations.get(done) {
                apply(&mut state, in_flight);
                allowed.push(state);
            }
            known.writers[writer as usize] = allowed;
        }
        let when = format!("round {round}: {variant}, {end:?} after {lives_ms} ms");
        // Beside what the killed one left, before anybody recovers it.
        let reader = options(variant, longer);
        let reader = reader.open_read_only(dir.path().join("store"), None);
        let seen = match reader {
            Ok(reader) => Some(known.judge_snapshot(&reader.snapshot().unwrap(), &when)),
            // Its first opening was killed.
            Err(_) if round == 0 => None,
            Err(error) => panic!("{when}: {error}"),
        };
        let store = open(dir.path(), way(rng.below(7)), longer);
        let states = known.judge(&store, &when);
        assert!(
            seen.is_none_or(|seen| seen == states),
            "{when}: a reader saw another state"
        );
        known.writers = states.into_iter().map(|state| vec![state]).collect();
        if rng.chance(6) {
            let problems = store.verify().unwrap().problems;
            assert!(problems.is_empty(), "{when}: {problems:?}");
        }
    }
    println!("{killed} kills, {closed} closes, {acknowledged} acknowledged operations");
}
