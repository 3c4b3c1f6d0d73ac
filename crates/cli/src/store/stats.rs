//! `forebay store stats`.

use super::opening::{InUse, ReadArguments};
use crate::{
    failure::Failure,
    metrics::{MetricsSnapshot, TextFile},
    output::{self, fields},
    size,
};
use clap::Args;
use forebay_store::{Stats, ValueSample};
use serde::Serialize;

/// Print a store's sizes and counts
#[derive(Args)]
#[command(
    long_about = "Prints a store's sizes and counts. With --read-only beside a process that has the store open, what only \
                  that process knows is zero: its writes and their waits, and what its collector did.",
    after_long_help = "Example:\n  forebay store stats --dir s --pool /mnt/pmem/p"
)]
pub struct StatsCommand {
    #[command(flatten)]
    opening: ReadArguments,
    /// Report as JSON, with every figure there is
    #[arg(long)]
    json: bool,
    /// Write figures into this file, PATH.prom, for node_exporter's textfile collector
    ///
    /// In one step, so that a reader finds no part of them; and report nothing else.
    #[arg(long, value_name = "PATH", value_parser = TextFile::parse, conflicts_with = "json")]
    textfile: Option<TextFile>,
}

impl StatsCommand {
    pub fn run(self) -> Result<(), Failure> {
        let opened = self.opening.open(InUse::Refuse)?;
        let stats = opened.stats();
        let value_sample = opened.sample_values()?;
        opened.close()?;
        if let Some(textfile) = &self.textfile {
            let dir = self.opening.directory().display().to_string();
            return textfile.write(&MetricsSnapshot {
                stores: vec![(dir, stats)],
                ..MetricsSnapshot::default()
            });
        }
        let report = StatsReport {
            stats,
            value_sample,
        };
        output::report(self.json, &report, human)
    }
}

#[derive(Serialize)]
struct StatsReport {
    #[serde(flatten)]
    stats: Stats,
    /// A reader does not look at values.
    #[serde(skip_serializing_if = "Option::is_none")]
    value_sample: Option<ValueSample>,
}

/// The gain of compression, by the values that were looked at.
fn gained(sample: Option<&ValueSample>) -> String {
    let Some(sample) = sample else {
        return "not looked at with --read-only".to_owned();
    };
    match sample.compressed {
        0 => "no value that was looked at is compressed".to_owned(),
        compressed => format!(
            "{:.2} times smaller; {compressed} of {} values that were looked at are compressed",
            sample.raw_bytes as f64 / sample.stored_bytes.max(1) as f64,
            sample.values
        ),
    }
}

fn human(report: &StatsReport) -> String {
    let stats = &report.stats;
    let mut text = fields(&[
        ("durability", stats.durability.clone()),
        ("an acknowledged write", stats.survives.clone()),
        (
            "value log",
            format!(
                "{} in {} files",
                size::show(stats.value_log_bytes),
                stats.value_log_files
            ),
        ),
        (
            "large values",
            format!(
                "{} in {} files",
                size::show(stats.large_value_bytes),
                stats.large_value_files
            ),
        ),
        ("compression", gained(report.value_sample.as_ref())),
        (
            "dictionaries",
            format!(
                "{}, {}",
                stats.dictionaries,
                size::show(stats.dictionary_bytes)
            ),
        ),
        (
            "garbage, estimated",
            format!(
                "{}, space amplification {:.2}",
                size::show(stats.garbage_bytes),
                stats.space_amplification
            ),
        ),
        (
            "log",
            format!(
                "{} written, drained to {}, indexed to {}",
                stats.log_tail, stats.log_drained, stats.log_indexed
            ),
        ),
        (
            "memtable",
            format!(
                "{} keys in {}",
                stats.memtable_keys,
                size::show(stats.memtable_bytes)
            ),
        ),
        ("memory at most", size::show(stats.memory_bytes_max)),
    ]);
    text.push_str(&keyspaces(stats));
    for aside in &stats.set_aside {
        text.push_str(&format!(
            "NOT COLLECTED: {} ({}): {}\n",
            aside.file,
            size::show(aside.bytes),
            aside.reason
        ));
    }
    for leftover in &stats.leftovers {
        text.push_str(&format!("LEFT OVER: {leftover}\n"));
    }
    if let Some(trouble) = &stats.trouble {
        text.push_str(&format!("TROUBLE: {trouble}\n"));
    }
    text
}

fn keyspaces(stats: &forebay_store::Stats) -> String {
    let mut text = String::new();
    for keyspace in &stats.keyspaces {
        let expires = (keyspace.ttl).map_or(String::new(), |ttl| {
            format!(", whose values expire after {ttl:?}")
        });
        let name = keyspace.name.escape_debug();
        text.push_str(&format!("keyspace \"{name}\"{expires}\n"));
    }
    if stats.dropped_keyspaces > 0 {
        let dropped = stats.dropped_keyspaces;
        text.push_str(&format!(
            "dropped and being cleared away: {dropped} keyspaces\n"
        ));
    }
    text
}
