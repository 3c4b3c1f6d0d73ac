//! Figures in words.

use crate::{claim::Expected, compare::Estimate};
use forebay_bench::{report::figure, rounds::Span};

/// A figure of a chart or table: three significant digits, or all of a large number's.
pub fn number(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        v if v.abs() < 0.1 => format!("{v:.3}"),
        v => figure(Some(v)),
    }
}

/// A number in little room, for axes: `100 k`.
pub fn short(value: f64) -> String {
    let trimmed = |value: f64| {
        let text = format!("{value:.2}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    match value.abs() {
        v if v >= 1e6 => format!("{} M", trimmed(value / 1e6)),
        v if v >= 1e3 => format!("{} k", trimmed(value / 1e3)),
        v if v >= 0.01 || v == 0.0 => trimmed(value),
        _ => format!("{value:.0e}"),
    }
}

/// A ratio, or a share in percent.
fn with_unit(number: &str, is_percent: bool) -> String {
    let unit = if is_percent { " %" } else { "×" };
    format!("{number}{unit}")
}

/// The paper's figure.
pub fn given(paper: Expected, is_percent: bool) -> String {
    let Expected { low, high } = paper;
    // As many digits as the paper has; three behind the point where it is a ratio of two of its
    // figures.
    let digits = |value: f64| (value * 1000.0).round() / 1000.0;
    let unit = |value: f64| with_unit(&digits(value).to_string(), is_percent);
    if low == high {
        unit(low)
    } else if high.is_infinite() {
        format!("more than {}", unit(low))
    } else if low == 0.0 {
        format!("up to {}", unit(high))
    } else {
        format!("{low}–{}", unit(high))
    }
}

/// Ours, with its span where there is one.
pub fn ours(estimate: Estimate, is_percent: bool) -> String {
    let value = with_unit(&number(estimate.value), is_percent);
    let Span { min, max } = estimate.span;
    if min == max {
        value
    } else {
        format!("{value} ({}–{})", number(min), number(max))
    }
}

/// A first letter as at the beginning of a sentence.
pub fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters
        .next()
        .map(|letter| letter.to_uppercase().to_string());
    first.unwrap_or_default() + letters.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_written_as_the_paper_has_them() {
        let range = |low, high| given(Expected { low, high }, true);
        assert_eq!(range(11.0, 47.0), "11–47 %");
        assert_eq!(range(0.0, 20.0), "up to 20 %");
        assert_eq!(
            given(
                Expected {
                    low: 1.0,
                    high: f64::INFINITY
                },
                false
            ),
            "more than 1×"
        );
        let one = |value| Expected {
            low: value,
            high: value,
        };
        assert_eq!(given(one(9.78), false), "9.78×");
        assert_eq!(given(one(174_440.0 / 86_459.0), false), "2.018×");
    }

    #[test]
    fn ours_has_its_span_unless_there_was_one_round() {
        let estimate = |value, min, max| {
            ours(
                Estimate {
                    value,
                    span: Span { min, max },
                },
                false,
            )
        };
        assert_eq!(estimate(66.0, 60.0, 70.0), "66.0× (60.0–70.0)");
        assert_eq!(estimate(0.06, 0.06, 0.06), "0.060×");
    }

    #[test]
    fn axes_have_short_numbers() {
        for (value, text) in [
            (100_000.0, "100 k"),
            (1.5e6, "1.5 M"),
            (0.25, "0.25"),
            (0.0, "0"),
            (20.0, "20"),
        ] {
            assert_eq!(short(value), text);
        }
    }
}
