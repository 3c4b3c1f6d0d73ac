//! A paper's claims on an experiment, as its file in lab/bench has them: ratios, never absolute
//! figures.

use forebay_bench::paper::Experiment;
use serde::Deserialize;

/// A figure as the paper gives it; a range where the paper does. Bounds that it leaves open are not
/// finite.
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
        let [low, high] = match written {
            Written::One(value) => [value; 2],
            Written::Range(range) => range,
        };
        Self { low, high }
    }
}

/// A figure of ours: a series of a panel, at an x, or at all of them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Cell {
    /// The panel.
    pub panel: String,
    /// The series.
    pub series: String,
    /// The x; none for every x that both sides of a ratio were measured at, of which the geometric
    /// mean counts.
    pub x: Option<String>,
}

impl TryFrom<String> for Cell {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let words: Vec<&str> = text.split(" | ").collect();
        let (panel, series, x) = match words[..] {
            [panel, series] => (panel, series, None),
            [panel, series, x] => (panel, series, Some(x.to_owned())),
            _ => return Err(format!("{text:?} is not \"panel | series | x\"")),
        };
        let [panel, series] = [panel, series].map(str::to_owned);
        Ok(Self { panel, series, x })
    }
}

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
    /// By how many percent the first is below the second: the smallest and the largest among the x
    /// are the span.
    Below(Cell, Cell),
}

impl Ours {
    /// The figures that it is computed from.
    pub fn cells(&self) -> Vec<&Cell> {
        match self {
            Self::Ratio(one, other) | Self::Below(one, other) => vec![one, other],
            Self::Value(cell) => vec![cell],
            Self::Spread(cells) => cells.iter().collect(),
        }
    }
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
    /// Why ours is above the paper's: a sentence. `{fsync_us}`, `{seq_mb_s}`, `{processors}` are
    /// replaced by what was measured.
    pub above: String,
    /// Why it is below, if that is another reason.
    pub below: Option<String>,
    /// It stands in the summary.
    #[serde(default)]
    pub headline: bool,
    /// Series of the same panel that stand beside ours in the summary: a name, and the series.
    #[serde(default)]
    pub peers: Vec<(String, String)>,
}

/// What the paper says of an experiment.
pub fn claims(experiment: &Experiment) -> Vec<Claim> {
    // The papers' files are a part of this program.
    let read = |claim: &toml::Table| {
        let read = claim.clone().try_into();
        read.unwrap_or_else(|e| unreachable!("{}: {e}: {claim:?}", experiment.id))
    };
    experiment.claims.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_bench::paper::catalogue;

    #[test]
    fn claims_name_panels_of_their_experiment_and_give_reasons() {
        for experiment in catalogue::ALL.iter() {
            for claim in claims(experiment) {
                for Cell { panel, .. } in claim.ours.cells() {
                    let is_there = experiment.panels.iter().any(|mine| mine.id == *panel);
                    assert!(is_there, "{}: {panel}", experiment.id);
                }
                for because in [Some(&claim.above), claim.below.as_ref()]
                    .into_iter()
                    .flatten()
                {
                    assert!(because.ends_with('.'), "{}: {because}", experiment.id);
                }
            }
        }
    }
}
