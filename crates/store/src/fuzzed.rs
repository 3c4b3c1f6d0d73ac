//! Entry points of the fuzzers, for arbitrary bytes in each of the store's formats. None may panic,
//! or take memory beyond what the bytes themselves can fill; what is accepted is written as it was
//! read. `tests/fuzzed.rs`, `fuzz/fuzz_targets`.

use crate::{
    VALUE_BYTES_MAX,
    compression::{
        Compression, Compressor, DictionarySource, NoDictionaries, TrainingPace, UnpackDictionary,
        unpack,
    },
    dictionaries::{self, DictionaryFiles},
    disk::{HeldDirectory, RealDisk},
    index,
    large_values::LargeValues,
    log::{LogReader, ValueLog, ZEROS, file_header},
    manifest::{FileRef, ManifestState, StoreManifest, VERSION},
    op::{COMPRESSED, EXPIRES, LargeRef, op_in_batch, ops, push_op, read_record},
    salvage::GivenUp,
};
use forebay_pool::{Lsn, Record, RecordHeader, crc32c};
use parking_lot::Mutex;
use std::{
    fs,
    path::Path,
    sync::{Arc, OnceLock},
};
use uuid::Uuid;

/// The store that the bytes belong to.
pub const OWNER: Uuid = Uuid::from_u128(0x000F_0EBA_1057_02E5);
/// Records that a walk looks at at most.
const RECORDS_MAX: usize = 10_000;

/// The store's manifest: as it is, and with the right checksum.
pub fn manifest(data: &[u8]) {
    let dir = Path::new("fuzzed");
    let _ = StoreManifest::parse(dir, data);
    let sealed = [
        data,
        format!("\ncrc32c {:08x}\n", crc32c([data])).as_bytes(),
    ]
    .concat();
    if let Ok(state) = StoreManifest::parse(dir, &sealed) {
        for file in &state.files {
            assert!(file.end.is_none_or(|end| end >= file.start));
        }
    }
}

/// The index's manifest: as it is, and with the right checksum.
pub fn index_manifest(data: &[u8]) {
    index::fuzz_manifest(data);
}

/// The payload of a record, of each kind, and one operation of a batch.
pub fn operation(data: &[u8]) {
    let flags = [0, EXPIRES, COMPRESSED, EXPIRES | COMPRESSED];
    for kind in (0..6).flat_map(|kind| flags.map(|flag| kind | flag)) {
        let header = RecordHeader {
            length: u32::try_from(data.len()).unwrap_or(u32::MAX),
            lsn: 64,
            epoch: 1,
            lag: 0,
            kind,
        };
        let record = Record {
            header,
            payload: data,
        };
        for op in ops(record).flatten().take(RECORDS_MAX) {
            assert!(op.key.len() <= data.len());
        }
    }
    if let Ok(op) = op_in_batch(data) {
        let mut again = Vec::new();
        push_op(&mut again, op.kind, op.key, op.body);
        assert_eq!(again, data[..op.bytes]);
    }
    let _ = read_record(data, 64, OWNER);
}

/// A value-log file in `dir`, which is empty and is so again afterwards: as it is, and behind a
/// whole header.
pub fn value_log(dir: &Path, data: &[u8]) {
    walk(dir, data);
    let whole = [&file_header(0, data.len() as u64, OWNER)[..], data].concat();
    walk(dir, &whole);
}

fn walk(dir: &Path, bytes: &[u8]) {
    let path = dir.join("vlog/0000000000000000.vlog");
    let written = fs::create_dir_all(dir.join("vlog")).and_then(|()| fs::write(&path, bytes));
    assert!(written.is_ok(), "{written:?}");
    let Ok(held) = HeldDirectory::open(dir) else {
        return;
    };
    let manifest = Arc::new(Mutex::new(StoreManifest::of(&held, state())));
    let disk = Arc::new(RealDisk::default());
    let opened = ValueLog::open(disk, dir, 1 << 20, manifest, GivenUp::new(dir, false));
    if let Ok((log, _)) = opened {
        read_all(&log, bytes.len() as u64);
    }
    let _ = fs::remove_file(path);
}

/// Of a store with one file.
fn state() -> ManifestState {
    ManifestState {
        format_version: VERSION,
        uuid: OWNER,
        epoch: 1,
        pool: None,
        log_end: None,
        large_from: 1,
        files: vec![FileRef {
            start: 0,
            end: None,
        }],
        retired: Vec::new(),
        indexed_to: 0,
        keyspaces: crate::keyspace::KeyspaceState::default(),
    }
}

/// Every way in which an opening, a replay or a collection reads a file.
fn read_all(log: &ValueLog, bytes: u64) {
    let mut reader = LogReader::new(log, OWNER, 0, Lsn::MAX);
    let mut last = None;
    for _ in 0..RECORDS_MAX {
        let Ok(Ok(record)) = reader.next() else { break };
        assert!(last < Some(record.header.lsn));
        assert!(record.header.lsn + record.header.record_bytes() <= bytes);
        last = Some(record.header.lsn);
        let _ = ops(record).take(RECORDS_MAX).count();
    }
    let mut reader = LogReader::new(log, OWNER, 0, bytes);
    reader.read_blocks_of(4096);
    let mut at = 0;
    while let Ok(true) = reader.seek(at) {
        at = reader.at() + 64;
    }
    for file in log.files().iter() {
        let _ = file.holds_log();
        let found = file.find_record(OWNER, 64, ZEROS, |header| header.epoch > 1);
        assert!(found.is_ok_and(|found| found.is_none_or(|lsn| lsn < bytes)));
        for to in [64, 4096, bytes.saturating_sub(4096)] {
            let _ = file.stops_short_of(OWNER, to.min(file.bytes_there().unwrap_or(0)));
        }
    }
}

/// The stored form of a compressed value: as it is, and with each algorithm and a right length.
pub fn compressed_value(data: &[u8]) {
    let mut read = b"before".to_vec();
    let dictionaries = OneDictionary::get();
    let _ = unpack(data, &mut read, dictionaries);
    assert!(read.starts_with(b"before") && read.capacity() <= packed_most(data.len()));
    for algorithm in 0..5 {
        for length in [data.len() as u32, 1000, 1 << 20, u32::MAX] {
            let sealed = [&length.to_le_bytes()[..], &[algorithm], data].concat();
            let mut read = Vec::new();
            match unpack(&sealed, &mut read, dictionaries) {
                Ok(()) => assert_eq!(read.len(), length as usize),
                Err(_) => assert!(read.is_empty()),
            }
            assert!(read.capacity() <= packed_most(sealed.len()));
        }
    }
}

/// A dictionary, of number 1; none without Zstandard.
struct OneDictionary(Option<UnpackDictionary>);

impl OneDictionary {
    fn get() -> &'static Self {
        static ONE: OnceLock<OneDictionary> = OnceLock::new();
        ONE.get_or_init(|| {
            let compressor = Compressor::new(Compression::ZstdDictionary(3));
            let pace = TrainingPace {
                sample_bytes: 64 << 10,
                window_bytes: 64 << 10,
            };
            compressor.begin(pace, None);
            for number in 0..4000 {
                let value = format!(
                    "the boat with number {number} lies in harbour {}",
                    number % 7
                );
                compressor.packed(value.as_bytes(), |_, _| ());
            }
            let trained = compressor.train(1);
            Self(trained.and_then(|it| UnpackDictionary::new(1, &it.bytes).ok()))
        })
    }
}

impl DictionarySource for OneDictionary {
    fn with_dictionary(&self, number: u32, work: &mut dyn FnMut(&UnpackDictionary)) {
        if let Some(dictionary) = self.0.as_ref().filter(|it| it.number() == number) {
            work(dictionary);
        }
    }
}

/// A dictionary's file in `dir`: as it is, and with the right header.
pub fn dictionary(dir: &Path, data: &[u8]) {
    let state = crate::keyspace::DictionaryState::default();
    let files = DictionaryFiles::open(Arc::new(RealDisk::default()), dir, OWNER, &state);
    let below = dir.join(dictionaries::DIR);
    let path = below.join(dictionaries::file_name(1));
    let mut sealed = data.to_vec();
    if sealed.len() >= 64 {
        sealed[..4].copy_from_slice(b"FDIC");
        sealed[8..12].copy_from_slice(&1_u32.to_le_bytes());
        sealed[16..32].copy_from_slice(OWNER.as_bytes());
        let crc = crc32c([&sealed[8..]]);
        sealed[4..8].copy_from_slice(&crc.to_le_bytes());
    }
    for bytes in [data, &sealed] {
        let written = fs::create_dir_all(&below).and_then(|()| fs::write(&path, bytes));
        assert!(written.is_ok(), "{written:?}");
        if let Ok(read) = files.read(1) {
            assert!(bytes.ends_with(&read.bytes));
        }
        let _ = files.packing(1, 3);
        if let Ok(dictionary) = files.prepare(1) {
            assert_eq!(dictionary.number(), 1);
        }
    }
    let _ = fs::remove_file(path);
}

/// What so many bytes may become at most, by any algorithm, and a little.
fn packed_most(bytes: usize) -> usize {
    (bytes.saturating_mul(32 << 10) + 4096).min(VALUE_BYTES_MAX)
}

/// A large value's file in `dir`: as it is, and with the right checksum of its header.
pub fn large_value(dir: &Path, data: &[u8]) {
    let Ok(values) = LargeValues::open(Arc::new(RealDisk::default()), dir, OWNER, 0) else {
        return;
    };
    let path = values.path(1);
    let mut sealed = data.to_vec();
    if sealed.len() >= 64 {
        let length = u32::from_le_bytes([sealed[28], sealed[29], sealed[30], sealed[31]]) as usize;
        sealed[..4].copy_from_slice(b"FLRG");
        sealed[32..48].copy_from_slice(OWNER.as_bytes());
        let end = length.saturating_add(64).min(sealed.len());
        let crc = crc32c([&sealed[8..end]]);
        sealed[4..8].copy_from_slice(&crc.to_le_bytes());
    }
    for bytes in [data, &sealed] {
        let written = fs::write(&path, bytes);
        assert!(written.is_ok(), "{written:?}");
        let key = values.key_of(1);
        let _ = values.never_written(1);
        let key = key.as_deref().unwrap_or(b"key");
        let there = (data.len() as u64).saturating_sub(64 + key.len() as u64);
        for bytes in [0, 1, there, 1 << 30, u64::MAX] {
            for compressed in [false, true] {
                let value = LargeRef {
                    id: 1,
                    bytes,
                    crc: crc32c([&data[data.len() - there as usize..]]),
                    compressed,
                };
                let mut read = Vec::new();
                let _ = values.read(key, &value, &mut read, &NoDictionaries);
                assert!(compressed || read.len() <= data.len());
                assert!(read.capacity() <= packed_most(data.len()));
            }
        }
        let _ = values.verify(1);
    }
    let _ = fs::remove_file(path);
}
