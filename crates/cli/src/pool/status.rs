//! `forebay pool status`.

use super::PoolArguments;
use crate::{failure::Failure, output, size};
use clap::Args;
use forebay_pool::{FORMAT_VERSION, LaneStatus, Pool, media::PoolPersistence};
use forebay_probe::table::Table;
use serde::Serialize;
use std::path::PathBuf;

/// Show a pool's medium, the losses it survives, and its users
#[derive(Args)]
#[command(
    long_about = "Shows a pool's medium, the losses it survives (a power cut, or a process crash only), its division, and the lanes that have an owner. Exit status 1 if \
    something in it is damaged.",
    after_long_help = "Example:\n  forebay pool status /mnt/pmem/forebay.pool"
)]
pub struct PoolStatus {
    #[command(flatten)]
    pool: PoolArguments,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

impl PoolStatus {
    pub fn run(self) -> Result<(), Failure> {
        let report = PoolReport::of(&self.pool.open()?);
        output::verdict(
            self.json,
            &report,
            report.damage.is_empty(),
            PoolReport::human,
        )
    }
}

/// A pool in figures and words.
#[derive(Serialize)]
pub struct PoolReport {
    #[serde(serialize_with = "forebay_files::readable")]
    path: PathBuf,
    uuid: String,
    format_version: u32,
    medium: String,
    survives: String,
    persistence: &'static str,
    survives_power_cut: bool,
    emulated: bool,
    bytes: u64,
    segment_bytes: u64,
    segments: u64,
    segments_free: Option<u64>,
    lanes: u32,
    owners: Vec<LaneOwner>,
    repaired: Vec<String>,
    damage: Vec<String>,
}

/// A lane that has an owner, or is damaged.
#[derive(Serialize)]
struct LaneOwner {
    lane: u32,
    owner: String,
    label: String,
    in_use: bool,
    head: u64,
    session: u32,
    segments: u32,
    damage: Option<String>,
}

impl From<LaneStatus> for LaneOwner {
    fn from(lane: LaneStatus) -> Self {
        Self {
            lane: lane.lane,
            owner: lane.owner.to_string(),
            label: lane.label,
            in_use: lane.in_use,
            head: lane.head,
            session: lane.epoch,
            segments: lane.segments,
            damage: lane.damage,
        }
    }
}

impl PoolReport {
    /// Looks at `pool`.
    pub fn of(pool: &Pool) -> Self {
        let geometry = pool.geometry();
        let owners: Vec<LaneOwner> = pool.lanes().into_iter().map(LaneOwner::from).collect();
        let free = pool.segments_free();
        let lanes_damaged = owners.iter().filter_map(|owner| {
            owner
                .damage
                .as_ref()
                .map(|what| format!("lane {}: {what}", owner.lane))
        });
        Self {
            path: pool.path().to_owned(),
            uuid: pool.uuid().to_string(),
            format_version: FORMAT_VERSION,
            medium: pool.describe(),
            survives: pool.durability().to_string(),
            persistence: pool.durability().name(),
            survives_power_cut: pool.durability() != PoolPersistence::ProcessCrash,
            emulated: pool.is_emulated(),
            bytes: geometry.pool_bytes,
            segment_bytes: geometry.segment_bytes,
            segments: geometry.segments,
            segments_free: free.as_ref().ok().copied(),
            lanes: geometry.lanes,
            repaired: pool.repaired().to_vec(),
            damage: lanes_damaged.chain(free.err()).collect(),
            owners,
        }
    }

    /// The same for people.
    pub fn human(&self) -> String {
        let mut text = output::fields(&[
            ("medium", self.medium.clone()),
            ("what is in it", self.survives.clone()),
            ("size", size::show(self.bytes)),
            (
                "segments",
                format!(
                    "{} of {}, {} free",
                    self.segments,
                    size::show(self.segment_bytes),
                    self.segments_free
                        .map_or_else(|| "an unknown number".to_owned(), |free| free.to_string())
                ),
            ),
            (
                "lanes",
                format!("{}, {} with an owner", self.lanes, self.owners.len()),
            ),
            (
                "uuid",
                format!("{} (format version {})", self.uuid, self.format_version),
            ),
        ]);
        if !self.owners.is_empty() {
            let mut table = Table::new(&[
                "lane",
                "owner",
                "in use",
                "segments",
                "drained to",
                "session",
                "label",
            ]);
            for owner in &self.owners {
                table.row(vec![
                    owner.lane.to_string(),
                    owner.owner.clone(),
                    if owner.in_use { "yes" } else { "no" }.to_owned(),
                    owner.segments.to_string(),
                    owner.head.to_string(),
                    owner.session.to_string(),
                    owner.label.clone(),
                ]);
            }
            text.push('\n');
            text.push_str(&table.render());
        }
        for what in &self.repaired {
            text.push_str(&format!("repaired: {what}\n"));
        }
        for what in &self.damage {
            text.push_str(&format!("DAMAGED: {what}\n"));
        }
        text
    }
}
