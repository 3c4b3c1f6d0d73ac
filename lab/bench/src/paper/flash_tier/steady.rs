//! A row in its steady state: when it is there, and what it is measured by.

use super::stage::{Flash, Stage, Standing};
use crate::{BenchError, mariadb::workload::Measured as Done};
use std::{fmt, time::Instant};

/// Turns of the queue before a row is measured.
const TURNS: f64 = 2.0;

/// What a row gives.
#[derive(Clone, Debug)]
pub(super) struct Steady {
    /// New-Orders a minute.
    pub tpmc: f64,
    /// 99 of 100 New-Orders take at most, ms.
    pub new_order_p99_ms: f64,
    /// Of the pages that the server read, those that the flash cache had; 0 without one.
    pub found_percent: f64,
    /// How long it worked before, seconds.
    settling_s: f64,
    /// How long it was measured, seconds.
    measured_s: u64,
    /// TPC-C's checks that failed.
    failed: Vec<String>,
    /// What the flash cache did while it was measured, and how often the queue had turned before.
    flash: Option<(Flash, f64)>,
}

impl Stage<'_> {
    /// Seconds of a slice of work, of the least and most time before a row is measured, and of its measurement.
    fn seconds(&self) -> [u64; 4] {
        self.lab
            .size
            .pick([1, 1, 1, 1], [5, 10, 45, 15], [20, 120, 1200, 120])
    }

    /// Has a row work until its queue has turned, and measures it.
    ///
    /// # Errors
    /// Those of the workload; [`BenchError::Child`] if no page came into its flash cache.
    pub fn measure(&self, standing: &Standing) -> Result<Steady, BenchError> {
        let name = self.name(standing.case);
        let [slice, least, most, measured_s] = self.seconds();
        let begun = Instant::now();
        let turns = || {
            standing
                .flash()
                .map_or(f64::INFINITY, |flash| flash.turns())
        };
        loop {
            self.work(standing, slice)?;
            let worked = begun.elapsed().as_secs();
            if worked >= most || worked >= least && turns() >= TURNS {
                break;
            }
        }
        let settling_s = begun.elapsed().as_secs_f64();
        let before = standing.flash();
        if before.is_some_and(|flash| flash.slots_used == 0) {
            let what =
                "no page came into the flash cache: does the file system say when a file was born?";
            return Err(BenchError::Child(format!("({name}) {what}")));
        }
        let done = self.work(standing, measured_s)?;
        let steady = Steady::of(&done, measured_s, settling_s, before, standing.flash())?;
        self.lab.note(&format!("{name}: {steady}"));
        Ok(steady)
    }
}

impl Steady {
    fn of(
        done: &Done,
        measured_s: u64,
        settling_s: f64,
        before: Option<Flash>,
        after: Option<Flash>,
    ) -> Result<Self, BenchError> {
        let lacking = || BenchError::Child("(sysbench) reported no New-Orders".to_owned());
        let flash = before.zip(after).map(|(before, after)| {
            let turns = before.turns();
            (after.since(&before), turns)
        });
        let found = |flash: &Flash| {
            let reads = flash.hits + flash.misses;
            100.0 * flash.hits as f64 / reads.max(1) as f64
        };
        Ok(Self {
            tpmc: done.tpmc.ok_or_else(lacking)?,
            new_order_p99_ms: done.operation("new_order").ok_or_else(lacking)?.p99_us / 1e3,
            found_percent: flash.as_ref().map_or(0.0, |(flash, _)| found(flash)),
            settling_s,
            measured_s,
            failed: done.failed(),
            flash,
        })
    }
}

impl Flash {
    /// What was done since `before`.
    fn since(mut self, before: &Self) -> Self {
        let counts = [
            (&mut self.hits, before.hits),
            (&mut self.misses, before.misses),
            (&mut self.enqueued, before.enqueued),
            (&mut self.admitted, before.admitted),
            (&mut self.second_chances, before.second_chances),
            (&mut self.page_bytes, before.page_bytes),
            (&mut self.flash_bytes, before.flash_bytes),
            (&mut self.flash_syncs, before.flash_syncs),
            (&mut self.home_pages, before.home_pages),
            (&mut self.home_batches, before.home_batches),
        ];
        for (count, before) in counts {
            *count = count.saturating_sub(before);
        }
        self
    }
}

impl fmt::Display for Steady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.0} tpmC, p99 of New-Orders {:.0} ms; measured {} s after {:.0} s",
            self.tpmc, self.new_order_p99_ms, self.measured_s, self.settling_s
        )?;
        if let Some((flash, turns)) = &self.flash {
            let a_second = |count: u64| count as f64 / self.measured_s as f64;
            write!(
                f,
                " in which the queue turned {turns:.1} times; {:.1} % of the reads found their page on flash, {:.0} pages/s came in, {:.0} syncs/s of \
                 flash, {:.2} bytes written there for each of the pages, {:.0} pages/s went home in batches of {:.0}, {:.2} versions of a page",
                self.found_percent,
                a_second(flash.enqueued + flash.admitted),
                a_second(flash.flash_syncs),
                flash.flash_bytes as f64 / flash.page_bytes.max(1) as f64,
                a_second(flash.home_pages),
                flash.home_pages as f64 / flash.home_batches.max(1) as f64,
                flash.slots_used as f64 / flash.pages.max(1) as f64,
            )?;
        }
        match self.failed.as_slice() {
            [] => f.write_str("; TPC-C's checks hold"),
            failed => write!(f, "; of TPC-C's checks these fail: {}", failed.join(", ")),
        }
    }
}
