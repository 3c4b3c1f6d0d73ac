//! `forebay pool check`.

use super::PoolArguments;
use crate::{failure::Failure, output};
use clap::Args;
use forebay_pool::{LaneCheck, Pool};
use serde::Serialize;
use std::path::PathBuf;

/// Walk the log of every lane and report damage
#[derive(Args)]
#[command(
    long_about = "Walks the log of every lane and checks every record in it, without changing anything. The log of \
                  a lane that a process has open is moving, and is skipped. Exit status 1 if anything is damaged.",
    after_long_help = "Example:\n  forebay pool check /mnt/pmem/forebay.pool"
)]
pub struct Check {
    #[command(flatten)]
    pool: PoolArguments,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct CheckReport {
    #[serde(serialize_with = "forebay_files::readable")]
    path: PathBuf,
    whole: bool,
    lanes: Vec<CheckedLane>,
    repaired: Vec<String>,
    damage: Vec<String>,
}

#[derive(Serialize)]
struct CheckedLane {
    lane: u32,
    label: String,
    state: &'static str,
    records: Option<u64>,
    payload_bytes: Option<u64>,
    damage: Option<String>,
}

impl Check {
    pub fn run(self) -> Result<(), Failure> {
        let pool = self.pool.open()?;
        let lanes: Vec<CheckedLane> = pool
            .lanes()
            .into_iter()
            .map(|lane| walk(&pool, lane.lane, lane.label))
            .collect();
        let damage: Vec<String> = pool.segments_free().err().into_iter().collect();
        let report = CheckReport {
            path: self.pool.path,
            whole: damage.is_empty() && lanes.iter().all(|lane| lane.damage.is_none()),
            lanes,
            repaired: pool.repaired().to_vec(),
            damage,
        };
        output::verdict(self.json, &report, report.whole, human)
    }
}

fn walk(pool: &Pool, lane: u32, label: String) -> CheckedLane {
    let mut report = CheckedLane {
        lane,
        label,
        state: "whole",
        records: None,
        payload_bytes: None,
        damage: None,
    };
    match pool.check_lane(lane) {
        LaneCheck::Whole {
            records,
            payload_bytes,
        } => {
            report.records = Some(records);
            report.payload_bytes = Some(payload_bytes);
        }
        LaneCheck::InUse => report.state = "in use",
        LaneCheck::Damaged(error) => {
            report.state = "damaged";
            report.damage = Some(error.to_string());
        }
    }
    report
}

fn human(report: &CheckReport) -> String {
    let mut text = String::new();
    for lane in &report.lanes {
        let found = match (&lane.damage, lane.records, lane.payload_bytes) {
            (Some(damage), ..) => format!("DAMAGED: {damage}"),
            (None, Some(records), Some(bytes)) => {
                format!("whole, {records} records with {bytes} bytes to drain")
            }
            _ => "in use by a process, not walked".to_owned(),
        };
        text.push_str(&format!("lane {} ({}): {found}\n", lane.lane, lane.label));
    }
    for what in &report.repaired {
        text.push_str(&format!("repaired: {what}\n"));
    }
    for what in &report.damage {
        text.push_str(&format!("DAMAGED: {what}\n"));
    }
    text.push_str(&match report.whole {
        true => format!("{}: no damage found\n", report.path.display()),
        false => format!("{}: damaged\n", report.path.display()),
    });
    text
}
