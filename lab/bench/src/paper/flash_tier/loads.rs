//! What a flash cache must not make slower: loads that it was not made for, measured while it cleans.
//!
//! Flash caches have made things worse: a read that misses looks twice, a scan throws out what is worth keeping or is read in pieces, and
//! throughput falls while a cache writes home. sysbench's transactions that only read, those that only write, and a scan of all rows take turns on
//! one server, whose cache has turned once before.

use super::{
    ALL, DIRTY, Lab, Measured, ON_ARRAY, ON_THIS_DISK, ORIGINAL, PERCENT,
    stage::{CLIENTS, Case, Stage, Standing},
};
use crate::{
    BenchError,
    mariadb::{
        load::{self, READ_ONLY, WRITE_ONLY},
        server::{self, DATABASE, Server},
    },
    rounds::median,
    scratch::{ScratchDir, memory_dir},
    sql::Load,
};
use std::time::Instant;

/// A scan of all rows, by one client.
const SCAN: &str = "all rows";

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
    let grounds = [ON_ARRAY, ON_THIS_DISK];
    for &ground in &grounds[..lab.size.pick(1, 2, 2)] {
        let mut original = Vec::new();
        for variant in [ORIGINAL, DIRTY, ALL] {
            let case = Case {
                variant,
                ground,
                percent: PERCENT,
            };
            let standing = stage.start(case)?;
            let figures = measure(&stage, &standing, size)?;
            let told = tell(&standing, &figures);
            stage.end(standing, |server| check(size, server))?;
            lab.note(&told);
            measured.note(told);
            rows(case, &figures, &original, &mut measured);
            if variant == ORIGINAL {
                original = figures;
            }
        }
    }
    measured.note(format!("{size}: {}", stage.describe()));
    Ok(measured)
}

/// What a load gives in each round.
struct Figures {
    load: &'static str,
    /// Transactions, or MB, a second.
    rates: Vec<f64>,
    /// 99 of 100 transactions take at most, ms.
    p99_ms: Vec<f64>,
}

/// The loads, in turn on one server.
fn measure(
    stage: &Stage<'_>,
    standing: &Standing,
    size: load::Size,
) -> Result<Vec<Figures>, BenchError> {
    // Seconds of work before a row is measured at most, of a round; and rounds.
    let [most, round, rounds] = stage.lab.size.pick([2, 1, 1], [40, 8, 3], [600, 40, 3]);
    let server = &standing.server;
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
    let mut figures: Vec<_> = [WRITE_ONLY, READ_ONLY, SCAN]
        .map(|load| Figures {
            load,
            rates: Vec::new(),
            p99_ms: Vec::new(),
        })
        .into();
    for _ in 0..rounds {
        for of in &mut figures {
            if of.load == READ_ONLY {
                // What writers left to be removed is removed, or the readers would be measured beside that.
                server.sql("SET GLOBAL innodb_max_purge_lag_wait = 0", "")?;
            }
            if of.load == SCAN {
                let begun = Instant::now();
                scan(size, server)?;
                let mb = stage.data_bytes as f64 / 1e6;
                of.rates.push(mb / begun.elapsed().as_secs_f64());
            } else {
                let done = load::run(of.load, &load, server)?;
                of.rates.push(done.ops_per_s);
                of.p99_ms.extend(done.latency.p99_us.map(|us| us / 1e3));
            }
        }
    }
    Ok(figures)
}

/// The rows of a server, beside what the one without a cache gives.
fn rows(case: Case, figures: &[Figures], original: &[Figures], measured: &mut Measured) {
    let (place, series) = (case.ground.flash, case.variant.name);
    let mut row = |panel, x, figures: &[f64]| measured.add(panel, place, series, x, figures);
    for (at, of) in figures.iter().enumerate() {
        match of.load {
            SCAN => row("scan", of.load, &of.rates),
            _ => {
                row("loads", of.load, &of.rates);
                row("loads_p99", of.load, &of.p99_ms);
            }
        }
        if let Some(original) = original.get(at) {
            let over = median(&of.rates) / median(&original.rates);
            row("over", of.load, &[over]);
        }
    }
}

fn tell(standing: &Standing, figures: &[Figures]) -> String {
    let figure = |of: &Figures| match of.load {
        SCAN => format!("{SCAN} {:.0} MB/s", median(&of.rates)),
        load => format!(
            "{load} {:.0}/s, p99 {:.1} ms",
            median(&of.rates),
            median(&of.p99_ms)
        ),
    };
    let figures: Vec<String> = figures.iter().map(figure).collect();
    let mut told = format!("{}: {}", standing.case, figures.join("; "));
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
