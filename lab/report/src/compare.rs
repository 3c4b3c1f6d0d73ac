//! Compares a paper's claims with the same computed from our rows: ratios, never absolute figures.

use crate::claim::{Cell, Claim, Expected, Ours};
use forebay_bench::{
    report::Row,
    rounds::{Span, median, span},
};

/// A figure of ours with its span: the smallest and the largest that the rounds (or, of several x,
/// the x) allow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    pub value: f64,
    pub span: Span,
}

/// How ours stands to the paper's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As in the paper, within a quarter.
    Same,
    /// Beyond the paper, on the side that is wanted.
    Better,
    /// Short of the paper.
    Worse,
}

impl Claim {
    /// Ours at `place`; `None` if it was not measured there.
    pub fn ours(&self, rows: &[Row], place: &str) -> Option<Estimate> {
        let at = |cell: &Cell| measured(cell, rows, place);
        match &self.ours {
            Ours::Value(cell) => mean(at(cell).into_iter().filter_map(Estimate::of).collect()),
            Ours::Ratio(over, under) => ratio(&at(over), &at(under), over.x.is_none()),
            Ours::Below(over, under) => {
                let ratio = ratio(&at(over), &at(under), over.x.is_none())?;
                let below = |ratio: f64| (1.0 - ratio) * 100.0;
                let (min, max) = (below(ratio.span.max), below(ratio.span.min));
                Some(Estimate {
                    value: below(ratio.value),
                    span: Span { min, max },
                })
            }
            Ours::Spread(cells) => {
                let figures = cells.iter().map(|cell| at(cell).first()?.number("value"));
                let span = span(&figures.collect::<Option<Vec<f64>>>()?);
                let value = (span.max / span.min - 1.0) * 100.0;
                value
                    .is_finite()
                    .then(|| Estimate::spanning(value, &[value]))
            }
        }
    }

    /// The peers: the same ratio's upper figure over theirs, so that above 1 is in favour of ours
    /// where more is better.
    pub fn peers(&self, rows: &[Row], place: &str) -> Vec<(&str, f64)> {
        let Ours::Ratio(over, _) = &self.ours else {
            return Vec::new();
        };
        let ours = measured(over, rows, place);
        let peers = self.peers.iter().filter_map(|(name, series)| {
            let under = Cell {
                series: series.clone(),
                ..over.clone()
            };
            let ratio = ratio(&ours, &measured(&under, rows, place), over.x.is_none());
            Some((name.as_str(), ratio?.value))
        });
        peers.collect()
    }

    /// How ours stands to the paper's.
    pub fn verdict(&self, ours: f64) -> Verdict {
        // What two machines may differ by without a reader asking why.
        const TOLERANCE: f64 = 1.25;
        // Shares below this are nothing.
        const NOTHING_PERCENT: f64 = 1.0;
        let Expected { low, high } = self.paper;
        let (tolerance, slack) = match (self.percent, low == high) {
            // A range that the paper gives is meant as one.
            (_, false) => (1.0, 0.0),
            (true, true) => (TOLERANCE, NOTHING_PERCENT),
            (false, true) => (TOLERANCE, 0.0),
        };
        if ours >= low / tolerance - slack && ours <= high * tolerance + slack {
            Verdict::Same
        } else if (ours > high) != self.less {
            Verdict::Better
        } else {
            Verdict::Worse
        }
    }
}

/// The rows at `place` that have a figure of it.
fn measured<'a>(cell: &Cell, rows: &'a [Row], place: &str) -> Vec<&'a Row> {
    let is_it = |row: &&Row| {
        let x = cell.x.as_ref().is_none_or(|x| row.text("x") == x);
        let names = ["panel", "series", "place"].map(|name| row.text(name));
        x && names == [&*cell.panel, &*cell.series, place] && row.number("value").is_some()
    };
    rows.iter().filter(is_it).collect()
}

impl Estimate {
    fn of(row: &Row) -> Option<Self> {
        let [value, min, max] = ["value", "min", "max"].map(|name| row.number(name));
        Some(Self {
            value: value?,
            span: Span {
                min: min?,
                max: max?,
            },
        })
    }

    /// A figure with the span of what it is made of.
    fn spanning(value: f64, of: &[f64]) -> Self {
        let span = span(of);
        Self { value, span }
    }
}

/// Of one x: the median of the rounds' ratios and their span, since what the machine did in a round
/// it did to both; of rounds that are not known the medians' ratio, and what the spans allow. Of
/// several: their geometric mean, and the smallest and largest of them.
fn ratio(over: &[&Row], under: &[&Row], several: bool) -> Option<Estimate> {
    let ratios = over.iter().filter_map(|over| {
        let is_its = |under: &&&Row| !several || under.text("x") == over.text("x");
        let ratio = ratio_of(over, under.iter().find(is_its)?)?;
        ratio.value.is_finite().then_some(ratio)
    });
    mean(ratios.collect())
}

fn ratio_of(over: &Row, under: &Row) -> Option<Estimate> {
    let [rounds, others] = [over, under].map(|row| row.list("rounds"));
    if !rounds.is_empty() && rounds.len() == others.len() {
        let pairs = rounds.iter().zip(&others);
        let ratios: Vec<f64> = pairs.map(|(over, under)| over / under).collect();
        return Some(Estimate::spanning(median(&ratios), &ratios));
    }
    let (over, under) = (Estimate::of(over)?, Estimate::of(under)?);
    Some(Estimate {
        value: over.value / under.value,
        span: Span {
            min: over.span.min / under.span.max,
            max: over.span.max / under.span.min,
        },
    })
}

/// One figure as it is; the geometric mean of several, with the smallest and the largest of them.
fn mean(figures: Vec<Estimate>) -> Option<Estimate> {
    match figures.as_slice() {
        [] => None,
        [one] => Some(*one),
        many => {
            let values: Vec<f64> = many.iter().map(|figure| figure.value).collect();
            let logarithms: f64 = values.iter().map(|value| value.ln()).sum();
            let mean = (logarithms / values.len() as f64).exp();
            Some(Estimate::spanning(mean, &values))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn cell(series: &str, x: Option<&str>) -> Cell {
        Cell {
            panel: "sets".to_owned(),
            series: series.to_owned(),
            x: x.map(str::to_owned),
        }
    }

    fn claim(ours: Ours) -> Claim {
        let [low, high] = [4.0; 2];
        Claim {
            what: String::new(),
            paper: Expected { low, high },
            percent: false,
            ours,
            less: false,
            above: String::new(),
            below: None,
            headline: true,
            peers: vec![("always".to_owned(), "always".to_owned())],
        }
    }

    fn rows() -> Vec<Row> {
        let row = |series, x, rounds: &[f64]| {
            let Span { min, max } = span(rounds);
            let cell = json!({"panel": "sets", "place": "here", "series": series, "x": x});
            let value = median(rounds);
            let figures = json!({"value": value, "min": min, "max": max, "rounds": rounds});
            Row::of(cell).with(figures)
        };
        let missing = json!({"place": "hdd-7200", "value": null, "missing": "no such device"});
        vec![
            row("forebay", "32 B", &[90.0, 100.0, 110.0]),
            row("forebay", "8 KiB", &[40.0]),
            row("always", "32 B", &[20.0, 25.0, 30.0]),
            row("always", "8 KiB", &[40.0]),
            row("forebay", "32 B", &[]).with(missing),
        ]
    }

    #[test]
    fn a_ratio_is_the_median_of_rounds_or_the_span_of_the_rows() {
        let at = Some("32 B");
        let claim = claim(Ours::Ratio(cell("forebay", at), cell("always", at)));
        let ratio = |rows: &[Row], place| {
            let ours = claim.ours(rows, place)?;
            Some((ours.value, ours.span.min, ours.span.max))
        };
        assert_eq!(ratio(&rows(), "here"), Some((4.0, 110.0 / 30.0, 4.5)));
        let without = |row: Row| row.with(json!({"rounds": null}));
        let alone: Vec<Row> = rows().into_iter().map(without).collect();
        assert_eq!(ratio(&alone, "here"), Some((4.0, 3.0, 5.5)));
        assert_eq!(ratio(&rows(), "hdd-7200"), None);
        assert_eq!(claim.peers(&rows(), "here"), [("always", 4.0)]);
    }

    #[test]
    fn a_ratio_over_all_sizes_is_the_geometric_mean() {
        let over_all = claim(Ours::Ratio(cell("forebay", None), cell("always", None)));
        let mean = over_all.ours(&rows(), "here").unwrap();
        assert!((mean.value - 2.0).abs() < 1e-9, "{mean:?}");
        assert_eq!((mean.span.min, mean.span.max), (1.0, 4.0));
        let below = claim(Ours::Below(cell("always", None), cell("forebay", None)));
        assert!((below.ours(&rows(), "here").unwrap().value - 50.0).abs() < 1e-9);
    }

    #[test]
    fn a_spread_needs_all_its_sizes() {
        let spread_over = |xs: [&str; 2]| {
            let spread = xs.map(|x| cell("forebay", Some(x))).to_vec();
            claim(Ours::Spread(spread)).ours(&rows(), "here")
        };
        let spread = spread_over(["32 B", "8 KiB"]).unwrap();
        assert!((spread.value - 150.0).abs() < 1e-9);
        assert_eq!(spread_over(["32 B", "1 MiB"]), None);
    }

    #[test]
    fn a_quarter_more_or_less_is_as_in_the_paper() {
        let claim = claim(Ours::Value(cell("forebay", Some("32 B"))));
        assert_eq!(claim.verdict(4.9), Verdict::Same);
        assert_eq!(claim.verdict(5.1), Verdict::Better);
        assert_eq!(claim.verdict(3.0), Verdict::Worse);
        let less = Claim {
            less: true,
            ..claim
        };
        assert_eq!(less.verdict(3.0), Verdict::Better);
    }
}
