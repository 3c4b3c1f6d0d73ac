//! A page's section on an experiment, whatever the page is written in.

use crate::{
    Results,
    claim::{Claim, claims},
    compare::{Estimate, Verdict},
    words,
};
use forebay_bench::{
    paper::{Experiment, Outcome, Size, catalogue::Panel},
    report::{Row, figure},
};
use std::collections::BTreeSet;

/// An experiment and what it gave.
pub struct Section<'a> {
    pub experiment: &'static Experiment,
    pub outcome: Option<&'a Outcome>,
}

/// A claim beside ours.
pub struct Compared {
    pub what: String,
    pub paper: String,
    pub ours: String,
    pub verdict: Option<Verdict>,
    pub sentence: String,
    pub peers: String,
    pub headline: bool,
}

/// The figures of a panel at one place: series by x.
pub struct Figures<'a> {
    pub panel: &'static Panel,
    pub place: &'a str,
    pub series: Vec<&'a str>,
    pub xs: Vec<&'a str>,
    rows: Vec<&'a Row>,
}

impl Results {
    pub(crate) fn sections(&self) -> impl Iterator<Item = Section<'_>> {
        self.0.iter().map(|(experiment, outcome)| Section {
            experiment,
            outcome: outcome.as_ref(),
        })
    }

    /// The outcomes there are.
    fn outcomes(&self) -> impl Iterator<Item = &Outcome> {
        self.0.iter().filter_map(|(_, outcome)| outcome.as_ref())
    }

    /// What the page begins with: at which size and where all of it was measured. Several, if the
    /// results are not of one run.
    pub(crate) fn provenance(&self) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        for outcome in self.outcomes() {
            let line = format!(
                "forebay {}, at {}, on {}",
                outcome.version, outcome.size, outcome.machine
            );
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        lines
    }

    /// A warning, if some of it was measured at less than the papers' size.
    pub(crate) fn warning(&self) -> Option<&'static str> {
        match self.outcomes().map(|outcome| outcome.size).min()? {
            Size::Toy => {
                Some("Toy size: this shows that every experiment runs. Its figures say nothing.")
            }
            Size::Quick => Some(
                "Quick size: a first impression. Runs are short, so that what is fast is measured coarsely; the papers' sizes are for figures to be \
                 relied on.",
            ),
            Size::Paper => None,
        }
    }

    /// How long all measurements took, seconds. Those that were made together count once.
    pub(crate) fn seconds(&self) -> f64 {
        let mut steps: Vec<(u64, f64)> = Vec::new();
        for outcome in self.outcomes() {
            let step = (outcome.started_unix_s, outcome.seconds);
            if !steps.contains(&step) {
                steps.push(step);
            }
        }
        steps.iter().map(|(_, seconds)| seconds).sum()
    }
}

impl<'a> Section<'a> {
    /// The paper's name.
    pub fn paper(&self) -> &'static str {
        &self.experiment.paper_title
    }

    /// Places that something was measured at, or was to be.
    fn places(&self) -> Vec<&'a str> {
        distinct(
            self.outcome
                .into_iter()
                .flat_map(|outcome| &outcome.rows)
                .map(|row| row.text("place")),
        )
    }

    /// Every claim, at every place that it was measured at; at none, it says so.
    pub fn compared(&self) -> Vec<Compared> {
        let claims = claims(self.experiment);
        let compared = claims.iter().map(|claim| self.compared_everywhere(claim));
        compared.flatten().collect()
    }

    fn compared_everywhere(&self, claim: &Claim) -> Vec<Compared> {
        let rows = self.outcome.map_or(&[][..], |outcome| &outcome.rows);
        let places = self.places();
        let mut compared: Vec<Compared> = places
            .iter()
            .filter_map(|place| {
                let ours = claim.ours(rows, place)?;
                let verdict = claim.verdict(ours.value);
                let peers = claim.peers(rows, place);
                Some(Compared {
                    what: match *place {
                        "this disk" => claim.what.clone(),
                        place => format!("{}, on {place}", claim.what),
                    },
                    paper: words::given(claim.paper, claim.percent),
                    ours: words::ours(ours, claim.percent),
                    verdict: Some(verdict),
                    sentence: self.sentence(claim, place, ours, verdict),
                    peers: peers
                        .iter()
                        .map(|(name, ratio)| format!("{name}: {}×", words::number(*ratio)))
                        .collect::<Vec<_>>()
                        .join("; "),
                    headline: claim.headline,
                })
            })
            .collect();
        if compared.is_empty() {
            compared.push(Compared {
                what: claim.what.clone(),
                paper: words::given(claim.paper, claim.percent),
                ours: "not measured".to_owned(),
                verdict: None,
                sentence: words::sentence(&self.why_not(claim)),
                peers: String::new(),
                headline: claim.headline,
            });
        }
        compared
    }

    /// Why a claim could not be computed.
    fn why_not(&self, claim: &Claim) -> String {
        let Some(outcome) = self.outcome else {
            return format!(
                "this experiment was not run: forebay-lab paper {}",
                self.experiment.id
            );
        };
        let cells = claim.ours.cells();
        let panel = cells.first().map_or("", |cell| cell.panel.as_str());
        let rows = outcome.rows.iter().filter(|row| row.text("panel") == panel);
        match rows
            .map(|row| row.text("missing"))
            .find(|why| !why.is_empty())
        {
            Some(why) => format!("{why}."),
            None => "not at this size: the figures that it compares were not asked for.".to_owned(),
        }
    }

    /// How ours stands to the paper's, and why.
    fn sentence(&self, claim: &Claim, place: &str, estimate: Estimate, verdict: Verdict) -> String {
        let ours = estimate.value;
        let because = match (place, ours > claim.paper.high) {
            ("this disk", true) => self.filled(&claim.above),
            ("this disk", false) => self.filled(claim.below.as_ref().unwrap_or(&claim.above)),
            _ => format!("The device is emulated: what it costs is what the profile {place} says."),
        };
        let paper = claim.paper;
        let includes = estimate.span.min <= paper.high && paper.low <= estimate.span.max;
        let doubt = match includes {
            true => " The span of ours includes the paper's figure.",
            false => "",
        };
        let is_range = paper.low != paper.high;
        let nearest = if ours < paper.low {
            paper.low
        } else {
            paper.high
        };
        match (verdict, claim.percent) {
            (Verdict::Same, _) if is_range => "Within the paper's range.".to_owned(),
            (Verdict::Same, true) => "As in the paper.".to_owned(),
            (Verdict::Same, false) => "As in the paper, within a quarter.".to_owned(),
            (_, true) => {
                let points = (ours - nearest).abs();
                let side = if ours > nearest { "above" } else { "below" };
                format!(
                    "{} points {side} the paper.{doubt} {because}",
                    words::number(points)
                )
            }
            (_, false) => format!(
                "{} times the paper's figure.{doubt} {because}",
                words::number(ours / nearest)
            ),
        }
    }

    /// A text with what was measured in its placeholders.
    fn filled(&self, text: &str) -> String {
        let device = self.outcome.and_then(|outcome| outcome.device.as_ref());
        let or_unknown = |value: Option<f64>| {
            value.map_or_else(|| "some".to_owned(), |value| figure(Some(value)))
        };
        text.replace(
            "{fsync_us}",
            &or_unknown(device.map(|device| device.fsync_us)),
        )
        .replace(
            "{seq_mb_s}",
            &or_unknown(device.map(|device| device.seq_write_mb_s)),
        )
        .replace(
            "{processors}",
            &self
                .outcome
                .map_or(0, |outcome| outcome.machine.processors)
                .to_string(),
        )
    }

    /// The device under the files, in words.
    pub fn device(&self) -> Option<String> {
        let device = self.outcome?.device.as_ref()?;
        Some(format!(
            "{}: {} MB/s of sequential writes, {} µs for a synced 4 KiB write, measured in the same run",
            device
                .file_system
                .as_deref()
                .unwrap_or("file system unknown"),
            figure(Some(device.seq_write_mb_s)),
            figure(Some(device.fsync_us))
        ))
    }

    /// The panels' figures, place by place, where there are any.
    pub fn figures(&self) -> Vec<Figures<'a>> {
        let Some(outcome) = self.outcome else {
            return Vec::new();
        };
        let mut all = Vec::new();
        for (panel, place) in self
            .experiment
            .panels
            .iter()
            .flat_map(|panel| self.places().into_iter().map(move |place| (panel, place)))
        {
            let rows: Vec<&Row> = outcome
                .rows
                .iter()
                .filter(|row| row.text("panel") == panel.id && row.text("place") == place)
                .filter(|row| row.number("value").is_some())
                .collect();
            if !rows.is_empty() {
                all.push(Figures {
                    panel,
                    place,
                    series: distinct(rows.iter().map(|row| row.text("series"))),
                    xs: distinct(rows.iter().map(|row| row.text("x"))),
                    rows,
                });
            }
        }
        all
    }

    /// What is missing, each reason once: who, and why.
    pub fn missing(&self) -> Vec<String> {
        let Some(outcome) = self.outcome else {
            return vec![format!("not run: forebay-lab paper {}", self.experiment.id)];
        };
        let reasons: BTreeSet<&str> = outcome
            .rows
            .iter()
            .map(|row| row.text("missing"))
            .filter(|why| !why.is_empty())
            .collect();
        reasons
            .into_iter()
            .map(|why| {
                let rows = outcome.rows.iter().filter(|row| row.text("missing") == why);
                let who = distinct(rows.clone().map(|row| row.text("series"))).join(", ");
                let place = distinct(rows.map(|row| row.text("place")));
                match place.as_slice() {
                    ["this disk"] => format!("{who}: {why}"),
                    places => format!("{who} on {}: {why}", places.join(", ")),
                }
            })
            .collect()
    }
}

/// A figure in words.
pub struct Cell {
    pub value: String,
    pub span: Option<String>,
}

impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.value)?;
        match &self.span {
            Some(span) => write!(f, " {span}"),
            None => Ok(()),
        }
    }
}

impl<'a> Figures<'a> {
    /// The figure of a series at an x.
    pub fn at(&self, series: &str, x: &str) -> Option<(f64, f64, f64)> {
        let row = self
            .rows
            .iter()
            .find(|row| row.text("series") == series && row.text("x") == x)?;
        let value = row.number("value")?;
        let [min, max] = ["min", "max"].map(|name| row.number(name).unwrap_or(value));
        Some((value, min, max))
    }

    /// The same in words, with its span.
    pub fn words(&self, series: &str, x: &str) -> Cell {
        match self.at(series, x) {
            None => Cell {
                value: "–".to_owned(),
                span: None,
            },
            Some((value, min, max)) => Cell {
                value: words::number(value),
                span: (min != max)
                    .then(|| format!("({}–{})", words::number(min), words::number(max))),
            },
        }
    }

    /// The figures as a table: head, and rows of a name and cells. Series stand beside each other,
    /// or below each other where they are many more than the x.
    pub fn table(&self) -> (Vec<&str>, Vec<(&str, Vec<Cell>)>) {
        const BESIDE_MAX: usize = 6;
        let upright = self.xs.len() == 1 || self.series.len() > BESIDE_MAX.max(self.xs.len());
        let (first, columns, names) = match upright {
            true => ("", &self.xs, &self.series),
            false => (self.panel.x.as_str(), &self.series, &self.xs),
        };
        let cell = |name: &str, column: &str| match upright {
            true => self.words(name, column),
            false => self.words(column, name),
        };
        let rows = names.iter().map(|name| {
            (
                *name,
                columns.iter().map(|column| cell(name, column)).collect(),
            )
        });
        let head = std::iter::once(first).chain(columns.iter().copied());
        (head.collect(), rows.collect())
    }

    /// Title with unit and place.
    pub fn title(&self) -> String {
        match self.place {
            "this disk" => format!("{}, {}", self.panel.title, self.panel.unit),
            place => format!("{} on {place}, {}", self.panel.title, self.panel.unit),
        }
    }
}

fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut all = Vec::new();
    for name in names {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    all
}
