//! Redis and Valkey: what an append-only file that is synced at each write costs a Redis or Valkey
//! server, and what it costs under `forebay run` (P4).
//!
//! Each cell of the table (server, bytes of a value, connections) is measured in all modes in turn,
//! round after round, each time on a fresh server on loopback with a directory of its own; the load
//! is redis-benchmark's SETs of random keys.
//!
//! [`stage`] is a server's directory and command line. [`server`] and [`resp`] are also what the
//! end-to-end tests talk to servers with.

pub mod load;
pub mod modes;
pub mod resp;
pub mod server;
pub mod stage;

use crate::{
    MeasureError,
    contest::{Cell, Contender, Contest, Mode, Report, Sample, Setup, of_pool},
};
use load::Load;
use serde_json::json;
use server::Kind;
use stage::{Rewrites, Stage};
use std::path::Path;

/// What is measured.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where, in which modes, with which pools.
    pub setup: Setup,
    /// Servers.
    pub servers: Vec<Kind>,
    /// Bytes of a value.
    pub sizes: Vec<u64>,
    /// Connections.
    pub clients: Vec<u64>,
    /// SETs of a round, at most. Where each waits for the device, there are fewer
    /// ([`Config::requests_of`]).
    pub requests: u64,
    /// Only as many as take about so long.
    pub seconds: Option<f64>,
    /// Keys that are chosen from.
    pub keys: u64,
    /// Also measure while the append-only file is rewritten, with values of this size.
    pub during_rewrite: Option<u64>,
}

impl Config {
    /// SETs of a round in `mode` at most: where each waits for the device and no time is said, so
    /// many fewer that a round takes seconds, not minutes.
    #[must_use]
    pub fn requests_of(&self, mode: Mode, clients: u64) -> u64 {
        const SYNCED_PER_CLIENT: u64 = 2000;
        match mode == modes::ALWAYS && self.seconds.is_none() {
            true => self.requests.min(SYNCED_PER_CLIENT * clients.max(1)),
            false => self.requests,
        }
    }

    fn check(&self) -> Result<(), MeasureError> {
        if self.servers.is_empty() {
            return Err(MeasureError::Config("no server to measure".to_owned()));
        }
        let counts = [self.requests, self.keys];
        self.setup.check(&[&self.clients, &self.sizes, &counts])?;
        load::program().map(drop).map_err(MeasureError::Config)
    }
}

/// Runs it all. `note` is told what is being done.
///
/// # Errors
/// The first thing that goes wrong; a server or library that is not installed is reported, and is
/// no error.
pub fn run(config: &Config, note: &dyn Fn(&str)) -> Result<Report, MeasureError> {
    config.check()?;
    let mut contest = Contest::begin("redis", "SETs", &config.setup, note)?;
    let requests = match config.seconds {
        Some(_) => "each round has as many requests as take so many seconds, by its first ones",
        None => "always has fewer requests than the other modes, so that a round takes seconds",
    };
    contest.report.tell(json!({"keys": config.keys}), requests);
    for &server in &config.servers {
        let program = match server.program() {
            Ok(program) => program,
            Err(why) => {
                contest.report.missing(&server.to_string(), &why);
                continue;
            }
        };
        let sizes = config.sizes.iter().map(|&size| (size, false));
        for (value_bytes, during_rewrite) in sizes.chain(config.during_rewrite.map(|it| (it, true)))
        {
            for &clients in &config.clients {
                let load = Load {
                    requests: config.requests,
                    value_bytes,
                    clients,
                    keys: config.keys,
                };
                let during = ["", "_during_rewrite"][usize::from(during_rewrite)];
                let columns = json!({
                    "server": server,
                    "value_bytes": value_bytes,
                    "clients": clients,
                    "during_rewrite": during_rewrite,
                });
                let tag = format!("{server}_{value_bytes}_{clients}{during}");
                // Without a file there is nothing to rewrite.
                let wanted = |mode: &Mode| !during_rewrite || *mode != modes::OFF;
                let measure = |scratch: &Path, contender: &Contender| {
                    measure(config, scratch, (&program, load, during_rewrite), contender)
                };
                contest.cell(&Cell::new(tag, columns), wanted, measure)?;
            }
        }
    }
    Ok(contest.end())
}

/// SETs that show how many a round of some seconds has.
const FIRST: u64 = 500;

/// One contender in one cell, once, on a fresh server. `load`: with its number of SETs at most.
fn measure(
    config: &Config,
    scratch: &Path,
    (program, load, during_rewrite): (&Path, Load, bool),
    contender: &Contender,
) -> Result<Sample, MeasureError> {
    let setting = config.setup.setting(contender, None);
    let device = config.setup.device.as_deref();
    let stage = Stage::new(&setting, device, program, Rewrites::Asked, scratch)?;
    let server = stage.start()?;
    let most = config.requests_of(contender.mode, load.clients);
    let warm_up = Load {
        requests: match config.seconds {
            Some(_) => most.min(FIRST),
            None => (most / 10).max(1),
        },
        ..load
    };
    let first = warm_up.run(&server)?;
    let load = Load {
        requests: match config.seconds {
            Some(seconds) => ((first.ops_per_s * seconds) as u64).clamp(warm_up.requests, most),
            None => most,
        },
        ..load
    };
    let (mut sample, rewrites) = match during_rewrite {
        true => {
            let (sample, rewrites) = load.run_during_rewrites(&server)?;
            (sample, Some(rewrites))
        }
        false => (load.run(&server)?, None),
    };
    sample.more = of_pool(stage.nvm_bytes(), stage.behind());
    sample
        .more
        .insert("requests".to_owned(), json!(load.requests));
    if let Some(rewrites) = rewrites {
        sample.more.insert("rewrites".to_owned(), json!(rewrites));
    }
    server.stop()?;
    Ok(sample)
}
