//! Writes a sorted run: entries in, finished and synced tables out.
//!
//! A [`RunWriter`] starts a new table when one has reached its size. Until [`NewTables::keep`] the
//! files are provisional: dropping the writer or the new tables (any error does) unlinks them, so a
//! full disk gets its space back at once and the work can be tried again.
//!
//! Durability was checked in lsm-tree 3.1.10: `table::Writer::finish` writes the trailer, flushes
//! its buffer, calls `sync_all` on the file and then on its directory. A table is therefore whole
//! on disk before a manifest can name it.
use super::{
    IndexCause, IndexError, RecordAddress, ValueForm, address,
    prefix_filter::PrefixCollector,
    table::{self, TableFacts, TableFile},
};
use crate::{disk::HeldDirectory, keyspace::KeyspaceCatalogue, limits::STORED_KEY_BYTES_MAX};
use lsm_tree::{
    Cache, InternalValue, Slice, ValueType,
    table::{Writer, filter::BloomConstructionPolicy},
};
use rustix::fs::OFlags;
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// Filter bits for each key: about one lookup in a hundred for an absent key reads a block in vain.
const FILTER_BITS_PER_KEY: f32 = 10.0;

/// Keys and addresses in one data block, bytes, before block overhead.
const BLOCK_BYTES: u32 = 4096;

/// Every how manieth entry of a block has its whole key, for the search to start from.
const HEAD_INTERVAL: u8 = 8;

/// Entry overhead in a block, bytes: type, sequence number, two key lengths, value length.
const ENTRY_OVERHEAD: u64 = 5;

/// The maker of a new table: its form, and its place.
#[derive(Clone)]
pub(super) struct TableMaker {
    /// Directory of the tables.
    pub(super) dir: Arc<HeldDirectory>,
    /// Next table number.
    pub(super) next_id: Arc<AtomicU64>,
    /// The block cache that tables read through.
    pub(super) cache: Arc<Cache>,
    /// A table is closed when it has about this many bytes.
    pub(super) table_bytes: u64,
    /// Says which keys are dead, and come into no new table.
    pub(super) keyspaces: Arc<KeyspaceCatalogue>,
    /// Of this many bytes are the prefixes of which tables have a filter; 0: none has one.
    pub(super) prefix_bytes: usize,
    /// The watermark below which deleted ranges hide nothing of what is written.
    pub(super) known: u64,
}

/// Files, by directory and table number, that are unlinked unless they are kept.
#[derive(Default)]
struct ProvisionalFiles(Vec<(Arc<HeldDirectory>, u64)>);

impl Drop for ProvisionalFiles {
    fn drop(&mut self) {
        for (dir, id) in &self.0 {
            // What cannot be unlinked now is a leftover, and leftovers are cleared at the next
            // open.
            let _ = dir.remove(Path::new(&table::name_of(*id)));
        }
    }
}

/// The open table of a run that is being written.
struct CurrentTable {
    id: u64,
    writer: Writer,
    bytes: u64,
    prefixes: Option<PrefixCollector>,
}

/// A sorted run in the making. lsm-tree's writer stays on the thread that made it, and so does
/// this.
pub(super) struct RunWriter {
    maker: TableMaker,
    /// Write filter and block index in parts that the block cache holds, not whole to be pinned.
    in_parts: bool,
    doing: &'static str,
    current: Option<CurrentTable>,
    last_key: Option<Slice>,
    finished: Vec<Arc<TableFile>>,
    /// Dropped after `current`, whose buffered writer may still write when it is dropped.
    files: ProvisionalFiles,
}

/// Finished tables of a run, those that are new still provisional.
#[derive(Default)]
pub(super) struct NewTables {
    pub(super) tables: Vec<Arc<TableFile>>,
    files: ProvisionalFiles,
}

impl NewTables {
    /// Adds tables that follow these in key order.
    pub(super) fn append(&mut self, mut next: Self) {
        self.tables.append(&mut next.tables);
        self.files.0.append(&mut next.files.0);
    }

    /// The tables are there to stay.
    pub(super) fn keep(mut self) {
        self.files.0.clear();
    }
}

impl RunWriter {
    /// Starts a run. `doing` is what errors will say was being done.
    pub(super) fn new(maker: TableMaker, in_parts: bool, doing: &'static str) -> Self {
        Self {
            maker,
            in_parts,
            doing,
            current: None,
            last_key: None,
            finished: Vec::new(),
            files: ProvisionalFiles::default(),
        }
    }

    /// Adds a key of the store's.
    ///
    /// # Errors
    /// I/O errors; a key that a table cannot hold or that does not ascend.
    pub(super) fn add(&mut self, key: &[u8], address: RecordAddress) -> Result<(), IndexError> {
        if key.is_empty() || key.len() > STORED_KEY_BYTES_MAX {
            return Err(self.invalid(format!("a key of {} bytes", key.len())));
        }
        let entry = match address.form {
            ValueForm::Tombstone => {
                InternalValue::from_components(key, Slice::new(&[]), 0, ValueType::Tombstone)
            }
            ValueForm::Record | ValueForm::InBatch => {
                let value = Slice::new(address::encode(address).as_slice());
                InternalValue::from_components(key, value, 0, ValueType::Value)
            }
        };
        if !self.ascends(&entry.key.user_key) {
            return Err(self.invalid("keys that do not ascend".into()));
        }
        self.write(entry)
    }

    /// Adds an entry of another table.
    ///
    /// # Errors
    /// I/O errors; an entry out of order, which means that its table is damaged.
    pub(super) fn add_entry(&mut self, entry: InternalValue) -> Result<(), IndexError> {
        if !self.ascends(&entry.key.user_key) {
            return Err(self.fail(IndexCause::Corrupt("entries out of order".into())));
        }
        self.write(entry)
    }

    /// True if the next entry would begin another table.
    pub(super) fn is_full(&self) -> bool {
        self.current
            .as_ref()
            .is_some_and(|c| c.bytes >= self.maker.table_bytes)
    }

    fn ascends(&self, key: &Slice) -> bool {
        self.last_key.as_ref().is_none_or(|last| last < key)
    }

    fn write(&mut self, entry: InternalValue) -> Result<(), IndexError> {
        if self.current.is_none() || self.is_full() {
            self.close_table()?;
            self.current = Some(self.open_table()?);
        }
        if let Some(current) = &mut self.current {
            let key = entry.key.user_key.clone();
            if let Some(prefixes) = &mut current.prefixes {
                prefixes.add(&key);
            }
            current.bytes += (key.len() + entry.value.len()) as u64 + ENTRY_OVERHEAD;
            if let Err(e) = current.writer.write(entry) {
                let id = current.id;
                return Err(self.table_error(id, e));
            }
            self.last_key = Some(key);
        }
        Ok(())
    }

    fn open_table(&mut self) -> Result<CurrentTable, IndexError> {
        let id = self.maker.next_id.fetch_add(1, Ordering::Relaxed);
        let name = table::name_of(id);
        let through = self.maker.dir.path_through(Path::new(&name));
        let through = through.map_err(|e| self.table_error(id, lsm_tree::Error::Io(e)))?;
        let writer = Writer::new(through, id, 0).map_err(|e| self.table_error(id, e))?;
        self.files.0.push((Arc::clone(&self.maker.dir), id));
        // The filter policy goes first: the filter in parts takes it over when it is made.
        let mut writer = writer
            .use_bloom_policy(BloomConstructionPolicy::BitsPerKey(FILTER_BITS_PER_KEY))
            .use_data_block_size(BLOCK_BYTES)
            .use_data_block_restart_interval(HEAD_INTERVAL);
        if self.in_parts {
            writer = writer.use_partitioned_index().use_partitioned_filter();
        }
        Ok(CurrentTable {
            id,
            writer,
            bytes: 0,
            // Where memory does not do for filters, it does not for this one.
            prefixes: (self.maker.prefix_bytes > 0 && !self.in_parts)
                .then(|| PrefixCollector::new(self.maker.prefix_bytes)),
        })
    }

    /// Closes the open table, if there is one: its entries are then durable.
    fn close_table(&mut self) -> Result<(), IndexError> {
        let Some(current) = self.current.take() else {
            return Ok(());
        };
        let CurrentTable {
            id,
            writer,
            prefixes,
            ..
        } = current;
        let written = writer.finish().map_err(|e| self.table_error(id, e))?;
        let Some((id, checksum)) = written else {
            return Ok(());
        };
        if let Some(prefixes) = prefixes {
            let name = table::name_of(id);
            let table = self.maker.dir.open_file(Path::new(&name), OFlags::RDWR);
            let appended = table.and_then(|table| prefixes.append_to(&table));
            appended.map_err(|e| self.table_error(id, lsm_tree::Error::Io(e)))?;
        }
        let bytes = self.maker.dir.length_of(&table::name_of(id));
        let bytes = bytes.map_err(|e| self.table_error(id, lsm_tree::Error::Io(e)))?;
        let facts = TableFacts {
            id,
            bytes,
            checksum: checksum.into_u128(),
            known: self.maker.known,
        };
        let table = TableFile::open(&self.maker.dir, facts, &self.maker.cache)?;
        let table = table.settle_checksum()?;
        self.finished.push(Arc::new(table));
        Ok(())
    }

    /// Closes the last table and hands over all of them.
    pub(super) fn finish(mut self) -> Result<NewTables, IndexError> {
        self.close_table()?;
        Ok(NewTables {
            tables: self.finished,
            files: self.files,
        })
    }

    fn fail(&self, cause: IndexCause) -> IndexError {
        IndexError {
            path: self.maker.dir.path().to_owned(),
            doing: self.doing,
            cause,
        }
    }

    fn invalid(&self, what: String) -> IndexError {
        self.fail(IndexCause::Invalid(what))
    }

    fn table_error(&self, id: u64, e: lsm_tree::Error) -> IndexError {
        let path = self.maker.dir.path().join(table::name_of(id));
        table::error(&path, self.doing, e)
    }
}
