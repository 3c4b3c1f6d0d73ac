//! What a flash cache must not make slower: loads that it was not made for, measured while it cleans.
//!
//! Flash caches have made things worse: a read that misses looks twice, a scan throws out what is worth keeping or is read in pieces, and
//! throughput falls while a cache writes home. sysbench's transactions that only read, those that only write, and a scan of all rows take turns on
//! one server, whose cache has turned once before.

use super::{
    CLIENTS, Ground, Lab, Measured, PERCENT, Row, SSD, Size, Variant,
    stage::{Case, Stage, Standing},
    steady::turns_of,
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

const VARIANTS: [Variant; 3] = [Variant::Original, Variant::Dirty, Variant::All];
const TABLES: u64 = 4;
/// A scan of all rows, by one client.
const SCAN: &str = "all rows";
/// What sysbench's row takes with its part of both indexes.
const ROW_BYTES: u64 = 240;

/// Rows of each table.
fn table_rows(size: Size) -> u64 {
    size.pick(20_000, 500_000, 2_500_000)
}

/// Bytes of the tables, about.
pub(in crate::paper) fn bytes(size: Size) -> u64 {
    TABLES * table_rows(size) * ROW_BYTES
}

fn grounds(size: Size) -> &'static [Ground] {
    const ALL: [Ground; 2] = [Ground::Apart(SSD), Ground::Here];
    &ALL[..size.pick(1, 2, 2)]
}

/// Seconds of work before a row is measured at most, of a round; and rounds.
fn seconds(size: Size) -> ([u64; 2], usize) {
    size.pick(([2, 1], 1), ([40, 8], 3), ([600, 40], 3))
}

/// Other loads than the paper's.
pub(in crate::paper) fn run(lab: &Lab<'_>) -> Result<Measured, BenchError> {
    if let Some(why) = server::lacking() {
        return Err(BenchError::Missing(why));
    }
    let scratch = ScratchDir::new_in(&memory_dir())?;
    let size = load::Size {
        tables: TABLES,
        rows: table_rows(lab.size),
    };
    let stage = Stage::load(lab, scratch.path(), |server| size.prepare(server))?;
    let mut measured = Measured::default();
    for &ground in grounds(lab.size) {
        let mut original = Vec::new();
        for variant in VARIANTS {
            let case = Case {
                variant,
                ground,
                percent: PERCENT,
            };
            let standing = stage.start(case)?;
            let figures = measure(&stage, &standing, size)?;
            let told = tell(&stage, &standing, &figures);
            stage.end(standing, |server| check(size, server))?;
            lab.note(&told);
            measured.note(told);
            rows(case, &figures, &original, &mut measured);
            if variant == Variant::Original {
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
    let ([most, round], rounds) = seconds(stage.lab.size);
    let server = standing.server()?;
    let load = Load {
        size,
        clients: CLIENTS,
        seconds: round,
        processor: None,
    };
    let begun = Instant::now();
    let turned = || turns(standing).unwrap_or(f64::INFINITY);
    while turned() < 1.0 && begun.elapsed().as_secs() < most {
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
                let mb = stage.data_bytes() as f64 / 1e6;
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
    let (place, series) = (case.ground.place(), case.variant.name());
    let mut row = |panel, x, figures: &[f64]| {
        let row = Row::of(panel, place, series, x, figures);
        measured.rows.push(row);
    };
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

/// How often the queue has turned; none without a cache.
fn turns(standing: &Standing) -> Option<f64> {
    standing.flash().as_ref().map(turns_of)
}

fn tell(stage: &Stage<'_>, standing: &Standing, figures: &[Figures]) -> String {
    let figure = |of: &Figures| match of.load {
        SCAN => format!("{SCAN} {:.0} MB/s", median(&of.rates)),
        load => format!(
            "{load} {:.0}/s, p99 {:.1} ms",
            median(&of.rates),
            median(&of.p99_ms)
        ),
    };
    let figures: Vec<String> = figures.iter().map(figure).collect();
    let mut told = format!("{}: {}", stage.name(standing.case), figures.join("; "));
    if let Some(flash) = standing.flash() {
        told.push_str(&format!(
            "; the queue turned {:.1} times, {} pages went home, {} of {} reads found their page on flash",
            turns_of(&flash),
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
