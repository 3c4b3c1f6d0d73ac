//! One sorted table file: `lsm-tree`'s table format, opened, read and checked.
//!
//! Of `lsm-tree` this index uses the tables (writer, blocks, filters, block index, block cache) and
//! nothing above them. Every entry has sequence number 0: which of two entries for a key is newer
//! follows from the order of the runs that hold them, and a run holds a key once.
//!
//! A table keeps its file open, so it stays readable after the file is unlinked. Blocks carry their
//! own checksums, which are checked when a block is read from the file; the whole file's checksum
//! stands in the manifest and is checked by [`TableFile::verify`].
use super::{
    IndexCause, IndexError, RecordAddress, ValueForm, address,
    lookup::{self, Fences, Lookup},
    prefix_filter::PrefixFilter,
};
use crate::{
    disk::HeldDirectory,
    range_tombstones::{RangeTombstone, RangeTombstones},
};
use lsm_tree::{
    Cache, Checksum, GlobalTableId, InternalValue, Slice, Table, ValueType,
    checksum::ChecksummedWriter,
    table::{Scanner, filter::standard_bloom::Builder as Bloom},
};
use rustix::fs::OFlags;
use std::{
    io,
    ops::Bound,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::Arc,
};

/// Extension of table files; the name before it is the table's number.
const EXTENSION: &str = "table";

/// Reading at this sequence number sees the entries of sequence number 0, which all are.
const READ_AT: u64 = 1;

/// lsm-tree's number of the tree that a table is of: part of the keys of the block cache, of which
/// each index has its own.
const TREE: u64 = 0;

/// Bounds of a scan, owned.
pub(super) type KeyBounds = (Bound<Slice>, Bound<Slice>);

/// Entries of one table, from either end.
pub(super) type Entries =
    Box<dyn DoubleEndedIterator<Item = lsm_tree::Result<InternalValue>> + Send>;

/// The manifest's facts of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TableFacts {
    /// The table's number; numbers are not reused while the index is open.
    pub(super) id: u64,
    /// Length of its file, bytes.
    pub(super) bytes: u64,
    /// XXH3-128 of the whole file.
    pub(super) checksum: u128,
    /// The watermark up to which the log was known when it was written: its entries lie below, and
    /// deleted ranges from below hide none of them. One from this address on hides all of its keys.
    pub(super) known: u64,
}

/// An open table.
pub(super) struct TableFile {
    table: Table,
    facts: TableFacts,
    /// Where it is: lsm-tree has a path through this one's descriptor.
    dir: Arc<HeldDirectory>,
    /// For messages.
    path: PathBuf,
    /// For the short way to a key; none if the block index is in parts.
    fences: Option<Fences>,
    prefixes: Option<PrefixFilter>,
}

/// The name of the file of table `id`.
pub(super) fn name_of(id: u64) -> String {
    format!("{id:08}.{EXTENSION}")
}

/// The table number a file name stands for, if it is a table's.
pub(super) fn id_of(name: &str) -> Option<u64> {
    let id = name.strip_suffix(EXTENSION)?.strip_suffix('.')?;
    let digits = id.bytes().all(|b| b.is_ascii_digit()) && id.len() >= 8;
    if digits { id.parse().ok() } else { None }
}

/// The hash that all tables' filters share for a lookup of `key`.
pub(super) fn hash_of(key: &[u8]) -> u64 {
    Bloom::get_hash(key)
}

/// Turns an error of `lsm-tree` into ours. A file that ends early is damage, not a failing disk.
pub(super) fn error(path: &Path, doing: &'static str, e: lsm_tree::Error) -> IndexError {
    let cause = match e {
        lsm_tree::Error::Io(e) if e.kind() == io::ErrorKind::InvalidData => {
            IndexCause::Corrupt(e.to_string())
        }
        lsm_tree::Error::Io(e) if e.kind() != io::ErrorKind::UnexpectedEof => IndexCause::Io(e),
        lsm_tree::Error::Io(e) => IndexCause::Corrupt(format!("the file ends early: {e}")),
        lsm_tree::Error::ChecksumMismatch { got, expected } => IndexCause::Corrupt(format!(
            "a block's checksum is {:032x}, expected {:032x}",
            got.into_u128(),
            expected.into_u128()
        )),
        e => IndexCause::Corrupt(format!("{e:?}")),
    };
    IndexError {
        path: path.to_owned(),
        doing,
        cause,
    }
}

impl TableFile {
    /// Opens a table and reads its filter and block index.
    ///
    /// # Errors
    /// I/O errors; a file that is not the table which `facts` describe.
    pub(super) fn open(
        dir: &Arc<HeldDirectory>,
        facts: TableFacts,
        cache: &Arc<Cache>,
    ) -> Result<Self, IndexError> {
        const DOING: &str = "opening a table";
        let name = name_of(facts.id);
        let path = dir.path().join(&name);
        let fail = |cause| IndexError {
            path: path.clone(),
            doing: DOING,
            cause,
        };
        let corrupt = |found: String| fail(IndexCause::Corrupt(found));
        let bytes = match dir.length_of(&name) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(corrupt(
                    "the manifest names this table, but it is missing".into(),
                ));
            }
            Err(e) => return Err(fail(IndexCause::Io(e))),
        };
        if bytes != facts.bytes {
            return Err(corrupt(format!(
                "{bytes} bytes long, expected {}",
                facts.bytes
            )));
        }
        let io_failed = |e| fail(IndexCause::Io(e));
        let through = dir.path_through(Path::new(&name)).map_err(io_failed)?;
        // Whole filters and indexes are always pinned; which tables have them in parts, to be
        // cached block by block, is decided when they are written (`RunWriter`).
        //
        // lsm-tree panics on a table whose meta block lacks a property or names another version.
        // The block's checksum has been found right by then, so that is a foreign file; still, it
        // must not take the process down. Nothing of ours is shared with the closure but the cache,
        // which is built for concurrent use and is left as it was.
        let recovered = catch_unwind(AssertUnwindSafe(|| {
            let checksum = Checksum::from_raw(facts.checksum);
            let cache = Arc::clone(cache);
            let table = Table::recover(through, checksum, 0, TREE, cache, None, true, true)?;
            let file = dir.open_file(Path::new(&name), OFlags::RDONLY)?;
            let fences = Fences::read(&table, &file)?;
            Ok((table, fences, PrefixFilter::read(&file)?))
        }));
        let (table, fences, prefixes) = match recovered {
            Ok(table) => table.map_err(|e| error(&path, DOING, e))?,
            Err(_) => return Err(corrupt("not a table of this version".into())),
        };
        if table.id() != facts.id {
            return Err(corrupt(format!("says it is table {}", table.id())));
        }
        Ok(Self {
            table,
            facts,
            dir: Arc::clone(dir),
            path,
            fences,
            prefixes,
        })
    }

    /// Unlinks the file. What has the table open reads on.
    pub(super) fn unlink(&self) -> io::Result<()> {
        self.dir.remove(Path::new(&name_of(self.facts.id)))
    }

    /// The facts of this table for the manifest.
    pub(super) fn facts(&self) -> TableFacts {
        self.facts
    }

    /// True if a range hides the table's entries for all of its keys; otherwise it hides none.
    pub(super) fn is_hidden_by(&self, range: &RangeTombstone) -> bool {
        range.lsn >= self.facts.known
    }

    /// The deleted ranges that hide keys of the table's.
    pub(super) fn hidden_by<'r>(
        &self,
        deleted: &'r RangeTombstones,
    ) -> impl Iterator<Item = &'r RangeTombstone> {
        let (min, max) = self.key_range();
        let overlapping = deleted.overlapping(min, max).iter();
        overlapping.filter(move |range| self.is_hidden_by(range))
    }

    /// True if they hide the whole table.
    pub(super) fn is_hidden(&self, deleted: &RangeTombstones) -> bool {
        let (min, max) = self.key_range();
        let mut behind: &[u8] = min;
        for range in self.hidden_by(deleted) {
            match range.end.as_deref() {
                _ if *range.start > *behind => return false,
                Some(end) if *end <= **max => behind = end,
                _ => return true,
            }
        }
        false
    }

    /// The number of entries that deleted ranges hide, about.
    pub(super) fn hidden_entries(&self, deleted: &RangeTombstones) -> u64 {
        let share = |range| self.share_of(range);
        let share: f64 = self.hidden_by(deleted).map(share).sum();
        (self.entries() as f64 * share.min(1.0)) as u64
    }

    /// The share of the table's keys that lies in a range which overlaps it, by its blocks.
    fn share_of(&self, range: &RangeTombstone) -> f64 {
        let (min, max) = self.key_range();
        let from = (*range.start > **min).then_some(&*range.start);
        let to = range.end.as_deref().filter(|end| **end <= **max);
        match &self.fences {
            Some(fences) => fences.share_between(from, to),
            None if from.is_some() && to.is_some() => 0.0,
            None if from.is_some() || to.is_some() => 0.5,
            None => 1.0,
        }
    }

    /// The table's file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Smallest and largest key.
    pub(super) fn key_range(&self) -> (&Slice, &Slice) {
        let range = &self.table.metadata.key_range;
        (range.min(), range.max())
    }

    /// Entries, tombstones included.
    pub(super) fn entries(&self) -> u64 {
        self.table.metadata.item_count
    }

    /// Tombstones.
    pub(super) fn tombstones(&self) -> u64 {
        self.table.metadata.tombstone_count
    }

    /// False if the table has no key of that [`hash_of`], as far as its filter tells where that is
    /// in memory.
    pub(super) fn may_hold(&self, hash: u64) -> bool {
        let filter = self.table.pinned_filter_block.as_ref();
        filter.is_none_or(|filter| filter.maybe_contains_hash(hash).unwrap_or(true))
    }

    /// True if the table has no key within the bounds, as far as its filter of prefixes tells.
    pub(super) fn denies(&self, bounds: &KeyBounds) -> bool {
        let prefixes = self.prefixes.as_ref();
        prefixes.is_some_and(|prefixes| prefixes.denies(bounds))
    }

    /// Memory that the table holds outside the block cache, bytes.
    pub(super) fn pinned_bytes(&self) -> u64 {
        let fences = self.fences.as_ref().map_or(0, Fences::bytes);
        let filters =
            self.table.pinned_filter_size() + self.prefixes.as_ref().map_or(0, PrefixFilter::bytes);
        (filters + self.table.pinned_block_index_size() + fences) as u64
    }

    /// The entry for `key`, whose [`hash_of`] is `hash`.
    pub(super) fn get(&self, key: &[u8], hash: u64) -> Result<Option<RecordAddress>, IndexError> {
        const DOING: &str = "looking up a key";
        match self.get_cached(key, hash) {
            Ok(Lookup::Found(address)) => return Ok(Some(address)),
            Ok(Lookup::Absent) => return Ok(None),
            Ok(Lookup::Unsure) => {}
            Err(e) => return Err(error(self.path(), DOING, e)),
        }
        match self.table.get(key, READ_AT, hash) {
            Ok(None) => Ok(None),
            Ok(Some(entry)) => address_of(&entry, || self.path().to_owned(), DOING).map(Some),
            Err(e) => Err(error(self.path(), DOING, e)),
        }
    }

    /// The short way: unsure if the block is not in the cache, or which block it is cannot be told.
    fn get_cached(&self, key: &[u8], hash: u64) -> lsm_tree::Result<Lookup> {
        let (Some(filter), Some(fences)) = (&self.table.pinned_filter_block, &self.fences) else {
            return Ok(Lookup::Unsure);
        };
        if !filter.maybe_contains_hash(hash)? {
            return Ok(Lookup::Absent);
        }
        let table = GlobalTableId::from((TREE, self.facts.id));
        let block = fences
            .block_of(key)
            .and_then(|offset| self.table.cache.get_block(table, offset));
        Ok(block.map_or(Lookup::Unsure, |block| {
            lookup::find_in_block(&block.data, key)
        }))
    }

    /// The entries within `bounds`, read block by block through the cache.
    pub(super) fn range(&self, bounds: &KeyBounds) -> Entries {
        Box::new(self.table.range(bounds.clone()))
    }

    /// All entries in order, read past the cache.
    pub(super) fn scan(&self, doing: &'static str) -> Result<Scanner, IndexError> {
        let fail = |e| error(self.path(), doing, e);
        // lsm-tree opens it by its path, which must lead where it did.
        let name = name_of(self.facts.id);
        let through = self.dir.path_through(Path::new(&name));
        let through = through.map_err(|e| fail(lsm_tree::Error::Io(e)))?;
        if through != *self.table.path {
            let moved = io::Error::other("the directory was moved, and is not found any more");
            return Err(fail(lsm_tree::Error::Io(moved)));
        }
        self.table.scan().map_err(fail)
    }

    /// Reads the whole file.
    fn checksum_of_file(&self, doing: &'static str) -> Result<u128, IndexError> {
        let io = |e| error(self.path(), doing, lsm_tree::Error::Io(e));
        let mut hasher = ChecksummedWriter::new(io::sink());
        let name = name_of(self.facts.id);
        let opened = self.dir.open_file(Path::new(&name), OFlags::RDONLY);
        let mut file = opened.map_err(io)?;
        io::copy(&mut file, &mut hasher).map_err(io)?;
        Ok(hasher.checksum().into_u128())
    }

    /// Takes the file's own checksum for the one that lsm-tree's writer stated, if all else in it
    /// is right. That writer counts bytes twice of which a nearly full disk took only some at
    /// first.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged.
    pub(super) fn settle_checksum(mut self) -> Result<Self, IndexError> {
        let found = self.checksum_of_file("reading a new table")?;
        if found != self.facts.checksum {
            self.facts.checksum = found;
            self.verify()?;
        }
        Ok(self)
    }

    /// Reads the whole file and checks its checksum, order, bounds and count.
    pub(super) fn verify(&self) -> Result<(), IndexError> {
        const DOING: &str = "verifying a table";
        let corrupt = |found: String| IndexError {
            path: self.path().to_owned(),
            doing: DOING,
            cause: IndexCause::Corrupt(found),
        };
        let found = self.checksum_of_file(DOING)?;
        if found != self.facts.checksum {
            let expected = self.facts.checksum;
            return Err(corrupt(format!(
                "the file's checksum is {found:032x}, expected {expected:032x}"
            )));
        }
        let (min, max) = self.key_range();
        let mut previous: Option<Slice> = None;
        let mut entries = 0;
        for entry in self.scan(DOING)? {
            let entry = entry.map_err(|e| error(self.path(), DOING, e))?;
            address_of(&entry, || self.path().to_owned(), DOING)?;
            let key = entry.key.user_key;
            if previous.as_ref().is_some_and(|p| *p >= key) {
                return Err(corrupt(format!("entry {entries} is out of order")));
            }
            if previous.is_none() && key != *min {
                return Err(corrupt(
                    "the first key is not the one its index states".into(),
                ));
            }
            previous = Some(key);
            entries += 1;
        }
        if previous.as_ref() != Some(max) || entries != self.entries() {
            return Err(corrupt(format!(
                "{entries} entries, expected {} up to its last key",
                self.entries()
            )));
        }
        Ok(())
    }
}

/// The address that a table's entry holds.
pub(super) fn address_of(
    entry: &InternalValue,
    path: impl FnOnce() -> PathBuf,
    doing: &'static str,
) -> Result<RecordAddress, IndexError> {
    let found = match entry.key.value_type {
        ValueType::Tombstone => Some(RecordAddress {
            lsn: 0,
            len: 0,
            form: ValueForm::Tombstone,
        }),
        ValueType::Value => address::decode(&entry.value),
        ValueType::WeakTombstone | ValueType::Indirection => None,
    };
    found.ok_or_else(|| IndexError {
        path: path(),
        doing,
        cause: IndexCause::Corrupt(format!(
            "the entry of key {:02x?} holds no address",
            &entry.key.user_key[..]
        )),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::writer::{RunWriter, TableMaker};

    /// A disk that takes no more than half of what it is given at once.
    struct HalfTaken(Vec<u8>);

    impl io::Write for HalfTaken {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let some = bytes.len().div_ceil(2);
            self.0.extend_from_slice(&bytes[..some]);
            Ok(some)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Why tables are read once they are written. If this fails, lsm-tree has mended it.
    #[test]
    fn lsm_trees_writer_miscounts_what_is_taken_in_part() {
        use io::Write;
        let mut writer = ChecksummedWriter::new(HalfTaken(Vec::new()));
        writer.write_all(&[7; 1000]).unwrap();
        let mut right = ChecksummedWriter::new(io::sink());
        right.write_all(&[7; 1000]).unwrap();
        assert_eq!(writer.inner_mut().0, [7; 1000]);
        assert_ne!(writer.checksum().into_u128(), right.checksum().into_u128());
    }

    /// What was written is read once more, so that corruption is reported, never masked.
    #[test]
    fn a_miscounted_checksum_is_settled_and_damage_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let held = HeldDirectory::open(dir.path()).unwrap();
        let maker = TableMaker {
            dir: Arc::clone(&held),
            next_id: Arc::default(),
            cache: Arc::new(Cache::with_capacity_bytes(1 << 20)),
            table_bytes: 1 << 20,
            keyspaces: Arc::default(),
            prefix_bytes: 0,
            known: 0,
        };
        let cache = Arc::clone(&maker.cache);
        let mut writer = RunWriter::new(maker, false, "testing");
        let address = RecordAddress::at(0);
        for n in 0..5000_u32 {
            writer.add(&n.to_be_bytes(), address).unwrap();
        }
        let written = writer.finish().unwrap();
        let right = written.tables[0].facts;
        let wrong = TableFacts {
            checksum: right.checksum ^ 1,
            ..right
        };
        let open = || TableFile::open(&held, wrong, &cache).unwrap();
        assert_eq!(open().settle_checksum().unwrap().facts, right);
        // A byte of a data block.
        let path = dir.path().join(name_of(right.id));
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[5000] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        let damaged = open().settle_checksum().err().unwrap();
        assert!(matches!(damaged.cause, IndexCause::Corrupt(_)), "{damaged}");
    }

    #[test]
    fn table_numbers_are_read_back_from_file_names() {
        for id in [0, 7, 99_999_999, 100_000_000, u64::MAX] {
            assert_eq!(id_of(&name_of(id)), Some(id));
        }
        for foreign in [
            "7.table",
            "table",
            "00000007",
            "0000000x.table",
            "00000007.tmp",
            "+0000007.table",
        ] {
            assert_eq!(id_of(foreign), None, "{foreign}");
        }
    }
}
