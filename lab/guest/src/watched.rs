//! A guest's process, watched on its console.

use crate::Failure;
use std::{
    fs,
    path::PathBuf,
    process::Child,
    thread,
    time::{Duration, Instant},
};

const PAUSE: Duration = Duration::from_millis(20);

/// The process of a machine that runs, killed when this is dropped.
pub struct WatchedProcess {
    process: Child,
    console: PathBuf,
    started: Instant,
}

impl WatchedProcess {
    /// One that was started just now; what its guest prints goes to the file `console`.
    #[must_use]
    pub fn new(process: Child, console: PathBuf) -> Self {
        Self {
            process,
            console,
            started: Instant::now(),
        }
    }

    /// Seconds since it was started.
    #[must_use]
    pub fn age(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// What the guest printed.
    #[must_use]
    pub fn console(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.console).unwrap_or_default()).into_owned()
    }

    /// Calls `ready` with the console until it gives something.
    ///
    /// # Errors
    /// The guest says that something failed (`LAB failed`), ends, or takes longer than `limit`;
    /// with what it printed.
    pub fn wait<T>(
        &mut self,
        limit: Duration,
        mut ready: impl FnMut(&str) -> Option<T>,
    ) -> Result<T, Failure> {
        let until = Instant::now() + limit;
        loop {
            let ended = self.process.try_wait()?;
            let console = self.console();
            if let Some(done) = ready(&console) {
                return Ok(done);
            }
            let why = if let Some(line) = console.lines().find(|line| line.contains("LAB failed")) {
                line.to_owned()
            } else if let Some(status) = ended {
                format!("the machine ended ({status})")
            } else if Instant::now() >= until {
                format!("nothing happened for {limit:?}")
            } else {
                thread::sleep(PAUSE);
                continue;
            };
            return Err(format!("{why}; the guest said:\n{}", console.trim_end()).into());
        }
    }

    /// Waits until its first process is about to touch the disks.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_up(&mut self, limit: Duration) -> Result<(), Failure> {
        self.wait(limit, |console| console.contains("LAB up").then_some(()))
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// It takes longer than `limit`; with what it printed.
    pub fn wait_end(&mut self, limit: Duration) -> Result<(), Failure> {
        let until = Instant::now() + limit;
        while self.process.try_wait()?.is_none() {
            if Instant::now() >= until {
                return Err(format!("the guest did not end; it said:\n{}", self.console()).into());
            }
            thread::sleep(PAUSE / 10);
        }
        Ok(())
    }

    /// Kills it.
    ///
    /// # Errors
    /// I/O errors.
    pub fn kill(&mut self) -> Result<(), Failure> {
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }
}

impl Drop for WatchedProcess {
    fn drop(&mut self) {
        // Ended already, or ours to end.
        let _ = self.kill();
    }
}
