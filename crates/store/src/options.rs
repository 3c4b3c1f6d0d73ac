//! Options to open a store.

use crate::{
    compression::{Compression, TrainingPace},
    disk::descriptors,
    error::StoreError,
    log::segments_min,
};
use forebay_pool::SEGMENTS_MAX;
use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::SystemTime,
};

/// The moment at which a put is durable, and the steps between it and the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// Each put writes to the value log and syncs it. Needs no pool.
    Fsync,
    /// Each put writes to the value log and does not sync: fast, and *unsafe*: a power cut loses
    /// what the kernel had not written. A killed process loses nothing. Needs no pool.
    NoSync,
    /// Puts go to so many segments of a pool, 1 to 64, and are durable there (on a disk once they
    /// are [committed](StoreOptions::commit_puts)); a background drain writes the value log. With
    /// one, writers wait while it is drained once it is full; with two, they fill the other one
    /// meanwhile.
    Buffered(u16),
}

impl Durability {
    /// One segment of a pool.
    pub const SINGLE: Self = Self::Buffered(1);
    /// Two segments of a pool, filled and drained in turn.
    pub const DOUBLE: Self = Self::Buffered(2);
}

impl std::fmt::Display for Durability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Fsync => f.write_str("fsync"),
            Self::NoSync => f.write_str("nosync"),
            Self::Buffered(1) => f.write_str("single"),
            Self::Buffered(2) => f.write_str("double"),
            Self::Buffered(n) => write!(f, "buffers={n}"),
        }
    }
}

impl std::str::FromStr for Durability {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "fsync" => Ok(Self::Fsync),
            "nosync" => Ok(Self::NoSync),
            "single" => Ok(Self::SINGLE),
            "double" => Ok(Self::DOUBLE),
            _ => text
                .strip_prefix("buffers=")
                .and_then(|n| n.parse().ok())
                .filter(|n| (1..=SEGMENTS_MAX).contains(n))
                .map(Self::Buffered)
                .ok_or_else(|| {
                    format!("unknown durability {text:?}: fsync, nosync, single, double, or buffers=N with N from 1 to 64")
                }),
        }
    }
}

/// Longest prefixes of which tables have a filter.
const PREFIX_BYTES_MAX: usize = 255;

/// Options to open a store. The defaults suit a machine with a few gigabytes of memory and an SSD.
///
/// [`open`](Self::open) is the last call. Those that matter, and when:
///
/// | option | when |
/// |---|---|
/// | [`durability`](Self::durability) | without a pool: [`Durability::Fsync`]; writers wait for the drain ([`WriterWaits::segment`](crate::WriterWaits::segment)): more segments |
/// | [`commit_puts`](Self::commit_puts) | on a pool on a disk, the last puts may be lost, or are committed by hundreds |
/// | [`cache_size`](Self::cache_size) | reads come back to more values than 128 MiB hold |
/// | [`prefix_filter`](Self::prefix_filter) | scans within a prefix often find nothing, in an index larger than the cache |
/// | [`compression`](Self::compression) | the disk is scarce, or its writes: values that become smaller |
/// | [`memtable_size`](Self::memtable_size) | memory is scarce: six chunks of it may exist |
/// | [`space_amplification_max`](Self::space_amplification_max) | the disk is scarce: less; overwrites are slowed by the collector: more |
/// | [`create_if_missing`](Self::create_if_missing) | a wrong path is to be an error |
///
/// What the pool decides is no option here: whether acknowledged puts survive a power cut
/// ([`Stats::survives`](crate::Stats::survives) says it), and the size of segments, half of which
/// is the largest batch.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    pub(crate) durability: Durability,
    pub(crate) resident: bool,
    pub(crate) commit_puts: bool,
    pub(crate) close_on_drop: bool,
    pub(crate) create: bool,
    pub(crate) segment_bytes: u64,
    pub(crate) file_bytes: u64,
    pub(crate) memtable_bytes: usize,
    pub(crate) chunk_log_bytes: u64,
    pub(crate) cache_bytes: u64,
    pub(crate) prefix_bytes: usize,
    pub(crate) open_files: Option<usize>,
    pub(crate) gc: bool,
    pub(crate) space_amplification_max: f64,
    pub(crate) salvage: bool,
    pub(crate) clock: StoreClock,
    pub(crate) compression: Compression,
    pub(crate) training_pace: TrainingPace,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl StoreOptions {
    /// A store in front of which two segments of a pool stand, made if there is none, that collects
    /// its garbage.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// use forebay_store::{Durability, StoreOptions};
    /// let options = StoreOptions::new().durability(Durability::Fsync);
    /// let store = options.open(dir.path(), None)?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn new() -> Self {
        Self {
            durability: Durability::DOUBLE,
            resident: false,
            commit_puts: true,
            close_on_drop: true,
            create: true,
            segment_bytes: 8 << 20,
            file_bytes: 512 << 20,
            memtable_bytes: 64 << 20,
            chunk_log_bytes: 512 << 20,
            cache_bytes: 128 << 20,
            prefix_bytes: 0,
            open_files: None,
            gc: true,
            space_amplification_max: 1.5,
            salvage: false,
            clock: StoreClock::Wall,
            compression: Compression::None,
            training_pace: TrainingPace::USUAL,
        }
    }

    /// Sets the moment at which a put is durable. Default: [`Durability::DOUBLE`], which needs a
    /// pool.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// use forebay_store::{Durability, StoreOptions};
    /// let options = StoreOptions::new().durability(Durability::Fsync);
    /// let store = options.open(dir.path(), None)?; // without a pool
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// The value log stays in the pool and is never drained: the store's data device is the memory
    /// itself. Needs 4 to 64 segments of a pool (5 of one on a disk), which together are what the
    /// store can hold; writes beyond are refused ([`StoreError::Full`]). With [`gc`](Self::gc) the
    /// space of dead records is used again. Large values and the index's tables lie in the
    /// directory as ever. A store may be opened in turn with and without. Default: no.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// use forebay_pool::PoolOptions;
    /// use forebay_store::{Durability, StoreOptions};
    /// let pool = PoolOptions::new().emulated(true).create(dir.path().join("pool"))?;
    /// let options = StoreOptions::new().durability(Durability::Buffered(4)).resident(true);
    /// let store = options.open(dir.path().join("data"), &pool)?;
    /// assert!(store.is_resident());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn resident(mut self, resident: bool) -> Self {
        self.resident = resident;
        self
    }

    /// With a pool on a disk: each put, delete and batch is committed, that is written to that
    /// disk, before it returns; writers that come at the same time share a write. Without, they
    /// return as soon as they are in memory, at the speed of persistent memory, and
    /// [`Store::commit`](crate::Store::commit) makes all that was done before durable at once.
    /// Until then a crash of the process, or of the machine, may take the last of them, in the
    /// order in which they were done; none goes in part. Any other pool has no commits, and this no
    /// effect. Default: yes.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// use forebay_pool::PoolOptions;
    /// use forebay_store::StoreOptions;
    /// let pool = PoolOptions::new().on_disk(true).create(dir.path().join("pool"))?;
    /// let store = StoreOptions::new().commit_puts(false).open(dir.path().join("data"), &pool)?;
    /// for number in 0..1000_u32 {
    ///     store.put(&number.to_be_bytes(), "imported")?;
    /// }
    /// store.commit()?; // all of them are durable, by one write
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn commit_puts(mut self, commit: bool) -> Self {
        self.commit_puts = commit;
        self
    }

    /// A store that is dropped is [closed](crate::Store::close), as well as that goes. Without
    /// this, dropping it is what a crash is: quick, and the next opening recovers what was
    /// acknowledged, with the same pool. Default: yes.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// use forebay_store::{Durability, StoreOptions};
    /// let options = StoreOptions::new().durability(Durability::Fsync);
    /// let store = options.close_on_drop(false).open(dir.path(), None)?;
    /// store.put("boat", "blue")?;
    /// drop(store); // as a crash leaves it
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn close_on_drop(mut self, close: bool) -> Self {
        self.close_on_drop = close;
        self
    }

    /// Make the store if the directory holds none. Default: yes.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// use forebay_store::{Durability, StoreOptions};
    /// let options = StoreOptions::new().durability(Durability::Fsync);
    /// assert!(options.create_if_missing(false).open(dir.path(), None).is_err());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn create_if_missing(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Bytes of a log segment where no pool fixes it ([`Durability::Fsync`],
    /// [`Durability::NoSync`]), 64 KiB to 64 MiB. Default: 8 MiB.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// use forebay_store::{Durability, StoreOptions};
    /// let options = StoreOptions::new().durability(Durability::Fsync);
    /// let store = options.segment_size(1 << 20).open(dir.path(), None)?;
    /// assert!(store.batch().put("key", &[7; 600_000]).is_ok()); // in a file of its own
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn segment_size(mut self, bytes: u64) -> Self {
        self.segment_bytes = bytes;
        self
    }

    /// Bytes at which a value-log file is full, 1 MiB to 1 GiB. Files are smaller than this (a 32nd
    /// of the log, but not below 16 MiB) as long as the log is small, so that it may be given back
    /// in small parts. Default: 512 MiB.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// use forebay_store::{Durability, StoreOptions};
    /// let options = StoreOptions::new().durability(Durability::Fsync);
    /// let store = options.file_size(64 << 20).open(dir.path(), None)?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn file_size(mut self, bytes: u64) -> Self {
        self.file_bytes = bytes;
        self
    }

    /// The index's new tables have a filter of their keys' first so many bytes, up to 255; 0, the
    /// default: none has one. A scan within one such prefix, as of [`prefix`](crate::Store::prefix)
    /// with as many bytes or more, then reads no table that has no key of it: worth it where many
    /// scans find nothing, and the index is larger than the cache.
    ///
    /// It is of the keys as they are given, in each keyspace. Each prefix that a table has costs
    /// ten bits of memory. Tables that are there get theirs as they are merged.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// use forebay_store::{Durability, StoreOptions};
    /// let options = StoreOptions::new().durability(Durability::Fsync).prefix_filter(8);
    /// let store = options.open(dir.path(), None)?;
    /// store.put("user0042/name", "alice")?;
    /// assert_eq!(store.prefix("user0042/")?.count(), 1);
    /// assert_eq!(store.prefix("user0043/")?.count(), 0); // as a rule, without a read
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn prefix_filter(mut self, bytes: usize) -> Self {
        self.prefix_bytes = bytes;
        self
    }

    /// Bytes of memory of one memtable chunk, 64 KiB or more. Up to
    /// [`CHUNKS_MAX`](Self::CHUNKS_MAX) exist at a time. Default: 64 MiB.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// use forebay_store::{Durability, StoreOptions};
    /// let options = StoreOptions::new().durability(Durability::Fsync);
    /// let options = options.memtable_size(8 << 20).cache_size(16 << 20);
    /// let store = options.open(dir.path(), None)?;
    /// assert_eq!(store.stats().memory_bytes_max, (6 * 8 + 16) << 20);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn memtable_size(mut self, bytes: usize) -> Self {
        self.memtable_bytes = bytes;
        self
    }

    /// Log bytes that one chunk covers at most, 64 KiB or more: what a restart has to read again is
    /// bounded by this times the number of chunks. Default: 512 MiB.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// use forebay_store::{Durability, StoreOptions};
    /// let options = StoreOptions::new().durability(Durability::Fsync);
    /// let store = options.chunk_log_size(64 << 20).open(dir.path(), None)?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn chunk_log_size(mut self, bytes: u64) -> Self {
        self.chunk_log_bytes = bytes;
        self
    }

    /// Bytes of memory of the cache, which holds blocks of the index and values that were read more
    /// than once, with what it needs for each. Filters and indexes of the tables are beside it:
    /// some 1.4 bytes for each short key, 256 MiB at most. Default: 128 MiB.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// use forebay_store::{Durability, StoreOptions};
    /// let options = StoreOptions::new().durability(Durability::Fsync);
    /// let store = options.cache_size(1 << 30).open(dir.path(), None)?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn cache_size(mut self, bytes: u64) -> Self {
        self.cache_bytes = bytes;
        self
    }

    /// Files that the store has open at a time, 16 or more: half of them value-log files and large
    /// values, the other half left for the index's tables, each of which is open. Tables have 32
    /// MiB, and up to 1 GiB in a large index. Some 50 hold 180 GB of values of 100 bytes, 260 hold
    /// 1 TB, with as many again for a moment while all are merged. Files that are being written are
    /// open beyond that. Default: half of what the process may open (`RLIMIT_NOFILE`, the soft
    /// limit), 8,192 at most.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// use forebay_store::{Durability, StoreOptions};
    /// let options = StoreOptions::new().durability(Durability::Fsync);
    /// let store = options.open_files(100).open(dir.path(), None)?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn open_files(mut self, files: usize) -> Self {
        self.open_files = Some(files);
        self
    }

    /// Collect garbage in the background. Default: yes.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// use forebay_store::{Durability, StoreOptions};
    /// let options = StoreOptions::new().durability(Durability::Fsync);
    /// let store = options.gc(false).open(dir.path(), None)?;
    /// store.gc()?; // when it suits
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn gc(mut self, gc: bool) -> Self {
        self.gc = gc;
        self
    }

    /// Bytes of value-log files over live bytes that garbage collection keeps to, 1.1 to 10;
    /// however little is live, four files of garbage are allowed for. Writers are slowed to the
    /// pace of collection when they outrun it. Default: 1.5.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// use forebay_store::{Durability, StoreOptions};
    /// let options = StoreOptions::new().durability(Durability::Fsync);
    /// let store = options.space_amplification_max(1.2).open(dir.path(), None)?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn space_amplification_max(mut self, factor: f64) -> Self {
        self.space_amplification_max = factor;
        self
    }

    /// Open although parts of the store contradict each other or acknowledged records are
    /// unreadable, and give those up. The refusal without this says what would be given up,
    /// [`Stats::given_up`](crate::Stats::given_up) what was. Default: no.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// use forebay_store::{Durability, StoreOptions};
    /// let options = StoreOptions::new().durability(Durability::Fsync);
    /// let store = options.salvage(true).open(dir.path(), None)?;
    /// for what in store.given_up() {
    ///     eprintln!("lost: {what}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn salvage(mut self, salvage: bool) -> Self {
        self.salvage = salvage;
        self
    }

    /// The milliseconds since the epoch by which values expire, for tests.
    #[doc(hidden)]
    #[must_use]
    pub const fn clock(mut self, milliseconds: &'static AtomicU64) -> Self {
        self.clock = StoreClock::Set(milliseconds);
        self
    }

    /// Values of the default keyspace that are written from now on are compressed so. Default: not.
    /// A keyspace has [its own](crate::KeyspaceOptions::compression).
    ///
    /// ```
    /// use forebay_store::{Compression, Durability, StoreOptions};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// let options = StoreOptions::new().durability(Durability::NoSync);
    /// let store = options.clone().compression(Compression::Lz4).open(dir.path(), None)?;
    /// store.put("row", &"{\"colour\":\"blue\"}".repeat(100))?;
    /// let found = store.stats().compression;
    /// assert!(found.stored_bytes < found.raw_bytes / 10);
    /// # store.close()?;
    /// let store = options.open(dir.path(), None)?; // reads it, too
    /// assert_eq!(store.get("row")?.map(|row| row.len()), Some(1700));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// Dictionaries are made of so many bytes of small values, and looked at anew after as many,
    /// for tests.
    #[doc(hidden)]
    #[must_use]
    pub const fn dictionary_sample(mut self, bytes: usize) -> Self {
        self.training_pace = TrainingPace {
            sample_bytes: bytes,
            window_bytes: bytes as u64,
        };
        self
    }

    /// The number of files of the value log and large values that may be open at a time; the rest
    /// is for the index's tables.
    pub(crate) fn open_log_files(&self) -> usize {
        self.open_files.unwrap_or_else(descriptors::default_limit) / 2
    }

    /// Memtable chunks that exist at most: the active one, one in reserve, and those that
    /// wait for the index.
    pub const CHUNKS_MAX: usize = 6;

    /// Checks the bounds, for a pool whose appends need a commit or not.
    ///
    /// # Errors
    /// [`StoreError::BadOption`] that names the bound.
    pub(crate) fn check(&self, needs_commit: bool) -> Result<(), StoreError> {
        let bad = |what: String| Err(StoreError::BadOption { what });
        const MIB: u64 = 1 << 20;
        if let Durability::Buffered(n) = self.durability
            && !(1..=SEGMENTS_MAX).contains(&n)
        {
            return bad(format!("{n} buffers; 1 to 64 are possible"));
        }
        let least = segments_min(needs_commit);
        if self.resident
            && !matches!(self.durability, Durability::Buffered(n) if usize::from(n) >= least)
        {
            return bad(format!(
                "a resident store with the durability {}; its log needs buffers=N, that is Durability::Buffered(N), with N from {least} to 64, which all of it must fit into",
                self.durability
            ));
        }
        if !(64 << 10..=64 * MIB).contains(&self.segment_bytes)
            || !self.segment_bytes.is_multiple_of(4096)
        {
            return bad(format!(
                "segments of {} bytes; a multiple of 4 KiB from 64 KiB to 64 MiB is needed",
                self.segment_bytes
            ));
        }
        if !(MIB..=1024 * MIB).contains(&self.file_bytes) {
            return bad(format!(
                "value-log files of {} bytes; 1 MiB to 1 GiB are possible",
                self.file_bytes
            ));
        }
        if self.memtable_bytes < 64 << 10 || self.chunk_log_bytes < 64 << 10 {
            return bad("a memtable below 64 KiB, or covering less than 64 KiB of log".to_owned());
        }
        if let Some(n) = self.open_files
            && n < descriptors::LEAST
        {
            return bad(format!(
                "{n} open files; at least {} are needed",
                descriptors::LEAST
            ));
        }
        if self.prefix_bytes > PREFIX_BYTES_MAX {
            return bad(format!(
                "filters of prefixes of {} bytes; up to {PREFIX_BYTES_MAX} are possible",
                self.prefix_bytes
            ));
        }
        if !(1.1..=10.0).contains(&self.space_amplification_max) {
            return bad(format!(
                "space amplification {}; 1.1 to 10 is possible",
                self.space_amplification_max
            ));
        }
        match self.compression.objection() {
            Some(what) => bad(what),
            None => Ok(()),
        }
    }
}

/// The clock by which values expire.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StoreClock {
    /// The machine's.
    Wall,
    Set(&'static AtomicU64),
}

impl StoreClock {
    /// Milliseconds since the epoch.
    pub(crate) fn now(self) -> u64 {
        match self {
            Self::Set(milliseconds) => milliseconds.load(Relaxed),
            Self::Wall => {
                let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
                u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_durability_is_written_as_it_is_read() {
        for text in ["fsync", "nosync", "single", "double", "buffers=8"] {
            assert_eq!(text.parse::<Durability>().unwrap().to_string(), text);
        }
        for text in ["", "triple", "buffers=0", "buffers=65", "buffers=x"] {
            assert!(text.parse::<Durability>().is_err(), "{text}");
        }
    }

    #[test]
    fn options_out_of_bounds_are_refused_and_the_defaults_are_not() {
        assert!(StoreOptions::new().check(false).is_ok());
        let broken: [fn(&mut StoreOptions); 11] = [
            |o| o.prefix_bytes = 256,
            |o| o.compression = Compression::Zstd(23),
            |o| o.open_files = Some(1),
            |o| o.resident = true,
            |o| (o.resident, o.durability) = (true, Durability::Fsync),
            |o| o.durability = Durability::Buffered(0),
            |o| o.segment_bytes = 4096,
            |o| o.file_bytes = 1,
            |o| o.memtable_bytes = 1,
            |o| o.chunk_log_bytes = 1,
            |o| o.space_amplification_max = 1.0,
        ];
        for breaks in broken {
            let mut options = StoreOptions::new();
            breaks(&mut options);
            assert!(options.check(false).is_err());
        }
    }
}
