//! The guest's disk: what a flush or a forced write acknowledged survives the power cut; of the
//! rest, some sectors do.
//!
//! A disk acknowledges a write when it is in its cache. Until the next flush it may write sectors
//! in any order, or not at all, and of one that was written twice either content may be on the
//! medium. [`Disk::cut`] draws from all of that: each sector is one of the versions since the last
//! flush, or the one before.
//!
//! Faults that must be survivable: all of these. Not modelled: a disk that lies about flushes, a
//! torn sector, bit rot.

use forebay_random::Rng;
use std::{collections::BTreeMap, fs::File, io, os::unix::fs::FileExt, path::Path};

/// Bytes that a disk writes as a whole.
pub const SECTOR: usize = 512;
type Sector = [u8; SECTOR];

/// How much of what was not flushed arrives on the medium at a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Survival {
    /// Of a thousand sectors.
    pub per_mille: u64,
}

/// A disk in a file.
pub struct Disk {
    medium: File,
    bytes: u64,
    /// By sector: its contents since the last flush, the newest last.
    cache: BTreeMap<u64, Vec<Sector>>,
    /// Nothing more is taken.
    off: bool,
    /// Flushes that were asked for.
    pub flushes: u64,
}

impl Disk {
    /// The disk in `path`.
    pub fn open(path: &Path) -> io::Result<Self> {
        let medium = File::options().read(true).write(true).open(path)?;
        let bytes = medium.metadata()?.len();
        Ok(Self {
            medium,
            bytes,
            cache: BTreeMap::new(),
            off: false,
            flushes: 0,
        })
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn check(&self, at: u64, length: usize) -> io::Result<()> {
        let sector = SECTOR as u64;
        let whole = at.is_multiple_of(sector) && (length as u64).is_multiple_of(sector);
        if self.off || !whole || at.saturating_add(length as u64) > self.bytes {
            let what = format!("{length} bytes at {at} of a disk of {}", self.bytes);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        Ok(())
    }

    /// Reads whole sectors.
    pub fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.check(at, into.len())?;
        self.medium.read_exact_at(into, at)?;
        let first = at / SECTOR as u64;
        let last = first + (into.len() / SECTOR) as u64;
        for (sector, versions) in self.cache.range(first..last) {
            if let Some(newest) = versions.last() {
                let from = (sector - first) as usize * SECTOR;
                into[from..from + SECTOR].copy_from_slice(newest);
            }
        }
        Ok(())
    }

    /// Writes whole sectors to the cache.
    pub fn write(&mut self, at: u64, data: &[u8]) -> io::Result<()> {
        self.check(at, data.len())?;
        let (sectors, _) = data.as_chunks::<SECTOR>();
        for (sector, content) in (at / SECTOR as u64..).zip(sectors) {
            self.cache.entry(sector).or_default().push(*content);
        }
        Ok(())
    }

    /// Writes whole sectors to the medium itself.
    pub fn write_forced(&mut self, at: u64, data: &[u8]) -> io::Result<()> {
        self.check(at, data.len())?;
        let first = at / SECTOR as u64;
        for sector in first..first + (data.len() / SECTOR) as u64 {
            self.cache.remove(&sector);
        }
        self.medium.write_all_at(data, at)
    }

    /// Makes all that was written durable.
    pub fn flush(&mut self) -> io::Result<()> {
        self.check(0, 0)?;
        self.flushes += 1;
        self.settle(|_, versions| versions.last().copied())
    }

    /// The power is off: nothing more is taken, and nothing acknowledged.
    pub fn power_off(&mut self) {
        self.off = true;
    }

    /// True after that.
    pub fn is_off(&self) -> bool {
        self.off
    }

    /// After the power went: sectors survive as `seed` draws them. How many had not been flushed,
    /// and how many of them are lost.
    pub fn cut(&mut self, seed: u64, survival: Survival) -> io::Result<(u64, u64)> {
        let unflushed = self.cache.len() as u64;
        let mut random = Rng(seed);
        let mut lost = 0;
        self.settle(|_, versions| {
            if random.below(1000) >= survival.per_mille {
                lost += 1;
                return None;
            }
            let newest = versions.len() as u64;
            // Mostly the newest: a disk combines what it has.
            let age = if random.below(4) == 0 {
                random.below(newest)
            } else {
                0
            };
            versions.get((newest - 1 - age) as usize).copied()
        })?;
        Ok((unflushed, lost))
    }

    /// Empties the cache; `choose` says what becomes of each sector. Neighbours are written at
    /// once.
    fn settle(
        &mut self,
        mut choose: impl FnMut(u64, &[Sector]) -> Option<Sector>,
    ) -> io::Result<()> {
        let (mut start, mut run) = (0u64, Vec::new());
        for (sector, versions) in std::mem::take(&mut self.cache) {
            let Some(content) = choose(sector, &versions) else {
                continue;
            };
            if start + (run.len() / SECTOR) as u64 != sector {
                self.medium.write_all_at(&run, start * SECTOR as u64)?;
                run.clear();
                start = sector;
            }
            run.extend_from_slice(&content);
        }
        self.medium.write_all_at(&run, start * SECTOR as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(sectors: u64) -> (tempfile::NamedTempFile, Disk) {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(sectors * SECTOR as u64).unwrap();
        let disk = Disk::open(file.path()).unwrap();
        (file, disk)
    }

    fn first_bytes(path: &Path, sectors: u64) -> Vec<u8> {
        let bytes = std::fs::read(path).unwrap();
        (0..sectors as usize).map(|s| bytes[s * SECTOR]).collect()
    }

    const NONE: Survival = Survival { per_mille: 0 };
    const HALF: Survival = Survival { per_mille: 500 };

    #[test]
    fn what_was_flushed_survives_and_what_was_not_need_not() {
        let (file, mut disk) = disk(4);
        disk.write(0, &[1; 2 * SECTOR]).unwrap();
        disk.flush().unwrap();
        disk.write(SECTOR as u64, &[2; 2 * SECTOR]).unwrap();
        disk.power_off();
        assert_eq!(disk.cut(7, NONE).unwrap(), (2, 2));
        assert_eq!(first_bytes(file.path(), 4), [1, 1, 0, 0]);
    }

    #[test]
    fn the_guest_reads_what_it_wrote_before_it_is_on_the_medium() {
        let (file, mut disk) = disk(4);
        disk.write(SECTOR as u64, &[1; SECTOR]).unwrap();
        disk.write(SECTOR as u64, &[2; SECTOR]).unwrap();
        let mut read = [9; 3 * SECTOR];
        disk.read(0, &mut read).unwrap();
        assert_eq!([read[0], read[SECTOR], read[2 * SECTOR]], [0, 2, 0]);
        assert_eq!(first_bytes(file.path(), 4), [0; 4]);
    }

    #[test]
    fn a_cut_leaves_some_or_older_sectors_the_same_for_a_seed() {
        let cut = |seed| {
            let (file, mut disk) = disk(200);
            disk.write(0, &[1; 200 * SECTOR]).unwrap();
            disk.write(0, &[2; 200 * SECTOR]).unwrap();
            disk.power_off();
            let (unflushed, lost) = disk.cut(seed, HALF).unwrap();
            assert_eq!(unflushed, 200);
            let left = first_bytes(file.path(), 200);
            assert_eq!(left.iter().filter(|&&b| b == 0).count() as u64, lost);
            left
        };
        let left = cut(1);
        for version in 0..=2 {
            assert!(left.contains(&version), "{left:?}");
        }
        assert_eq!(left, cut(1));
        assert_ne!(left, cut(2));
    }

    #[test]
    fn without_power_nothing_is_taken_or_acknowledged() {
        let (file, mut disk) = disk(2);
        disk.write(0, &[1; SECTOR]).unwrap();
        disk.power_off();
        assert!(disk.write(0, &[2; SECTOR]).is_err());
        assert!(disk.flush().is_err());
        disk.cut(1, NONE).unwrap();
        assert_eq!(first_bytes(file.path(), 2), [0, 0]);
    }

    #[test]
    fn what_is_no_whole_sector_or_lies_outside_is_refused() {
        let (_file, mut disk) = disk(2);
        assert!(disk.write(1, &[0; SECTOR]).is_err());
        assert!(disk.write(0, &[0; 100]).is_err());
        assert!(disk.write(SECTOR as u64, &[0; 2 * SECTOR]).is_err());
        assert!(disk.read(u64::MAX - 511, &mut [0; SECTOR]).is_err());
    }
}
