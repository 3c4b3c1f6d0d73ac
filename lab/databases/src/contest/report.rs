//! The one report of the benchmarks of databases: rows of cells and contenders, ratios, and a
//! table.

use super::{Behind, Contender, Sample, Setup};
use crate::{
    disk::{self, Speed},
    rounds::{Percentiles, Span, median, median_round, span},
    table::{self, Table, figure, min_max, notes, object},
    units::bytes_name,
};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::{
    collections::BTreeMap,
    fmt::{self, Write},
    fs,
};

/// A whole run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// `redis`, `rocksdb`, `mariadb`, `postgres`, `sqlite`, `etcd`, `nats`.
    pub bench: &'static str,
    /// What an operation is called.
    #[serde(skip)]
    pub unit: &'static str,
    /// The device under the databases, measured in this run.
    pub device: Speed,
    /// The emulated device that the data is on, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub emulated: Option<String>,
    /// The rows.
    pub rows: Vec<Row>,
    /// What was not installed.
    pub missing: Vec<Missing>,
    /// Ratios of operations a second that the rows give: `forebay_over_everysec_redis_32_50`, and
    /// so on. Of p99 with `p99_` before it.
    pub ratios: BTreeMap<String, f64>,
    /// Settings that the rows do not show.
    pub settings: Map<String, Value>,
    /// What to know when reading the figures.
    pub notes: Vec<String>,
}

/// What was not measured.
#[derive(Clone, Debug, Serialize)]
pub struct Missing {
    /// A server, or a mode.
    pub name: String,
    /// Why, and the remedy.
    pub error: String,
}

/// What all contenders are measured at: the columns of a row that say so, and how a ratio's name
/// ends.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Cell {
    columns: Map<String, Value>,
    #[serde(skip)]
    tag: String,
}

impl Cell {
    /// A cell of these columns, an object.
    #[must_use]
    pub fn new(tag: String, columns: Value) -> Self {
        Self {
            columns: object(columns),
            tag,
        }
    }

    /// A number of the cell.
    #[must_use]
    pub fn number(&self, column: &str) -> Option<u64> {
        self.columns.get(column)?.as_u64()
    }

    /// Whether something is so in the cell.
    #[must_use]
    pub fn is(&self, column: &str) -> bool {
        self.columns.get(column).is_some_and(|value| *value == true)
    }
}

/// The columns in words, as progress has them: `1 clients, 32 value bytes`.
impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self.columns.iter().filter_map(|(name, value)| {
            let name = name.replace('_', " ");
            match value {
                Value::Bool(is) => is.then_some(name),
                Value::String(text) => Some(text.clone()),
                value => Some(format!("{value} {name}")),
            }
        });
        f.write_str(&words.collect::<Vec<_>>().join(", "))
    }
}

/// A contender in a cell. Each figure is the median of the rounds by itself.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// At what.
    #[serde(flatten)]
    pub cell: Cell,
    /// Who.
    #[serde(rename = "mode")]
    pub contender: Contender,
    /// Bytes of its pool, where that is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool_bytes: Option<u64>,
    /// Operations a second.
    pub ops_per_s: f64,
    /// Latency of an operation.
    #[serde(flatten)]
    pub latency: Percentiles,
    /// What else the benchmark has of it, in the round of the median rate.
    #[serde(flatten)]
    pub more: Map<String, Value>,
    /// Operations a second, slowest and fastest round.
    pub ops_per_s_span: Span,
    /// p99, smallest and largest.
    pub p99_us_span: Span,
    /// The rounds themselves.
    #[serde(skip)]
    pub rounds: Vec<Sample>,
}

/// A contender with its pool's size where that is asked for: `forebay 16 MiB`.
pub(super) fn name(contender: &Contender) -> String {
    match contender.pool_bytes {
        Some(bytes) => format!("{contender} {}", bytes_name(bytes)),
        None => contender.to_string(),
    }
}

impl Row {
    /// The contender, with its pool's size where that is asked for.
    #[must_use]
    pub fn name(&self) -> String {
        name(&self.contender)
    }
}

impl Report {
    pub(super) fn new(
        bench: &'static str,
        unit: &'static str,
        setup: &Setup,
        device: Speed,
    ) -> Self {
        let mut notes = vec![
            "each figure is the median of the rounds by itself; database, load and supervisor share the processors".to_owned(),
        ];
        notes.extend(setup.pools.source.note());
        notes.extend(disk::note(&device));
        if fs::read_to_string("/proc/sys/vm/overcommit_memory").is_ok_and(|it| it.trim() == "2") {
            notes.push("vm.overcommit_memory is 2: a fork may fail for want of memory".to_owned());
        }
        let settings = json!({
            "rounds": setup.rounds,
            "lane_segments": setup.pools.lane_segments,
            "segment_bytes": setup.pools.segment_bytes,
            "pool": setup.pools.source.to_string(),
            "pool_disks": setup.pools.disks,
            "processors": std::thread::available_parallelism().map_or(1, usize::from),
        });
        Self {
            bench,
            unit,
            device,
            emulated: setup.device.clone(),
            rows: Vec::new(),
            missing: Vec::new(),
            ratios: BTreeMap::new(),
            settings: object(settings),
            notes,
        }
    }

    /// Adds settings, an object, and what to know when reading the figures.
    pub fn tell(&mut self, settings: Value, note: &str) {
        self.settings.extend(object(settings));
        self.notes.push(note.to_owned());
    }

    /// Says that something was not measured.
    pub fn missing(&mut self, name: &str, error: &str) {
        self.missing.push(Missing {
            name: name.to_owned(),
            error: error.to_owned(),
        });
    }

    /// Adds the row of a contender's rounds.
    pub(super) fn add(&mut self, cell: &Cell, contender: Contender, rounds: Vec<Sample>) {
        let all = |figure: &dyn Fn(&Sample) -> Option<f64>| -> Vec<f64> {
            rounds.iter().filter_map(figure).collect()
        };
        let latency = |figure: fn(&Percentiles) -> Option<f64>| {
            let known = all(&|sample| figure(&sample.latency));
            (!known.is_empty()).then(|| median(&known))
        };
        let rates = all(&|sample| Some(sample.ops_per_s));
        let (latency, p99_us_span) = (
            Percentiles {
                p50_us: latency(|it| it.p50_us),
                p99_us: latency(|it| it.p99_us),
                p999_us: latency(|it| it.p999_us),
                max_us: latency(|it| it.max_us),
            },
            span(&all(&|sample| sample.latency.p99_us)),
        );
        let Some(middle) = median_round(rounds.clone(), |sample| sample.ops_per_s) else {
            return;
        };
        self.rows.push(Row {
            cell: cell.clone(),
            contender,
            pool_bytes: contender.pool_bytes,
            ops_per_s: median(&rates),
            latency,
            more: middle.more,
            ops_per_s_span: span(&rates),
            p99_us_span,
            rounds,
        });
    }

    /// Pairs of our rows and the others' of the same cell.
    fn pairs(&self) -> impl Iterator<Item = (&Row, &Row)> {
        let ours = self.rows.iter().filter(|row| row.contender.is_ours());
        ours.flat_map(|ours| {
            let others = self.rows.iter().filter(|row| !row.contender.is_ours());
            let same = others.filter(|other| other.cell == ours.cell);
            same.map(move |other| (ours, other))
        })
    }

    pub(super) fn finish(&mut self) {
        let mut ratios = BTreeMap::new();
        for (ours, other) in self.pairs() {
            let name = format!(
                "{}_over_{}_{}",
                ours.name().replace(' ', "_"),
                other.contender,
                ours.cell.tag
            );
            if let (Some(ours), Some(other)) = (ours.latency.p99_us, other.latency.p99_us) {
                ratios.insert(format!("p99_{name}"), ours / other);
            }
            ratios.insert(name, ours.ops_per_s / other.ops_per_s);
        }
        self.ratios = ratios;
    }

    /// The report for people.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = table::disk(&self.device);
        if let Some(profile) = &self.emulated {
            let _ = writeln!(text, "the data is on an emulated {profile}");
        }
        for (name, value) in &self.settings {
            if *value != json!([]) {
                let text_of = |value: &Value| value.as_str().map(str::to_owned);
                let shown = text_of(value).unwrap_or_else(|| value.to_string());
                let _ = write!(text, "{} {shown}; ", name.replace('_', " "));
            }
        }
        let _ = writeln!(text, "medians of the rounds\n\n{}", self.rows_table());
        for missing in &self.missing {
            let _ = writeln!(text, "{}: {}", missing.name, missing.error);
        }
        text + &notes(&self.notes)
    }

    fn rows_table(&self) -> String {
        let cell_columns: Vec<&String> = match self.rows.first() {
            Some(row) => row.cell.columns.keys().collect(),
            None => Vec::new(),
        };
        let mut ours: Vec<String> = Vec::new();
        for row in self.rows.iter().filter(|row| row.contender.is_ours()) {
            if !ours.contains(&row.name()) {
                ours.push(row.name());
            }
        }
        let rate = format!("{}/s", self.unit);
        let mut head = vec!["mode".to_owned()];
        head.extend(cell_columns.iter().map(|name| name.replace('_', " ")));
        head.extend([&*rate, "p50 µs", "p99 µs", "p99.9 µs", "max µs"].map(str::to_owned));
        head.extend(ours.iter().map(|name| format!("{name} is x")));
        head.extend(["pool MiB", "waits"].map(str::to_owned));
        head.extend([
            format!("min-max {rate}"),
            "what is acknowledged survives".to_owned(),
        ]);
        let mut table = Table::new(&head);
        for row in &self.rows {
            let latency = row.latency;
            let mut cells = vec![row.name()];
            cells.extend(
                cell_columns
                    .iter()
                    .map(|name| match row.cell.columns.get(*name) {
                        Some(Value::String(text)) => text.clone(),
                        Some(value) => value.to_string(),
                        None => String::new(),
                    }),
            );
            cells.push(figure(Some(row.ops_per_s)));
            let percentiles = [
                latency.p50_us,
                latency.p99_us,
                latency.p999_us,
                latency.max_us,
            ];
            cells.extend(percentiles.map(figure));
            cells.extend(ours.iter().map(|name| {
                let mut pairs = self.pairs();
                let pair =
                    pairs.find(|(ours, other)| ours.name() == *name && std::ptr::eq(*other, row));
                figure(pair.map(|(ours, other)| ours.ops_per_s / other.ops_per_s))
            }));
            let nvm = row.more.get("nvm_bytes_peak").and_then(Value::as_f64);
            cells.push(figure(nvm.map(|bytes| bytes / f64::from(1 << 20))));
            let behind = row
                .more
                .get("behind")
                .and_then(|behind| behind.get("waits"));
            cells.push(behind.map_or_else(|| "-".to_owned(), Value::to_string));
            cells.push(min_max(Some(row.ops_per_s_span)));
            cells.push(row.contender.durability().to_owned());
            table.row(cells);
        }
        table.render()
    }
}

/// What a row says of a pool: the bytes of it, and what the supervisor did.
#[must_use]
pub(crate) fn of_pool(nvm_bytes: Option<u64>, behind: Option<Behind>) -> Map<String, Value> {
    match behind {
        Some(behind) => object(json!({"nvm_bytes_peak": nvm_bytes, "behind": behind})),
        None => object(json!({"nvm_bytes_peak": nvm_bytes})),
    }
}
