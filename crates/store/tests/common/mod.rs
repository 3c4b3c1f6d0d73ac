//! Shared by the store's tests.
#![allow(dead_code, reason = "each test file uses a part of it")]

/// What a disk that counts or decides about operations leaves to the real one, its `inner`.
macro_rules! as_the_real_disk {
    () => {
        fn hold(&self, path: &Path, open: &File) -> io::Result<()> {
            self.inner.hold(path, open)
        }

        fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
            self.inner.list(dir)
        }

        fn create_dir(&self, dir: &Path) -> io::Result<()> {
            self.inner.create_dir(dir)
        }
    };
}

pub mod crash_disk;
pub mod hook_disk;
pub mod oracle;
pub mod small_disk;

pub use forebay_random::Rng;

use forebay_pool::{Pool, PoolOptions, media::SimMedia};
use forebay_store::{Compression, Durability, Store, StoreOptions};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};
use tempfile::TempDir;

/// The program of an example, where cargo puts it: beside the tests' directory. None if it was not
/// built.
pub fn example(name: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().unwrap();
    let example = own.ancestors().nth(2).unwrap().join("examples").join(name);
    if !example.is_file() {
        assert!(
            std::env::var_os("CI").is_none(),
            "the example was not built"
        );
        println!("skipped: not built: cargo build -p forebay-store --example {name}");
        return None;
    }
    Some(example)
}

/// A store's directory and the pool beside it.
pub struct Bench {
    pub dir: TempDir,
    pub pool: Pool,
}

impl Bench {
    pub fn new() -> Self {
        Self::with_segments(64 << 10)
    }

    pub fn with_segments(segment_bytes: u64) -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            pool: new_pool(segment_bytes),
        }
    }

    /// With a pool of so many segments, for a store that keeps everything in it.
    pub fn with_room(segments: u64, segment_bytes: u64) -> Self {
        let bytes = segments * segment_bytes + (64 << 10);
        let media = Arc::new(SimMedia::new(bytes as usize));
        media.stop_recording();
        Self {
            dir: tempfile::tempdir().unwrap(),
            pool: PoolOptions::new()
                .size(bytes)
                .segment_size(segment_bytes)
                .lanes(4)
                .emulated(true)
                .create_on("test pool", media)
                .unwrap(),
        }
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    pub fn open(&self, options: &StoreOptions) -> Store {
        options.open(self.path(), &self.pool).unwrap()
    }
}

/// A directory in memory, where there is one: what the stores there sync takes no time.
pub fn in_memory() -> TempDir {
    let memory = Path::new("/dev/shm");
    match memory.is_dir() {
        true => tempfile::tempdir_in(memory),
        false => tempfile::tempdir(),
    }
    .unwrap()
}

/// A pool in ordinary memory.
pub fn new_pool(segment_bytes: u64) -> Pool {
    let media = new_sim(segment_bytes);
    media.stop_recording();
    format(media, segment_bytes)
}

fn pool_bytes(segment_bytes: u64) -> u64 {
    16 * segment_bytes + (64 << 10)
}

/// A medium for a pool with sixteen segments.
pub fn new_sim(segment_bytes: u64) -> Arc<SimMedia> {
    Arc::new(SimMedia::new(pool_bytes(segment_bytes) as usize))
}

/// As [`new_sim`], a simulated disk.
pub fn new_disk(segment_bytes: u64) -> Arc<SimMedia> {
    Arc::new(SimMedia::disk(vec![0; pool_bytes(segment_bytes) as usize]))
}

/// A new pool on `media`.
pub fn format(media: Arc<SimMedia>, segment_bytes: u64) -> Pool {
    PoolOptions::new()
        .size(pool_bytes(segment_bytes))
        .segment_size(segment_bytes)
        .lanes(4)
        .emulated(true)
        .create_on("test pool", media)
        .unwrap()
}

/// Options under which everything happens often: small chunks, small files.
pub fn small(variant: Durability) -> StoreOptions {
    sized(variant, 1 << 20, 1 << 20).file_size(16 << 20)
}

/// Options under which everything happens all the time.
pub fn tiny(variant: Durability) -> StoreOptions {
    sized(variant, 64 << 10, 128 << 10)
}

/// The same with other segments and chunks.
pub fn sized(variant: Durability, segment: u64, chunk_log: u64) -> StoreOptions {
    StoreOptions::new()
        .close_on_drop(false)
        .durability(variant)
        .file_size(1 << 20)
        .segment_size(segment)
        .memtable_size(64 << 10)
        .chunk_log_size(chunk_log)
        .cache_size(1 << 20)
        .dictionary_sample(8 << 10)
}

pub const VARIANTS: [Durability; 5] = [
    Durability::Fsync,
    Durability::NoSync,
    Durability::SINGLE,
    Durability::DOUBLE,
    Durability::Buffered(4),
];

/// Every compression that is built in, none first.
pub fn compressions() -> Vec<Compression> {
    let mut all = vec![Compression::None];
    if cfg!(feature = "lz4") {
        all.push(Compression::Lz4);
    }
    if cfg!(feature = "zstd") {
        all.extend([
            Compression::Zstd(1),
            Compression::Zstd(9),
            Compression::ZstdDictionary(3),
        ]);
    }
    all
}

/// One of them, by a number.
pub fn compression(number: u64) -> Compression {
    let all = compressions();
    all[(number % all.len() as u64) as usize]
}

/// Runs `test` and fails if it takes longer than `limit`: whatever goes wrong, nothing may hang.
pub fn within<T: Send + 'static>(
    limit: Duration,
    what: &str,
    test: impl FnOnce() -> T + Send + 'static,
) -> T {
    let (sender, receiver) = mpsc::channel();
    let worker = thread::spawn(move || {
        let result = test();
        // The receiver is gone only after the limit.
        let _ = sender.send(());
        result
    });
    if let Err(mpsc::RecvTimeoutError::Timeout) = receiver.recv_timeout(limit) {
        panic!("{what}: still not done after {limit:?}");
    }
    worker
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Copies a directory with everything in it.
pub fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_dir(&entry.path(), &to);
        } else if let Err(e) = fs::copy(entry.path(), to) {
            // A store that has it open removes what merges have replaced.
            assert_eq!(e.kind(), std::io::ErrorKind::NotFound, "{e}");
        }
    }
}

/// Every file in a directory, with its bytes: to see whether anything changed.
pub fn contents(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else {
                let bytes = fs::read(&path).unwrap();
                all.push((path, bytes));
            }
        }
    }
    all.sort();
    all
}

/// The value-log files of a store, in log order.
pub fn value_log_files(store: &Path) -> Vec<PathBuf> {
    files_in(&store.join("vlog"))
}

/// The files in a directory, by name.
pub fn files_in(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
}
