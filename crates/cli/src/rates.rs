//! A run's rates a second, from two looks at its counts: for `forebay status --watch`.

use crate::size;
use forebay_files::{DURATION_BOUNDS, DurationHistogram, supervisor::SupervisorStatus};
use forebay_probe::table::grouped;
use serde::Serialize;

/// Of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RunRates {
    /// Writes absorbed.
    pub writes_per_second: f64,
    /// Their bytes.
    pub bytes_per_second: f64,
    /// Syncs that cost no sync of the program's disk.
    pub saved_syncs_per_second: f64,
    /// Syncs that were real ones: the supervisor's, and those of the program.
    pub real_syncs_per_second: f64,
    /// Waits for the disk.
    pub waits_per_second: f64,
    /// Half of the commits took this at most, seconds; null if there was none.
    pub commit_p50_seconds: Option<f64>,
    /// The same of 99 of 100.
    pub commit_p99_seconds: Option<f64>,
    /// It took longer than that, which is the last bound there is.
    pub commit_p50_is_longer: bool,
    /// The same of 99 of 100.
    pub commit_p99_is_longer: bool,
}

/// The time that this share of them took at most; true if that is only the last bound, and it took
/// longer.
pub fn quantile(took: &DurationHistogram, share: f64) -> (Option<f64>, bool) {
    match took.quantile_seconds(share) {
        Some(seconds) if seconds.is_infinite() => (
            Some(DurationHistogram::bound_seconds(DURATION_BOUNDS - 1)),
            true,
        ),
        found => (found, false),
    }
}

/// A run's counts so far.
struct RunCounts {
    writes: u64,
    bytes: u64,
    syncs: u64,
    order_syncs: u64,
    real_syncs: u64,
    waits: u64,
}

impl RunCounts {
    fn of(status: &SupervisorStatus) -> Self {
        let lane = status.lane.as_ref();
        let sums = lane
            .map(|lane| lane.absorbed.as_slice())
            .unwrap_or_default();
        let sum = |count: fn(&forebay_files::supervisor::PatternSum) -> u64| {
            (sums.iter()).fold(0_u64, |all, sum| all.saturating_add(count(sum)))
        };
        Self {
            writes: sum(|sum| sum.writes),
            bytes: sum(|sum| sum.bytes),
            syncs: sum(|sum| sum.syncs),
            order_syncs: lane.map_or(0, |lane| lane.order_syncs),
            real_syncs: lane.map_or(0, |lane| lane.real_syncs),
            waits: lane.map_or(0, |lane| lane.waits),
        }
    }
}

impl RunRates {
    /// Between two looks. None if they are of two runs, or of one moment.
    pub fn between(before: &SupervisorStatus, now: &SupervisorStatus) -> Option<Self> {
        let seconds = now.uptime_seconds - before.uptime_seconds;
        if before.pid != now.pid || before.program != now.program || seconds <= 0.0 {
            return None;
        }
        let (then, counts) = (RunCounts::of(before), RunCounts::of(now));
        let rate = |then: u64, now: u64| now.saturating_sub(then) as f64 / seconds;
        let order = rate(then.order_syncs, counts.order_syncs);
        let commits = |status: &SupervisorStatus| {
            let lane = status.lane.as_ref();
            lane.map(|lane| lane.durations.commit.clone())
                .unwrap_or_default()
        };
        let commits: DurationHistogram = commits(now).since(&commits(before));
        let (half, is_half_longer) = quantile(&commits, 0.5);
        let (most, is_most_longer) = quantile(&commits, 0.99);
        Some(Self {
            writes_per_second: rate(then.writes, counts.writes),
            bytes_per_second: rate(then.bytes, counts.bytes),
            saved_syncs_per_second: (rate(then.syncs, counts.syncs) - order).max(0.0),
            real_syncs_per_second: rate(then.real_syncs, counts.real_syncs) + order,
            waits_per_second: rate(then.waits, counts.waits),
            commit_p50_seconds: half,
            commit_p99_seconds: most,
            commit_p50_is_longer: is_half_longer,
            commit_p99_is_longer: is_most_longer,
        })
    }

    /// In a line.
    pub fn line(&self) -> String {
        let count = |rate: f64| grouped(rate.round() as i64);
        let bytes = size::show(self.bytes_per_second.round() as u64);
        let half = at_most(self.commit_p50_seconds, self.commit_p50_is_longer);
        let most = at_most(self.commit_p99_seconds, self.commit_p99_is_longer);
        let commits = match (half, most) {
            (Some(half), Some(most)) => format!("; commits p50 {half}, p99 {most}"),
            _ => String::new(),
        };
        format!(
            "a second: {} writes, {bytes}, {} syncs saved, {} real syncs, {} waits{commits}\n",
            count(self.writes_per_second),
            count(self.saved_syncs_per_second),
            count(self.real_syncs_per_second),
            count(self.waits_per_second),
        )
    }
}

/// The time that something took at most, or, if it took longer than the last bound there is, that.
pub fn at_most(seconds: Option<f64>, is_longer: bool) -> Option<String> {
    let sign = if is_longer { "> " } else { "" };
    Some(format!("{sign}{}", short(seconds?)))
}

/// A short time, in the unit that fits it.
pub fn short(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.0} µs", s * 1e6),
        s if s < 1.0 => format!("{:.0} ms", s * 1e3),
        s => format!("{s:.1} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn status(seconds: f64, writes: u64, commits: [u64; 8]) -> SupervisorStatus {
        let durations = json!({"sum_seconds": 0.0, "counts": commits});
        let none = json!({"sum_seconds": 0.0, "counts": []});
        let status = json!({
            "pid": 42, "program": "redis-server", "front_end": "library", "front_end_reason": "",
            "child_agents": [], "pool": "/p", "medium": "", "survives": "", "persistence": "",
            "patterns": [], "outside_writer": "waits", "uptime_seconds": seconds,
            "processes": [], "files": [], "plain": [], "run_dir": "/run", "degraded": [],
            "lane": {
                "bytes": 0, "drained": 0, "drain_lag_bytes": 0, "segments_waiting": 0,
                "real_syncs": 3, "real_sync_seconds": 0.0, "order_syncs": writes / 100, "waits": 0,
                "left": null, "lag_seconds": 0.0,
                "durations": {"commit": durations, "drain": none, "wait": none, "retire": none},
                "absorbed": [{"pattern": "*", "files": 1, "failing_files": 0, "writes": writes,
                    "bytes": writes << 10, "syncs": writes}],
            },
        });
        serde_json::from_value(status).unwrap()
    }

    #[test]
    fn rates_are_what_came_since_the_last_look() {
        let before = status(10.0, 1_000, [5, 0, 0, 0, 0, 0, 0, 0]);
        let now = status(12.0, 3_000, [5, 0, 98, 0, 0, 0, 0, 2]);
        let rates = RunRates::between(&before, &now).unwrap();
        assert_eq!(rates.writes_per_second, 1_000.0);
        assert_eq!(rates.saved_syncs_per_second, 990.0);
        assert_eq!(rates.real_syncs_per_second, 10.0);
        assert_eq!(rates.commit_p50_seconds, Some(4e-6));
        assert_eq!(rates.commit_p99_seconds, Some(128e-6));
        let line = rates.line();
        assert!(
            line.contains("1,000 writes, 1000 KiB, 990 syncs saved"),
            "{line}"
        );
        assert!(line.ends_with("commits p50 4 µs, p99 128 µs\n"), "{line}");
        assert_eq!(RunRates::between(&now, &now), None);
    }

    #[test]
    fn commits_above_all_bounds_are_told_as_longer() {
        let mut now = status(12.0, 3_000, [5, 0, 50, 0, 0, 0, 0, 0]);
        let commits = &mut now.lane.as_mut().unwrap().durations.commit.counts;
        commits.resize(DURATION_BOUNDS + 1, 0);
        commits[DURATION_BOUNDS] = 2;
        let rates =
            RunRates::between(&status(10.0, 1_000, [5, 0, 0, 0, 0, 0, 0, 0]), &now).unwrap();
        let line = rates.line();
        assert!(line.ends_with("commits p50 4 µs, p99 > 8.4 s\n"), "{line}");
        assert_eq!(rates.commit_p99_seconds, Some(8.388_608));
        assert!(rates.commit_p99_is_longer && !rates.commit_p50_is_longer);
    }
}
