//! The guest's workload, and the state that must be seen of it after a cut. `controls` has those
//! that show the lab's sight.

mod controls;

use crate::{
    client::Dialect,
    cut_moments::{
        ETCD, LOGS, MARIADB, Moment, NATS, POSTGRES, REDIS, ROCKSDB, SQLITE, SQLITE_JOURNAL,
        SQLITE_PROCESSES, STORE, takeover,
    },
    flash::MARIADB_FLASH,
    ledger::Shape,
};
pub use controls::CONTROLS;

/// A thing that runs in the guest.
#[derive(Debug)]
pub struct Workload {
    /// Its name here, and the guest's action.
    pub name: &'static str,
    pub dialect: Dialect,
    pub shape: Shape,
    /// What must be seen.
    pub expected: Expected,
    /// What it must lose may be what a server, or Forebay, does not start without: a cycle that
    /// ends so shows it. Of others it may be anything that went wrong with a machine.
    pub may_refuse: bool,
    /// What is broken in Forebay on purpose, if anything: a name that
    /// `forebay_pool::fault_enabled!` knows.
    pub broken: Option<&'static str>,
    /// Hard moments. A workload with some is cut at one of them in every second cycle.
    pub moments: &'static [Moment],
    /// Those at which others take over what a dead process had. They come before the others.
    pub takeover: &'static [Moment],
    /// It has no use for random cuts.
    pub only_aimed: bool,
    /// The pool has to be on a disk.
    pub on_disk: bool,
    /// The guest needs the programs of a database server, and a data directory of it.
    pub beside: Option<Beside>,
    /// There is a flash cache, on a disk of its own.
    pub flash: bool,
    /// Every cut tears what was not flushed, and comes only when pages have long been written.
    pub tears: bool,
}

/// A database server that runs in the guest beside the lab's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Beside {
    MariaDb,
    Postgres,
    Etcd,
    Nats,
}

/// What must be seen of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Nothing is ever lost.
    NoLoss,
    /// In some cycle something is: otherwise the lab is blind.
    Loss,
}

const SMALL: Shape = Shape {
    keys: 2000,
    batch_max: 8,
    long_every: 400,
    long: 30_000,
    short: 300,
};
/// Values that are longer than half a segment among them.
const LARGE: Shape = Shape {
    keys: 600,
    batch_max: 8,
    long_every: 150,
    long: 160_000,
    short: 3000,
};

/// Some hundred transactions fill the pool's segments: a server in an emulated machine is slow.
/// Keys are read one by one.
const FEW: Shape = Shape {
    keys: 400,
    batch_max: 8,
    long_every: 60,
    long: 30_000,
    short: 3000,
};

/// The same, for a server that has no transactions, and that is asked for all messages to count
/// keys.
const ONE_EACH: Shape = Shape {
    keys: 200,
    batch_max: 1,
    ..FEW
};

const PLAIN: Workload = Workload {
    name: "",
    dialect: Dialect::Batch,
    shape: SMALL,
    expected: Expected::NoLoss,
    may_refuse: false,
    broken: None,
    moments: &[],
    takeover: &[],
    only_aimed: false,
    on_disk: false,
    beside: None,
    flash: false,
    tears: false,
};
const BESIDE_NATS: Workload = Workload {
    shape: ONE_EACH,
    beside: Some(Beside::Nats),
    ..PLAIN
};

const FLASH: Workload = Workload {
    shape: FEW,
    beside: Some(Beside::MariaDb),
    flash: true,
    ..PLAIN
};

/// What `--workload` can name.
pub const WORKLOADS: [Workload; 13] = [
    Workload {
        name: "store",
        shape: LARGE,
        moments: STORE,
        ..PLAIN
    },
    Workload {
        name: "redis",
        dialect: Dialect::Redis,
        moments: REDIS,
        ..PLAIN
    },
    Workload {
        name: "valkey",
        dialect: Dialect::Redis,
        moments: REDIS,
        ..PLAIN
    },
    Workload {
        name: "rocksdb",
        moments: ROCKSDB,
        ..PLAIN
    },
    Workload {
        name: "sqlite",
        moments: SQLITE,
        ..PLAIN
    },
    Workload {
        name: "sqlite-journal",
        moments: SQLITE_JOURNAL,
        ..PLAIN
    },
    Workload {
        name: "logs",
        moments: LOGS,
        ..PLAIN
    },
    Workload {
        name: "mariadb",
        shape: FEW,
        moments: MARIADB,
        takeover: takeover::MARIADB,
        beside: Some(Beside::MariaDb),
        ..PLAIN
    },
    Workload {
        name: "postgres",
        shape: FEW,
        moments: POSTGRES,
        takeover: takeover::POSTGRES,
        beside: Some(Beside::Postgres),
        ..PLAIN
    },
    Workload {
        name: "etcd",
        shape: FEW,
        moments: ETCD,
        beside: Some(Beside::Etcd),
        ..PLAIN
    },
    Workload {
        name: "nats",
        moments: NATS,
        ..BESIDE_NATS
    },
    Workload {
        name: "mariadb-flash",
        moments: MARIADB_FLASH,
        ..FLASH
    },
    Workload {
        name: "sqlite-processes",
        moments: SQLITE_PROCESSES,
        takeover: takeover::SQLITE_PROCESSES,
        ..PLAIN
    },
];

/// The workload of this name, controls included.
pub fn find(name: &str) -> Option<&'static Workload> {
    WORKLOADS
        .iter()
        .chain(&CONTROLS)
        .find(|workload| workload.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cut_moments::COMMIT;

    #[test]
    fn every_failpoint_that_a_moment_names_is_in_the_code() {
        let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates");
        let mut code = String::new();
        let mut directories = vec![crates];
        while let Some(directory) = directories.pop() {
            for entry in std::fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    directories.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    code.push_str(&std::fs::read_to_string(path).unwrap());
                }
            }
        }
        for workload in WORKLOADS.iter().chain(&CONTROLS) {
            let moments = workload.moments.iter().chain(workload.takeover);
            let moments = moments.chain(COMMIT);
            let names = moments.flat_map(|moment| {
                let deaths = moment.deaths.iter().map(|(name, _)| *name);
                deaths.chain(moment.after).chain([moment.failpoint])
            });
            for name in names.chain(workload.broken) {
                assert!(code.contains(&format!("(\"{name}\")")), "{name}");
            }
        }
    }
}
