//! Loads that a flash cache must not make slower: it was not made for them, and they are measured
//! while it cleans.
//!
//! Flash caches have made things worse: a read that misses looks twice, a scan throws out what is
//! worth keeping or is read in pieces, and throughput falls while a cache writes home. sysbench's
//! transactions that only read, those that only write, and a scan of all rows take turns on one
//! server, whose cache has turned once before.

use super::{
    case::{ADAPTIVE, Case, ON_ARRAY, ON_THIS_DISK, ORIGINAL},
    stage::{CLIENTS, Stage, Standing},
};
use crate::{
    BenchError,
    mariadb::{
        load::{self, READ_ONLY, WRITE_ONLY},
        server::{self, DATABASE, Server},
    },
    paper::{lab::Lab, outcome::Measured},
    scratch::{ScratchDir, memory_dir},
    sql::Load,
};
use std::time::Instant;

/// A scan of all rows, by one client.
const SCAN: &str = "all rows";

/// The loads in their order: the panel of their rates, transactions or MB a second, and what they
/// are called there.
const LOADS: [(&str, &str); 3] = [("loads", WRITE_ONLY), ("loads", READ_ONLY), ("scan", SCAN)];

/// Other loads than the paper's.
pub(in crate::paper) fn run(lab: &Lab<'_>) -> Result<Measured, BenchError> {
    if let Some(why) = server::lacking() {
        return Err(BenchError::Missing(why));
    }
    let scratch = ScratchDir::new_in(&memory_dir())?;
    let size = load::Size {
        tables: 4,
        rows: lab.size.pick(20_000, 500_000, 2_500_000),
    };
    let stage = Stage::load(lab, scratch.path(), |server| size.prepare(server))?;
    let mut measured = Measured::default();
    for &ground in &[ON_ARRAY, ON_THIS_DISK][..lab.size.pick(1, 2, 2)] {
        for variant in std::iter::once(ORIGINAL).chain(ADAPTIVE) {
            let standing = stage.start(Case::named(variant, ground))?;
            measure(&stage, &standing, size, &mut measured)?;
            let told = tell(&standing, &mut measured);
            stage.end(standing, |server| check(size, server))?;
            lab.note(&told);
            measured.note(told);
        }
    }
    measured.note(format!("{size}: {}", stage.describe()));
    Ok(measured)
}

/// The loads, in turn on one server, and each beside what the server without a cache gives.
fn measure(
    stage: &Stage<'_>,
    standing: &Standing,
    size: load::Size,
    measured: &mut Measured,
) -> Result<(), BenchError> {
    // Seconds of work before a row is measured at most, of a round; and rounds.
    let [most, round, rounds] = stage.lab.size.pick([2, 1, 1], [40, 8, 3], [600, 40, 3]);
    let server = standing.server();
    let load = Load {
        size,
        clients: CLIENTS,
        seconds: round,
        processor: None,
    };
    let begun = Instant::now();
    while standing.turns().is_some_and(|turns| turns < 1.0) && begun.elapsed().as_secs() < most {
        load::run(WRITE_ONLY, &load, server)?;
    }
    let Case {
        variant, ground, ..
    } = standing.case;
    let (place, series) = (&*ground.flash, &*variant.name);
    for _ in 0..rounds {
        for (panel, x) in LOADS {
            if x == READ_ONLY {
                // What writers left to be removed is removed, or the readers would be measured
                // beside that.
                server.sql("SET GLOBAL innodb_max_purge_lag_wait = 0", "")?;
            }
            if x == SCAN {
                let begun = Instant::now();
                scan(size, server)?;
                let mb = stage.data_bytes as f64 / 1e6;
                let rate = mb / begun.elapsed().as_secs_f64();
                measured.add(panel, place, series, x, &[rate]);
            } else {
                let done = load::run(x, &load, server)?;
                let p99_ms = done.latency.p99_us.map(|us| us / 1e3);
                measured.add(panel, place, series, x, &[done.ops_per_s]);
                measured.add("loads_p99", place, series, x, p99_ms.as_slice());
            }
        }
    }
    if series != ORIGINAL {
        for (panel, x) in LOADS {
            let mut median = |series| measured.value(panel, place, series, x);
            let over = median(series) / median(ORIGINAL);
            measured.add("over", place, series, x, &[over]);
        }
    }
    Ok(())
}

fn tell(standing: &Standing, measured: &mut Measured) -> String {
    let Case {
        variant, ground, ..
    } = standing.case;
    let figure = |(panel, x)| {
        let mut median = |panel| measured.value(panel, &ground.flash, &variant.name, x);
        match x {
            SCAN => format!("{SCAN} {:.0} MB/s", median(panel)),
            _ => format!(
                "{x} {:.0}/s, p99 {:.1} ms",
                median(panel),
                median("loads_p99")
            ),
        }
    };
    let mut told = format!("{}: {}", standing.case, LOADS.map(figure).join("; "));
    if let (Some(flash), Some(turns)) = (standing.flash(), standing.turns()) {
        told.push_str(&format!(
            "; the queue turned {turns:.1} times, {} pages went home, {} of {} reads found their page on flash",
            flash.home_pages,
            flash.hits,
            flash.hits + flash.misses
        ));
    }
    told
}

/// Reads every row once.
fn scan(size: load::Size, server: &Server) -> Result<(), BenchError> {
    let one = |table| format!("SELECT SUM(LENGTH(c) + LENGTH(pad)) FROM {table};");
    let all: String = size.names().map(one).collect();
    server.sql(&all, DATABASE).map(drop)
}

/// What the server itself says of its tables.
fn check(size: load::Size, server: &Server) -> Result<(), BenchError> {
    let names: Vec<String> = size.names().collect();
    let told = server.sql(
        &format!("CHECK TABLE {} EXTENDED", names.join(", ")),
        DATABASE,
    )?;
    match told.lines().all(|line| line.ends_with("OK")) && told.lines().count() == names.len() {
        true => Ok(()),
        false => Err(BenchError::Child(format!("(mariadbd) CHECK TABLE: {told}"))),
    }
}
