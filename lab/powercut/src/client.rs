//! The client outside the guest: sends transactions, several at a time, and says to the ledger what
//! was acknowledged.

use crate::ledger::{Ledger, Transaction};
use forebay_bench::redis::resp::{Connection, Reply, unexpected};
use std::{
    collections::{BTreeMap, VecDeque},
    io,
    time::Duration,
};

/// How a transaction of several changes is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Redis and Valkey: `MULTI`, `EXEC`.
    Redis,
    /// The lab's own servers: `BATCH` and the changes, `S key value` or `D key`.
    Batch,
}

/// Transactions in flight at most.
const WINDOW: usize = 16;
/// Keys that are asked for at a time.
const ASK: u64 = 100;
/// How long a server that is not being cut may take to answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connected client.
pub struct Client {
    wire: Connection,
    dialect: Dialect,
    /// Replies that are missing to each transaction in flight.
    missing: VecDeque<usize>,
}

fn name(key: u64) -> Vec<u8> {
    format!("key:{key}").into_bytes()
}

impl Client {
    /// Connects and waits for an answer, for `wait`. The guest's port is open for connections long
    /// before a server listens.
    pub fn connect(port: u16, dialect: Dialect, wait: Duration) -> io::Result<Self> {
        let mut wire = Connection::new(port)?;
        wire.send(&[b"DBSIZE"])?;
        match wire.reply(wait)? {
            Some(Reply::Integer(_)) => Ok(Self {
                wire,
                dialect,
                missing: VecDeque::new(),
            }),
            Some(other) => Err(unexpected(&other)),
            None => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// Keeps the server busy, and waits for one reply for `wait`. True if there was one.
    pub fn step(&mut self, ledger: &mut Ledger, wait: Duration) -> io::Result<bool> {
        while ledger.in_flight() < WINDOW {
            let transaction = ledger.next();
            let replies = self.send(ledger, &transaction)?;
            self.missing.push_back(replies);
        }
        let Some(reply) = self.wire.reply(wait)? else {
            return Ok(false);
        };
        let refuses = |reply: &Reply| matches!(reply, Reply::Error(_) | Reply::Null);
        match &reply {
            Reply::Array(all) if !all.iter().any(refuses) => {}
            Reply::SimpleString(_) | Reply::Integer(_) => {}
            _ => return Err(unexpected(&reply)),
        }
        if let Some(missing) = self.missing.front_mut() {
            *missing -= 1;
            if *missing == 0 {
                self.missing.pop_front();
                ledger.acknowledge();
            }
        }
        Ok(true)
    }

    /// Sends a transaction; how many replies it gets.
    fn send(&mut self, ledger: &Ledger, transaction: &Transaction) -> io::Result<usize> {
        let change = |wire: &mut Connection, key: u64, number: Option<u64>| match number {
            Some(number) => wire.send(&[b"SET", &name(key), &ledger.value(number)]),
            None => wire.send(&[b"DEL", &name(key)]),
        };
        if let [(key, number)] = transaction[..] {
            change(&mut self.wire, key, number)?;
            return Ok(1);
        }
        if self.dialect == Dialect::Redis {
            self.wire.send(&[b"MULTI"])?;
            for (key, number) in transaction {
                change(&mut self.wire, *key, *number)?;
            }
            self.wire.send(&[b"EXEC"])?;
            return Ok(transaction.len() + 2);
        }
        let mut words = vec![b"BATCH".to_vec()];
        for (key, number) in transaction {
            match number {
                Some(number) => words.extend([b"S".to_vec(), name(*key), ledger.value(*number)]),
                None => words.extend([b"D".to_vec(), name(*key)]),
            }
        }
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        self.wire.send(&words)?;
        Ok(1)
    }

    /// Starts something on the server that has no part in the comparison.
    pub fn ask(&mut self, words: &[&[u8]]) -> io::Result<Reply> {
        self.wire.send(words)?;
        self.expect()
    }

    fn expect(&mut self) -> io::Result<Reply> {
        match self.wire.reply(PATIENCE)? {
            Some(reply @ Reply::Error(_)) => Err(unexpected(&reply)),
            Some(reply) => Ok(reply),
            None => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// All keys below `keys` that the server has, with their values. An error if it says that it
    /// has another number of keys.
    pub fn read_all(&mut self, keys: u64) -> io::Result<BTreeMap<u64, Vec<u8>>> {
        let mut found = BTreeMap::new();
        for from in (0..keys).step_by(ASK as usize) {
            let these = from..keys.min(from + ASK);
            for key in these.clone() {
                self.wire.send(&[b"GET", &name(key)])?;
            }
            for key in these {
                match self.expect()? {
                    Reply::BulkString(value) => drop(found.insert(key, value)),
                    Reply::Null => {}
                    other => return Err(unexpected(&other)),
                }
            }
        }
        match self.ask(&[b"DBSIZE"])? {
            Reply::Integer(number) if number == found.len() as i64 => Ok(found),
            other => Err(io::Error::other(format!(
                "the server says {other:?} to DBSIZE, and has {} of the keys",
                found.len()
            ))),
        }
    }
}
