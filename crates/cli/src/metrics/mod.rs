//! Figures of runs, flash caches and stores, for Prometheus and its kin.
//!
//! The families are tables ([`families`], [`of_runs`], [`of_flash`], [`of_stores`]), each row with
//! the function that reads its figure, and docs/monitoring.md is held against them by a test. The
//! text is `prometheus-client`'s: OpenMetrics, or the older format of Prometheus, which is all that
//! node_exporter's textfile collector takes. It is served by [`server`], or put into a file by
//! [`textfile`].
//!
//! Labels are few: a file counts for the pattern that names it, never by its own name.

mod families;
mod of_flash;
mod of_runs;
mod of_stores;
mod server;
mod textfile;

use families::MetricsFormat;
pub use server::{MetricsAddress, MetricsListener, MetricsServer};
pub use textfile::TextFile;

use forebay_files::supervisor::{FoundRuns, SupervisorStatus};
use forebay_innodb::CacheStatus;
use forebay_store::Stats;
use std::fmt;

/// A flash cache, and the process id of the run that has it.
pub type RunningFlashCache = (u32, CacheStatus);

/// A store, by its directory.
pub type NamedStore = (String, Stats);

/// All that there is to tell of at a moment.
#[derive(Debug, Default)]
pub struct MetricsSnapshot {
    /// Runs that are known without a search.
    pub runs: Vec<SupervisorStatus>,
    /// Flash caches in use.
    pub flash: Vec<RunningFlashCache>,
    /// Stores.
    pub stores: Vec<NamedStore>,
    /// The findings of a search.
    pub found: Option<FoundRuns>,
}

impl MetricsSnapshot {
    /// As text.
    ///
    /// # Errors
    /// A figure has no text.
    pub fn text(&self, format: MetricsFormat) -> Result<String, fmt::Error> {
        let mut families = of_runs::of_machine(self);
        families.extend(of_runs::of_runs(self));
        families.extend(of_flash::of_caches(&self.flash));
        families.extend(of_stores::of_stores(&self.stores));
        families::text(families, format)
    }

    /// All runs that answer.
    fn all_runs(&self) -> impl Iterator<Item = &SupervisorStatus> {
        let found = self.found.iter().flat_map(|found| &found.statuses);
        self.runs.iter().chain(found)
    }
}

/// All families there are: name as it is asked for, kind, labels, and what it is.
#[cfg(test)]
fn all_families() -> Vec<[String; 4]> {
    let mut all = of_runs::told();
    all.extend(of_flash::FLASH.told());
    all.extend(of_stores::told());
    all
}

#[cfg(test)]
mod tests;
