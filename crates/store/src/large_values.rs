//! Large values: those that do not fit into half a log segment lie in files of their own.
//!
//! The file is written and synced before the record that points to it is appended, so the log never
//! points to nothing. It names its key, so that garbage collection can ask whether the key still
//! leads to it. docs/store-format.md, "Large values".
//!
//! ```text
//!  0  magic "FLRG"    4
//!  4  CRC-32C         4   over bytes 8..64 and the key
//!  8  id              8
//! 16  value length    8
//! 24  value CRC-32C   4
//! 28  key length      4
//! 32  store          16
//! 48  reserved       16   zero
//! 64  key, then value
//! ```

use crate::{
    disk::{Disk, DiskFile},
    error::StoreError,
    op::LargeRef,
};
use forebay_pool::crc32c;
use parking_lot::Mutex;
use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};
use uuid::Uuid;

/// Name of the directory of large values.
pub(crate) const DIR: &str = "large";
const MAGIC: &[u8; 4] = b"FLRG";
const HEADER: usize = 64;

/// No value gets a higher number: so counting on never overflows, and a file with one is not the
/// store's.
pub(crate) const ID_MAX: u64 = 1 << 62;

/// The files of large values.
pub(crate) struct LargeValues {
    dir: PathBuf,
    disk: Arc<dyn Disk>,
    store: Uuid,
    next: AtomicU64,
    /// Written, but the record that points to it is not in the index yet.
    in_flight: Mutex<BTreeSet<u64>>,
    bytes: AtomicU64,
    files: AtomicU64,
}

/// A large value that was written and is not pointed to yet. Collection leaves it alone as long as
/// this lives.
pub(crate) struct WrittenValue<'a> {
    values: &'a LargeValues,
    pub(crate) value: LargeRef,
}

impl WrittenValue<'_> {
    /// Removes the file, as nothing was written that points to it.
    pub(crate) fn discard(self) {
        // If that fails, collection does it later.
        let _ = self.values.remove(self.value.id);
    }
}

impl Drop for WrittenValue<'_> {
    fn drop(&mut self) {
        self.values.in_flight.lock().remove(&self.value.id);
    }
}

impl LargeValues {
    /// The large values of a store. A new one gets the number `next` or a higher one, whichever
    /// files are there: the numbers below may be those of files that are missing.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        store_dir: &Path,
        store: Uuid,
        next: u64,
    ) -> Result<Self, StoreError> {
        let dir = store_dir.join(DIR);
        disk.create_dir(&dir)
            .map_err(StoreError::io("creating", &dir))?;
        let values = Self {
            dir,
            disk,
            store,
            next: AtomicU64::new(next.max(1)),
            in_flight: Mutex::default(),
            bytes: AtomicU64::new(0),
            files: AtomicU64::new(0),
        };
        for id in values.ids()? {
            values.next.fetch_max(id + 1, SeqCst);
            let bytes = values.open_file(id)?.len().unwrap_or(0);
            values.bytes.fetch_add(bytes, SeqCst);
            values.files.fetch_add(1, SeqCst);
        }
        Ok(values)
    }

    /// Those of a store that is only read: they are met one by one.
    pub(crate) fn reading(disk: Arc<dyn Disk>, store_dir: &Path, store: Uuid) -> Self {
        let dir = store_dir.join(DIR);
        // Held from now on. Without it no value is found.
        let _ = disk.create_dir(&dir);
        Self {
            dir,
            disk,
            store,
            next: AtomicU64::new(1),
            in_flight: Mutex::default(),
            bytes: AtomicU64::new(0),
            files: AtomicU64::new(0),
        }
    }

    /// The file of value `id`.
    pub(crate) fn path(&self, id: u64) -> PathBuf {
        self.dir.join(file_name(id))
    }

    fn open_file(&self, id: u64) -> Result<Arc<dyn DiskFile>, StoreError> {
        let path = self.path(id);
        self.disk
            .open(&path)
            .map_err(StoreError::io("opening", &path))
    }

    /// The numbers of all files there are.
    pub(crate) fn ids(&self) -> Result<Vec<u64>, StoreError> {
        let names = self
            .disk
            .list(&self.dir)
            .map_err(StoreError::io("listing", &self.dir))?;
        Ok(names
            .iter()
            .filter_map(|name| {
                let id = u64::from_str_radix(name.strip_suffix(".val")?, 16).ok()?;
                (file_name(id) == *name && id <= ID_MAX).then_some(id)
            })
            .collect())
    }

    /// The number the next value gets; every file has a lower one.
    pub(crate) fn next_id(&self) -> u64 {
        self.next.load(SeqCst)
    }

    /// Numbers below this are of values whose records are in the index.
    pub(crate) fn settled_below(&self) -> u64 {
        let in_flight = self.in_flight.lock();
        in_flight.first().copied().unwrap_or_else(|| self.next_id())
    }

    /// True if a value with a lower number than `id` was not pointed to yet, and may be.
    pub(crate) fn has_in_flight_below(&self, id: u64) -> bool {
        let in_flight = self.in_flight.lock();
        in_flight.first().is_some_and(|first| *first < id)
    }

    /// Bytes and number of all files.
    pub(crate) fn size(&self) -> (u64, u64) {
        (self.bytes.load(SeqCst), self.files.load(SeqCst))
    }

    /// Writes a value to a file of its own, durably.
    pub(crate) fn write(&self, key: &[u8], value: &[u8]) -> Result<WrittenValue<'_>, StoreError> {
        let id = {
            let mut in_flight = self.in_flight.lock();
            let id = self.next.fetch_add(1, SeqCst);
            in_flight.insert(id);
            id
        };
        let written = WrittenValue {
            values: self,
            value: LargeRef {
                id,
                bytes: value.len() as u64,
                crc: crc32c([value]),
            },
        };
        let path = self.path(id);
        let total = (HEADER + key.len() + value.len()) as u64;
        let write = || {
            let file = self.disk.create(&path)?;
            file.allocate(total)?;
            let header = encode(&written.value, key, self.store);
            file.write_all_at(&[&header[..], key].concat(), 0)?;
            file.write_all_at(value, (HEADER + key.len()) as u64)?;
            file.sync()?;
            self.disk.sync_dir(&self.dir)
        };
        self.bytes.fetch_add(total, SeqCst);
        self.files.fetch_add(1, SeqCst);
        write().map_err(|e| {
            // Nothing points to it, unless it was there already. What cannot be removed now counts
            // until it is.
            let is_gone = e.kind() == io::ErrorKind::AlreadyExists
                || match self.disk.remove(&path) {
                    Ok(()) => true,
                    Err(e) => e.kind() == io::ErrorKind::NotFound,
                };
            if is_gone {
                self.bytes.fetch_sub(total, SeqCst);
                self.files.fetch_sub(1, SeqCst);
            }
            StoreError::io("writing", &path)(e)
        })?;
        Ok(written)
    }

    /// Appends the value to `to`.
    pub(crate) fn read(
        &self,
        key: &[u8],
        value: &LargeRef,
        to: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        let path = self.path(value.id);
        let damaged = |what: &str| StoreError::damaged(&path, what);
        let file = self.open_file(value.id)?;
        let length = file.len().map_err(StoreError::io("reading", &path))?;
        if length.saturating_sub((HEADER + key.len()) as u64) < value.bytes {
            return Err(damaged("the file is shorter than its value"));
        }
        let start = to.len();
        to.resize(start + usize::try_from(value.bytes).unwrap_or(0), 0);
        file.read_exact_at(&mut to[start..], (HEADER + key.len()) as u64)
            .map_err(StoreError::io("reading", &path))?;
        if crc32c([&to[start..]]) != value.crc {
            to.truncate(start);
            return Err(damaged("the value's checksum does not match"));
        }
        Ok(())
    }

    /// The key that file `id` was written for.
    pub(crate) fn key_of(&self, id: u64) -> Result<Vec<u8>, StoreError> {
        let path = self.path(id);
        let file = self.open_file(id)?;
        let read = |to: &mut [u8], at: usize| {
            file.read_exact_at(to, at as u64)
                .map_err(|_| StoreError::damaged(&path, "it ends within its header"))
        };
        let mut header = [0; HEADER];
        read(&mut header, 0)?;
        let u32_at = |at: usize| {
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let mut key = vec![0; (u32_at(28) as usize).min(crate::limits::STORED_KEY_BYTES_MAX)];
        read(&mut key, HEADER)?;
        if &header[0..4] != MAGIC
            || u32_at(4) != crc32c([&header[8..], &key])
            || header[32..48] != *self.store.as_bytes()
        {
            return Err(StoreError::damaged(
                &path,
                "its header is damaged or another store's",
            ));
        }
        Ok(key)
    }

    /// The file of value `id`, and its bytes.
    pub(crate) fn source(&self, id: u64) -> Result<(PathBuf, Arc<dyn DiskFile>, u64), StoreError> {
        let path = self.path(id);
        let file = self.open_file(id)?;
        let bytes = file.len().map_err(StoreError::io("reading", &path))?;
        Ok((path, file, bytes))
    }

    /// Checks that the value of file `id` is the one that its header was written for.
    pub(crate) fn verify(&self, id: u64) -> Result<(), StoreError> {
        let key = self.key_of(id)?;
        let path = self.path(id);
        let mut header = [0; HEADER];
        let file = self.open_file(id)?;
        file.read_exact_at(&mut header, 0)
            .map_err(StoreError::io("reading", &path))?;
        let [bytes, crc] = [(16, 8), (24, 4)].map(|(at, length)| {
            let bytes = header[at..at + length].iter().rev();
            bytes.fold(0_u64, |value, &byte| value << 8 | u64::from(byte))
        });
        let crc = u32::try_from(crc).unwrap_or(0);
        self.read(&key, &LargeRef { id, bytes, crc }, &mut Vec::new())
    }

    /// True if the header of file `id` never reached the disk: then no record points to it.
    pub(crate) fn never_written(&self, id: u64) -> Result<bool, StoreError> {
        let path = self.path(id);
        let file = self.open_file(id)?;
        let length = file.len().map_err(StoreError::io("reading", &path))?;
        let mut header = [0; HEADER];
        if length < HEADER as u64 {
            return Ok(true);
        }
        file.read_exact_at(&mut header, 0)
            .map_err(StoreError::io("reading", &path))?;
        Ok(header == [0; HEADER])
    }

    /// Unlinks file `id`.
    pub(crate) fn remove(&self, id: u64) -> Result<(), StoreError> {
        let path = self.path(id);
        let bytes = match self.disk.open(&path) {
            Ok(file) => file.len().unwrap_or(0),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(StoreError::io("opening", &path)(e)),
        };
        self.disk
            .remove(&path)
            .map_err(StoreError::io("removing", &path))?;
        self.bytes.fetch_sub(bytes, SeqCst);
        self.files.fetch_sub(1, SeqCst);
        Ok(())
    }
}

/// Name of the file of value `id`.
pub(crate) fn file_name(id: u64) -> String {
    format!("{id:016x}.val")
}

fn encode(value: &LargeRef, key: &[u8], store: Uuid) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[0..4].copy_from_slice(MAGIC);
    header[8..16].copy_from_slice(&value.id.to_le_bytes());
    header[16..24].copy_from_slice(&value.bytes.to_le_bytes());
    header[24..28].copy_from_slice(&value.crc.to_le_bytes());
    header[28..32].copy_from_slice(&u32::try_from(key.len()).unwrap_or(u32::MAX).to_le_bytes());
    header[32..48].copy_from_slice(store.as_bytes());
    let crc = crc32c([&header[8..], key]);
    header[4..8].copy_from_slice(&crc.to_le_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{
        RealDisk,
        faulty::{Fault, FaultPlan, FaultyDisk},
    };

    #[test]
    fn a_large_value_is_read_with_its_key_and_settled_by_a_pointer() {
        let dir = tempfile::tempdir().unwrap();
        let values =
            LargeValues::open(Arc::new(RealDisk::default()), dir.path(), Uuid::nil(), 0).unwrap();
        let value = vec![7; 100_000];
        let written = values.write(b"key", &value).unwrap();
        assert_eq!(values.settled_below(), written.value.id);
        let pointer = written.value;
        drop(written);
        assert_eq!(values.settled_below(), pointer.id + 1);
        let mut read = b"before".to_vec();
        values.read(b"key", &pointer, &mut read).unwrap();
        assert_eq!(read, [&b"before"[..], &value].concat());
        assert_eq!(values.key_of(pointer.id).unwrap(), b"key");
        assert_eq!(values.size().1, 1);
        values.remove(pointer.id).unwrap();
        values.remove(pointer.id).unwrap();
        assert_eq!(values.size(), (0, 0));
    }

    #[test]
    fn a_stray_file_by_the_last_number_costs_no_value_that_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let disk = Arc::new(RealDisk::default());
        let values = LargeValues::open(disk.clone(), dir.path(), Uuid::nil(), 0).unwrap();
        let pointer = values.write(b"key", &[7; 1000]).unwrap().value;
        let stray = values.path(u64::MAX);
        std::fs::write(&stray, b"not ours").unwrap();
        let values = LargeValues::open(disk, dir.path(), Uuid::nil(), 0).unwrap();
        for _ in 0..3 {
            drop(values.write(b"other", &[8; 1000]));
        }
        let mut read = Vec::new();
        values.read(b"key", &pointer, &mut read).unwrap();
        assert_eq!(read, [7; 1000]);
        assert!(stray.exists());
    }

    #[test]
    fn a_file_left_by_a_failed_write_counts_until_it_is_removed() {
        // The disk goes away at each of the operations of a write in turn.
        for at in 1..=6 {
            let dir = tempfile::tempdir().unwrap();
            let plan = Arc::new(FaultPlan::default());
            let disk = FaultyDisk::new(Arc::new(RealDisk::default()), Arc::clone(&plan));
            let values = LargeValues::open(Arc::new(disk), dir.path(), Uuid::nil(), 0).unwrap();
            plan.strike(at, Fault::Gone);
            assert!(values.write(b"key", &[7; 1000]).is_err());
            plan.heal();
            for id in values.ids().unwrap() {
                values.remove(id).unwrap();
            }
            // One that was not made, or has no room, may count on.
            let (bytes, files) = values.size();
            assert!(bytes <= 1067 && files <= 1, "{at}: {bytes}, {files}");
            assert!(at < 3 || values.size() == (0, 0), "{at}");
        }
    }

    #[test]
    fn a_damaged_large_value_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let values =
            LargeValues::open(Arc::new(RealDisk::default()), dir.path(), Uuid::nil(), 0).unwrap();
        let pointer = values.write(b"key", &[7; 1000]).unwrap().value;
        let path = values.path(pointer.id);
        let bytes = std::fs::read(&path).unwrap();
        let mut flipped = bytes.clone();
        flipped[500] ^= 1;
        std::fs::write(&path, flipped).unwrap();
        assert!(values.read(b"key", &pointer, &mut Vec::new()).is_err());
        std::fs::write(&path, &bytes[..500]).unwrap();
        assert!(values.read(b"key", &pointer, &mut Vec::new()).is_err());
        std::fs::write(&path, &bytes[..50]).unwrap();
        assert!(values.key_of(pointer.id).is_err());
    }
}
