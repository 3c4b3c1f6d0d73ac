//! P5: benchmarks that run as processes of this program, and whose JSON becomes rows.

use super::{Lab, Measured, Row};
use crate::{BenchError, place::Place, processes, units::bytes_name};
use serde_json::Value;
use std::process::Command;

/// A benchmark of this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bench {
    /// `forebay bench device`.
    Device,
    /// `forebay bench fam`.
    Fam,
}

impl Bench {
    fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Fam => "fam",
        }
    }

    /// Panels that its rows are in.
    fn panels(self) -> &'static [&'static str] {
        match self {
            Self::Device => &["time", "deviation"],
            Self::Fam => &[
                "sequential_put",
                "random_put",
                "random_put_sync",
                "sequential_get",
                "random_get",
            ],
        }
    }

    fn rows(self, report: &Value) -> Vec<Row> {
        let rows = report["rows"].as_array().map_or(&[][..], Vec::as_slice);
        match self {
            Self::Device => rows.iter().filter_map(device_rows).flatten().collect(),
            Self::Fam => rows.iter().filter_map(fam_row).collect(),
        }
    }
}

/// Runs it; a build without it, or rows that are not understood, are rows that say so.
pub(super) fn run(bench: Bench, lab: &Lab<'_>) -> Result<Measured, BenchError> {
    let name = bench.name();
    let mut measured = Measured::default();
    let missing = |why: &str| {
        let row = |panel: &&str| Row::missing(panel, Place::Here.name(), name, "", why);
        bench.panels().iter().map(row).collect::<Vec<_>>()
    };
    let start = |arguments: &[&str]| {
        processes::output(
            Command::new(lab.forebay)
                .args(["bench", name])
                .args(arguments),
        )
    };
    if !start(&["--help"])?.status.success() {
        measured.rows = missing(&format!(
            "not measured: this build of forebay has no forebay bench {name}"
        ));
        return Ok(measured);
    }
    lab.note(&format!("forebay bench {name}"));
    let said = start(
        lab.size
            .pick(&["--json", "--quick"], &["--json", "--quick"], &["--json"]),
    )?;
    if !said.status.success() {
        return Err(BenchError::Child(format!(
            "forebay bench {name} ended with {}: {}",
            said.status,
            String::from_utf8_lossy(&said.stderr).trim()
        )));
    }
    let report: Value = serde_json::from_slice(&said.stdout).unwrap_or_default();
    measured.rows = bench.rows(&report);
    if measured.rows.is_empty() {
        measured.rows = missing(&format!(
            "not measured: forebay bench {name} reported no rows that are known here"
        ));
    }
    for missing in report["missing"].as_array().into_iter().flatten() {
        if let (Some(series), Some(why)) = (missing["store"].as_str(), missing["error"].as_str()) {
            let row = |panel: &&str| Row::missing(panel, Place::Here.name(), series, "", why);
            measured.rows.extend(bench.panels().iter().map(row));
        }
    }
    for note in report["notes"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
    {
        measured.note(&[], note);
    }
    Ok(measured)
}

/// `{profile, bytes, sequential, write, measured_us, profile_us}`.
fn device_rows(row: &Value) -> Option<[Row; 2]> {
    let access = if row["write"].as_bool()? {
        "write"
    } else {
        "read"
    };
    let order = if row["sequential"].as_bool()? {
        "sequential"
    } else {
        "random"
    };
    let x = format!("{access} {}, {order}", bytes_name(row["bytes"].as_u64()?));
    let measured_us = row["measured_us"].as_f64()?;
    let ratio = measured_us / row["profile_us"].as_f64()?;
    let series = row["profile"].as_str()?;
    let here = |panel, figure| Row::of(panel, Place::Here.name(), series, &x, &[figure]);
    Some([here("time", measured_us), here("deviation", ratio)])
}

/// `{store, policy, workload, pair_bytes, us_per_op, us_per_op_span}`.
fn fam_row(row: &Value) -> Option<Row> {
    let series = format!("{} {}", row["store"].as_str()?, row["policy"].as_str()?);
    let x = bytes_name(row["pair_bytes"].as_u64()?);
    let us = row["us_per_op"].as_f64()?;
    let span = serde_json::from_value(row["us_per_op_span"].clone()).ok()?;
    let panel = row["workload"].as_str()?;
    Some(Row::spanned(
        panel,
        Place::Here.name(),
        &series,
        &x,
        us,
        span,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rows_of_the_device_benchmark_are_understood() {
        let report = json!({"rows": [{"profile": "gen-z-uc", "bytes": 4096, "sequential": false, "write": true, "calls": 9,
            "profile_us": 25.0, "measured_us": 26.0}]});
        let rows = Bench::Device.rows(&report);
        let expected = |panel, figure| {
            let x = "write 4 KiB, random";
            Row::of(panel, "this disk", "gen-z-uc", x, &[figure])
        };
        assert_eq!(rows, [expected("time", 26.0), expected("deviation", 1.04)]);
    }

    #[test]
    fn rows_of_the_memory_benchmark_are_understood() {
        let report = json!({"rows": [{"store": "leveldb", "policy": "wt", "workload": "random_get", "pair_bytes": 16384, "ops": 10,
            "us_per_op": 2.5, "us_per_op_span": {"min": 2.0, "max": 3.0}}, {"store": "of another version"}]});
        let rows = Bench::Fam.rows(&report);
        let span = crate::rounds::Span { min: 2.0, max: 3.0 };
        assert_eq!(
            rows,
            [Row::spanned(
                "random_get",
                "this disk",
                "leveldb wt",
                "16 KiB",
                2.5,
                span
            )]
        );
        assert!(Bench::Fam.panels().contains(&"random_get"));
    }
}
