//! P3: what MyRocks gives, by where its write-ahead log is, with LinkBench and TPC-C.
//!
//! The data lies on an emulated SSD always. Each series has a server of its own, on a copy of one
//! data directory, with the log where the series says. The servers take turns of a few seconds,
//! since a machine's speed changes faster than a server starts; all but the one that is measured
//! are stopped (SIGSTOP), so that what one has to tidy up is no other's burden. The consistency of
//! each is checked in the end. Everything is in memory: an emulated device only adds to what a call
//! takes anyway.

use super::{
    catalogue,
    lab::Lab,
    outcome::Measured,
    size::Size,
    template::{Standing, Template},
};
use crate::{
    BenchError,
    contest::{Around, Contender, EATMYDATA, FOREBAY, PLAIN, Pools},
    device::{self, Effort},
    mariadb::server,
    processes::find_eatmydata,
    rounds::take_turns,
    scratch::{ScratchDir, memory_dir},
    sysbench::{self, MYROCKS, Scripts, Workload},
};
use rustix::process::Signal;
use serde::Deserialize;
use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

/// What the data is on.
const DATA: &str = "sata-ssd";
/// The paper's connections.
const CLIENTS: u64 = 10;

/// Where the log is, and what the series is called.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Log {
    name: String,
    /// What it is on; the device of the data, if it is the same.
    device: String,
    /// Where the pool is, under `forebay run`.
    pool: Option<String>,
    /// Under libeatmydata.
    #[serde(default)]
    is_eaten: bool,
    /// There is no log.
    #[serde(default)]
    is_off: bool,
}

#[derive(Deserialize)]
struct Logs {
    logs: Vec<Log>,
}

/// Table 1 of the paper.
pub(super) fn link_bench(lab: &Lab<'_>) -> Result<Measured, BenchError> {
    let ids = lab.size.pick(1000, 50_000, 10_000_000);
    run(lab, Workload::LinkBench { ids }, "linkbench")
}

/// Table 2.
pub(super) fn tpcc(lab: &Lab<'_>) -> Result<Measured, BenchError> {
    let tpcc = Workload::Tpcc {
        warehouses: lab.size.pick(1, 1, 200),
        roam: false,
    };
    run(lab, tpcc, "tpcc")
}

/// Numbers of connections, and whether a commit is synced, which the paper does not say. At toy
/// size the paper's alone.
fn settings(size: Size) -> &'static [(u64, bool)] {
    const ALL: [(u64, bool); 4] = [(1, true), (CLIENTS, true), (1, false), (CLIENTS, false)];
    size.pick(&ALL[1..2], &ALL, &ALL)
}

/// What is missing on this machine, in words.
fn lacking() -> Option<String> {
    const PLUGIN: &str = "MyRocks is not installed: scripts/setup.sh test, or apt-get install mariadb-plugin-rocksdb";
    let plugin = || server::myrocks().is_none().then(|| PLUGIN.to_owned());
    const LIBRARY: &str = "libeatmydata is not installed: apt-get install libeatmydata1";
    let eatmydata = || find_eatmydata().is_none().then(|| LIBRARY.to_owned());
    server::lacking().or_else(plugin).or_else(eatmydata)
}

/// A workload. Its panels: rates, latencies by request, and processor time of the server, in its
/// own code and in the kernel.
fn run(lab: &Lab<'_>, workload: Workload, panel: &str) -> Result<Measured, BenchError> {
    if let Some(why) = lacking() {
        return Err(BenchError::Missing(why));
    }
    let left = lab.parts.left(settings(lab.size).to_vec(), at);
    if !left.is_empty() {
        measure(lab, workload, &left, panel)?;
    }
    let mut measured = lab.parts.measured();
    let disk = device::measure(lab.dir, Effort::QUICK)?;
    measured.note(format!(
        "a pool on this disk is a file of 128 MiB in {}, which writes 4 KiB and syncs in {:.0} µs",
        disk.name.as_deref().unwrap_or("a directory"),
        disk.fsync_us
    ));
    let (turns, seconds) = turns(lab.size);
    measured.note(format!(
        "{workload:?} on MyRocks (READ COMMITTED, no binary log); {turns} turns of {seconds} s for each series; the paper has 10 million ids and 200 \
         warehouses"
    ));
    Ok(measured)
}

/// A setting in words.
fn at(&(clients, is_synced): &(u64, bool)) -> String {
    let s = if clients == 1 { "" } else { "s" };
    let synced = if is_synced { "synced" } else { "not synced" };
    format!("{clients} client{s}, {synced}")
}

/// Measures these settings, and keeps each.
fn measure(
    lab: &Lab<'_>,
    workload: Workload,
    settings: &[(u64, bool)],
    panel: &str,
) -> Result<(), BenchError> {
    let [p99, cpu] = ["p99", "cpu"].map(|what| format!("{panel}_{what}"));
    // An emulated device only adds to what a call takes.
    let scratch = ScratchDir::new_in(&memory_dir())?;
    let scripts = Scripts::unpack(&scratch.path().join("scripts"), MYROCKS, workload)?;
    lab.note(&format!("loading {workload:?}"));
    let setup = Setup {
        lab,
        scripts: &scripts,
        template: load(&scripts, scratch.path().join("template"))?,
        scratch: scratch.path(),
    };
    let Logs { logs } = catalogue::measured("P3");
    let (turns, _) = turns(lab.size);
    for &(clients, is_synced) in settings {
        let x = at(&(clients, is_synced));
        let mut measured = Measured::default();
        let start = |log| setup.start(log, clients, is_synced);
        let series = logs.iter().map(start).collect::<Result<Vec<_>, _>>()?;
        let series: Vec<_> = logs.iter().zip(series).collect();
        take_turns(&series, turns, |(log, standing)| {
            let processor_time = || standing.server.server().processor_time();
            let before = processor_time();
            let (log, done) = (&log.name, setup.turn(standing, clients)?);
            lab.note(&format!("{log}, {x}: {:.0}/s", done.operations_per_s));
            measured.add(panel, DATA, log, &x, &[done.operations_per_s]);
            let requests: u64 = done.operations.iter().map(|kind| kind.count).sum();
            let before = ["server", "kernel"].iter().zip(before);
            for ((part, before), after) in before.zip(processor_time()) {
                let each = (after - before).as_secs_f64() * 1e6 / requests.max(1) as f64;
                measured.add(&cpu, DATA, log, &format!("{x}: {part}"), &[each]);
            }
            let of_kinds = (clients, is_synced) == (CLIENTS, true);
            for kind in done.operations.iter().filter(|it| of_kinds && it.count > 0) {
                measured.add(&p99, DATA, log, &kind.operation, &[kind.p99_us]);
            }
            Ok::<_, BenchError>(())
        })?;
        for (_, standing) in series {
            signal(&standing, Signal::CONT);
            scripts.check(&standing.server)?;
            standing.server.stop()?;
        }
        lab.parts.add(x, measured)?;
    }
    Ok(())
}

/// Turns of each series, and seconds of one.
fn turns(size: Size) -> (usize, u64) {
    size.pick((1, 1), (9, 3), (9, 10))
}

/// Each commit is written to the log, and synced once a second.
const NOT_SYNCED: &str = "--rocksdb-flush-log-at-trx-commit=2";

/// What all servers have. InnoDB holds the system's tables only; its own rings would pass the
/// emulated devices by.
fn options(wal: &Path) -> Vec<String> {
    let plugins = server::myrocks().unwrap_or_default();
    let all = [
        &format!("--plugin-dir={}", plugins.display()),
        "--plugin-load-add=ha_rocksdb",
        "--default-storage-engine=rocksdb",
        "--transaction-isolation=READ-COMMITTED",
        "--innodb-use-native-aio=0",
        "--innodb-buffer-pool-size=16M",
        &format!("--rocksdb-wal-dir={}", wal.display()),
    ];
    all.map(str::to_owned).to_vec()
}

/// Makes the data directory that each series gets a copy of: `data`, and the log in `wal`.
fn load(scripts: &Scripts, dir: PathBuf) -> Result<Template, BenchError> {
    let wal = dir.join("wal");
    std::fs::create_dir_all(&wal).map_err(BenchError::io("creating", &wal))?;
    let mut options = options(&wal);
    options.push("--rocksdb-flush-log-at-trx-commit=0".to_owned());
    Template::load(dir, options, |server| {
        scripts.prepare(server)?;
        let flush = "SET GLOBAL rocksdb_force_flush_memtable_now = 1";
        server.sql(flush, "").map(drop)
    })
}

/// What all series have in common.
struct Setup<'a> {
    lab: &'a Lab<'a>,
    scripts: &'a Scripts,
    template: Template,
    scratch: &'a Path,
}

/// To a series' server, which is stopped but in its turns.
fn signal(standing: &Standing, signal: Signal) {
    for process in [standing.server.outer(), standing.server.server()] {
        process.signal(signal);
    }
}

impl Setup<'_> {
    /// A series on a fresh copy, whose pages and plans are in memory.
    fn start(&self, log: &Log, clients: u64, is_synced: bool) -> Result<Standing, BenchError> {
        let durability = match is_synced {
            _ if log.is_off => &[NOT_SYNCED, "--rocksdb-write-disable-wal=1"][..],
            true => &["--rocksdb-flush-log-at-trx-commit=1"],
            false => &[NOT_SYNCED],
        };
        let template = &self.template;
        let standing = template.start(&["data", "wal"], self.scratch, |dir| {
            let wal = dir.join("wal");
            let mut options = options(&wal);
            options.extend(durability.iter().map(|&word| word.to_owned()));
            Ok((self.around(log, dir, &wal)?, options))
        })?;
        self.turn(&standing, clients)?;
        Ok(standing)
    }

    /// Lets a series' server work for a turn.
    fn turn(&self, standing: &Standing, clients: u64) -> Result<sysbench::Measured, BenchError> {
        let (_, seconds) = turns(self.lab.size);
        signal(standing, Signal::CONT);
        let done = self.scripts.run(&standing.server, clients, seconds);
        signal(standing, Signal::STOP);
        done
    }

    /// What stands around the server.
    fn around(&self, log: &Log, dir: &Path, wal: &Path) -> Result<Around, BenchError> {
        let data = dir.join("data");
        let devices = match &*log.device {
            // One device for both.
            DATA => vec![(dir, DATA)],
            device => vec![(&*data, DATA), (wal, device)],
        };
        let pools = Pools {
            disks: vec![self.lab.dir.to_owned()],
            ..self.lab.pools()
        };
        let plain = if log.is_eaten { EATMYDATA } else { PLAIN };
        let contender = Contender {
            disk: (log.pool.as_deref() == Some("disk")).then_some(0),
            ..log.pool.as_ref().map_or(plain, |_| FOREBAY).into()
        };
        self.lab.in_setting(contender, &pools, |setting| {
            // Nothing else of the server's: P3 is about this log.
            let absorbed = OsString::from(format!("{}/*.log", wal.display()));
            let is_ours = setting.contender.is_ours();
            let absorb = is_ours.then_some(("--absorb", absorbed));
            setting.around(&devices, absorb, dir.join("run"))
        })
    }
}
