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
//! 48  compressed      1   1 if the value is blocks, each compressed or not
//! 49  reserved       15   zero
//! 64  key, then value; or blocks, each:
//!       length 4 | as a compressed value (`compression`)
//! ```
//!
//! Length and checksum are those of what is stored.

use crate::{
    compression::{
        Compressor, DictionarySource, NoDictionaries, NotUnpacked, PACKED_HEADER, raw_length,
        unpack,
    },
    disk::{Disk, DiskFile},
    error::StoreError,
    limits::VALUE_BYTES_MAX,
    op::LargeRef,
};
use forebay_pool::{Checksum, crc32c, format::layout::u32_at};
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
/// Place of the byte in it that says whether the value is compressed.
const COMPRESSED_AT: usize = 48;
/// Bytes of a value that are compressed as one.
const BLOCK: usize = 1 << 20;
/// Bytes of the length before a block.
const BLOCK_LENGTH: usize = 4;

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

    /// Writes a value to a file of its own, durably: in blocks that are compressed, if the first
    /// one becomes smaller.
    pub(crate) fn write(
        &self,
        key: &[u8],
        value: &[u8],
        compressor: &Compressor,
    ) -> Result<WrittenValue<'_>, StoreError> {
        let (first, rest) = value.split_at(value.len().min(BLOCK));
        compressor.packed(first, |compressed, body| {
            if !compressed {
                compressor.count_raw(rest);
                return self.write_parts(key, value.len(), false, |content| content.add(value));
            }
            self.write_parts(key, value.len(), true, |content| {
                content.add_block(&[body])?;
                rest.chunks(BLOCK).try_for_each(|block| {
                    compressor.packed_block(block, |head, body| content.add_block(&[head, body]))
                })
            })
        })
    }

    /// Writes what is stored of a value that lies in a record so far: `compressed` or as it is.
    pub(crate) fn write_stored(
        &self,
        key: &[u8],
        stored: &[u8],
        compressed: bool,
    ) -> Result<WrittenValue<'_>, StoreError> {
        self.write_parts(key, stored.len(), compressed, |content| match compressed {
            true => content.add_block(&[stored]),
            false => content.add(stored),
        })
    }

    /// Writes a file whose content `write` gives, with room for `bytes` from the beginning.
    fn write_parts(
        &self,
        key: &[u8],
        bytes: usize,
        compressed: bool,
        write: impl FnOnce(&mut LargeContent<'_>) -> io::Result<()>,
    ) -> Result<WrittenValue<'_>, StoreError> {
        let id = {
            let mut in_flight = self.in_flight.lock();
            let id = self.next.fetch_add(1, SeqCst);
            in_flight.insert(id);
            id
        };
        let mut written = WrittenValue {
            values: self,
            value: LargeRef {
                id,
                bytes: 0,
                crc: 0,
                compressed,
            },
        };
        let path = self.path(id);
        let start = (HEADER + key.len()) as u64;
        let allocated = start + bytes as u64;
        // As long as the file is, for what may be left of it.
        let mut counted = allocated;
        let do_write = || {
            let file = self.disk.create(&path)?;
            file.allocate(allocated)?;
            let mut content = LargeContent {
                file: &*file,
                start,
                bytes: 0,
                crc: Checksum::new(),
            };
            write(&mut content)?;
            written.value.bytes = content.bytes;
            written.value.crc = content.crc.value();
            let header = encode(&written.value, key, self.store);
            file.write_all_at(&[&header[..], key].concat(), 0)?;
            let length = start + content.bytes;
            if length < allocated {
                file.truncate(length)?;
            }
            self.bytes.fetch_add(length, SeqCst);
            self.bytes.fetch_sub(allocated, SeqCst);
            counted = length;
            file.sync()?;
            self.disk.sync_dir(&self.dir)
        };
        self.bytes.fetch_add(allocated, SeqCst);
        self.files.fetch_add(1, SeqCst);
        do_write().map_err(|e| {
            // Nothing points to it, unless it was there already. What cannot be removed now counts
            // until it is.
            let is_gone = e.kind() == io::ErrorKind::AlreadyExists
                || match self.disk.remove(&path) {
                    Ok(()) => true,
                    Err(e) => e.kind() == io::ErrorKind::NotFound,
                };
            if is_gone {
                self.bytes.fetch_sub(counted, SeqCst);
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
        dictionaries: &dyn DictionarySource,
    ) -> Result<(), StoreError> {
        let path = self.path(value.id);
        let damaged = |what: &str| StoreError::damaged(&path, what);
        if value.bytes > VALUE_BYTES_MAX as u64 {
            return Err(damaged("its record says that it is longer than any value"));
        }
        let file = self.open_file(value.id)?;
        let length = file.len().map_err(StoreError::io("reading", &path))?;
        if length.saturating_sub((HEADER + key.len()) as u64) < value.bytes {
            return Err(damaged("the file is shorter than its value"));
        }
        let at = (HEADER + key.len()) as u64;
        let start = to.len();
        let read = match value.compressed {
            true => read_blocks(&*file, at, value, to, dictionaries),
            false => {
                to.resize(start + usize::try_from(value.bytes).unwrap_or(0), 0);
                let read = file.read_exact_at(&mut to[start..], at);
                read.map(|()| Ok(crc32c([&to[start..]])))
            }
        };
        let problem = match read.map_err(StoreError::io("reading", &path))? {
            Ok(crc) if crc == value.crc => return Ok(()),
            Ok(_) => "the value's checksum does not match".to_owned(),
            Err((_, NotUnpacked::NotBuiltIn(algorithm))) => {
                to.truncate(start);
                return Err(StoreError::not_built_in(&path, algorithm));
            }
            Err((at, why)) => format!("at byte {at}: {why}"),
        };
        to.truncate(start);
        Err(damaged(&problem))
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
        let mut key =
            vec![0; (u32_at(&header, 28) as usize).min(crate::limits::STORED_KEY_BYTES_MAX)];
        read(&mut key, HEADER)?;
        if &header[0..4] != MAGIC
            || u32_at(&header, 4) != crc32c([&header[8..], &key])
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

    /// Checks that what is stored in file `id` is what its header was written for. By what it may
    /// be compressed does not matter.
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
        let value = LargeRef {
            id,
            bytes,
            crc: u32::try_from(crc).unwrap_or(0),
            compressed: false,
        };
        self.read(&key, &value, &mut Vec::new(), &NoDictionaries)
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

/// A file's content, as it is written.
struct LargeContent<'a> {
    file: &'a dyn DiskFile,
    /// Where it begins in the file.
    start: u64,
    bytes: u64,
    crc: Checksum,
}

impl LargeContent<'_> {
    fn add(&mut self, part: &[u8]) -> io::Result<()> {
        self.file.write_all_at(part, self.start + self.bytes)?;
        self.crc.add(part);
        self.bytes += part.len() as u64;
        Ok(())
    }

    fn add_block(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let length = u32::try_from(length).map_err(|_| io::ErrorKind::InvalidInput)?;
        self.add(&length.to_le_bytes())?;
        let mut parts = parts.iter().filter(|part| !part.is_empty());
        parts.try_for_each(|part| self.add(part))
    }
}

/// Appends the value that lies in blocks from `at` of the file on to `to`; the checksum of what is
/// stored. What is no block is told with its place in the file.
fn read_blocks(
    file: &dyn DiskFile,
    mut at: u64,
    value: &LargeRef,
    to: &mut Vec<u8>,
    dictionaries: &dyn DictionarySource,
) -> io::Result<Result<u32, (u64, NotUnpacked)>> {
    let (start, end) = (to.len(), at + value.bytes);
    let (mut block, mut crc) = (Vec::new(), Checksum::new());
    while at < end {
        let mut length = [0; BLOCK_LENGTH];
        if end - at < (BLOCK_LENGTH + PACKED_HEADER) as u64 {
            return Ok(Err((at, NotUnpacked::Short)));
        }
        file.read_exact_at(&mut length, at)?;
        crc.add(&length);
        let bytes = u32::from_le_bytes(length);
        if u64::from(bytes) > end - at - BLOCK_LENGTH as u64 {
            return Ok(Err((at, NotUnpacked::Short)));
        }
        block.resize(bytes as usize, 0);
        file.read_exact_at(&mut block, at + BLOCK_LENGTH as u64)?;
        crc.add(&block);
        // All blocks together are one value.
        let (said, most) = (
            to.len() - start + raw_length(&block).unwrap_or(0) as usize,
            VALUE_BYTES_MAX,
        );
        let unpacked = match said > most {
            true => Err(NotUnpacked::RawLength { said, most }),
            false => unpack(&block, to, dictionaries),
        };
        if let Err(why) = unpacked {
            return Ok(Err((at, why)));
        }
        at += BLOCK_LENGTH as u64 + u64::from(bytes);
    }
    Ok(Ok(crc.value()))
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
    header[COMPRESSED_AT] = value.compressed.into();
    let crc = crc32c([&header[8..], key]);
    header[4..8].copy_from_slice(&crc.to_le_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        compression::Compression,
        disk::{
            RealDisk,
            faulty::{Fault, FaultPlan, FaultyDisk},
        },
    };

    #[test]
    fn a_large_value_is_read_with_its_key_and_settled_by_a_pointer() {
        let dir = tempfile::tempdir().unwrap();
        let values =
            LargeValues::open(Arc::new(RealDisk::default()), dir.path(), Uuid::nil(), 0).unwrap();
        let value = vec![7; 100_000];
        let written = values
            .write(b"key", &value, &Compressor::new(Compression::None))
            .unwrap();
        assert_eq!(values.settled_below(), written.value.id);
        let pointer = written.value;
        drop(written);
        assert_eq!(values.settled_below(), pointer.id + 1);
        let mut read = b"before".to_vec();
        values
            .read(b"key", &pointer, &mut read, &NoDictionaries)
            .unwrap();
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
        let pointer = values
            .write(b"key", &[7; 1000], &Compressor::new(Compression::None))
            .unwrap()
            .value;
        let stray = values.path(u64::MAX);
        std::fs::write(&stray, b"not ours").unwrap();
        let values = LargeValues::open(disk, dir.path(), Uuid::nil(), 0).unwrap();
        for _ in 0..3 {
            drop(values.write(b"other", &[8; 1000], &Compressor::new(Compression::None)));
        }
        let mut read = Vec::new();
        values
            .read(b"key", &pointer, &mut read, &NoDictionaries)
            .unwrap();
        assert_eq!(read, [7; 1000]);
        assert!(stray.exists());
    }

    #[test]
    fn a_file_left_by_a_failed_write_counts_until_it_is_removed() {
        // The disk goes away at each of the operations of a write in turn.
        (1..=6).for_each(|at| fails_at(at, Compression::None));
        if cfg!(feature = "lz4") {
            // Two for the block, and one since it is shorter than there was room for.
            (1..=8).for_each(|at| fails_at(at, Compression::Lz4));
        }
    }

    fn fails_at(at: u64, by: Compression) {
        let dir = tempfile::tempdir().unwrap();
        let plan = Arc::new(FaultPlan::default());
        let disk = FaultyDisk::new(Arc::new(RealDisk::default()), Arc::clone(&plan));
        let values = LargeValues::open(Arc::new(disk), dir.path(), Uuid::nil(), 0).unwrap();
        plan.strike(at, Fault::Gone);
        let written = values.write(b"key", &[7; 1000], &Compressor::new(by));
        assert!(written.is_err(), "{by}: {at}");
        plan.heal();
        for id in values.ids().unwrap() {
            values.remove(id).unwrap();
        }
        // One that was not made, or has no room, may count on.
        let (bytes, files) = values.size();
        assert!(bytes <= 1067 && files <= 1, "{by}: {at}: {bytes}, {files}");
        assert!(
            at < 3 || values.size() == (0, 0),
            "{by}: {at}: {bytes}, {files}"
        );
    }

    #[test]
    fn a_damaged_large_value_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let values =
            LargeValues::open(Arc::new(RealDisk::default()), dir.path(), Uuid::nil(), 0).unwrap();
        let pointer = values
            .write(b"key", &[7; 1000], &Compressor::new(Compression::None))
            .unwrap()
            .value;
        let path = values.path(pointer.id);
        let bytes = std::fs::read(&path).unwrap();
        let mut flipped = bytes.clone();
        flipped[500] ^= 1;
        std::fs::write(&path, flipped).unwrap();
        assert!(
            values
                .read(b"key", &pointer, &mut Vec::new(), &NoDictionaries)
                .is_err()
        );
        // However long the file is, no memory is taken for what no value can be.
        let sparse = std::fs::File::create(&path).unwrap();
        sparse.set_len(1 << 42).unwrap();
        for compressed in [false, true] {
            let lying = LargeRef {
                bytes: 1 << 41,
                compressed,
                ..pointer
            };
            let mut to = Vec::new();
            let refused = values
                .read(b"key", &lying, &mut to, &NoDictionaries)
                .unwrap_err()
                .to_string();
            assert!(refused.contains("longer than any value"), "{refused}");
            assert_eq!(to.capacity(), 0);
        }
        std::fs::write(&path, &bytes[..500]).unwrap();
        assert!(
            values
                .read(b"key", &pointer, &mut Vec::new(), &NoDictionaries)
                .is_err()
        );
        std::fs::write(&path, &bytes[..50]).unwrap();
        assert!(values.key_of(pointer.id).is_err());
    }
}
