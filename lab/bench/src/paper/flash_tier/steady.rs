//! TPC-C, and a row in its steady state: when it is there, and what it is measured by.

use super::stage::{CLIENTS, Stage, Standing, turns_of};
use crate::{
    BenchError,
    mariadb::server::Address,
    paper::lab::Lab,
    rounds::{median, span},
    sysbench::{self, Measured as Done, Scripts, Workload},
};
use forebay_guest::look::Look;
use forebay_innodb::CacheStatus;
use std::{path::Path, time::Instant};

/// Turns of the queue before a row is measured.
const TURNS: f64 = 2.0;

/// How long a row works, in seconds: a slice; the least and the most before it is measured; a
/// round. And how many rounds there are.
pub(super) type Pace = ([u64; 4], usize);

/// A row's server.
pub(super) trait Row {
    /// The row, in words.
    fn name(&self) -> String;
    /// Where its server is.
    fn address(&self) -> Address;
    /// What it has counted.
    fn counts(&self) -> Result<Counts, BenchError>;
}

/// What a row has counted since its server started.
#[derive(Default)]
pub(super) struct Counts {
    /// How often its cache turned; none without one.
    pub turns: Option<f64>,
    /// Of a flash cache of ours.
    pub flash: Option<CacheStatus>,
    /// Of a virtual machine.
    pub guest: Option<Look>,
}

impl Row for Standing {
    fn name(&self) -> String {
        self.case.to_string()
    }

    fn address(&self) -> Address {
        self.server().into()
    }

    fn counts(&self) -> Result<Counts, BenchError> {
        Ok(Counts {
            turns: self.turns(),
            flash: self.flash(),
            guest: None,
        })
    }
}

/// The scripts, and servers with their tables.
pub(super) struct Tpcc<'a> {
    pub stage: Stage<'a>,
    pub scripts: Scripts,
    pace: Pace,
}

impl<'a> Tpcc<'a> {
    /// Loads the tables.
    pub fn load(
        lab: &'a Lab<'a>,
        scratch: &Path,
        warehouses: u64,
        pace: Pace,
    ) -> Result<Self, BenchError> {
        let roam = true;
        let workload = Workload::Tpcc { warehouses, roam };
        let scripts = Scripts::unpack(&scratch.join("scripts"), "innodb", workload)?;
        let stage = Stage::load(lab, scratch, |server| scripts.prepare(server))?;
        Ok(Self {
            stage,
            scripts,
            pace,
        })
    }

    /// Runs the mix for so many seconds.
    pub fn work(&self, row: &dyn Row, seconds: u64) -> Result<Done, BenchError> {
        self.scripts.run(row.address(), CLIENTS, seconds)
    }

    /// Ends a row's server, and checks its database.
    pub fn end(&self, standing: Standing) -> Result<(), BenchError> {
        self.stage
            .end(standing, |server| self.scripts.check(server))
    }

    /// What to know of all rows.
    pub fn describe(&self) -> String {
        format!(
            "{:?}: {}; the paper has 100 warehouses and a buffer pool of 200 MB. Its port to MySQL never syncs its cache file, and rebuilds its map by \
             reading all of it; here every sync of a page file is one of flash and of the metadata, which are in these figures",
            self.scripts.workload,
            self.stage.describe()
        )
    }
}

/// What a row gives.
pub(super) struct Steady {
    /// New-Orders a minute, in each round.
    pub tpmc: Vec<f64>,
    /// 99 of 100 New-Orders take at most, ms, in each round.
    pub new_order_p99_ms: Vec<f64>,
    /// Of the pages that the server read, those that the cache had; 0 without one.
    pub found_percent: f64,
    /// All of it, and what the flash cache did meanwhile, in words.
    pub told: String,
}

/// A row that is in its steady state.
struct Settled<'a> {
    row: &'a dyn Row,
    /// Seconds until it was.
    after_s: f64,
    /// What it had counted then.
    before: Counts,
    rounds: Vec<Done>,
    /// Seconds that they took.
    seconds: f64,
}

impl Tpcc<'_> {
    /// Has a row work until its queue has turned, and measures it.
    ///
    /// # Errors
    /// Those of the workload; [`BenchError::Child`] if no page came into its flash cache.
    pub fn measure(&self, row: &dyn Row) -> Result<Steady, BenchError> {
        self.measure_in_turns(&[row], None)
            .map(|mut one| one.remove(0))
    }

    /// The same of several, which take turns once the queues of all have turned: in each round
    /// another one begins.
    ///
    /// # Errors
    /// As [`measure`](Self::measure).
    pub fn measure_in_turns(
        &self,
        rows: &[&dyn Row],
        rounds: Option<usize>,
    ) -> Result<Vec<Steady>, BenchError> {
        let ([.., round_s], of_one) = self.pace;
        let rounds = rounds.unwrap_or(of_one);
        let settled = rows.iter().map(|row| self.settle(*row));
        let mut settled = settled.collect::<Result<Vec<_>, _>>()?;
        for round in 0..rounds {
            for at in 0..rows.len() {
                let row = &mut settled[(round + at) % rows.len()];
                let begun = Instant::now();
                row.rounds.push(self.work(row.row, round_s)?);
                row.seconds += begun.elapsed().as_secs_f64();
            }
        }
        settled.into_iter().map(|row| self.steady(row)).collect()
    }

    fn settle<'a>(&self, row: &'a dyn Row) -> Result<Settled<'a>, BenchError> {
        let ([slice, least, most, _], _) = self.pace;
        let begun = Instant::now();
        let before = loop {
            self.work(row, slice)?;
            let (worked, counts) = (begun.elapsed().as_secs(), row.counts()?);
            let has_turned = counts.turns.is_none_or(|turns| turns >= TURNS);
            if worked >= most || worked >= least && has_turned {
                break counts;
            }
        };
        let is_unused = |flash: &CacheStatus| turns_of(flash) == 0.0;
        if before.flash.as_ref().is_some_and(is_unused) {
            let what =
                "no page came into the flash cache: does the file system say when a file was born?";
            return Err(BenchError::Child(format!("({}) {what}", row.name())));
        }
        Ok(Settled {
            row,
            after_s: begun.elapsed().as_secs_f64(),
            before,
            rounds: Vec::new(),
            seconds: 0.0,
        })
    }

    fn steady(&self, of: Settled<'_>) -> Result<Steady, BenchError> {
        let counts = (of.before, of.row.counts()?);
        let mut steady = Steady::of(&of.rounds, of.seconds, counts)?;
        steady.told = format!("after {:.0} s: {}", of.after_s, steady.told);
        let name = of.row.name();
        self.stage.lab.note(&format!("{name}: {}", steady.told));
        Ok(steady)
    }
}

impl Steady {
    /// What rounds of so many seconds in all gave, with the counts before and after.
    fn of(
        rounds: &[Done],
        seconds: f64,
        (before, after): (Counts, Counts),
    ) -> Result<Self, BenchError> {
        let each = |figure: &dyn Fn(&Done) -> Option<f64>| {
            let figures = rounds.iter().map(figure).collect::<Option<Vec<f64>>>();
            figures.ok_or_else(|| BenchError::Child("(sysbench) reported no New-Orders".to_owned()))
        };
        let tpmc = each(&|round| round.tpmc)?;
        let new_order_p99_ms = each(&|round| Some(round.operation("new_order")?.p99_us / 1e3))?;
        let (rate, rates, p99_ms) = (median(&tpmc), span(&tpmc), median(&new_order_p99_ms));
        let mut told = format!(
            "{rate:.0} tpmC ({:.0} to {:.0}), p99 of New-Orders {p99_ms:.0} ms; measured {seconds:.0} s",
            rates.min, rates.max
        );
        let mut found_percent = 0.0;
        if let Some((before, after)) = before.guest.zip(after.guest) {
            let between = after.since(&before);
            found_percent = between.found_percent();
            told += &between.told(seconds);
        }
        if let Some((before, after)) = before.flash.zip(after.flash) {
            let done = |count: fn(&CacheStatus) -> u64| {
                count(&after).saturating_sub(count(&before)) as f64
            };
            let a_second = |count| done(count) / seconds;
            let reads = done(|flash| flash.hits + flash.misses);
            found_percent = 100.0 * done(|flash| flash.hits) / reads.max(1.0);
            told += &format!(
                ", before which the queue turned {:.1} times; {found_percent:.1} % of the reads found their page on flash, {:.0} pages/s came in, \
                 {:.0} syncs/s of flash, {:.2} bytes written there for each of the pages, {:.0} pages/s went home in batches of {:.0}, {:.2} versions \
                 of a page",
                turns_of(&before),
                a_second(|flash| flash.enqueued + flash.admitted),
                a_second(|flash| flash.flash_syncs),
                done(|flash| flash.flash_bytes) / done(|flash| flash.page_bytes).max(1.0),
                a_second(|flash| flash.home_pages),
                done(|flash| flash.home_pages) / done(|flash| flash.home_batches).max(1.0),
                after.slots_used as f64 / after.pages.max(1) as f64,
            );
        }
        told += &match sysbench::failed(rounds).join(", ") {
            none if none.is_empty() => "; TPC-C's checks hold".to_owned(),
            failed => format!("; of TPC-C's checks these fail: {failed}"),
        };
        Ok(Self {
            tpmc,
            new_order_p99_ms,
            found_percent,
            told,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn round(new_orders: u64) -> Done {
        let operation =
            json!({"operation": "new_order", "count": new_orders, "p99_us": 9000, "by_second": []});
        let round = json!({"operations_per_s": 1, "tpmC": new_orders, "operations": [operation]});
        serde_json::from_value(round).unwrap()
    }

    #[test]
    fn a_row_is_what_happened_while_it_was_measured() {
        let at = |count| CacheStatus {
            slots: 100,
            hits: 3 * count,
            misses: count,
            enqueued: count,
            ..CacheStatus::default()
        };
        let rounds = [round(430)];
        let at = |count| Counts {
            flash: Some(at(count)),
            ..Counts::default()
        };
        let steady = Steady::of(&rounds, 6.0, (at(250), at(450))).unwrap();
        assert_eq!((steady.found_percent, steady.tpmc), (75.0, vec![430.0]));
        let told = steady.told;
        let words = [
            "turned 2.5 times",
            " 33 pages/s came in",
            "of TPC-C's checks these fail: payment",
        ];
        assert!(words.iter().all(|words| told.contains(words)), "{told}");
        let [mut none] = rounds;
        none.tpmc = None;
        assert!(Steady::of(&[none], 6.0, Default::default()).is_err());
    }
}
