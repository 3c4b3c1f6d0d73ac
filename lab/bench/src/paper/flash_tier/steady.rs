//! TPC-C, and a row in its steady state: when it is there, and what it is measured by.

use super::stage::{CLIENTS, Stage, Standing, turns_of};
use crate::{
    BenchError,
    paper::lab::Lab,
    rounds::{median, span},
    sysbench::{Measured as Done, Scripts, Workload},
};
use forebay_pages::Status;
use std::{path::Path, time::Instant};

/// Turns of the queue before a row is measured.
const TURNS: f64 = 2.0;

/// The least shares of TPC-C's other transactions, percent.
const SHARES: [(&str, f64); 4] = [
    ("payment", 43.0),
    ("order_status", 4.0),
    ("delivery", 4.0),
    ("stock_level", 4.0),
];

/// The scripts, and servers with their tables.
pub(super) struct Tpcc<'a> {
    pub stage: Stage<'a>,
    scripts: Scripts,
}

impl<'a> Tpcc<'a> {
    /// Loads the tables.
    pub fn load(lab: &'a Lab<'a>, scratch: &Path) -> Result<Self, BenchError> {
        let workload = Workload::Tpcc {
            // Of some 100 MB each.
            warehouses: lab.size.pick(1, 4, 20),
            roam: true,
        };
        let scripts = Scripts::unpack(&scratch.join("scripts"), "innodb", workload)?;
        let stage = Stage::load(lab, scratch, |server| scripts.prepare(server))?;
        Ok(Self { stage, scripts })
    }

    /// Runs the mix for so many seconds.
    pub fn work(&self, standing: &Standing, seconds: u64) -> Result<Done, BenchError> {
        self.scripts.run(standing.server(), CLIENTS, seconds)
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
    /// Of the pages that the server read, those that the flash cache had; 0 without one.
    pub found_percent: f64,
    /// All of it, and what the flash cache did meanwhile, in words.
    pub told: String,
}

impl Tpcc<'_> {
    /// Seconds of a slice of work, of the least and most time before a row is measured, and of a round; and rounds.
    fn seconds(&self) -> ([u64; 4], usize) {
        let size = self.stage.lab.size;
        let seconds = size.pick([1, 1, 1, 2], [5, 10, 45, 10], [20, 120, 1200, 40]);
        (seconds, size.pick(1, 3, 3))
    }

    /// Has a row work until its queue has turned, and measures it.
    ///
    /// # Errors
    /// Those of the workload; [`BenchError::Child`] if no page came into its flash cache.
    pub fn measure(&self, standing: &Standing) -> Result<Steady, BenchError> {
        let name = standing.case;
        let ([slice, least, most, round_s], rounds) = self.seconds();
        let begun = Instant::now();
        let turns = || standing.turns().unwrap_or(f64::INFINITY);
        loop {
            self.work(standing, slice)?;
            let worked = begun.elapsed().as_secs();
            if worked >= most || worked >= least && turns() >= TURNS {
                break;
            }
        }
        let settling_s = begun.elapsed().as_secs_f64();
        let before = standing.flash();
        if before.as_ref().is_some_and(|flash| flash.slots_used == 0) {
            let what =
                "no page came into the flash cache: does the file system say when a file was born?";
            return Err(BenchError::Child(format!("({name}) {what}")));
        }
        let work = |_| self.work(standing, round_s);
        let done = (0..rounds).map(work).collect::<Result<Vec<_>, _>>()?;
        let flash = before.zip(standing.flash());
        let mut steady = Steady::of(&done, round_s * rounds as u64, flash)?;
        steady.told = format!("after {settling_s:.0} s: {}", steady.told);
        self.stage.lab.note(&format!("{name}: {}", steady.told));
        Ok(steady)
    }
}

impl Steady {
    /// What rounds of so many seconds in all gave, with the flash cache before and after.
    fn of(
        rounds: &[Done],
        seconds: u64,
        flash: Option<(Status, Status)>,
    ) -> Result<Self, BenchError> {
        let each = |figure: &dyn Fn(&Done) -> Option<f64>| {
            let figures = rounds.iter().map(figure).collect::<Option<Vec<f64>>>();
            figures.ok_or_else(|| BenchError::Child("(sysbench) reported no New-Orders".to_owned()))
        };
        let tpmc = each(&|round| round.tpmc)?;
        let new_order_p99_ms = each(&|round| Some(round.operation("new_order")?.p99_us / 1e3))?;
        let (rate, rates, p99_ms) = (median(&tpmc), span(&tpmc), median(&new_order_p99_ms));
        let mut told = format!(
            "{rate:.0} tpmC ({:.0} to {:.0}), p99 of New-Orders {p99_ms:.0} ms; measured {seconds} s",
            rates.min, rates.max
        );
        let mut found_percent = 0.0;
        if let Some((before, after)) = flash {
            let done =
                |count: fn(&Status) -> u64| count(&after).saturating_sub(count(&before)) as f64;
            let a_second = |count| done(count) / seconds as f64;
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
        told += &match failed(rounds).join(", ") {
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

/// TPC-C's checks that do not hold: of times in any round, of shares in all rounds together, since a short one has few transactions.
fn failed(rounds: &[Done]) -> Vec<String> {
    let mut failed: Vec<String> = rounds.iter().flat_map(Done::failed).collect();
    failed.retain(|name| name.ends_with("in time"));
    failed.sort_unstable();
    failed.dedup();
    let operations = || rounds.iter().flat_map(|round| &round.operations);
    let all: u64 = operations().map(|of| of.count).sum();
    for (name, least) in SHARES {
        let mine = operations().filter(|of| of.operation == name);
        let share = 100.0 * mine.map(|of| of.count).sum::<u64>() as f64 / all.max(1) as f64;
        if share < least {
            failed.push(format!("{name} {share:.1} % of {all}, not {least} %"));
        }
    }
    failed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Row;
    use serde_json::json;

    fn round(counts: [u64; 5], in_time: bool) -> Done {
        let names = SHARES.map(|(name, _)| name).into_iter();
        let operations = std::iter::once("new_order").chain(names).zip(counts);
        let operation = |(name, count)| json!({"operation": name, "count": count, "p99_us": 9000});
        let operations: Vec<_> = operations.map(operation).collect();
        let checks = json!({"payment_share_ok": false, "delivery_90_%_in_time": in_time});
        let figures = json!({"operations_per_s": 1, "tpmC": counts[0], "operations": operations});
        let round = Row::of(figures).with(checks);
        serde_json::from_value(round.into()).unwrap()
    }

    #[test]
    fn shares_are_those_of_all_rounds_and_times_those_of_each() {
        let even = round([430, 440, 44, 44, 42], true);
        assert_eq!(failed(std::slice::from_ref(&even)), [""; 0]);
        let uneven = round([600, 300, 44, 44, 12], false);
        let told = failed(&[even, uneven]);
        assert_eq!(told[0], "delivery 90 % in time");
        assert!(told[1].starts_with("payment 37.0 % of 2000"), "{told:?}");
        assert!(told[2].starts_with("stock_level 2.7 %"), "{told:?}");
        assert_eq!(told.len(), 3);
    }

    #[test]
    fn a_row_is_what_happened_while_it_was_measured() {
        let at = |count| Status {
            slots: 100,
            hits: 3 * count,
            misses: count,
            enqueued: count,
            ..Status::default()
        };
        let rounds = [round([430, 440, 44, 44, 42], true)];
        let steady = Steady::of(&rounds, 6, Some((at(250), at(450)))).unwrap();
        assert_eq!((steady.found_percent, steady.tpmc), (75.0, vec![430.0]));
        let told = steady.told;
        let words = [
            "turned 2.5 times",
            " 33 pages/s came in",
            "TPC-C's checks hold",
        ];
        assert!(words.iter().all(|words| told.contains(words)), "{told}");
        let [mut none] = rounds;
        none.tpmc = None;
        assert!(Steady::of(&[none], 6, None).is_err());
    }
}
