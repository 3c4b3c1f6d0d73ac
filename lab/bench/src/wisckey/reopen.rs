//! Reopening a store whose process was killed with so many bytes written.

use super::{
    config::{Config, Limit},
    meter::remove_dir,
    turns::Run,
    writing::{Keys, write},
};
use crate::{
    BenchError, data,
    histogram::Percentiles,
    processes::Process,
    report::{Report, Row},
    scratch,
};
use forebay_pool::PoolOptions;
use forebay_store::Durability;
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::{
    io::{Read, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

/// What the process that is killed has to do.
#[derive(Debug, Serialize, Deserialize)]
struct Fill {
    dir: PathBuf,
    pool: PathBuf,
    variant: String,
    seed: u64,
    keys: u64,
    value_bytes: usize,
    buffer_bytes: u64,
    cache_bytes: u64,
}

/// In the child: writes what `order` (JSON) says, says so with one byte on standard output, and
/// goes on writing until it is killed, at most as much again.
///
/// # Errors
/// Those of the store.
pub fn fill_until_killed(order: &str) -> Result<(), BenchError> {
    // No writer is left over.
    let failed = BenchError::io("tying to its parent", Path::new("the child process"));
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|e| failed(e.into()))?;
    let fill: Fill = serde_json::from_str(order)
        .map_err(|e| BenchError::Child(format!("got a bad order: {e}")))?;
    let variant: Durability = fill.variant.parse().map_err(BenchError::Config)?;
    let config = Config {
        value_bytes: fill.value_bytes,
        buffer_bytes: fill.buffer_bytes,
        cache_bytes: fill.cache_bytes,
        latencies: false,
        ..Config::default()
    };
    let pool = PoolOptions::new().open(&fill.pool)?;
    let store = config.options(variant).open(&fill.dir, Some(&pool))?;
    let limit = Limit::of_ops(fill.keys);
    write(&config, &store, fill.seed, Keys::New(0), limit)?;
    let mut out = std::io::stdout();
    out.write_all(b"!")
        .and_then(|()| out.flush())
        .map_err(BenchError::io("reporting to", Path::new("the parent")))?;
    write(&config, &store, fill.seed, Keys::New(fill.keys), limit).map(drop)
}

/// Runs it in our main variant.
pub(super) fn run(run: Run<'_>, report: &mut Report) -> Result<(), BenchError> {
    let megabytes = run.config.preload_bytes / 1_000_000;
    let what = format!("writing {megabytes} MB, killing the writer, reopening");
    run.alone(report, &what, || once(run))
}

fn once(run: Run<'_>) -> Result<Row, BenchError> {
    let (config, variant) = (run.config, run.config.main_variant());
    let buffers = match variant {
        Durability::Buffered(n) => u64::from(n),
        _ => 1,
    };
    let pool = scratch::pool(&config.pool, buffers, config.buffer_bytes, config.profile)?;
    let order = Fill {
        dir: run.scratch.join("store"),
        pool: pool.path().to_owned(),
        variant: variant.to_string(),
        seed: data::fresh_seed(),
        keys: config.data_keys(),
        value_bytes: config.value_bytes,
        buffer_bytes: config.buffer_bytes,
        cache_bytes: config.cache_bytes,
    };
    kill_when_filled(&config.program, &order)?;
    let start = Instant::now();
    let store = config.options(variant).open(&order.dir, pool.pool())?;
    let open_seconds = start.elapsed().as_secs_f64();
    let last = data::key(order.seed, order.keys - 1);
    if store.get(&last)?.is_none() {
        return Err(BenchError::Wrong(
            "an acknowledged Put is gone after a restart".to_owned(),
        ));
    }
    let first_get_seconds = start.elapsed().as_secs_f64();
    store.close()?;
    remove_dir(&order.dir)?;
    let written_bytes = config.data_keys() * config.pair_bytes();
    let done = (1, first_get_seconds);
    let row = config.row("reopen", done, Percentiles::default(), 0);
    Ok(row.with(json!({
        "data_bytes": written_bytes,
        "open_seconds": open_seconds,
        "first_get_seconds": first_get_seconds,
        "written_bytes": written_bytes,
    })))
}

/// Has a child do what `order` says, and kills it as soon as it has.
fn kill_when_filled(program: &Path, order: &Fill) -> Result<(), BenchError> {
    let failed = |e: serde_json::Error| BenchError::Child(format!("gets no order: {e}"));
    let mut command = Command::new(program);
    command
        .args(["internal", "fill"])
        .arg(serde_json::to_string(order).map_err(failed)?)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut child = Process::spawn(&mut command)?;
    // One byte when it is done; none if it failed, which its standard error says.
    let output = child.child().stdout.as_mut();
    let told = output.and_then(|output| output.read(&mut [0]).ok());
    child.kill();
    let was_killed = child.ended().is_some_and(|status| status.code().is_none());
    let is_filled = told == Some(1) && was_killed;
    let failed = || BenchError::Child("could not fill the store".to_owned());
    is_filled.then_some(()).ok_or_else(failed)
}
