//! Several rounds, one figure: medians and spans.

pub use forebay_probe::figures::{Span, median, percentile, span};

use serde::{Deserialize, Serialize};

/// Percentiles of a set of latencies, in microseconds. All `None` where none was recorded.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Percentiles {
    /// Median.
    pub p50_us: Option<f64>,
    /// 99 of 100 are at most this.
    pub p99_us: Option<f64>,
    /// 999 of 1000 are at most this.
    pub p999_us: Option<f64>,
    /// The longest.
    pub max_us: Option<f64>,
}

impl Percentiles {
    /// Those of `times_us`, which it sorts.
    #[must_use]
    pub fn of(times_us: &mut [f64]) -> Self {
        let mut at = |share| Some(percentile(times_us, share)).filter(|us| us.is_finite());
        Self {
            p50_us: at(0.5),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: at(1.0),
        }
    }
}

/// Of several rounds the one whose `figure` is the median (of an even number, the lower middle
/// one), so that all figures of a row belong together.
pub fn median_round<T>(mut rounds: Vec<T>, figure: impl Fn(&T) -> f64) -> Option<T> {
    rounds.sort_by(|a, b| figure(a).total_cmp(&figure(b)));
    let middle = rounds.len().checked_sub(1)? / 2;
    Some(rounds.swap_remove(middle))
}

/// The contestants in the order of a round: every other one backwards, so that none always runs
/// after the same one.
#[must_use]
pub fn in_turn<T>(contestants: impl IntoIterator<Item = T>, round: usize) -> Vec<T> {
    let mut order: Vec<T> = contestants.into_iter().collect();
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

/// Measures all contestants in turn, round after round, and gives each one's rounds.
///
/// # Errors
/// The first that `measure` has.
pub fn take_turns<C, T, E>(
    contestants: &[C],
    rounds: usize,
    mut measure: impl FnMut(&C) -> Result<T, E>,
) -> Result<Vec<Vec<T>>, E> {
    let mut all: Vec<Vec<T>> = contestants.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        for (contestant, its) in in_turn(contestants.iter().zip(&mut all), round) {
            its.push(measure(contestant)?);
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_all_and_none_of_nothing() {
        let mut values: Vec<f64> = (0..100).rev().map(f64::from).collect();
        let of = Percentiles::of(&mut values);
        assert_eq!((of.p50_us, of.max_us), (Some(50.0), Some(99.0)));
        assert_eq!(Percentiles::of(&mut []).p50_us, None);
    }

    #[test]
    fn the_median_round_is_one_that_was_run() {
        assert_eq!(median_round(vec![5, 1, 3, 9], |&n| f64::from(n)), Some(3));
        assert_eq!(median_round(Vec::<u8>::new(), |_| 0.0), None);
    }

    #[test]
    fn contestants_take_turns_and_each_gets_its_rounds() {
        let mut turns = String::new();
        let rounds = take_turns(&["a", "b", "c"], 3, |name| {
            turns.push_str(name);
            Ok::<_, ()>(turns.len())
        });
        assert_eq!(turns, "abccbaabc");
        assert_eq!(rounds.unwrap(), [[1, 6, 7], [2, 5, 8], [3, 4, 9]]);
        let first = take_turns(&["a", "b"], 3, |name| Err::<(), _>(*name));
        assert_eq!(first, Err("a"));
    }

    #[test]
    fn every_other_round_goes_backwards() {
        assert_eq!(in_turn(0..3, 0), [0, 1, 2]);
        assert_eq!(in_turn(0..3, 1), [2, 1, 0]);
        assert_eq!(in_turn(0..3, 2), [0, 1, 2]);
    }
}
