//! The report of every benchmark of the laboratory: rows of named figures, printed as JSON, and
//! tables of them for people.
//!
//! What a field means is in docs/benchmarks.md. A table is data, in tables.toml: for each column
//! its head and the field.

pub use forebay_measure::table::{
    Column, Table, disk as device, figure, grouped, min_max, notes, object,
};

use crate::{
    histogram::Percentiles,
    rounds::{Span, median, median_round, span},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, sync::LazyLock};

/// A whole run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Which benchmark.
    pub bench: String,
    /// What it ran on, its settings, and what its rows give together.
    #[serde(flatten)]
    pub about: Row,
    /// The rows.
    pub rows: Vec<Row>,
    /// Rows of other stores, where there are some.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<Row>,
    /// What to know when reading the figures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl Report {
    /// One without rows.
    #[must_use]
    pub fn new(bench: &str, about: Value) -> Self {
        Self {
            bench: bench.to_owned(),
            about: Row::of(about),
            ..Self::default()
        }
    }
}

/// Figures and words by their names. What was not, or cannot be, measured is `null`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    #[serde(flatten)]
    fields: Map<String, Value>,
    /// What it is the median of, in the order of the rounds.
    #[serde(skip)]
    pub rounds: Vec<Self>,
}

impl Row {
    /// The row with the fields of an object.
    #[must_use]
    pub fn of(fields: Value) -> Self {
        Self::default().with(fields)
    }

    /// The same with those of another object.
    #[must_use]
    pub fn with(mut self, fields: Value) -> Self {
        self.add(fields);
        self
    }

    /// Adds the fields of an object.
    pub fn add(&mut self, fields: Value) {
        self.fields.extend(object(fields));
    }

    /// Of several rounds the one whose `rate` is the median, with the span of all as `…_span`. None
    /// of none.
    #[must_use]
    pub fn median_round(rounds: Vec<Self>, rate: &str) -> Option<Self> {
        let of = |row: &Self| row.number(rate).unwrap_or(0.0);
        let median = median_round(rounds.iter().collect(), |row| of(row))?.clone();
        let all: Vec<f64> = rounds.iter().map(of).collect();
        let spanned = median.with(json!({ format!("{rate}_span"): span(&all) }));
        Some(Self { rounds, ..spanned })
    }

    /// The same with a figure of some rounds as `name` (their median) and `…_span`; `null` of none.
    #[must_use]
    pub fn of_rounds(self, name: &str, figures: &[f64]) -> Self {
        let some = !figures.is_empty();
        let row = self.with(json!({
            name: some.then(|| median(figures)),
            format!("{name}_span"): some.then(|| span(figures)),
        }));
        let rounds = figures.iter().map(|figure| Self::of(json!({name: figure})));
        Self {
            rounds: rounds.collect(),
            ..row
        }
    }

    /// The figure of each of its rounds; of a row without rounds, its own.
    #[must_use]
    pub fn in_rounds(&self, name: &str) -> Vec<f64> {
        match self.rounds.as_slice() {
            [] => self.number(name).into_iter().collect(),
            rounds => rounds.iter().filter_map(|row| row.number(name)).collect(),
        }
    }

    /// A field; what is inside of one by `outer.inner`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        match name.split_once('.') {
            Some((outer, inner)) => self.fields.get(outer)?.pointer(&format!("/{inner}")),
            None => self.fields.get(name),
        }
    }

    /// A field as people read it: a share (`…_share`) in percent, a span from its smallest to its
    /// largest; a dash for none.
    #[must_use]
    pub fn shown(&self, name: &str) -> String {
        match self.get(name).unwrap_or(&Value::Null) {
            Value::String(text) => text.clone(),
            span @ Value::Object(_) => min_max(Span::deserialize(span).ok()),
            value => match (value.as_i64(), value.as_f64()) {
                (Some(whole), _) => grouped(whole),
                (_, Some(share)) if name.ends_with("_share") => format!("{:.1} %", share * 100.0),
                (_, number) => figure(number),
            },
        }
    }

    /// A figure.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<f64> {
        self.get(name)?.as_f64()
    }

    /// A list of figures; none is empty.
    #[must_use]
    pub fn list(&self, name: &str) -> Vec<f64> {
        let list = self.get(name).map(Vec::deserialize);
        list.and_then(Result::ok).unwrap_or_default()
    }

    /// A word; none is empty.
    #[must_use]
    pub fn text(&self, name: &str) -> &str {
        self.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// True if all of these fields are the same in both.
    #[must_use]
    pub fn agrees(&self, other: &Self, names: &[&str]) -> bool {
        names.iter().all(|name| self.get(name) == other.get(name))
    }
}

impl From<Row> for Value {
    fn from(row: Row) -> Self {
        Self::Object(row.fields)
    }
}

/// Percentiles as the fields of a row.
pub(crate) fn latency(percentiles: Percentiles) -> Value {
    serde_json::to_value(percentiles).unwrap_or_default()
}

/// The columns of every table: head and field.
static TABLES: LazyLock<BTreeMap<String, Vec<[String; 2]>>> = LazyLock::new(|| {
    // The file is a part of this program.
    let tables = toml::from_str(include_str!("tables.toml"));
    tables.unwrap_or_else(|e| unreachable!("tables.toml: {e}"))
});

/// The table of `rows` that is called so.
pub fn table<'a>(name: &str, rows: impl IntoIterator<Item = &'a Row>) -> Table {
    let Some(columns) = TABLES.get(name) else {
        unreachable!("tables.toml has no {name}")
    };
    let heads: Vec<&String> = columns.iter().map(|[head, _]| head).collect();
    let mut table = Table::new(&heads);
    for row in rows {
        table.row(columns.iter().map(|[_, field]| row.shown(field)).collect());
    }
    table
}
