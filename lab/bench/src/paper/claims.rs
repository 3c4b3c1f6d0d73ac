//! What a paper says, as data, and the same computed from our rows: ratios, never absolute figures.

use super::outcome::Row;
use crate::rounds::{median, span};
use serde::Deserialize;

/// How a figure is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A ratio: `9.78×`.
    Times,
    /// A share: `37.4 %`; the value is in percent.
    Percent,
}

/// A figure as the paper gives it; a range where the paper does. Bounds that it leaves open are not finite.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(from = "Written")]
pub struct Expected {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    One(f64),
    Range([f64; 2]),
}

impl From<Written> for Expected {
    fn from(written: Written) -> Self {
        match written {
            Written::One(value) => Self {
                low: value,
                high: value,
            },
            Written::Range([low, high]) => Self { low, high },
        }
    }
}

/// A figure of ours: a series of a panel, at an x, or at all of them ([`ALL`]).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Cell {
    /// The panel.
    pub panel: String,
    /// The series.
    pub series: String,
    /// The x.
    pub x: String,
}

impl TryFrom<String> for Cell {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let words: Vec<&str> = text.split(" | ").collect();
        let (panel, series, x) = match words[..] {
            [panel, series] => (panel, series, ALL),
            [panel, series, x] => (panel, series, x),
            _ => return Err(format!("{text:?} is not \"panel | series | x\"")),
        };
        let [panel, series, x] = [panel, series, x].map(str::to_owned);
        Ok(Self { panel, series, x })
    }
}

/// At every x that both sides of a ratio were measured at; the ratio is then the geometric mean.
pub const ALL: &str = "*";

/// How ours is computed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ours {
    /// The first over the second.
    Ratio(Cell, Cell),
    /// The figure itself.
    Value(Cell),
    /// By how many percent the largest of these is above the smallest.
    Spread(Vec<Cell>),
    /// By how many percent the first is below the second: the smallest and the largest among the x are the span.
    Below(Cell, Cell),
}

/// Something that a paper says and we measure.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// What is compared, in words.
    pub what: String,
    /// The paper's figure.
    pub paper: Expected,
    /// The figure is a share.
    #[serde(default)]
    pub percent: bool,
    /// How ours is computed.
    pub ours: Ours,
    /// Less than the paper is in our favour; otherwise more is.
    #[serde(default)]
    pub less: bool,
    /// Why ours is above the paper's: a sentence. `{fsync_us}`, `{seq_mb_s}`, `{processors}` are replaced by what was measured.
    pub above: String,
    /// Why it is below.
    #[serde(default)]
    pub below: String,
    /// It stands in the summary.
    #[serde(default)]
    pub headline: bool,
    /// Series of the same panel that stand beside ours in the summary: a name, and the series.
    #[serde(default)]
    pub peers: Vec<(String, String)>,
}

/// A figure of ours with its span.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The figure.
    pub value: f64,
    /// Smallest that the rounds (or, of several x, the x) allow.
    pub min: f64,
    /// Largest.
    pub max: f64,
}

impl Claim {
    /// How its figures are written.
    #[must_use]
    pub fn form(&self) -> Form {
        match self.percent {
            true => Form::Percent,
            false => Form::Times,
        }
    }

    /// Ours at `place`; `None` if it was not measured there.
    #[must_use]
    pub fn ours(&self, rows: &[Row], place: &str) -> Option<Estimate> {
        let at = |cell: &Cell| cell.rows(rows, place);
        match &self.ours {
            Ours::Value(cell) => mean(at(cell).into_iter().filter_map(Estimate::of).collect()),
            Ours::Ratio(over, under) => ratio(&at(over), &at(under), over.x == ALL),
            Ours::Below(over, under) => {
                let ratio = ratio(&at(over), &at(under), over.x == ALL)?;
                let below = |ratio: f64| (1.0 - ratio) * 100.0;
                Some(Estimate {
                    value: below(ratio.value),
                    min: below(ratio.max),
                    max: below(ratio.min),
                })
            }
            Ours::Spread(cells) => {
                let figures = cells.iter().filter_map(|cell| at(cell).first()?.value);
                let figures: Vec<f64> = figures.collect();
                let span = span(&figures);
                let value = (span.max / span.min - 1.0) * 100.0;
                let is_whole = figures.len() == cells.len() && value.is_finite();
                is_whole.then(|| Estimate::spanning(value, &[value]))
            }
        }
    }

    /// The peers: the same ratio's upper figure over theirs, so that above 1 is in favour of ours where more is better.
    #[must_use]
    pub fn peers(&self, rows: &[Row], place: &str) -> Vec<(&str, f64)> {
        let Ours::Ratio(over, _) = &self.ours else {
            return Vec::new();
        };
        let peers = self.peers.iter().filter_map(|(name, series)| {
            let under = Cell {
                series: series.clone(),
                ..over.clone()
            };
            let ratio = ratio(
                &over.rows(rows, place),
                &under.rows(rows, place),
                over.x == ALL,
            );
            Some((name.as_str(), ratio?.value))
        });
        peers.collect()
    }

    /// The panel that the claim is about.
    #[must_use]
    pub fn panel(&self) -> &str {
        match &self.ours {
            Ours::Ratio(cell, _) | Ours::Below(cell, _) | Ours::Value(cell) => &cell.panel,
            Ours::Spread(cells) => cells.first().map_or("", |cell| &cell.panel),
        }
    }

    /// How ours stands to the paper's.
    #[must_use]
    pub fn verdict(&self, ours: f64) -> Verdict {
        // What two machines may differ by without anybody asking why.
        const TOLERANCE: f64 = 1.25;
        // Shares below this are nothing.
        const NOTHING_PERCENT: f64 = 1.0;
        let Expected { low, high } = self.paper;
        let (tolerance, slack) = match (self.form(), low == high) {
            // A range that the paper gives is meant as one.
            (_, false) => (1.0, 0.0),
            (Form::Percent, true) => (TOLERANCE, NOTHING_PERCENT),
            (Form::Times, true) => (TOLERANCE, 0.0),
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

impl Cell {
    /// The rows at `place` that have a figure for it.
    fn rows<'a>(&self, rows: &'a [Row], place: &str) -> Vec<&'a Row> {
        let is_it = |row: &&Row| {
            let cell = (&row.panel, &row.series) == (&self.panel, &self.series);
            let x = self.x == ALL || row.x == self.x;
            cell && x && row.place == place && row.value.is_some()
        };
        rows.iter().filter(is_it).collect()
    }
}

impl Estimate {
    fn of(row: &Row) -> Option<Self> {
        Some(Self {
            value: row.value?,
            min: row.min?,
            max: row.max?,
        })
    }

    /// A figure with the span of what it is made of.
    fn spanning(value: f64, of: &[f64]) -> Self {
        let span = span(of);
        Self {
            value,
            min: span.min,
            max: span.max,
        }
    }
}

/// Of one x: the median of the rounds' ratios and their span, since what the machine did in a round it did to both; of rounds that are not known the
/// medians' ratio, and what the spans allow. Of several: their geometric mean, and the smallest and largest of them.
fn ratio(over: &[&Row], under: &[&Row], several: bool) -> Option<Estimate> {
    let ratios = over.iter().filter_map(|over| {
        let mut under = under.iter().filter(|under| !several || under.x == over.x);
        let ratio = ratio_of(over, under.next()?)?;
        ratio.value.is_finite().then_some(ratio)
    });
    mean(ratios.collect())
}

fn ratio_of(over: &Row, under: &Row) -> Option<Estimate> {
    if !over.rounds.is_empty() && over.rounds.len() == under.rounds.len() {
        let pairs = over.rounds.iter().zip(&under.rounds);
        let ratios: Vec<f64> = pairs.map(|(over, under)| over / under).collect();
        return Some(Estimate::spanning(median(&ratios), &ratios));
    }
    let (over, under) = (Estimate::of(over)?, Estimate::of(under)?);
    Some(Estimate {
        value: over.value / under.value,
        min: over.min / under.max,
        max: over.max / under.min,
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

    fn cell(series: &str, x: &str) -> Cell {
        Cell::try_from(format!("sets | {series} | {x}")).unwrap()
    }

    fn claim(ours: Ours) -> Claim {
        Claim {
            what: String::new(),
            paper: Expected::from(Written::One(4.0)),
            percent: false,
            ours,
            less: false,
            above: String::new(),
            below: String::new(),
            headline: true,
            peers: vec![("always".to_owned(), "always".to_owned())],
        }
    }

    fn rows() -> Vec<Row> {
        let row = |series, x, rounds: &[f64]| Row::of("sets", "here", series, x, rounds);
        vec![
            row("forebay", "32 B", &[90.0, 100.0, 110.0]),
            row("forebay", "8 KiB", &[40.0]),
            row("always", "32 B", &[20.0, 25.0, 30.0]),
            row("always", "8 KiB", &[40.0]),
            Row::missing("sets", "hdd-7200", "forebay", "32 B", "no such device"),
        ]
    }

    #[test]
    fn a_ratio_is_the_median_of_the_rounds_and_without_them_has_the_span_that_the_rows_allow() {
        let claim = claim(Ours::Ratio(cell("forebay", "32 B"), cell("always", "32 B")));
        let ours = claim.ours(&rows(), "here").unwrap();
        assert_eq!((ours.value, ours.min, ours.max), (4.0, 110.0 / 30.0, 4.5));
        let without = |row| Row {
            rounds: Vec::new(),
            ..row
        };
        let rows_alone: Vec<Row> = rows().into_iter().map(without).collect();
        let ours = claim.ours(&rows_alone, "here").unwrap();
        assert_eq!((ours.value, ours.min, ours.max), (4.0, 3.0, 5.5));
        assert_eq!(claim.ours(&rows(), "hdd-7200"), None);
        assert_eq!(claim.peers(&rows(), "here"), [("always", 4.0)]);
    }

    #[test]
    fn a_ratio_over_all_sizes_is_the_geometric_mean() {
        let over_all = claim(Ours::Ratio(cell("forebay", ALL), cell("always", ALL)));
        let ours = over_all.ours(&rows(), "here").unwrap();
        assert!((ours.value - 2.0).abs() < 1e-9, "{ours:?}");
        assert_eq!((ours.min, ours.max), (1.0, 4.0));
        let below = claim(Ours::Below(cell("always", ALL), cell("forebay", ALL)));
        assert!((below.ours(&rows(), "here").unwrap().value - 50.0).abs() < 1e-9);
    }

    #[test]
    fn a_spread_needs_all_its_sizes() {
        let spread_over =
            |xs: [&str; 2]| claim(Ours::Spread(xs.map(|x| cell("forebay", x)).to_vec()));
        let spread = spread_over(["32 B", "8 KiB"]);
        assert!((spread.ours(&rows(), "here").unwrap().value - 150.0).abs() < 1e-9);
        let spread = spread_over(["32 B", "1 MiB"]);
        assert_eq!(spread.ours(&rows(), "here"), None);
    }

    #[test]
    fn a_quarter_more_or_less_is_as_in_the_paper() {
        let claim = claim(Ours::Value(cell("forebay", "32 B")));
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
