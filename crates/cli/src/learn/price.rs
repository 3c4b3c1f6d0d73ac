//! The price of a sync with a pool on this machine, in memory and on a disk.

use crate::doctor;
use forebay_pool::{ClaimOptions, PoolOptions, Uuid};
use forebay_probe::figures::percentile;
use serde::Serialize;
use std::{
    error::Error,
    io::IoSlice,
    path::PathBuf,
    time::{Duration, Instant},
};

/// Appends that are measured, after some that are not.
const TIMES: usize = 2000;
const WARM: usize = 100;
/// Bytes of the pool that they go to, and of its segments.
const POOL: u64 = 24 << 20;
const SEGMENT: u64 = 8 << 20;
/// No record is larger: what a program writes between two syncs may be.
const RECORD_MAX: u64 = 4 << 10;

/// A place for a pool, and the time of a sync there.
#[derive(Serialize)]
pub struct PoolPrice {
    /// In memory, or a directory on a disk.
    pub place: String,
    /// Copying the bytes written between two syncs into a pool in memory, or a commit of a page to
    /// a pool on the disk: the median, µs.
    pub commit_us: Option<f64>,
    /// All that could be replaced would take, seconds.
    pub seconds: Option<f64>,
    /// The reason that it was not measured.
    pub trouble: Option<String>,
}

impl PoolPrice {
    fn of(place: String, syncs: u64, measured: Result<f64, String>) -> Self {
        let commit_us = measured.as_ref().ok().copied();
        Self {
            place,
            commit_us,
            seconds: commit_us.map(|each| each * syncs as f64 / 1e6),
            trouble: measured.err(),
        }
    }

    /// In one sentence. The syncs took so long.
    pub fn sentence(&self, took: f64) -> String {
        let place = &self.place;
        match (self.commit_us, self.seconds, &self.trouble) {
            (Some(each), Some(all), _) if all > 0.0 && took > all => format!(
                "With a pool {place} each would take {each:.1} µs on this machine: {all:.3} s in all, {:.0} times less.",
                took / all
            ),
            (Some(each), Some(all), _) => format!(
                "With a pool {place} each would take {each:.1} µs on this machine: {all:.3} s in all, which gains nothing."
            ),
            (.., why) => format!(
                "The time with a pool {place} is not known: {}.",
                why.as_deref().unwrap_or("it was not measured")
            ),
        }
    }
}

/// Measures a pool in memory, and one in each directory of `beside`, where a megabyte is written
/// and removed: for so many syncs, between two of which so many bytes are written.
pub fn measure(syncs: u64, bytes: u64, beside: &[PathBuf]) -> Vec<PoolPrice> {
    let on_disk = |directory: &PathBuf| {
        let measured = doctor::commit_us(directory).map_err(|e| e.to_string());
        PoolPrice::of(format!("in {}", directory.display()), syncs, measured)
    };
    let size = bytes.clamp(1, RECORD_MAX);
    let in_memory = append_us(size).map_err(|e| e.to_string());
    std::iter::once(PoolPrice::of("in memory".to_owned(), syncs, in_memory))
        .chain(beside.iter().map(on_disk))
        .collect()
}

/// Appending a record of so many bytes to a pool in memory: the median, µs. It is as on persistent
/// memory, but for what that takes longer than ordinary memory does.
fn append_us(size: u64) -> Result<f64, Box<dyn Error>> {
    let dir = tempfile::tempdir_in("/dev/shm")?;
    let pool = PoolOptions::new()
        .size(POOL)
        .segment_size(SEGMENT)
        .emulated(true)
        .create(dir.path().join("pool"))?;
    let (lane, _) = pool.claim(Uuid::new_v4(), &ClaimOptions::new())?;
    let record = vec![b'x'; size as usize];
    let mut times = Vec::with_capacity(TIMES);
    for number in 0..WARM + TIMES {
        let begun = Instant::now();
        lane.append(1, &[IoSlice::new(&record)])?;
        if number >= WARM {
            times.push(begun.elapsed().as_secs_f64() * 1e6);
        }
        if let Some(sealed) = lane.take_sealed(Duration::ZERO) {
            sealed.release();
        }
    }
    Ok(percentile(&mut times, 0.5))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_to_memory_and_a_commit_to_a_disk_have_a_price() {
        let program = std::env::current_exe().unwrap();
        let dir = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
        let gone = dir.path().join("gone");
        let found = measure(1000, 100_000, &[dir.path().to_owned(), gone]);
        let [memory, disk, missing] = &found[..] else {
            panic!("{} places", found.len());
        };
        assert!(memory.commit_us.unwrap() > 0.0);
        assert!(disk.commit_us.unwrap() > 0.0);
        assert!(memory.sentence(1e6).contains("times less"));
        assert!(memory.sentence(0.0).contains("gains nothing"));
        assert!(missing.sentence(1.0).contains("No such file"));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
