//! Room that experiments need, said before any of them starts.

use super::{catalogue::Experiment, size::Size};
use crate::{BenchError, scratch::memory_dir};
use std::path::Path;

/// Checks that there is room for each of `experiments`, one after the other. Gives what they need in words.
///
/// # Errors
/// [`BenchError::Config`] with the need and what there is.
pub(super) fn check(
    experiments: &[&Experiment],
    size: Size,
    dir: &Path,
) -> Result<String, BenchError> {
    let most = |needs: fn(&Experiment) -> [u64; 3]| {
        let mib = experiments.iter().map(|experiment| {
            let [toy, quick, paper] = needs(experiment);
            (size.pick(toy, quick, paper), experiment.id.as_str())
        });
        mib.max().unwrap_or_default()
    };
    let (disk, memory) = (most(|it| it.disk_mib), most(|it| it.memory_mib));
    room(
        dir,
        disk,
        "give another directory with --dir, or measure less with --quick",
    )?;
    let in_memory = "make it larger, or measure less with --quick";
    room(&memory_dir(), memory, in_memory)?;
    Ok(format!(
        "at most {} MiB of disk in {}, {} MiB of memory",
        disk.0,
        dir.display(),
        memory.0
    ))
}

fn room(dir: &Path, (mib, id): (u64, &str), remedy: &str) -> Result<(), BenchError> {
    let Ok(found) = rustix::fs::statvfs(dir) else {
        return Ok(());
    };
    let free_mib = found.f_bavail.saturating_mul(found.f_frsize) >> 20;
    if free_mib >= mib {
        return Ok(());
    }
    Err(BenchError::Config(format!(
        "{id} needs {mib} MiB in {}, where {free_mib} MiB are free: {remedy}",
        dir.display()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn want_of_room_is_said_with_the_need() {
        let dir = tempfile::tempdir().unwrap();
        let refused = room(dir.path(), (u64::MAX, "p1-fig5"), "remedy");
        let error = refused.unwrap_err().to_string();
        assert!(
            error.contains("p1-fig5 needs") && error.contains("MiB are free: remedy"),
            "{error}"
        );
        room(dir.path(), (1, "p1-fig5"), "").unwrap();
    }
}
