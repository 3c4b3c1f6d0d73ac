//! The second half of the demo: an unmodified Redis that must not lose anything, and is killed.

use crate::failure::Failure;
use forebay_bench::{
    contest::{Mode, Pools, Row, Setup},
    data::fresh_seed,
    device::Effort,
    place::forebay_run,
    redis::{
        self, Config,
        modes::{ALWAYS, EVERYSEC, FOREBAY},
        server::{Kind, Launch, Server},
    },
    report::{Table, figure, grouped},
    scratch::{PoolSource, ScratchDir, ScratchPool},
};
use rustix::process::Signal;
use serde::Serialize;
use std::{
    path::Path,
    time::{Duration, Instant},
};

/// Modes, with the speed that the paper (PB-Redis) has for them, over `always`: there PB-Redis stands where Forebay does here.
const MODES: [(Mode, &str); 3] = [(ALWAYS, "1"), (EVERYSEC, "131"), (FOREBAY, "100")];
const VALUE_BYTES: u64 = 512;
const BUFFERS: u16 = 2;
const BUFFER_BYTES: u64 = 8 << 20;
/// How long the server lives before it is killed.
const ALIVE: Duration = Duration::from_millis(1500);

/// What was shown.
#[derive(Serialize)]
pub struct Shown {
    rows: Vec<Row>,
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
        self.killed.acknowledged == self.killed.recovered
    }

    pub fn human(&self) -> String {
        let mut table = Table::new(&[
            "redis appendfsync",
            "SETs/s",
            "p99 µs",
            "x always",
            "paper",
            "a SET survives",
        ]);
        let row = |mode: Mode| self.rows.iter().find(|row| row.contender.mode == mode);
        let always = row(ALWAYS);
        for (mode, paper) in MODES {
            let Some(row) = row(mode) else {
                continue;
            };
            table.row(vec![
                match mode == FOREBAY {
                    true => "always, forebay run".to_owned(),
                    false => mode.to_string(),
                },
                figure(Some(row.ops_per_s)),
                figure(row.latency.p99_us),
                always.map_or_else(String::new, |always| {
                    format!("{:.2}", row.ops_per_s / always.ops_per_s)
                }),
                paper.to_owned(),
                mode.survives.to_owned(),
            ]);
        }
        format!(
            "{}\nredis-server (always, forebay run) and its supervisor killed with SIGKILL after {:.1} s, recovered, restarted\n\
             acknowledged SETs {:>12}\n\
             recovered         {:>12}\n{}",
            table.render(),
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
pub fn run(dir: &Path) -> Result<Result<Shown, String>, Failure> {
    let program = match Kind::Redis.program() {
        Ok(program) => program,
        Err(why) => return Ok(Err(why)),
    };
    let forebay = crate::bench::own_program()?;
    let config = Config {
        setup: Setup {
            dir: dir.to_owned(),
            modes: MODES.map(|(mode, _)| mode).to_vec(),
            pools: Pools::of(PoolSource::Emulated),
            device: None,
            rounds: 1,
            forebay: forebay.clone(),
            effort: Effort::QUICK,
        },
        servers: vec![Kind::Redis],
        sizes: vec![VALUE_BYTES],
        clients: vec![1],
        requests: 50_000,
        keys: 100_000,
        during_rewrite: None,
    };
    let measured = redis::run(&config, &|note| eprintln!("{note}"))?;
    eprintln!("redis under forebay run, to be killed");
    let killed = kill(dir, &program, &forebay)?;
    Ok(Ok(Shown {
        rows: measured.rows,
        killed,
    }))
}

/// Kills server and supervisor in the middle of writing, recovers, and looks for everything that was acknowledged.
fn kill(dir: &Path, program: &Path, forebay: &Path) -> Result<Killed, Failure> {
    let scratch = ScratchDir::new_in(dir)?;
    let pool = ScratchPool::new(&PoolSource::Emulated, BUFFERS.into(), BUFFER_BYTES, None)?;
    let launch = Launch {
        program: program.to_owned(),
        dir: scratch.path().join("data"),
        wrapper: forebay_run(forebay, Some((pool.path(), BUFFERS)), []),
        environment: Vec::new(),
        options: [
            "--appendonly",
            "yes",
            "--appendfsync",
            "always",
            "--save",
            "",
        ]
        .map(str::to_owned)
        .to_vec(),
    };
    let seed = fresh_seed();
    let key = |i: u64| format!("key:{i}").into_bytes();
    let value = |i: u64| {
        format!(
            "{:0>width$}",
            i.wrapping_mul(seed),
            width = VALUE_BYTES as usize
        )
        .into_bytes()
    };
    let failed = |doing: &'static str| Failure::io(doing, program.display());
    let mut server = Server::start(&launch)?;
    let mut connection = server.connect().map_err(failed("connecting to"))?;
    let until = Instant::now() + ALIVE;
    let mut acknowledged = 0;
    while Instant::now() < until {
        let reply = connection
            .command(&[b"SET", &key(acknowledged), &value(acknowledged)])
            .map_err(failed("writing to"))?;
        if !reply.is_ok() {
            return Err(Failure::Failed(format!(
                "{} refused a SET: {reply:?}",
                program.display()
            )));
        }
        acknowledged += 1;
    }
    // The supervisor first, so that it cannot finish what the database leaves.
    server.outer().signal(Signal::KILL);
    server.server().signal(Signal::KILL);
    server.wait()?;
    drop(server);
    // Starting it again under forebay run recovers the pool first.
    let server = Server::start(&launch)?;
    let mut connection = server.connect().map_err(failed("connecting to"))?;
    let mut recovered = 0;
    for i in 0..acknowledged {
        let reply = connection
            .command(&[b"GET", &key(i)])
            .map_err(failed("reading from"))?;
        recovered += u64::from(reply == redis::resp::Reply::Bytes(Some(value(i))));
    }
    server.stop()?;
    Ok(Killed {
        acknowledged,
        recovered,
    })
}
