//! One pool shared by several nodes, each with a lane of its own; one node dies, another takes its
//! lane over.
//!
//! What a shared pool of fabric-attached memory is for (the outlook of the paper on LevelDB on a
//! Gen-Z memory device): every node reaches all of it without another node's processor. Here the
//! nodes are processes on one machine, and the pool is a file that all of them map.
//!
//! 1. Three nodes open the same pool, each with a store whose value log is resident in it, and put
//!    pairs, saying each number once it is acknowledged.
//! 2. Node 0 is asked to take node 1's store over while that one lives: refused.
//! 3. Node 1 is killed with SIGKILL in the middle of a put. Node 0 takes its store over: the lane's
//!    lock died with its owner, the lane's records are all there. Nodes 0 and 2 go on meanwhile.
//! 4. Each acknowledged put of each node is looked for.
//!
//! ```text
//! cargo run --release -p forebay-store --example shared-pool [DIR]
//! ```
//! DIR is where the pool and the stores are made, and is removed again [default: one in /dev/shm].
//! Exit status 1 if anything is missing.

use forebay_pool::{Pool, PoolOptions};
use forebay_store::{Durability, ScanRange, Store, StoreOptions};
use std::{
    error::Error,
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, ExitCode, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

type Failure = Box<dyn Error + Send + Sync>;

const NODES: usize = 3;
/// Keys that a node writes again and again, so that its segments are collected.
const KEYS: u64 = 2_000;
/// Puts that the victim acknowledges before it is killed, and each node in all at least.
const PUTS: u64 = 20_000;
/// Longer than anything takes here.
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match &arguments[..] {
        [role, dir, number] if role == "node" => node(Path::new(dir), number),
        [] => in_directory(Path::new("/dev/shm")),
        [dir] => in_directory(Path::new(dir)),
        _ => Err("usage: shared-pool [DIR]".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the example in a directory of its own, which goes away again.
fn in_directory(parent: &Path) -> Result<(), Failure> {
    let dir = parent.join(format!("forebay-shared-pool-{}", std::process::id()));
    fs::create_dir_all(&dir)?;
    let done = example(&dir);
    fs::remove_dir_all(&dir)?;
    done
}

fn example(dir: &Path) -> Result<(), Failure> {
    let pool = PoolOptions::new()
        .size(64 << 20)
        .segment_size(256 << 10)
        .lanes(8)
        .emulated(true);
    println!("one pool, {}", pool.create(pool_path(dir))?.describe());
    let mut nodes = (0..NODES)
        .map(|number| Node::start(dir, number))
        .collect::<Result<Vec<_>, _>>()?;
    for node in &mut nodes {
        node.acknowledged_to(PUTS / 2)?;
    }
    let refused = nodes[0].asked("take 1")?;
    println!("node 0 asks for node 1's store while that lives: {refused}");
    if !refused.starts_with("refused") {
        return Err("a living node's store was taken over".into());
    }
    nodes[1].acknowledged_to(PUTS)?;
    nodes[1].child.kill()?;
    nodes[1].child.wait()?;
    let killed = nodes[1].last_acknowledged();
    println!("node 1 is killed with SIGKILL after {killed} acknowledged puts");
    let took = nodes[0].asked("take 1")?;
    println!("node 0 takes node 1's store over: {took}");
    check("node 1", killed, &took)?;
    for number in [0, 2] {
        nodes[number].acknowledged_to(PUTS)?;
        let stopped = nodes[number].asked("stop")?;
        let acknowledged = nodes[number].last_acknowledged();
        println!("node {number} went on: {acknowledged} acknowledged puts, {stopped}");
        check(&format!("node {number}"), acknowledged, &stopped)?;
        nodes[number].child.wait()?;
    }
    println!("Nothing that was acknowledged is missing.");
    Ok(())
}

/// Compares what a node acknowledged with what its store was found to hold: `last N`.
fn check(name: &str, acknowledged: u64, found: &str) -> Result<(), Failure> {
    let last = found
        .strip_prefix("last ")
        .and_then(|n| n.parse::<u64>().ok());
    // One put may have been durable and not acknowledged yet.
    match last {
        Some(last) if last == acknowledged || last == acknowledged + 1 => Ok(()),
        _ => Err(format!("{name} acknowledged {acknowledged} puts, its store: {found}").into()),
    }
}

/// A node, as its parent sees it.
struct Node {
    child: Child,
    stdin: ChildStdin,
    /// Numbers of acknowledged puts.
    acknowledged: Receiver<u64>,
    last: u64,
    /// Answers to what it was asked.
    answers: Receiver<String>,
}

impl Node {
    fn start(dir: &Path, number: usize) -> Result<Self, Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .args([Path::new("node"), dir, Path::new(&number.to_string())])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (Some(stdin), Some(stdout)) = (stdin, stdout) else {
            return Err("a child without pipes".into());
        };
        let (acknowledge, acknowledged) = channel();
        let (answer, answers) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                // The parent may have gone on without listening.
                let _ = match line.strip_prefix("put ").map(str::parse) {
                    Some(Ok(number)) => acknowledge.send(number).is_ok(),
                    // A line that the kill cut off acknowledges nothing.
                    Some(Err(_)) => false,
                    None => answer.send(line).is_ok(),
                };
            }
        });
        Ok(Self {
            child,
            stdin,
            acknowledged,
            last: 0,
            answers,
        })
    }

    fn acknowledged_to(&mut self, number: u64) -> Result<(), Failure> {
        while self.last < number {
            self.last = self.acknowledged.recv_timeout(PATIENCE)?;
        }
        Ok(())
    }

    /// The last put of a node that has ended or stopped.
    fn last_acknowledged(&mut self) -> u64 {
        while let Ok(number) = self.acknowledged.recv_timeout(Duration::from_millis(200)) {
            self.last = number;
        }
        self.last
    }

    fn asked(&mut self, what: &str) -> Result<String, Failure> {
        writeln!(self.stdin, "{what}")?;
        Ok(self.answers.recv_timeout(PATIENCE)?)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Ended already, if all went well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn pool_path(dir: &Path) -> PathBuf {
    dir.join("shared.pool")
}

fn open(dir: &Path, pool: &Pool, node: &str) -> Result<Store, Failure> {
    let options = StoreOptions::new()
        .resident(true)
        .durability(Durability::Buffered(32))
        .memtable_size(4 << 20);
    Ok(options.open(dir.join(format!("node-{node}")), pool)?)
}

/// Number `put`'s value: its number, and bytes that follow from it.
fn value(put: u64) -> Vec<u8> {
    let mut value = put.to_le_bytes().to_vec();
    value.extend((0..put % 700).map(|at| (at ^ put) as u8));
    value
}

/// The number of the newest put in a store, after a look at every pair: `last N`.
fn newest(store: &Store) -> Result<String, Failure> {
    let mut puts = Vec::new();
    for pair in store.scan(ScanRange::all())? {
        let (key, found) = pair?;
        let put = u64::from_le_bytes(found.get(..8).ok_or("a short value")?.try_into()?);
        if found[..] != value(put)[..] || key[..] != (put % KEYS).to_be_bytes()[..] {
            return Err(format!("pair {put} has wrong bytes").into());
        }
        puts.push(put);
    }
    let last = puts.iter().max().copied().unwrap_or(0);
    // Each key has its newest put: together they are the last so many, without a gap.
    puts.sort_unstable();
    let expected = (last + 1).saturating_sub(KEYS).max(1)..=last;
    if !puts.iter().copied().eq(expected) {
        return Ok(format!("with gaps below {last}"));
    }
    Ok(format!("last {last}"))
}

/// A node's own process: puts until it is told to stop, and takes another's store over when it is
/// told to.
fn node(dir: &Path, number: &str) -> Result<(), Failure> {
    let pool = PoolOptions::new().open(pool_path(dir))?;
    let store = open(dir, &pool, number)?;
    let (order, orders) = channel();
    thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if order.send(line).is_err() {
                break;
            }
        }
    });
    for put in 1u64.. {
        store.put(&(put % KEYS).to_be_bytes(), &value(put))?;
        println!("put {put}");
        let Ok(order) = orders.try_recv() else {
            continue;
        };
        if order == "stop" {
            println!("{}", newest(&store)?);
            break;
        }
        match order
            .strip_prefix("take ")
            .map(|other| open(dir, &pool, other))
        {
            Some(Ok(taken)) => println!("{}", newest(&taken)?),
            Some(Err(refused)) => println!("refused: {refused}"),
            None => return Err(format!("what is {order:?}?").into()),
        }
    }
    store.close()?;
    Ok(())
}
