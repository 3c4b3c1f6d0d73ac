//! The parent: start a writer, kill it, reopen, compare.

use super::{
    Mix,
    child::{ACK_BYTES, Child, Order},
    oracle::{Oracle, Verdict},
};
use crate::{BenchError, data::Random, live::Live, rounds::Span};
use forebay_store::{Store, Variant};
use std::{
    io::{BufReader, Read},
    path::{Path, PathBuf},
    process::ChildStdout,
    sync::{Arc, mpsc::sync_channel},
    thread,
    time::{Duration, Instant},
};

/// A store whose writers are killed again and again.
pub struct Storm {
    command: Vec<String>,
    order: Order,
    random: Random,
    oracle: Oracle,
    /// Of the writer that was killed last, by thread.
    acknowledged: Vec<u64>,
    /// Acknowledgements so far, for whoever watches.
    pub live: Arc<Live>,
}

/// One kill.
#[derive(Clone, Debug)]
pub struct Strike {
    /// What the comparison found.
    pub verdict: Verdict,
    /// How long the writer had been writing, from its first acknowledgement on.
    pub alive: Duration,
    /// How long reopening took.
    pub reopen: Duration,
}

impl Storm {
    /// A storm over the store in `dir`. `command` (program and arguments) starts the writer with an order appended
    /// that it gives to [`write_until_killed`](super::write_until_killed).
    #[must_use]
    pub fn new(
        command: Vec<String>,
        dir: &Path,
        pool: Option<&Path>,
        variant: Variant,
        seed: u64,
    ) -> Self {
        Self {
            command,
            order: Order {
                dir: dir.to_owned(),
                pool: pool.map(PathBuf::from),
                variant: variant.to_string(),
                mix: Mix::Puts,
                seed,
                threads: 1,
                small: false,
            },
            random: Random::new(seed),
            oracle: Oracle::default(),
            acknowledged: Vec::new(),
            live: Arc::default(),
        }
    }

    /// With another mix of operations.
    #[must_use]
    pub fn mix(mut self, mix: Mix) -> Self {
        self.order.mix = mix;
        self
    }

    /// With so many writing threads.
    #[must_use]
    pub fn threads(mut self, threads: u32) -> Self {
        self.order.threads = threads;
        self
    }

    /// With small files and memtables, so that all of the store's machinery turns over often.
    #[must_use]
    pub fn small(mut self) -> Self {
        self.order.small = true;
        self
    }

    /// Lets a writer write for a random time within `seconds` after its first acknowledgement, kills it,
    /// reopens the store, and compares.
    ///
    /// # Errors
    /// Those of the store when it is reopened, and [`BenchError::Child`] if the writer failed by itself.
    pub fn strike(&mut self, seconds: Span) -> Result<Strike, BenchError> {
        let alive = self.kill(seconds)?;
        let start = Instant::now();
        let store = self.order.open()?;
        let reopen = start.elapsed();
        let verdict = self.compare_open(&store)?;
        store.close()?;
        Ok(Strike {
            verdict,
            alive,
            reopen,
        })
    }

    /// The first half of [`strike`](Self::strike): leaves the store as it was when its writer was killed. Returns how
    /// long that wrote.
    ///
    /// # Errors
    /// [`BenchError::Child`] if the writer failed by itself.
    pub fn kill(&mut self, seconds: Span) -> Result<Duration, BenchError> {
        let share = self.random.number() as f64 / u64::MAX as f64;
        let wait = Duration::from_secs_f64(seconds.min + (seconds.max - seconds.min) * share);
        let start = Instant::now();
        self.while_writing(|| thread::sleep(wait))?;
        Ok(start.elapsed())
    }

    /// Does `meanwhile` while a writer writes, then kills it.
    ///
    /// # Errors
    /// [`BenchError::Child`] if the writer failed by itself.
    pub fn while_writing(&mut self, meanwhile: impl FnOnce()) -> Result<(), BenchError> {
        self.order.seed = self.random.number();
        self.acknowledged = vec![0; self.order.threads as usize];
        let mut child = Child::spawn(&self.command, &self.order)?;
        let mut pipe = BufReader::with_capacity(64 << 10, handle(&child.output)?);
        let (live, acknowledged) = (&*self.live, &mut self.acknowledged);
        thread::scope(|scope| {
            let (first, came) = sync_channel(1);
            let reader = scope.spawn(move || {
                let mut ack = [0; ACK_BYTES];
                while pipe.read_exact(&mut ack).is_ok() {
                    if let Some(count) = acknowledged.get_mut(u32::from_le_bytes(ack) as usize) {
                        *count += 1;
                        live.add(1);
                    }
                    // Only the first is waited for.
                    let _ = first.try_send(());
                }
            });
            // A writer that fails before its first acknowledgement hangs up, which ends the wait too.
            if came.recv_timeout(FIRST_ACK_MAX).is_ok() {
                meanwhile();
            }
            let killed = child.kill();
            reader
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            killed
        })
    }

    /// The second half of [`strike`](Self::strike): reopens the store and compares.
    ///
    /// # Errors
    /// Those of the store.
    pub fn compare(&mut self) -> Result<Verdict, BenchError> {
        let store = self.order.open()?;
        let verdict = self.compare_open(&store)?;
        store.close()?;
        Ok(verdict)
    }

    fn compare_open(&mut self, store: &Store) -> Result<Verdict, BenchError> {
        let acknowledged = std::mem::take(&mut self.acknowledged);
        self.oracle
            .compare(store, self.order.mix, self.order.seed, &acknowledged)
    }
}

/// A writer that says nothing for so long is stuck.
const FIRST_ACK_MAX: Duration = Duration::from_secs(60);

/// A second handle of the pipe, for the reading thread.
fn handle(output: &ChildStdout) -> Result<std::fs::File, BenchError> {
    use std::os::fd::AsFd;
    let pipe = output.as_fd().try_clone_to_owned().map_err(BenchError::io(
        "reading from",
        Path::new("the child process"),
    ))?;
    Ok(pipe.into())
}
