//! Dictionaries of compressed values, each in a file of its own. docs/store-format.md,
//! "Dictionaries".
//!
//! A dictionary's file is durable, and then named by the manifest, before any value is compressed
//! with it. It is kept as long as its keyspace is there.
//!
//! ```text
//!  0  magic "FDIC"    4
//!  4  CRC-32C         4   over all that follows
//!  8  number          4
//! 12  keyspace        4   0: the default one
//! 16  store          16
//! 32  permille        4   stored of a thousand bytes of the values that it was tried with
//! 36  reserved       28   zero
//! 64  dictionary, in Zstandard's format, with this number in it
//! ```

use crate::{
    compression::{DICTIONARY_BYTES_MAX, DictionarySource, PackDictionary, UnpackDictionary},
    disk::{Disk, DiskFile},
    error::StoreError,
    keyspace::{DictionaryRef, DictionaryState, KeyspaceId},
};
use arc_swap::ArcSwap;
use forebay_pool::{crc32c, format::layout::u32_at};
use parking_lot::Mutex;
use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};
use uuid::Uuid;

/// Name of the directory of dictionaries.
pub(crate) const DIR: &str = "dict";
const MAGIC: &[u8; 4] = b"FDIC";
const HEADER: usize = 64;
/// Prepared ones that are kept in memory at most: as many as a store has.
const KEPT_MAX: usize = DictionaryState::COUNT_MAX;

/// The dictionaries of a store.
pub(crate) struct DictionaryFiles {
    store_dir: PathBuf,
    dir: PathBuf,
    disk: Arc<dyn Disk>,
    store: Uuid,
    /// By number, those that values were read with.
    prepared: ArcSwap<Vec<Arc<UnpackDictionary>>>,
    /// Those that the manifest names.
    named: Mutex<Vec<DictionaryRef>>,
    /// Why the last one could not be read or written.
    trouble: Mutex<Option<String>>,
}

/// A dictionary's file that was read and is whole.
pub(crate) struct ReadDictionary {
    pub(crate) bytes: Vec<u8>,
    pub(crate) permille: u32,
    keyspace: u32,
    crc: u32,
}

/// The file of a dictionary by its number.
pub(crate) fn file_name(number: u32) -> String {
    format!("{number:08x}.dict")
}

fn number_of(name: &str) -> Option<u32> {
    let number = u32::from_str_radix(name.strip_suffix(".dict")?, 16).ok()?;
    (file_name(number) == *name).then_some(number)
}

impl DictionaryFiles {
    /// Those of a store whose manifest names these.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        store_dir: &Path,
        store: Uuid,
        state: &DictionaryState,
    ) -> Self {
        let dir = store_dir.join(DIR);
        if !state.is_empty() {
            // Held from now on. What is missing there is told by whoever needs it.
            let _ = disk.create_dir(&dir);
        }
        Self {
            store_dir: store_dir.to_owned(),
            dir,
            disk,
            store,
            prepared: ArcSwap::default(),
            named: Mutex::new(state.live.clone()),
            trouble: Mutex::default(),
        }
    }

    fn path(&self, number: u32) -> PathBuf {
        self.dir.join(file_name(number))
    }

    /// The numbers of all files there are.
    fn numbers(&self) -> Vec<u32> {
        let names = self.disk.list(&self.dir).unwrap_or_default();
        names.iter().filter_map(|name| number_of(name)).collect()
    }

    /// The number of the next one: no file has it or a higher one, whoever left that there.
    pub(crate) fn next_number(&self, last: u32) -> Option<u32> {
        let files = self.numbers().into_iter().max().unwrap_or(0);
        files.max(last).checked_add(1)
    }

    /// Removes what was written and never named, or is of a keyspace that was dropped. A number
    /// above all that were given is one of a later manifest than this: it stays.
    pub(crate) fn remove_leftovers(&self, state: &DictionaryState) {
        if state.is_empty() {
            return;
        }
        let is_left = |number: &u32| *number <= state.last && !state.has(*number);
        for number in self.numbers().into_iter().filter(is_left) {
            // Tried again by the next opening.
            let _ = self.disk.remove(&self.path(number));
        }
    }

    /// Writes one, durably. Nothing may refer to it before the manifest names it.
    pub(crate) fn write(
        &self,
        number: u32,
        keyspace: KeyspaceId,
        permille: u32,
        bytes: &[u8],
    ) -> Result<DictionaryRef, StoreError> {
        let path = self.path(number);
        let mut content = vec![0; HEADER];
        content[..4].copy_from_slice(MAGIC);
        content[8..12].copy_from_slice(&number.to_le_bytes());
        content[12..16].copy_from_slice(&keyspace.0.to_le_bytes());
        content[16..32].copy_from_slice(self.store.as_bytes());
        content[32..36].copy_from_slice(&permille.to_le_bytes());
        content.extend_from_slice(bytes);
        let crc = crc32c([&content[8..]]);
        content[4..8].copy_from_slice(&crc.to_le_bytes());
        let write = || {
            self.disk.create_dir(&self.dir)?;
            self.disk.sync_dir(&self.store_dir)?;
            let file = self.disk.create(&path)?;
            file.write_all_at(&content, 0)?;
            file.sync()?;
            self.disk.sync_dir(&self.dir)
        };
        write().map_err(|error| {
            self.discard(number);
            StoreError::io("writing", &path)(error)
        })?;
        Ok(DictionaryRef {
            number,
            keyspace: keyspace.0,
            bytes: u32::try_from(content.len()).unwrap_or(u32::MAX),
            crc,
        })
    }

    /// Removes one that the manifest does not name.
    pub(crate) fn discard(&self, number: u32) {
        // Tried again by an opening.
        let _ = self.disk.remove(&self.path(number));
    }

    /// The manifest names one more.
    pub(crate) fn add(&self, named: DictionaryRef) {
        self.named.lock().push(named);
    }

    /// The manifest names none of a keyspace any more.
    pub(crate) fn forget(&self, keyspace: KeyspaceId) {
        let mut gone = Vec::new();
        self.named.lock().retain(|named| {
            let stays = named.keyspace != keyspace.0;
            if !stays {
                gone.push(named.number);
            }
            stays
        });
        let is_gone = |dictionary: &Arc<UnpackDictionary>| gone.contains(&dictionary.number());
        self.prepared.rcu(|prepared| {
            let left = prepared.iter().filter(|dictionary| !is_gone(dictionary));
            left.cloned().collect::<Vec<_>>()
        });
        gone.into_iter().for_each(|number| self.discard(number));
    }

    /// Those that the manifest names.
    pub(crate) fn named(&self) -> Vec<DictionaryRef> {
        self.named.lock().clone()
    }

    /// The one that a keyspace's values are compressed with now.
    pub(crate) fn newest_of(&self, keyspace: KeyspaceId) -> Option<DictionaryRef> {
        let named = self.named.lock();
        let of_it = named.iter().filter(|named| named.keyspace == keyspace.0);
        of_it.max_by_key(|named| named.number).copied()
    }

    /// True if a keyspace may have another one.
    pub(crate) fn has_room_for(&self, keyspace: KeyspaceId) -> bool {
        DictionaryState::has_room(&self.named.lock(), keyspace.0)
    }

    /// Bytes of the files of those that the manifest names.
    pub(crate) fn bytes(&self) -> u64 {
        let named = self.named.lock();
        named.iter().map(|named| u64::from(named.bytes)).sum()
    }

    /// The last one that could not be read or written, and why.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.trouble.lock().clone()
    }

    /// Notes that.
    pub(crate) fn set_trouble(&self, trouble: Option<String>) {
        *self.trouble.lock() = trouble;
    }

    /// The file of one, and its bytes.
    pub(crate) fn source(
        &self,
        number: u32,
    ) -> Result<(PathBuf, Arc<dyn DiskFile>, u64), StoreError> {
        let path = self.path(number);
        let file = self.disk.open(&path);
        let file = file.map_err(StoreError::io("opening", &path))?;
        let bytes = file.len().map_err(StoreError::io("reading", &path))?;
        Ok((path, file, bytes))
    }

    /// Reads and checks one.
    pub(crate) fn read(&self, number: u32) -> Result<ReadDictionary, StoreError> {
        let path = self.path(number);
        let damaged = |what: &str| {
            let what =
                format!("{what}: what was compressed with dictionary {number} cannot be read");
            StoreError::damaged(&path, what)
        };
        let named = self.named();
        let named = named.iter().find(|named| named.number == number);
        let (file, length) = match self.source(number) {
            Ok((_, file, length)) => (file, length),
            Err(StoreError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Err(damaged(match named {
                    Some(_) => "the file is missing",
                    None => "MANIFEST knows of no such dictionary, and there is no file",
                }));
            }
            Err(error) => return Err(error),
        };
        if !(HEADER as u64..=(HEADER + DICTIONARY_BYTES_MAX) as u64).contains(&length) {
            return Err(damaged(&format!("it has {length} bytes")));
        }
        let mut content = vec![0; usize::try_from(length).unwrap_or(0)];
        let read = file.read_exact_at(&mut content, 0);
        read.map_err(StoreError::io("reading", &path))?;
        let found = self.check(number, &content).map_err(damaged)?;
        match named {
            Some(named) if (named.crc, named.keyspace) != (found.crc, found.keyspace) => {
                Err(damaged("it is another one than MANIFEST names"))
            }
            _ => Ok(found),
        }
    }

    /// Takes a file's content apart; what it lacks.
    fn check(&self, number: u32, content: &[u8]) -> Result<ReadDictionary, &'static str> {
        if &content[..4] != MAGIC {
            return Err("it does not begin as a dictionary's file does");
        }
        let crc = crc32c([&content[8..]]);
        if u32_at(content, 4) != crc {
            return Err("its checksum does not match");
        }
        if u32_at(content, 8) != number || content[16..32] != *self.store.as_bytes() {
            return Err("it is another dictionary's, or another store's");
        }
        Ok(ReadDictionary {
            bytes: content[HEADER..].to_vec(),
            permille: u32_at(content, 32),
            keyspace: u32_at(content, 12),
            crc,
        })
    }

    /// One prepared to compress with.
    pub(crate) fn packing(
        &self,
        number: u32,
        level: i32,
    ) -> Result<(PackDictionary, u32), StoreError> {
        let read = self.read(number)?;
        let prepared = PackDictionary::new(number, &read.bytes, level);
        let prepared =
            prepared.map_err(|why| StoreError::damaged(&self.path(number), why.to_string()))?;
        Ok((prepared, read.permille))
    }

    /// One prepared to decompress with, which is kept.
    pub(crate) fn prepare(&self, number: u32) -> Result<Arc<UnpackDictionary>, StoreError> {
        let read = self.read(number)?;
        let prepared = UnpackDictionary::new(number, &read.bytes)
            .map_err(|why| StoreError::damaged(&self.path(number), why.to_string()))?;
        let prepared = Arc::new(prepared);
        self.prepared.rcu(|kept| {
            let mut kept = Vec::clone(kept);
            match kept.binary_search_by_key(&number, |kept| kept.number()) {
                Err(at) if kept.len() < KEPT_MAX => kept.insert(at, Arc::clone(&prepared)),
                _ => {}
            }
            kept
        });
        Ok(prepared)
    }
}

impl DictionarySource for DictionaryFiles {
    fn with_dictionary(&self, number: u32, work: &mut dyn FnMut(&UnpackDictionary)) {
        let prepared = self.prepared.load();
        match prepared.binary_search_by_key(&number, |kept| kept.number()) {
            Ok(at) => work(&prepared[at]),
            Err(_) => {
                // Why it cannot be had, whoever needs it asks for.
                if let Ok(prepared) = self.prepare(number) {
                    work(&prepared);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{
        RealDisk,
        faulty::{Fault, FaultPlan, FaultyDisk},
    };
    use std::fs;

    const STORE: Uuid = Uuid::from_u128(7);

    fn open(dir: &Path, state: &DictionaryState) -> DictionaryFiles {
        DictionaryFiles::open(Arc::new(RealDisk::default()), dir, STORE, state)
    }

    fn said<T>(result: Result<T, StoreError>) -> String {
        result
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    }

    #[test]
    fn a_dictionary_is_read_back_and_any_flipped_byte_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let mut state = DictionaryState::default();
        let files = open(dir.path(), &state);
        assert_eq!(files.next_number(state.last), Some(1));
        let named = files.write(1, KeyspaceId(3), 250, b"dictionary").unwrap();
        state.add(named);
        let files = open(dir.path(), &state);
        let read = files.read(1).unwrap();
        assert_eq!((&read.bytes[..], read.permille), (&b"dictionary"[..], 250));
        assert_eq!(files.bytes(), 74);
        let path = files.path(1);
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 4;
            fs::write(&path, flipped).unwrap();
            let said = said(files.read(1));
            assert!(
                said.contains("00000001.dict") && said.contains("restore it"),
                "{at}: {said}"
            );
        }
        for length in [0, 63, whole.len() - 1] {
            fs::write(&path, &whole[..length]).unwrap();
            assert!(files.read(1).is_err(), "{length}");
        }
        // Whole, and not the one that MANIFEST means.
        fs::remove_file(&path).unwrap();
        let _ = files.write(1, KeyspaceId(3), 250, b"dictionarz").unwrap();
        assert!(said(files.read(1)).contains("another one"));
        fs::copy(&path, files.path(2)).unwrap();
        assert!(said(files.read(2)).contains("another dictionary's"));
        fs::remove_file(&path).unwrap();
        assert!(said(files.read(1)).contains("missing"));
        assert!(said(files.read(9)).contains("MANIFEST knows of no such"));
    }

    #[test]
    fn what_nothing_names_goes_unless_its_number_is_a_later_one() {
        let dir = tempfile::tempdir().unwrap();
        let mut state = DictionaryState::default();
        let files = open(dir.path(), &state);
        for number in 1..=5 {
            let named = files
                .write(number, KeyspaceId(number % 2), 1, b"bytes")
                .unwrap();
            if [2, 3].contains(&number) {
                state.add(named);
            }
        }
        let files = open(dir.path(), &state);
        assert_eq!(files.next_number(state.last), Some(6));
        files.remove_leftovers(&state);
        assert_eq!(files.numbers(), [2, 3, 4, 5]);
        assert_eq!(files.newest_of(KeyspaceId(1)).unwrap().number, 3);
        files.forget(KeyspaceId(1));
        assert!(files.newest_of(KeyspaceId(1)).is_none() && files.read(3).is_err());
        assert_eq!(files.numbers(), [2, 4, 5]);
    }

    #[test]
    fn one_that_cannot_be_written_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let plan = Arc::new(FaultPlan::default());
        let disk = FaultyDisk::new(Arc::new(RealDisk::default()), Arc::clone(&plan));
        let state = DictionaryState::default();
        let files = DictionaryFiles::open(Arc::new(disk), dir.path(), STORE, &state);
        let mut failed = 0;
        for at in 1..20 {
            plan.strike(at, Fault::Error);
            let written = files.write(1, KeyspaceId::DEFAULT, 1, b"bytes");
            plan.heal();
            match written {
                Ok(_) => break,
                Err(error) => assert!(error.to_string().contains("writing"), "{error}"),
            }
            failed += 1;
            assert!(files.numbers().is_empty());
        }
        assert!(failed >= 4, "{failed}");
        assert_eq!(files.read(1).unwrap().bytes, b"bytes");
    }
}
