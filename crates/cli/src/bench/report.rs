//! What a database gave in its turns, for users: a row for each mode, by its median round.

use crate::{failure::Failure, output};
use forebay_databases::contest::{self, Contender, Setup, Syncs};
use forebay_measure::{
    MeasureError,
    disk::Speed,
    rounds::{Span, median_round},
    scratch::ScratchPool,
    table::{self, Table, figure},
};
use serde::Serialize;
use std::{collections::BTreeMap, path::PathBuf};

/// What was measured.
#[derive(Serialize)]
pub struct Report {
    bench: &'static str,
    load: String,
    #[serde(serialize_with = "forebay_files::readable")]
    dir: PathBuf,
    device: Speed,
    rounds: usize,
    rows: Vec<Row>,
    ratios: BTreeMap<String, f64>,
    notes: Vec<String>,
    #[serde(skip)]
    counted: &'static str,
}

/// A mode, by its median round.
#[derive(Serialize)]
struct Row {
    mode: String,
    /// Where its pool is.
    pool: Option<String>,
    /// What an acknowledged write survives.
    survives: String,
    ops_per_s: f64,
    ops_per_s_span: Span,
    mean_us: Option<f64>,
    p99_us: Option<f64>,
}

impl Report {
    /// Of `measured` in a contest of `setup`. `load`: in words.
    pub fn of(load: String, setup: &Setup, measured: contest::Report) -> Result<Self, Failure> {
        let rows = measured.rows.into_iter();
        let rows: Vec<Row> = rows
            .filter_map(|row| Row::of(setup, row).transpose())
            .collect::<Result<_, _>>()?;
        let plain = rows.first().map_or(f64::NAN, |row| row.ops_per_s);
        let ratios = rows
            .iter()
            .skip(1)
            .map(|row| (format!("{}_over_plain", row.mode), row.ops_per_s / plain))
            .collect();
        Ok(Self {
            bench: measured.bench,
            load,
            dir: setup.dir.clone(),
            device: measured.device,
            rounds: setup.rounds,
            rows,
            ratios,
            notes: setup.pools.source.note().into_iter().collect(),
            counted: measured.unit,
        })
    }

    /// As a table.
    pub fn human(&self) -> String {
        let counted = format!("{}/s", self.counted);
        let mut table = Table::new(&[
            self.bench, &counted, "min-max", "mean µs", "p99 µs", "x plain",
        ]);
        let mut survives = String::new();
        for row in &self.rows {
            let name = match &row.pool {
                Some(pool) => format!("forebay run, pool {pool}"),
                None => row.mode.clone(),
            };
            survives.push_str(&format!("{name}: {}\n", row.survives));
            let ratio = self.ratios.get(&format!("{}_over_plain", row.mode));
            let span = row.ops_per_s_span;
            table.row(vec![
                name,
                figure(Some(row.ops_per_s)),
                format!("{}-{}", figure(Some(span.min)), figure(Some(span.max))),
                figure(row.mean_us),
                figure(row.p99_us),
                figure(ratio.copied()),
            ]);
        }
        let text = format!(
            "{}{}; medians of {}\n\n{}\n{survives}",
            table::disk(&self.device),
            self.load,
            number(self.rounds, "round"),
            table.render()
        );
        text + &table::notes(&self.notes)
    }

    /// Prints it.
    pub fn print(&self, json: bool) -> Result<(), Failure> {
        output::report(json, self, Self::human)
    }
}

/// `1 round`, `3 rounds`.
pub fn number(of: usize, what: &str) -> String {
    match of {
        1 => format!("1 {what}"),
        _ => format!("{of} {what}s"),
    }
}

impl Row {
    /// Nothing of a row without rounds.
    fn of(setup: &Setup, row: contest::Row) -> Result<Option<Self>, Failure> {
        let Some(median) = median_round(row.rounds, |round| round.ops_per_s) else {
            return Ok(None);
        };
        let contender = row.contender;
        let pool = contender
            .is_ours()
            .then(|| setup.pools.source_of(&contender).to_string());
        Ok(Some(Self {
            mode: contender.to_string(),
            pool,
            survives: survives(setup, &contender)?,
            ops_per_s: median.ops_per_s,
            ops_per_s_span: row.ops_per_s_span,
            mean_us: median.mean_us,
            p99_us: median.latency.p99_us,
        }))
    }
}

/// What survives of what a contender acknowledges: under Forebay, what its pool says.
fn survives(setup: &Setup, contender: &Contender) -> Result<String, MeasureError> {
    Ok(match contender.mode.syncs {
        Syncs::Forebay => {
            let source = setup.pools.source_of(contender);
            let pool = ScratchPool::new(&source, 1, setup.pools.buffer_bytes)?;
            pool.pool().durability().to_string()
        }
        Syncs::Eaten => "survives a process crash, not a power cut: fsync does nothing".to_owned(),
        Syncs::Disk | Syncs::Memory => {
            "survives a power cut, if the disk keeps what it says it has".to_owned()
        }
    })
}
