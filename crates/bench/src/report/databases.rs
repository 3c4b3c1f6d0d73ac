//! The reports of `forebay bench redis`, `rocksdb`, `postgres` and `mariadb`.

use super::{Table, device, figure, grouped, min_max};
use crate::{redis, rocksdb, sql};
use std::fmt::{Display, Write};

/// The report of `forebay bench redis`.
#[must_use]
pub fn redis(report: &redis::Report) -> String {
    let mut text = device(&report.device);
    let settings = &report.settings;
    let _ = writeln!(
        text,
        "pool: {}, {} buffers of {} MiB; medians of {} rounds; {} processors\n",
        settings.pool,
        settings.buffers,
        settings.buffer_bytes >> 20,
        settings.rounds,
        settings.processors
    );
    let mut table = Table::new(&[
        "server",
        "bytes",
        "clients",
        "mode",
        "SETs/s",
        "p50 µs",
        "p99 µs",
        "max µs",
        "forebay is x",
        "pool MiB",
        "waits",
        "min-max SETs/s",
        "a SET survives",
    ]);
    for row in &report.rows {
        let ours = report
            .rows
            .iter()
            .find(|other| other.mode == redis::Mode::Forebay && other.is_comparable(row))
            .filter(|_| row.mode != redis::Mode::Forebay);
        table.row(vec![
            match row.during_rewrite {
                true => format!("{} rewriting", row.server),
                false => row.server.to_string(),
            },
            grouped(row.value_bytes as i64),
            row.clients.to_string(),
            row.name(),
            figure(Some(row.ops_per_s)),
            figure(Some(row.p50_us)),
            figure(Some(row.p99_us)),
            figure(Some(row.max_us)),
            figure(ours.map(|ours| ours.ops_per_s / row.ops_per_s)),
            figure(
                row.nvm_bytes_peak
                    .map(|bytes| bytes as f64 / f64::from(1 << 20)),
            ),
            row.behind
                .map_or_else(|| "-".to_owned(), |behind| behind.waits.to_string()),
            min_max(row.ops_per_s_span),
            row.mode.survives().to_owned(),
        ]);
    }
    text.push_str(&table.render());
    for missing in &report.missing {
        let _ = writeln!(text, "{}: {}", missing.name, missing.error);
    }
    for note in &report.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

/// The report of a benchmark of an SQL server: `forebay bench mariadb`, `forebay bench postgres`.
#[must_use]
pub fn sql<S: Copy + Display>(report: &sql::Report<S>) -> String {
    let mut text = device(&report.device);
    let settings = &report.settings;
    if let Some(profile) = &report.emulated {
        let _ = writeln!(text, "the data directory is on an emulated {profile}");
    }
    let _ = writeln!(
        text,
        "pool: {}, {} buffers of {} MiB; {}; medians of {} rounds of {} s; {} processors\n",
        settings.pool,
        settings.buffers,
        settings.buffer_bytes >> 20,
        settings.size,
        settings.rounds,
        settings.seconds,
        settings.processors
    );
    let mut table = Table::new(&[
        "clients",
        "mode",
        "transactions/s",
        "p50 µs",
        "p99 µs",
        "forebay is x",
        "min-max transactions/s",
        "a transaction survives",
    ]);
    for row in &report.rows {
        let ours = report.ours_beside(row);
        table.row(vec![
            row.clients.to_string(),
            row.mode.to_string(),
            figure(Some(row.ops_per_s)),
            figure(Some(row.p50_us)),
            figure(Some(row.p99_us)),
            figure(ours.map(|ours| ours.ops_per_s / row.ops_per_s)),
            min_max(row.ops_per_s_span),
            row.mode.survives().to_owned(),
        ]);
    }
    text.push_str(&table.render());
    for missing in &report.missing {
        let _ = writeln!(text, "{missing}");
    }
    for note in &report.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

/// The report of `forebay bench rocksdb`.
#[must_use]
pub fn rocksdb(report: &rocksdb::Report) -> String {
    let mut text = device(&report.device);
    let _ = writeln!(
        text,
        "fillrandom of db_bench; medians of {} rounds\n",
        report.rounds
    );
    let mut table = Table::new(&[
        "mode",
        "bytes",
        "threads",
        "log on",
        "Puts/s",
        "p50 µs",
        "p99 µs",
        "p99.9 µs",
        "max µs",
        "forebay is x",
        "pool MiB",
        "min-max Puts/s",
        "a Put survives",
    ]);
    for row in &report.rows {
        let ratio = report.ratios.get(&row.ratio_name());
        table.row(vec![
            row.mode.to_string(),
            grouped(row.value_bytes as i64),
            row.threads.to_string(),
            row.wal_device.clone().unwrap_or_else(|| "this disk".into()),
            figure(Some(row.ops_per_s)),
            figure(row.latency.p50_us),
            figure(row.latency.p99_us),
            figure(row.latency.p999_us),
            figure(row.latency.max_us),
            figure(ratio.copied()),
            figure(
                row.nvm_bytes_peak
                    .map(|bytes| bytes as f64 / f64::from(1 << 20)),
            ),
            min_max(row.ops_per_s_span),
            row.mode.survives().to_owned(),
        ]);
    }
    text.push_str(&table.render());
    for note in &report.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}
