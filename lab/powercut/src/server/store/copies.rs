//! Checkpoints that are made while the store is written, and opened after a power cut.
//!
//! Two places take turns. Once a checkpoint has returned, what it has is summed up in a file beside
//! it, which is synced: from then on a boot must find it so. Before a place is used again its sum
//! is removed.

use super::{KeyHome, small, verify};
use crate::Failure;
use forebay_store::{Durability, Store};
use std::{
    cell::Cell,
    fs::{self, File},
    hash::{DefaultHasher, Hasher},
    io::{self, Write},
    path::{Path, PathBuf},
};

/// Places of checkpoints.
pub struct Copies {
    dir: PathBuf,
    /// Checkpoints since the boot.
    made: Cell<usize>,
}

/// Names of the places.
const PLACES: [&str; 2] = ["one", "other"];

impl Copies {
    /// Places beside a store.
    pub fn beside(store: &Path) -> Result<Self, Failure> {
        let dir = store.with_extension("copies");
        fs::create_dir_all(&dir)?;
        Ok(Self {
            dir,
            made: Cell::new(0),
        })
    }

    fn place(&self, name: &str) -> [PathBuf; 2] {
        let place = self.dir.join(name);
        [place.with_extension("sum"), place]
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.dir)?.sync_all()
    }

    /// Makes one of the store as it is, in the place whose turn it is.
    pub fn make(&self, store: &Store) -> Result<(), Failure> {
        let made = self.made.replace(self.made.get() + 1);
        let [sum, place] = self.place(PLACES[made % PLACES.len()]);
        remove(fs::remove_file(&sum))?;
        self.sync()?;
        remove(fs::remove_dir_all(&place))?;
        store.checkpoint(&place)?;
        let mut file = File::create(&sum)?;
        file.write_all(&summed(store)?)?;
        file.sync_all()?;
        Ok(self.sync()?)
    }

    /// Opens each that was summed up, and compares.
    pub fn check(&self) -> Result<(), Failure> {
        for name in PLACES {
            let [sum, place] = self.place(name);
            let Ok(promised) = fs::read(&sum) else {
                continue;
            };
            // One that is not whole was not synced before the cut.
            if promised.len() != SUM_BYTES || promised[SUM_BYTES - 1] != END {
                continue;
            }
            let failed = |why: &dyn std::fmt::Display| format!("the checkpoint {name}: {why}");
            let options = small().durability(Durability::Fsync);
            let store = options.open(&place, None).map_err(|e| failed(&e))?;
            verify(&store).map_err(|e| failed(&e))?;
            super::trail::check(&store).map_err(|e| failed(&e))?;
            if summed(&store)? != promised {
                return Err(failed(&"it has not what the store had").into());
            }
            store.close()?;
        }
        Ok(())
    }
}

/// What was not there is removed.
fn remove(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Bytes of a sum, and the last of them: a file that was not synced may be shorter, or zeros.
const SUM_BYTES: usize = 9;
const END: u8 = b'.';

/// A sum over all keys and values.
fn summed(store: &Store) -> Result<Vec<u8>, Failure> {
    let mut hasher = DefaultHasher::new();
    let own = store.prefix("")?;
    let mut scans = vec![own];
    for home in KeyHome::ALL {
        scans.push(home.in_store(store)?.prefix("")?);
    }
    for scan in scans {
        for pair in scan {
            let (key, value) = pair?;
            for bytes in [&key[..], &value[..]] {
                hasher.write_usize(bytes.len());
                hasher.write(bytes);
            }
        }
        hasher.write_u8(END);
    }
    Ok([&hasher.finish().to_le_bytes()[..], &[END]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_that_differs_from_its_sum_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let options = small().durability(Durability::NoSync);
        let store = options.open(dir.path().join("db"), None).unwrap();
        let copies = Copies::beside(&dir.path().join("db")).unwrap();
        for turn in 0..3_u8 {
            store.put("key", &[turn]).unwrap();
            KeyHome::Packed
                .in_store(&store)
                .unwrap()
                .put("key", "aa")
                .unwrap();
            copies.make(&store).unwrap();
            copies.check().unwrap();
        }
        let [sum, place] = copies.place("one");
        let copy = options.open(&place, None).unwrap();
        copy.put("key", "another").unwrap();
        copy.close().unwrap();
        let told = copies.check().unwrap_err().to_string();
        assert!(told.contains("the checkpoint one"), "{told}");
        // Without its sum it was never promised.
        fs::write(&sum, [0; 5]).unwrap();
        copies.check().unwrap();
        fs::remove_dir_all(copies.place("other")[1].join("index")).unwrap();
        assert!(copies.check().is_err());
    }
}
