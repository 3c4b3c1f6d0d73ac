//! Room that an experiment needs, said before it starts.

use super::{Experiment, Measurement, SIZES, Size, flash_tier, policies, puts};
use crate::{BenchError, scratch::memory_dir};
use std::path::Path;

/// Bytes that an experiment needs at its peak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Needs {
    /// On the disk.
    pub disk: u64,
    /// In memory that files are in, if pools are emulated.
    pub memory: u64,
}

const MIB: u64 = 1 << 20;

impl Experiment {
    /// What it needs at `size`.
    pub(super) fn needs(&self, size: Size) -> Needs {
        let (preload, puts) = puts::workload(size);
        // Tables being merged are there twice.
        let store = 2 * (preload + puts * 4200) + 64 * MIB;
        // An append-only file and the one that replaces it, of the largest values.
        let append_only = 3 * policies::requests(size) * (SIZES[SIZES.len() - 1] + 100) + 64 * MIB;
        let pool = 64 * MIB;
        let (disk, memory) = match self.measurement {
            Measurement::Puts => (store.max(2 * puts::sampled_puts(size) * 4200), pool),
            Measurement::Peers => (4 * puts * 4200 + 64 * MIB, pool),
            Measurement::Buffers => (store, 2 * 64 * MIB + pool),
            Measurement::Policies | Measurement::Mixes => (append_only, append_only),
            Measurement::Latency => (append_only, pool),
            Measurement::Rewrite => (append_only, policies::POOLS[2] + pool),
            Measurement::Loss => (128 * MIB, 2 * pool),
            Measurement::Memory => (
                size.pick(64, 1024, 1024) * MIB,
                size.pick(64, 1024, 1024) * MIB,
            ),
            // The data directory, a row's copy, logs, and flash. A row of this disk has its copy and its flash there.
            Measurement::FlashTier => {
                let data = flash_tier::warehouses(size) * 128 * MIB;
                (2 * data + 512 * MIB, 3 * data + 640 * MIB)
            }
            Measurement::FlashLoads => {
                let data = flash_tier::loads::bytes(size);
                (2 * data + 512 * MIB, 3 * data + 640 * MIB)
            }
            // The data directory, a round's copy, and what compactions make meanwhile.
            Measurement::LinkBench | Measurement::Tpcc => {
                (0, size.pick(1024, 3072, 10 * 1024) * MIB)
            }
            Measurement::RandomWrites => (0, 128 * MIB),
            Measurement::Device | Measurement::Fam => (1024 * MIB, 512 * MIB),
        };
        Needs { disk, memory }
    }
}

/// Checks that there is room for each of `experiments`, one after the other.
///
/// # Errors
/// [`BenchError::Config`] with the need and what there is.
pub(super) fn check(
    experiments: &[&Experiment],
    size: Size,
    dir: &Path,
) -> Result<Needs, BenchError> {
    let most = |need: fn(&Needs) -> u64| {
        experiments
            .iter()
            .map(|experiment| (experiment.needs(size), experiment.id.as_str()))
            .max_by_key(|(needs, _)| need(needs))
    };
    let memory_dir = memory_dir();
    let mut total = Needs::default();
    if let Some((needs, id)) = most(|needs| needs.disk) {
        total.disk = needs.disk;
        room(
            dir,
            needs.disk,
            id,
            "give another directory with --dir, or measure less with --quick",
        )?;
    }
    if let Some((needs, id)) = most(|needs| needs.memory) {
        total.memory = needs.memory;
        room(
            &memory_dir,
            needs.memory,
            id,
            "make it larger, or measure less with --quick",
        )?;
    }
    Ok(total)
}

fn room(dir: &Path, bytes: u64, id: &str, remedy: &str) -> Result<(), BenchError> {
    let Ok(found) = rustix::fs::statvfs(dir) else {
        return Ok(());
    };
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    if free >= bytes {
        return Ok(());
    }
    Err(BenchError::Config(format!(
        "{id} needs {} MiB in {}, where {} MiB are free: {remedy}",
        bytes.div_ceil(MIB),
        dir.display(),
        free / MIB
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::catalogue;

    #[test]
    fn want_of_room_is_said_with_the_need() {
        let dir = tempfile::tempdir().unwrap();
        let error = room(dir.path(), u64::MAX, "p1-fig5", "remedy")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("p1-fig5 needs") && error.contains("MiB are free: remedy"),
            "{error}"
        );
        room(dir.path(), 1, "p1-fig5", "").unwrap();
    }

    #[test]
    fn toy_sizes_need_little_and_the_papers_need_the_papers_room() {
        for experiment in catalogue::ALL.iter() {
            let (toy, paper) = (experiment.needs(Size::Toy), experiment.needs(Size::Paper));
            assert!(
                toy.disk <= 1024 * MIB && toy.memory <= paper.memory,
                "{}",
                experiment.id
            );
        }
        assert!(
            Experiment::named("p1-fig5")
                .unwrap()
                .needs(Size::Paper)
                .disk
                > 16 << 30
        );
    }
}
