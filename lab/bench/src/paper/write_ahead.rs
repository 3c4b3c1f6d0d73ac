//! P3: what MyRocks gives, by where its write-ahead log is, with LinkBench and TPC-C.
//!
//! The data lies on an emulated SSD always. Each series has a server of its own, on a copy of one data directory, with the log where the series says.
//! The servers take turns of a few seconds, since a machine's speed changes faster than a server starts; all but the one that is measured are stopped
//! (SIGSTOP), so that what one has to tidy up is no other's burden. The consistency of each is checked in the end. Everything is in memory: an emulated
//! device only adds to what a call takes anyway.

use super::{Lab, Measured, Size};
use crate::{
    BenchError,
    contest::{self, Around, Contender, Pools},
    device::{self, Effort},
    mariadb::{
        server::{self, Launch, Server},
        workload::{self, MYROCKS, Scripts, Workload},
    },
    processes::find_program,
    rounds::in_turn,
    scratch::{ScratchDir, memory_dir, sync_file_system},
};
use rustix::process::Signal;
use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

/// The paper's two workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// LinkBench.
    LinkBench,
    /// TPC-C.
    Tpcc,
}

/// What the data is on.
const DATA: &str = "sata-ssd";
/// The paper's connections, and one.
const CLIENTS: [u64; 2] = [1, 10];

/// Where the log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Log {
    /// On an emulated device; that of the data, if it is the same.
    On(&'static str),
    /// There is none.
    Off,
    /// On the device of the data, under `forebay run`.
    Forebay,
    /// The same, with the pool on this machine's disk: what a pool writes there passes every emulation by.
    ForebayOnDisk,
}

const LOGS: [Log; 6] = [
    Log::On("sata-ssd"),
    Log::On("nvme"),
    Log::On("nvram"),
    Log::Forebay,
    Log::ForebayOnDisk,
    Log::Off,
];

impl Log {
    fn name(self) -> &'static str {
        match self {
            Self::On(device) => device,
            Self::Off => "off",
            Self::Forebay => "forebay",
            Self::ForebayOnDisk => "forebay, pool on this disk",
        }
    }

    fn contender(self) -> Contender {
        match self {
            Self::Forebay => contest::FOREBAY.into(),
            Self::ForebayOnDisk => Contender {
                disk: Some(0),
                ..contest::FOREBAY.into()
            },
            Self::On(_) | Self::Off => contest::PLAIN.into(),
        }
    }
}

impl Mix {
    fn workload(self, size: Size) -> Workload {
        match self {
            Self::LinkBench => Workload::LinkBench {
                ids: size.pick(1000, 50_000, 1_000_000),
            },
            Self::Tpcc => Workload::Tpcc {
                warehouses: size.pick(1, 1, 10),
                roam: false,
            },
        }
    }

    /// The panels: rates, and latencies by request.
    fn panels(self) -> [&'static str; 2] {
        match self {
            Self::LinkBench => ["linkbench", "linkbench_p99"],
            Self::Tpcc => ["tpcc", "tpcc_p99"],
        }
    }
}

/// Whether a commit is synced, which the paper does not say, and numbers of connections. At toy size the paper's alone.
fn settings(size: Size) -> Vec<(bool, &'static [u64])> {
    size.pick(
        vec![(true, &CLIENTS[1..])],
        vec![(true, &CLIENTS), (false, &CLIENTS)],
        vec![(true, &CLIENTS), (false, &CLIENTS)],
    )
}

fn x(clients: u64, is_synced: bool) -> String {
    let clients = match clients {
        1 => "1 client".to_owned(),
        clients => format!("{clients} clients"),
    };
    match is_synced {
        true => format!("{clients}, synced"),
        false => format!("{clients}, not synced"),
    }
}

/// Where MyRocks is: Debian's directory of plugins, or where `scripts/setup.sh` unpacks it.
fn plugin_dir() -> Option<PathBuf> {
    const PLUGIN: &str = "ha_rocksdb.so";
    let installed = Path::new("/usr/lib/mysql/plugin").join(PLUGIN);
    let found = match installed.is_file() {
        true => Some(installed),
        false => find_program(PLUGIN),
    };
    found?.parent().map(Path::to_owned)
}

/// What is missing on this machine, in words.
fn lacking() -> Option<String> {
    let plugin = || {
        plugin_dir().is_none().then(|| {
            "MyRocks is not installed: scripts/setup.sh test, or apt-get install mariadb-plugin-rocksdb"
                .to_owned()
        })
    };
    server::lacking().or_else(plugin)
}

/// Tables 1 and 2 of the paper.
pub(super) fn run(mix: Mix, lab: &Lab<'_>) -> Result<Measured, BenchError> {
    if let Some(why) = lacking() {
        return Err(BenchError::Missing(why));
    }
    let mut measured = Measured::default();
    // An emulated device only adds to what a call takes.
    let scratch = ScratchDir::new_in(&memory_dir())?;
    let workload = mix.workload(lab.size);
    let scripts = Scripts::unpack(&scratch.path().join("scripts"), MYROCKS)?;
    lab.note(&format!("loading {workload:?}"));
    let template = scratch.path().join("template");
    load(&scripts, workload, &template)?;
    let setup = Setup {
        lab,
        scripts: &scripts,
        workload,
        template: &template,
        scratch: scratch.path(),
    };
    let [rate, p99] = mix.panels();
    for (is_synced, all_clients) in settings(lab.size) {
        for &clients in all_clients {
            let x = x(clients, is_synced);
            let start = |log| setup.start(log, clients, is_synced);
            let series = LOGS.into_iter().map(start).collect::<Result<Vec<_>, _>>()?;
            for turn in 0..turns(lab.size) {
                for one in in_turn(&series, turn) {
                    let (log, done) = (one.log.name(), setup.turn(one, clients)?);
                    lab.note(&format!("{log}, {x}: {:.0}/s", done.operations_per_s));
                    measured.round(rate, DATA, log, &x, done.operations_per_s);
                    if is_synced && Some(&clients) == CLIENTS.last() {
                        for kind in done.operations.iter().filter(|kind| kind.count > 0) {
                            measured.round(p99, DATA, log, &kind.operation, kind.p99_us);
                        }
                    }
                }
            }
            for one in series {
                one.signal(Signal::CONT);
                scripts.check(workload, &one.server)?;
                one.server.stop()?;
            }
        }
    }
    let disk = device::measure(lab.dir, Effort::QUICK)?;
    measured.note(format!(
        "a pool on this disk is a file of 128 MiB in {}, which writes 4 KiB and syncs in {:.0} µs",
        disk.name.as_deref().unwrap_or("a directory"),
        disk.fsync_us
    ));
    measured.note(format!(
        "{workload:?} on MyRocks ({}); {} turns of {} s for each series; the paper has 10 million ids and 200 warehouses",
        "READ COMMITTED, no binary log",
        turns(lab.size),
        seconds(lab.size)
    ));
    Ok(measured)
}

/// Of a turn.
fn seconds(size: Size) -> u64 {
    size.pick(1, 3, 10)
}

fn turns(size: Size) -> usize {
    size.pick(1, 9, 9)
}

/// Each commit is written to the log, and synced once a second.
const NOT_SYNCED: &str = "--rocksdb-flush-log-at-trx-commit=2";

/// What all servers have. InnoDB holds the system's tables only; its own rings would pass the emulated devices by.
fn options(wal: &Path) -> Vec<String> {
    let plugins = plugin_dir().unwrap_or_default();
    vec![
        format!("--plugin-dir={}", plugins.display()),
        "--plugin-load-add=ha_rocksdb".to_owned(),
        "--default-storage-engine=rocksdb".to_owned(),
        "--transaction-isolation=READ-COMMITTED".to_owned(),
        "--innodb-use-native-aio=0".to_owned(),
        "--innodb-buffer-pool-size=16M".to_owned(),
        format!("--rocksdb-wal-dir={}", wal.display()),
    ]
}

/// Makes the data directory that each round gets a copy of: `data`, and the log in `wal`.
fn load(scripts: &Scripts, workload: Workload, dir: &Path) -> Result<(), BenchError> {
    let wal = dir.join("wal");
    std::fs::create_dir_all(&wal).map_err(BenchError::io("creating", &wal))?;
    let mut launch = Launch::new(dir).map_err(BenchError::Config)?;
    server::create(&launch.data())?;
    launch.options = options(&wal);
    launch
        .options
        .push("--rocksdb-flush-log-at-trx-commit=0".to_owned());
    let server = Server::start(&launch)?;
    scripts.prepare(workload, &server)?;
    server.sql("SET GLOBAL rocksdb_force_flush_memtable_now = 1", "")?;
    server.stop().map(drop)
}

/// What all series have in common.
struct Setup<'a> {
    lab: &'a Lab<'a>,
    scripts: &'a Scripts,
    workload: Workload,
    template: &'a Path,
    scratch: &'a Path,
}

/// A series' server, stopped but in its turns, and what it lies on.
struct Series {
    log: Log,
    server: Server,
    _around: Around,
    _dir: ScratchDir,
}

impl Series {
    fn signal(&self, signal: Signal) {
        for process in [self.server.outer(), self.server.server()] {
            process.signal(signal);
        }
    }
}

impl Setup<'_> {
    /// A series on a fresh copy, whose pages and plans are in memory.
    fn start(&self, log: Log, clients: u64, is_synced: bool) -> Result<Series, BenchError> {
        let dir = ScratchDir::new_in(self.scratch)?;
        let mut launch = Launch::new(dir.path()).map_err(BenchError::Config)?;
        let wal = dir.path().join("wal");
        server::copy(&self.template.join("data"), &launch.data())?;
        server::copy(&self.template.join("wal"), &wal)?;
        sync_file_system(dir.path())?;
        let around = self.around(log, dir.path(), &wal)?;
        launch.stand_in(&around);
        launch.options = options(&wal);
        let durability = match (log, is_synced) {
            (Log::Off, _) => &[NOT_SYNCED, "--rocksdb-write-disable-wal=1"][..],
            (_, true) => &["--rocksdb-flush-log-at-trx-commit=1"],
            (_, false) => &[NOT_SYNCED],
        };
        let durability = durability.iter().map(|&word| word.to_owned());
        launch.options.extend(durability);
        let series = Series {
            log,
            server: Server::start(&launch)?,
            _around: around,
            _dir: dir,
        };
        self.turn(&series, clients)?;
        Ok(series)
    }

    /// Lets a series' server work for a turn.
    fn turn(&self, series: &Series, clients: u64) -> Result<workload::Measured, BenchError> {
        let seconds = seconds(self.lab.size);
        series.signal(Signal::CONT);
        let done = self
            .scripts
            .run(self.workload, &series.server, clients, seconds);
        series.signal(Signal::STOP);
        done
    }

    /// What stands around the server.
    fn around(&self, log: Log, dir: &Path, wal: &Path) -> Result<Around, BenchError> {
        let data = dir.join("data");
        let devices = match log {
            Log::On(device) if device != DATA => vec![(&*data, DATA), (wal, device)],
            // One device for both.
            _ => vec![(dir, DATA)],
        };
        let pools = Pools {
            disks: vec![self.lab.dir.to_owned()],
            ..self.lab.pools()
        };
        let contender = log.contender();
        let setting = self.lab.setting(&contender, &pools);
        // Nothing else of the server's: P3 is about this log.
        let absorbed = OsString::from(format!("{}/*.log", wal.display()));
        let absorb = setting
            .contender
            .is_ours()
            .then_some(("--absorb", absorbed));
        setting.around(&devices, absorb, dir.join("run"))
    }
}
