//! The second half of the demo: an unmodified Redis that must not lose anything, and is killed.

use crate::contest::note;
use forebay_bench::{
    BenchError,
    contest::{Pools, Report, Setup},
    device::Effort,
    redis::{
        self, Config, load,
        modes::{ALWAYS, FOREBAY},
        resp::{Reply, expect_ok},
        server::{Kind, Launch, Server},
    },
    report::{Table, figure, grouped},
    scratch::{PoolSource, ScratchDir, ScratchPool},
};
use forebay_measure::server::forebay_run;
use serde::Serialize;
use std::{
    path::Path,
    time::{Duration, Instant},
};

const VALUE_BYTES: usize = 512;
/// SETs at most.
const SETS_MAX: u64 = 5_000_000;
const SEGMENTS: u16 = 2;
const SEGMENT_BYTES: u64 = 8 << 20;
/// How long the server lives before it is killed.
const ALIVE: Duration = Duration::from_millis(1500);

/// What was shown.
#[derive(Serialize)]
pub struct Shown {
    bench: Report,
    killed: Killed,
}

/// What the killing showed.
#[derive(Serialize)]
struct Killed {
    acknowledged: u64,
    recovered: u64,
}

impl Shown {
    /// True if nothing acknowledged is missing.
    pub fn lossless(&self) -> bool {
        self.killed.acknowledged == self.killed.recovered && self.killed.acknowledged > 0
    }

    pub fn human(&self) -> String {
        format!(
            "redis-benchmark, 1 connection, values of {VALUE_BYTES} bytes, appendfsync always\n\n{}\n\
             redis-server (under forebay run) and its supervisor killed with SIGKILL after {:.1} s, recovered, restarted\n\
             acknowledged SETs {:>12}\n\
             recovered         {:>12}\n{}",
            table(&self.bench),
            ALIVE.as_secs_f64(),
            grouped(self.killed.acknowledged as i64),
            grouped(self.killed.recovered as i64),
            if self.lossless() {
                "Every acknowledged SET is there, with its value.\n"
            } else {
                "ACKNOWLEDGED SETS ARE MISSING. This must not happen; please report it.\n"
            }
        )
    }
}

/// Runs it; in words what to install, if there is no Redis here.
pub fn run(forebay: &Path, dir: &Path) -> Result<Result<Shown, String>, BenchError> {
    let program = match Kind::Redis
        .program()
        .and_then(|it| load::program().map(|_| it))
    {
        Ok(program) => program,
        Err(missing) => return Ok(Err(missing)),
    };
    let bench = redis::run(&config(forebay, dir), &note)?;
    eprintln!("redis under forebay run, to be killed");
    let killed = kill(forebay, &program, dir)?;
    Ok(Ok(Shown { bench, killed }))
}

/// SETs for a second, plain and under Forebay.
fn config(forebay: &Path, dir: &Path) -> Config {
    Config {
        setup: Setup {
            dir: dir.to_owned(),
            modes: vec![ALWAYS, FOREBAY],
            pools: Pools {
                segments: 8,
                ..Pools::of(PoolSource::Emulated)
            },
            device: None,
            rounds: 1,
            forebay: forebay.to_owned(),
            emulator: None,
            effort: Effort::QUICK,
        },
        servers: vec![Kind::Redis],
        sizes: vec![VALUE_BYTES as u64],
        clients: vec![1],
        requests: SETS_MAX,
        seconds: Some(1.0),
        keys: 100_000,
        during_rewrite: None,
    }
}

/// The modes as a table.
fn table(bench: &Report) -> String {
    let mut table = Table::new(&["redis", "SETs/s", "p99 µs", "x always", "a SET survives"]);
    let always = bench.rows.first().map(|row| row.ops_per_s);
    for row in &bench.rows {
        table.row(vec![
            row.name(),
            figure(Some(row.ops_per_s)),
            figure(row.latency.p99_us),
            figure(always.map(|always| row.ops_per_s / always)),
            row.contender.durability().to_owned(),
        ]);
    }
    table.render()
}

/// Kills server and supervisor in the middle of writing, recovers, and looks for everything that
/// was acknowledged.
fn kill(forebay: &Path, program: &Path, dir: &Path) -> Result<Killed, BenchError> {
    let scratch = ScratchDir::new_in(dir)?;
    let pool = ScratchPool::new(&PoolSource::Emulated, SEGMENTS.into(), SEGMENT_BYTES)?;
    let mut launch = Launch::of(program.to_owned(), scratch.path());
    launch.wrapper = forebay_run(forebay, Some((pool.path(), SEGMENTS)), []);
    let options = [ALWAYS.settings, &["--save", ""]].concat();
    launch.options = options.into_iter().map(str::to_owned).collect();
    let value = |number: u64| format!("{number:0>VALUE_BYTES$}");
    let failed = |doing: &'static str| BenchError::io(doing, Path::new("redis-server"));
    let server = Server::start(&launch)?;
    let mut connection = server.connect().map_err(failed("connecting to"))?;
    let until = Instant::now() + ALIVE;
    let mut acknowledged = 0;
    while Instant::now() < until {
        let set = format!("SET key:{acknowledged} {}", value(acknowledged));
        let reply = connection.line(&set).and_then(expect_ok);
        reply.map_err(failed("writing to"))?;
        acknowledged += 1;
    }
    server.kill()?;
    // Starting it again under forebay run recovers the pool first.
    let server = Server::start(&launch)?;
    let mut connection = server.connect().map_err(failed("connecting to"))?;
    let mut recovered = 0;
    for number in 0..acknowledged {
        let found = connection.line(&format!("GET key:{number}"));
        let expected = Reply::BulkString(value(number).into_bytes());
        recovered += u64::from(found.is_ok_and(|found| found == expected));
    }
    server.stop()?;
    Ok(Killed {
        acknowledged,
        recovered,
    })
}
