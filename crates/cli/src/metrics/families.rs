//! Metric families: their names, kinds and labels, and their text.

use forebay_files::{DURATION_BOUNDS, DurationHistogram};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, NoLabelSet, prometheus_text, text},
    metrics::MetricType,
    registry::{Registry, Unit},
};
use std::{collections::BTreeSet, fmt};

/// Leads every name.
const PREFIX: &str = "forebay";

/// The format of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricsFormat {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus's own, version 0.0.4.
    Prometheus,
}

impl MetricsFormat {
    /// As HTTP names it.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// The unit of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MetricUnit {
    /// Things.
    Things,
    Seconds,
    Bytes,
}

/// The kind of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MetricKind {
    /// It only grows, until its process ends.
    Counter,
    /// It is as it is.
    Gauge,
    /// Counts of durations, by their length.
    Histogram,
    /// Words about something, always 1.
    Info,
}

/// A figure.
#[derive(Clone, Debug)]
pub(super) enum MetricValue {
    Count(u64),
    Real(f64),
    Durations(DurationHistogram),
}

impl From<u64> for MetricValue {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<usize> for MetricValue {
    fn from(count: usize) -> Self {
        Self::Count(count as u64)
    }
}

impl From<bool> for MetricValue {
    fn from(is_so: bool) -> Self {
        Self::Count(u64::from(is_so))
    }
}

impl From<f64> for MetricValue {
    fn from(real: f64) -> Self {
        Self::Real(real)
    }
}

impl From<DurationHistogram> for MetricValue {
    fn from(durations: DurationHistogram) -> Self {
        Self::Durations(durations)
    }
}

/// A family of figures about each `T`.
pub(super) struct FamilyRow<T: 'static> {
    /// Without prefix, unit, and the suffix of its kind.
    pub(super) name: &'static str,
    pub(super) unit: MetricUnit,
    pub(super) kind: MetricKind,
    /// Without its full stop.
    pub(super) help: &'static str,
    pub(super) value: fn(&T) -> MetricValue,
}

/// Families with the same labels.
pub(super) struct FamilyTable<T: 'static> {
    pub(super) labels: &'static [&'static str],
    pub(super) rows: &'static [FamilyRow<T>],
}

/// A [`FamilyTable`]: its labels, and a row for each family. A row has kind, name, unit and help as
/// [`FamilyRow`] has them, and the figure.
macro_rules! families {
    ($labels:expr, |$one:ident: &$type:ty| $(
        $kind:ident $name:literal, $unit:ident, $help:literal => $value:expr;
    )+) => {
        $crate::metrics::families::FamilyTable {
            labels: $labels,
            rows: &[$($crate::metrics::families::FamilyRow {
                name: $name,
                unit: $crate::metrics::families::MetricUnit::$unit,
                kind: $crate::metrics::families::MetricKind::$kind,
                help: $help,
                value: |$one: &$type| $crate::metrics::families::MetricValue::from($value),
            }),+],
        }
    };
}

pub(super) use families;

impl<T> FamilyTable<T> {
    /// With the figures about each of these, which come with the values of their labels. Of two
    /// with the same labels the first counts: runs of other users say what they like, and figures
    /// that are there twice make a reader refuse all.
    pub(super) fn read(&self, all: &[(Vec<String>, &T)]) -> Vec<ReadFamily> {
        let named = |values: &[String]| -> MetricLabels {
            let names = self.labels.iter().map(|label| (*label).to_owned());
            names.zip(values.iter().cloned()).collect()
        };
        let mut seen = BTreeSet::new();
        let all: Vec<&(Vec<String>, &T)> =
            (all.iter().filter(|(values, _)| seen.insert(values))).collect();
        let of_row = |row: &FamilyRow<T>| ReadFamily {
            name: format!("{PREFIX}_{}", row.name),
            unit: match row.unit {
                MetricUnit::Things => None,
                MetricUnit::Seconds => Some(Unit::Seconds),
                MetricUnit::Bytes => Some(Unit::Bytes),
            },
            kind: row.kind,
            // The encoder adds the full stop.
            help: row.help.to_owned(),
            samples: (all.iter())
                .map(|(values, one)| (named(values), (row.value)(one)))
                .collect(),
        };
        // A family without figures is no news.
        let rows = self.rows.iter().filter(|_| !all.is_empty());
        rows.map(of_row).collect()
    }

    /// The name of each as it is asked for, its kind, its labels and its meaning.
    #[cfg(test)]
    pub(super) fn told(&self) -> Vec<[String; 4]> {
        let unit = |row: &FamilyRow<T>| match row.unit {
            MetricUnit::Things => "",
            MetricUnit::Seconds => "_seconds",
            MetricUnit::Bytes => "_bytes",
        };
        let kind = |row: &FamilyRow<T>| match row.kind {
            MetricKind::Counter => ("_total", "counter"),
            MetricKind::Gauge => ("", "gauge"),
            MetricKind::Histogram => ("", "histogram"),
            MetricKind::Info => ("_info", "info"),
        };
        let told = |row: &FamilyRow<T>| {
            let (suffix, kind) = kind(row);
            [
                format!("{PREFIX}_{}{}{suffix}", row.name, unit(row)),
                kind.to_owned(),
                self.labels.join(", "),
                row.help.to_owned(),
            ]
        };
        self.rows.iter().map(told).collect()
    }
}

/// Names and values.
type MetricLabels = Vec<(String, String)>;

/// A family with its figures.
#[derive(Debug)]
pub(super) struct ReadFamily {
    name: String,
    unit: Option<Unit>,
    kind: MetricKind,
    help: String,
    samples: Vec<(MetricLabels, MetricValue)>,
}

impl ReadFamily {
    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let kind = match self.kind {
            MetricKind::Counter => MetricType::Counter,
            MetricKind::Gauge => MetricType::Gauge,
            MetricKind::Histogram => MetricType::Histogram,
            MetricKind::Info => MetricType::Info,
        };
        let (name, help) = (&self.name, &self.help);
        let mut family = encoder.encode_descriptor(name, help, self.unit.as_ref(), kind)?;
        for (labels, value) in &self.samples {
            if self.kind == MetricKind::Info {
                family.encode_info(labels)?;
                continue;
            }
            let mut sample = family.encode_family(labels)?;
            match (value, self.kind) {
                (MetricValue::Count(count), MetricKind::Counter) => {
                    sample.encode_counter::<NoLabelSet, _, u64>(count, None)?;
                }
                (MetricValue::Real(real), MetricKind::Counter) => {
                    sample.encode_counter::<NoLabelSet, _, u64>(real, None)?;
                }
                (MetricValue::Count(count), _) => sample.encode_gauge(count)?,
                (MetricValue::Real(real), _) => sample.encode_gauge(real)?,
                (MetricValue::Durations(durations), _) => {
                    let buckets = buckets(durations);
                    let count = buckets.iter().map(|(_, count)| count).sum();
                    let sum = durations.sum_seconds;
                    sample.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
                }
            }
        }
        Ok(())
    }
}

/// Bounds and counts, each bound once, and the counts small enough for a sum of them: another
/// user's run may say anything.
fn buckets(durations: &DurationHistogram) -> Vec<(f64, u64)> {
    const MOST: u64 = u64::MAX / (DURATION_BOUNDS as u64 + 1);
    let at = 0..=DURATION_BOUNDS;
    at.map(|at| {
        let count = durations.counts.get(at).copied().unwrap_or(0);
        (DurationHistogram::bound_seconds(at), count.min(MOST))
    })
    .collect()
}

/// All families, to the encoder.
#[derive(Debug)]
struct ReadFamilies(Vec<ReadFamily>);

impl Collector for ReadFamilies {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        (self.0.iter()).try_for_each(|family| family.encode(&mut encoder))
    }
}

/// The text of families.
///
/// # Errors
/// A figure has no text: a part of the others would pass for all.
pub(super) fn text(families: Vec<ReadFamily>, format: MetricsFormat) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(ReadFamilies(families)));
    let mut text = String::new();
    match format {
        MetricsFormat::OpenMetrics => text::encode(&mut text, &registry),
        MetricsFormat::Prometheus => prometheus_text::encode(&mut text, &registry),
    }?;
    Ok(text)
}
