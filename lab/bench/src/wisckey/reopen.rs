//! Reopening a store whose process was killed with so many bytes written.

use super::{
    Config, Figures, Limit, Reopening, Report, Row, Watch,
    meter::remove_dir,
    puts::{Keys, write},
};
use crate::{
    BenchError,
    crash::{Child, die_with_parent},
    data,
    live::Live,
    scratch::ScratchPool,
};
use forebay_pool::PoolOptions;
use forebay_store::Variant;
use serde::{Deserialize, Serialize};
use std::{
    io::{Read, Write},
    path::{Path, PathBuf},
    time::Instant,
};

/// What the process that is killed has to do.
#[derive(Debug, Serialize, Deserialize)]
struct Fill {
    dir: PathBuf,
    pool: Option<PathBuf>,
    variant: String,
    seed: u64,
    keys: u64,
    value_bytes: usize,
    buffer_bytes: u64,
    cache_bytes: u64,
}

/// In the child: writes what `order` (JSON) says, says so with one byte on standard output, and goes on writing until it is
/// killed, at most as much again.
///
/// # Errors
/// Those of the store.
pub fn fill_until_killed(order: &str) -> Result<(), BenchError> {
    die_with_parent()?;
    let fill: Fill = serde_json::from_str(order)
        .map_err(|e| BenchError::Child(format!("got a bad order: {e}")))?;
    let variant: Variant = fill.variant.parse().map_err(BenchError::Config)?;
    let config = Config {
        value_bytes: fill.value_bytes,
        buffer_bytes: fill.buffer_bytes,
        cache_bytes: fill.cache_bytes,
        latencies: false,
        ..Config::default()
    };
    let pool = fill
        .pool
        .map(|path| PoolOptions::new().open(&path))
        .transpose()?;
    let store = config.options(variant).open(&fill.dir, pool.as_ref())?;
    let limit = Limit {
        ops: Some(fill.keys),
        seconds: None,
    };
    let live = Live::default();
    write(&config, &store, fill.seed, Keys::New(0), limit, &live)?;
    let mut out = std::io::stdout();
    out.write_all(b"!")
        .and_then(|()| out.flush())
        .map_err(BenchError::io("reporting to", Path::new("the parent")))?;
    write(
        &config,
        &store,
        fill.seed,
        Keys::New(fill.keys),
        limit,
        &live,
    )?;
    Ok(())
}

/// Runs it in our main variant.
pub(super) fn run(
    config: &Config,
    scratch: &Path,
    watch: &dyn Watch,
    report: &mut Report,
) -> Result<(), BenchError> {
    let variant = config.main_variant();
    let mut rounds = Vec::new();
    for _ in 0..config.rounds {
        watch.note(&format!(
            "writing {} MB, killing the writer, reopening",
            config.preload_bytes / 1_000_000
        ));
        let figures = once(config, scratch, variant)?;
        watch.note(&format!(
            "reopened and read from in {:.3} s",
            figures.seconds
        ));
        rounds.push(figures);
    }
    if let Some(figures) = Figures::of_rounds(rounds) {
        report.rows.push(Row {
            variant: variant.to_string(),
            figures,
        });
    }
    Ok(())
}

fn once(config: &Config, scratch: &Path, variant: Variant) -> Result<Figures, BenchError> {
    let buffers = match variant {
        Variant::Buffered(n) => u64::from(n),
        _ => 1,
    };
    let pool = ScratchPool::new(&config.pool, buffers, config.buffer_bytes, config.profile)?;
    let order = Fill {
        dir: scratch.join("store"),
        pool: Some(pool.path().to_owned()),
        variant: variant.to_string(),
        seed: data::fresh_seed(),
        keys: config.data_keys(),
        value_bytes: config.value_bytes,
        buffer_bytes: config.buffer_bytes,
        cache_bytes: config.cache_bytes,
    };
    let mut child = Child::spawn(&config.child, &order)?;
    // One byte when it is done; none if it failed, which its standard error says.
    let told = child.output.read(&mut [0]);
    child.kill()?;
    if !told.is_ok_and(|bytes| bytes == 1) {
        return Err(BenchError::Child("could not fill the store".to_owned()));
    }
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
    let figures = Figures {
        workload: "reopen",
        value_bytes: config.value_bytes,
        threads: config.threads,
        ops: 1,
        seconds: first_get_seconds,
        data_bytes: Some(written_bytes),
        reopening: Some(Reopening {
            open_seconds,
            first_get_seconds,
            written_bytes,
        }),
        ..Figures::default()
    };
    Ok(figures.rates(0))
}
