//! Latencies and their percentiles.

pub use forebay_measure::rounds::Percentiles;

use hdrhistogram::{Histogram, iterators::IterationValue};
use serde_json::{Value, json};

/// Latencies of one thread, or several merged, in nanoseconds, to three significant digits.
#[derive(Clone)]
pub struct Latencies(Histogram<u64>);

/// No latency yet. Room for anything up to a minute is made now, so that recording allocates
/// nothing.
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

    /// How many took at most so many microseconds, and longer than the step before: steps from ten
    /// on, each twice the last.
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
