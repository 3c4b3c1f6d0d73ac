//! The doctor's findings, for people and for programs.

use super::{candidates, legs, persistent_memory};
use crate::{output::fields, size};
use forebay_probe::disk::{FileSystem, Speed};
use serde::Serialize;
use std::path::{Path, PathBuf};

#[derive(Serialize)]
pub struct DoctorReport {
    pub kernel: String,
    pub architecture: &'static str,
    pub processors: usize,
    pub memory_bytes: Option<u64>,
    pub instructions: PersistInstructions,
    pub persistent_memory: persistent_memory::PersistentMemory,
    pub directory: CheckedDirectory,
    /// Places for a pool on a disk.
    pub disks: candidates::PoolCandidates,
    /// A pool in other machines' memory.
    pub legs: Option<legs::LegsFound>,
    pub advice: Vec<String>,
}

#[derive(Serialize)]
pub struct PersistInstructions {
    pub copy: &'static str,
    pub flush: &'static str,
}

#[derive(Serialize)]
pub struct CheckedDirectory {
    #[serde(serialize_with = "forebay_files::readable")]
    pub path: PathBuf,
    pub file_system: Option<FileSystem>,
    pub dax: bool,
    pub in_memory: bool,
    pub free_bytes: Option<u64>,
    pub device: Option<Speed>,
    pub trouble: Option<String>,
}

/// In words.
pub fn human(report: &DoctorReport) -> String {
    let directory = &report.directory;
    let pm = &report.persistent_memory;
    let mut text = fields(&[
        (
            "machine",
            format!(
                "Linux {}, {}, {} processors, {} of memory",
                report.kernel,
                report.architecture,
                report.processors,
                report
                    .memory_bytes
                    .map_or_else(|| "an unknown amount".to_owned(), size::show)
            ),
        ),
        (
            "instructions",
            format!(
                "{} to copy, {} to flush",
                report.instructions.copy, report.instructions.flush
            ),
        ),
        ("persistent memory", pm.human()),
        (
            "directory",
            match &directory.file_system {
                None => directory.path.display().to_string(),
                Some(fs) => format!(
                    "{}, on {} mounted at {}{}",
                    directory.path.display(),
                    fs.kind,
                    fs.mount_point,
                    if directory.dax {
                        " with dax: pools can lie here"
                    } else {
                        ""
                    }
                ),
            },
        ),
        (
            "free there",
            directory
                .free_bytes
                .map_or_else(|| "unknown".to_owned(), size::show),
        ),
    ]);
    match (&directory.device, &directory.trouble) {
        (Some(speed), _) => text.push_str(&forebay_probe::table::disk(speed)),
        (None, trouble) => {
            let trouble = trouble.as_deref().unwrap_or("unknown reason");
            text.push_str(&format!("the disk could not be measured: {trouble}\n"));
        }
    }
    text.push_str(&places(&report.disks, &directory.path));
    if let Some(legs) = &report.legs {
        text.push_str(&legs.human(report.disks.sync_us));
    }
    text.push_str("\nWhat to do next\n");
    for advice in &report.advice {
        text.push_str(&format!("- {advice}\n"));
    }
    text
}

/// Places for a pool on a disk, a line each.
fn places(found: &candidates::PoolCandidates, data: &Path) -> String {
    if found.sync_us.is_none() && found.unmeasured.is_empty() {
        return String::new();
    }
    let mut text = "\nWhere a pool on a disk could lie\n".to_owned();
    for place in &found.places {
        let sentence = place.sentence(found.sync_us.unwrap_or_default());
        text.push_str(&format!("- {sentence}\n"));
    }
    for spot in &found.unmeasured {
        text.push_str(&format!("- {}\n", spot.sentence(data)));
    }
    for device in &found.unused {
        let device = device.display();
        text.push_str(&format!(
            "- {device}: in no use, and empty as it seems; not measured\n"
        ));
    }
    text
}
