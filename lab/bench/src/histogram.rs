//! Latencies and their percentiles.

pub use forebay_measure::rounds::Percentiles;

use hdrhistogram::Histogram;

/// Latencies of one thread, or several merged, in nanoseconds, to three significant digits.
#[derive(Clone)]
pub struct Latencies(Histogram<u64>);

impl Latencies {
    /// No latency yet. Room for anything up to a minute is made now, so that recording allocates nothing.
    #[must_use]
    pub fn new() -> Self {
        const MINUTE_NS: u64 = 60_000_000_000;
        let mut histogram = Histogram::new_with_bounds(1, MINUTE_NS, 3).unwrap_or_else(|_| {
            unreachable!("1 ns to a minute with three digits are bounds that the histogram takes")
        });
        histogram.auto(true);
        Self(histogram)
    }

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

    /// How many took no longer than `ns`.
    #[must_use]
    pub fn at_most(&self, ns: u64) -> u64 {
        self.0.count_between(0, ns)
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

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_all_threads_together() {
        let (mut one, mut two) = (Latencies::new(), Latencies::new());
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
    fn without_latencies_there_are_no_percentiles() {
        assert!(Latencies::new().percentiles().p50_us.is_none());
    }
}
