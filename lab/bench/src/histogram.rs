//! Latencies and their percentiles.

pub use forebay_measure::rounds::Percentiles;

use hdrhistogram::{Histogram, iterators::IterationValue};
use serde_json::{Value, json};

/// Latencies of one thread, or several merged, in nanoseconds, to three significant digits.
#[derive(Clone)]
pub struct Latencies(Histogram<u64>);

/// No latency yet. Room for anything up to a minute is made now, so that recording allocates nothing.
impl Default for Latencies {
    fn default() -> Self {
        const MINUTE_NS: u64 = 60_000_000_000;
        let mut histogram = Histogram::new_with_bounds(1, MINUTE_NS, 3).unwrap_or_else(|_| {
            unreachable!("1 ns to a minute with three digits are bounds that the histogram takes")
        });
        histogram.auto(true);
        Self(histogram)
    }
}

impl Latencies {
    /// Records one latency.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.0.saturating_record(ns.max(1));
    }

    /// Adds all of `other`'s.
    pub fn merge(&mut self, other: &Self) {
        // Fails only if `other` holds what does not fit and resizing is off; it is on.
        let _ = self.0.add(&other.0);
    }

    /// How many took at most so many microseconds, and longer than the step before: steps from ten on, each twice the last.
    #[must_use]
    pub fn steps(&self) -> Vec<Value> {
        let steps = self.0.iter_log(10_000, 2.0);
        let step = |(nth, step): (usize, IterationValue<u64>)| {
            let ops = step.count_since_last_iteration();
            json!({"up_to_us": 10_u64 << nth, "ops": ops})
        };
        steps.enumerate().map(step).collect()
    }

    /// The percentiles.
    #[must_use]
    pub fn percentiles(&self) -> Percentiles {
        if self.0.is_empty() {
            return Percentiles::default();
        }
        let at = |quantile| Some(self.0.value_at_quantile(quantile) as f64 / 1e3);
        Percentiles {
            p50_us: at(0.5),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: Some(self.0.max() as f64 / 1e3),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_all_threads_together() {
        let (mut one, mut two) = (Latencies::default(), Latencies::default());
        for ns in 1..=500u64 {
            one.record(ns * 1000);
            two.record((ns + 500) * 1000);
        }
        one.merge(&two);
        let p = one.percentiles();
        let near = |got: Option<f64>, wanted: f64| (got.unwrap() / wanted - 1.0).abs() < 0.002;
        assert!(
            near(p.p50_us, 500.0) && near(p.p99_us, 990.0) && near(p.p999_us, 999.0),
            "{p:?}"
        );
        assert!(near(p.max_us, 1000.0));
    }

    #[test]
    fn every_latency_is_in_one_step() {
        let mut latencies = Latencies::default();
        for us in [1, 9, 15, 90, 3_000_000] {
            latencies.record(us * 1000);
        }
        let steps = latencies.steps();
        let step = |at: usize| (steps[at]["up_to_us"].as_u64(), steps[at]["ops"].as_u64());
        assert_eq!(
            [step(0), step(1)],
            [(Some(10), Some(2)), (Some(20), Some(1))]
        );
        let all: u64 = steps.iter().filter_map(|step| step["ops"].as_u64()).sum();
        assert_eq!(all, 5);
    }

    #[test]
    fn without_latencies_there_are_no_percentiles() {
        assert!(Latencies::default().percentiles().p50_us.is_none());
    }
}
