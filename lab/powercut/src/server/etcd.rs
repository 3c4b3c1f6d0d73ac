//! An etcd in the same guest, reached by its port: each transaction is one of etcd's.

use crate::{Change, Engine, Failure, patience};
use forebay_bench::etcd::client::Connection;
use std::{
    cell::RefCell,
    collections::BTreeMap,
    thread,
    time::{Duration, Instant},
};

const PAUSE: Duration = Duration::from_millis(50);

/// A connection to it.
pub struct Etcd(RefCell<Connection>);

impl Etcd {
    /// Waits until the etcd with this port serves.
    pub fn open(port: u16) -> Result<Self, Failure> {
        let begun = Instant::now();
        loop {
            let connected = Connection::new(port).and_then(|mut connection| {
                // It answers once it has a leader, which is itself.
                connection.count().map(|_| connection)
            });
            match connected {
                Ok(connection) => return Ok(Self(RefCell::new(connection))),
                Err(e) if begun.elapsed() > patience() => return Err(e.into()),
                Err(_) => thread::sleep(PAUSE),
            }
        }
    }
}

impl Engine for Etcd {
    fn apply(&mut self, changes: Vec<Change>) -> Result<(), Failure> {
        // A transaction of etcd's changes each key once.
        let last: BTreeMap<_, _> = changes.into_iter().collect();
        let changes: Vec<_> = last.into_iter().collect();
        Ok(self.0.get_mut().transact(&changes)?)
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        Ok(self.0.borrow_mut().get(key)?)
    }

    fn count(&self) -> Result<u64, Failure> {
        Ok(self.0.borrow_mut().count()?)
    }
}
