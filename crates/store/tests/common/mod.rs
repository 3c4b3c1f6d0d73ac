//! What the store's tests share.
#![allow(dead_code, reason = "each test file uses a part of it")]

use forebay_pool::{Pool, layout::Geometry, media::Sim};
use forebay_store::{Options, Store, Variant};
use std::{path::Path, sync::Arc};
use tempfile::TempDir;

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

    pub fn path(&self) -> std::path::PathBuf {
        self.dir.path().join("store")
    }

    pub fn open(&self, options: &Options) -> Store {
        Store::open(&self.path(), Some(&self.pool), options).unwrap()
    }
}

/// A pool in ordinary memory.
pub fn new_pool(segment_bytes: u64) -> Pool {
    let bytes = 16 * segment_bytes + (64 << 10);
    let geometry = Geometry::fit(bytes, segment_bytes, 4).unwrap();
    let media = Arc::new(Sim::new(bytes as usize));
    media.stop_recording();
    Pool::format(Path::new("test pool"), media, geometry, true).unwrap()
}

/// Options under which everything happens often: small chunks, small files.
pub fn small(variant: Variant) -> Options {
    Options {
        variant,
        file_bytes: 16 << 20,
        segment_bytes: 1 << 20,
        memtable_bytes: 64 << 10,
        chunk_log_bytes: 1 << 20,
        cache_bytes: 1 << 20,
        ..Options::default()
    }
}

pub const VARIANTS: [Variant; 5] = [
    Variant::Fsync,
    Variant::NoSync,
    Variant::SINGLE,
    Variant::DOUBLE,
    Variant::Buffered(4),
];
