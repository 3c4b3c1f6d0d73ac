//! `--metrics`: the figures of a run, while it goes on.

use super::flash::RunCache;
use crate::{
    failure::Failure,
    metrics::{MetricsAddress, MetricsListener, MetricsServer, MetricsSnapshot},
    standard_error::complain,
};
use clap::Args;
use forebay_files::supervisor::{Supervisor, SupervisorStatus};

/// The option.
#[derive(Args)]
pub struct MetricsOptions {
    /// Serve figures for Prometheus at this port, which this machine alone reaches, or address:
    /// 9469, 192.0.2.7:9469
    ///
    /// By HTTP, at /metrics, for as long as the program runs. Anybody who reaches the address reads
    /// them: names of program and pool, patterns, and counts, but no written data. Port 0 is any
    /// free one, which is said on standard error.
    #[arg(long = "metrics", value_name = "ADDRESS")]
    address: Option<MetricsAddress>,
}

/// An address that is taken, if one was asked for.
pub struct RunMetrics(Option<MetricsListener>);

impl MetricsOptions {
    /// Takes the address, before anything is changed.
    pub fn bind(&self) -> Result<RunMetrics, Failure> {
        let bound = self.address.map(MetricsListener::bind).transpose();
        bound.map(RunMetrics)
    }
}

impl RunMetrics {
    /// Serves the figures of this run until the returned server is dropped. After signals are
    /// blocked: its threads leave them to others.
    pub fn serve(
        self,
        supervisor: Option<&Supervisor>,
        flash: Option<&RunCache>,
    ) -> Result<Option<MetricsServer>, Failure> {
        let Some(listener) = self.0 else {
            return Ok(None);
        };
        complain!("forebay: figures for Prometheus are at {}", listener.url());
        let watch = supervisor.map(Supervisor::watch);
        let cache = flash.map(RunCache::watch);
        let pid = std::process::id();
        let read = move || MetricsSnapshot {
            runs: watch
                .iter()
                .map(|watch| watch())
                .collect::<Vec<SupervisorStatus>>(),
            flash: (cache.iter())
                .filter_map(|cache| Some((pid, cache()?)))
                .collect(),
            ..MetricsSnapshot::default()
        };
        listener.serve(read).map(Some)
    }
}
