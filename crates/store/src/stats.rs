//! Reports of `stats`, `gc` and `verify`.

use crate::{index::IndexStats, keyspace::KeyspaceInfo};
use serde::Serialize;

/// A store's sizes and counts. Bytes unless a name says otherwise.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Stats {
    /// Puts, deletes and batch operations since the store was opened.
    pub writes: u64,
    /// The durability in words.
    pub durability: String,
    /// The losses that an acknowledged write survives, in words.
    pub survives: String,
    /// Log address of the next record: bytes ever logged, headers included.
    pub log_tail: u64,
    /// Log address below which everything is in value-log files on the disk; of a resident store,
    /// where the log in the pool begins.
    pub log_drained: u64,
    /// Log address below which the index's tables are complete: where a restart begins to replay.
    pub log_indexed: u64,
    /// Bytes of all value-log files.
    pub value_log_bytes: u64,
    /// Number of value-log files.
    pub value_log_files: u64,
    /// Bytes of large values in files of their own.
    pub large_value_bytes: u64,
    /// Number of large values in files of their own.
    pub large_value_files: u64,
    /// Estimated garbage in the value log, by sampling; as old as the last look of the collector.
    /// That in files that cannot be collected is counted.
    pub garbage_bytes: u64,
    /// Value-log bytes over live bytes by that estimate.
    pub space_amplification: f64,
    /// Bytes that garbage collection wrote again since the store was opened.
    pub gc_relocated_bytes: u64,
    /// Value-log files that garbage collection removed since the store was opened.
    pub gc_files_removed: u64,
    /// Memory of all memtable chunks.
    pub memtable_bytes: u64,
    /// Upper bound of the memory that the options allow: chunks and cache.
    pub memory_bytes_max: u64,
    /// Keys in the memtable chunks, older versions included.
    pub memtable_keys: u64,
    /// The keyspaces beside the default one.
    pub keyspaces: Vec<KeyspaceInfo>,
    /// Dropped keyspaces that are being cleared out of the index.
    pub dropped_keyspaces: u64,
    /// Deleted keys, or ones that memory hides, that scans have passed over since the store was
    /// opened, tombstones among them.
    pub scan_passed_keys: u64,
    /// Waits of writers since the store was opened.
    pub waits: WriterWaits,
    /// The gain of compression of the values that were written, but for those of
    /// [keyspaces](crate::Keyspace::compression_stats).
    pub compression: CompressionStats,
    /// Dictionaries of compressed values that the store keeps, of all keyspaces.
    pub dictionaries: u64,
    /// Bytes of their files.
    pub dictionary_bytes: u64,
    /// The index.
    pub index: IndexStats,
    /// Times that a value-log file was synced since the store was opened.
    pub sync_calls: u64,
    /// Wall time of those syncs, seconds, over all threads.
    pub sync_seconds: f64,
    /// CPU time of the calling threads in those syncs, seconds.
    pub sync_cpu_seconds: f64,
    /// Value-log files that cannot be collected, as far as collection has found out in this
    /// session. Their garbage is counted.
    pub set_aside: Vec<SetAside>,
    /// Files that are of no use any more and could not be removed, and why. They take space and do
    /// no harm; the next opening tries again.
    pub leftovers: Vec<String>,
    /// The parts that this opening gave up, with `salvage`.
    pub given_up: Vec<String>,
    /// The reason that the value log or the index cannot be written, or no garbage be collected, at
    /// present, if so; or that a write had no room that has none still; or that a dictionary of
    /// compressed values is damaged, or cannot be written.
    pub trouble: Option<String>,
}

/// The gain of compression since the store was opened, of the values that were handed to writes.
/// Without it nothing is counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CompressionStats {
    /// The option, in words.
    pub compression: String,
    /// Values, and blocks of large ones.
    pub values: u64,
    /// Their bytes.
    pub raw_bytes: u64,
    /// The bytes that were stored of them.
    pub stored_bytes: u64,
    /// Those that were stored as they are: short ones, ones that became too little smaller, and
    /// ones that were not tried.
    pub kept_raw: u64,
    /// Those that were compressed with a dictionary.
    pub with_dictionary: u64,
}

/// Values that were looked at in the value log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ValueSample {
    /// The number of values.
    pub values: u64,
    /// Those of them that are compressed.
    pub compressed: u64,
    /// Bytes of all of them.
    pub raw_bytes: u64,
    /// The bytes that are stored of them.
    pub stored_bytes: u64,
}

/// Waits of writers, apart from those for a processor and the disk of an `fsync`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct WriterWaits {
    /// The index to keep up with the memtable: pauses, little by little.
    pub index: WaitStats,
    /// Garbage collection to keep up.
    pub collector: WaitStats,
    /// The drain to keep up: pauses, little by little, as the last free segment of the pool fills.
    pub drain: WaitStats,
    /// A free segment, when there was none left.
    pub segment: WaitStats,
    /// A full memtable chunk to be replaced by an empty one.
    pub freeze: WaitStats,
}

impl WriterWaits {
    /// Each with its name.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// for (reason, waits) in store.stats().waits.named() {
    ///     println!("{reason}: {} times", waits.times);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn named(&self) -> [(&'static str, WaitStats); 5] {
        [
            ("index", self.index),
            ("collector", self.collector),
            ("drain", self.drain),
            ("segment", self.segment),
            ("freeze", self.freeze),
        ]
    }
}

/// Waits of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct WaitStats {
    /// The number of waits.
    pub times: u64,
    /// All together, seconds, over all threads.
    pub seconds: f64,
    /// The longest, seconds.
    pub longest_seconds: f64,
}

impl From<forebay_pool::WaitCounts> for WaitStats {
    fn from(waits: forebay_pool::WaitCounts) -> Self {
        Self {
            times: waits.times,
            seconds: waits.seconds,
            longest_seconds: waits.longest_seconds,
        }
    }
}

/// A value-log file that cannot be collected: it stays, and the others are collected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SetAside {
    /// The file.
    pub file: String,
    /// Bytes of log that it holds.
    pub bytes: u64,
    /// The reason that it cannot be collected.
    pub reason: String,
}

/// The outcome of a run of garbage collection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct GcReport {
    /// Value-log files collected.
    pub files: u64,
    /// Records looked at.
    pub records: u64,
    /// Live records written again.
    pub relocated: u64,
    /// Their bytes.
    pub relocated_bytes: u64,
    /// Bytes of the files given up.
    pub reclaimed_bytes: u64,
    /// Large values removed.
    pub large_values: u64,
    /// Files that could not be collected.
    pub set_aside: Vec<SetAside>,
}

/// The stage of a compaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
#[serde(rename_all = "lowercase")]
pub enum CompactionStage {
    /// Merging the index.
    #[default]
    Index,
    /// Collecting value-log files.
    Log,
}

/// The progress of a compaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CompactionProgress {
    /// Its stage. Each stage begins with no byte done.
    pub stage: CompactionStage,
    /// Of the index: bytes that were written anew, or are to stay as they are. Of the log: bytes
    /// that were given back.
    pub done_bytes: u64,
    /// The total that these may come to. Of the log it is an estimate.
    pub total_bytes: u64,
}

/// The outcome of a compaction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CompactionReport {
    /// Bytes of the store's files before, and after. What an open snapshot keeps counts.
    pub bytes_before: u64,
    /// See there.
    pub bytes_after: u64,
    /// The outcome for the value log.
    pub collected: GcReport,
    /// The caller ended it.
    pub interrupted: bool,
}

/// The progress of a checkpoint or backup, and its outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CopyReport {
    /// Files that the copy has: of the value log, large values, and the index's tables.
    pub files: u64,
    /// Bytes of files that it has so far, linked or copied.
    pub done_bytes: u64,
    /// Those that were copied. All others were linked, and take no room of their own.
    pub copied_files: u64,
    /// Their bytes.
    pub copied_bytes: u64,
}

/// A backup that was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct BackupReport {
    /// Its directory.
    pub backup: String,
    /// Files that it has.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files that were copied and checked. All others are those of the backup before.
    pub copied_files: u64,
    /// Their bytes.
    pub copied_bytes: u64,
    /// Time that it took.
    pub seconds: f64,
}

/// The findings of a verification.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Live keys whose value was read and checked.
    pub keys: u64,
    /// Their value bytes.
    pub value_bytes: u64,
    /// Records in the value-log files whose checksum was checked, dead ones included.
    pub log_records: u64,
    /// Everything that is wrong.
    pub problems: Vec<String>,
    /// Value-log files that cannot be collected, and why, whether anything in them is damaged or
    /// not.
    pub not_collectable: Vec<String>,
}
