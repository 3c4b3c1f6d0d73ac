//! Both ends of the process that is killed.

use super::ops::{Mix, Ops};
use crate::BenchError;
use forebay_pool::PoolOptions;
use forebay_store::{Batch, Store, StoreError, StoreOptions};
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use std::{
    os::fd::AsFd,
    path::{Path, PathBuf},
    process::{self, ChildStdout, Command, Stdio},
    thread,
};

/// A child process whose standard output we read, killed at the latest when this is dropped.
pub struct Child {
    process: process::Child,
    /// Its standard output.
    pub output: ChildStdout,
}

impl Child {
    /// Starts `command` (program and arguments) with `order` as JSON in one more argument.
    ///
    /// # Errors
    /// I/O errors.
    pub fn spawn(command: &[String], order: &impl Serialize) -> Result<Self, BenchError> {
        let [program, arguments @ ..] = command else {
            return Err(BenchError::Config(
                "no command for the child process".to_owned(),
            ));
        };
        let failed = || BenchError::io("starting", Path::new(program));
        let order = serde_json::to_string(order).map_err(|e| failed()(e.into()))?;
        let mut process = Command::new(program)
            .args(arguments)
            .arg(order)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed())?;
        let Some(output) = process.stdout.take() else {
            return Err(BenchError::Child("has no standard output".to_owned()));
        };
        Ok(Self { process, output })
    }

    /// Kills it with SIGKILL and waits until it is gone. What it wrote to its output can still be read.
    ///
    /// # Errors
    /// I/O errors, and [`BenchError::Child`] if it had ended by itself.
    pub fn kill(&mut self) -> Result<(), BenchError> {
        let failed = || BenchError::io("killing", Path::new("the child process"));
        self.process.kill().map_err(failed())?;
        let status = self.process.wait().map_err(failed())?;
        match status.code() {
            None => Ok(()),
            Some(code) => Err(BenchError::Child(format!(
                "ended with status {code} before it was killed"
            ))),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Both fail only if it is gone already.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Ties this process's life to its parent's, so that no writer is left over.
///
/// # Errors
/// I/O errors.
pub fn die_with_parent() -> Result<(), BenchError> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|e| {
        BenchError::io("tying to its parent", Path::new("the child process"))(e.into())
    })
}

/// What the writing process has to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Order {
    pub dir: PathBuf,
    pub pool: Option<PathBuf>,
    pub variant: String,
    pub mix: Mix,
    pub seed: u64,
    pub threads: u32,
    /// Small limits, so that files, chunks and collections turn over often.
    pub small: bool,
}

impl Order {
    pub fn options(&self) -> Result<StoreOptions, BenchError> {
        let options =
            StoreOptions::new().variant(self.variant.parse().map_err(BenchError::Config)?);
        Ok(if self.small {
            options
                .segment_size(1 << 20)
                .file_size(16 << 20)
                .memtable_size(128 << 10)
                .chunk_log_size(1 << 20)
                .cache_size(1 << 20)
        } else {
            options
        })
    }

    pub fn open(&self) -> Result<Store, BenchError> {
        let pool = self
            .pool
            .as_ref()
            .map(|path| PoolOptions::new().open(path))
            .transpose()?;
        Ok(self.options()?.open(&self.dir, pool.as_ref())?)
    }
}

/// Bytes of an acknowledgement: the thread's number.
pub(super) const ACK_BYTES: usize = 4;

/// In the child: does what `order` (JSON) says until it is killed, and acknowledges each operation on standard output.
///
/// # Errors
/// Those of the store.
pub fn write_until_killed(order: &str) -> Result<(), BenchError> {
    die_with_parent()?;
    let order: Order = serde_json::from_str(order)
        .map_err(|e| BenchError::Child(format!("got a bad order: {e}")))?;
    let store = order.open()?;
    thread::scope(|scope| {
        let writers: Vec<_> = (0..order.threads)
            .map(|thread| {
                let (order, store) = (&order, &store);
                scope.spawn(move || write(order, store, thread))
            })
            .collect();
        writers.into_iter().try_for_each(|w| {
            w.join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    })
}

/// One thread's endless work. A pipe takes messages of this size whole or not at all.
fn write(order: &Order, store: &Store, thread: u32) -> Result<(), BenchError> {
    let out = std::io::stdout();
    for changes in Ops::new(order.mix, order.seed, thread) {
        apply(store, &changes)?;
        rustix::io::write(out.as_fd(), &thread.to_le_bytes())
            .map_err(|e| BenchError::io("acknowledging to", Path::new("the parent"))(e.into()))?;
    }
    Ok(())
}

fn apply(store: &Store, changes: &[super::ops::Change]) -> Result<(), StoreError> {
    if let [(key, value)] = changes {
        return match value {
            Some(value) => store.put(key, &value.bytes()),
            None => store.delete(key),
        };
    }
    let mut batch = Batch::new();
    for (key, value) in changes {
        match value {
            Some(value) => batch.put(key, &value.bytes()),
            None => batch.delete(key),
        };
    }
    store.write(&batch)
}
