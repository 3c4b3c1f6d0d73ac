//! The fuzz targets' functions, with the committed seeds and with random changes: whatever bytes
//! the store's files have, it does not panic, and takes no more memory than they can fill.
//!
//! Promise (store): No bytes of a manifest, an index manifest, a value-log file, an operation, a
//! compressed value, a large value's file or a dictionary's make a store panic or take memory
//! beyond the file's size.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use forebay_pool::{RecordHeader, crc32c, format::segment::SegmentHeader};
use forebay_store::fuzzed;
use proptest::prelude::*;
use std::{fs, io::IoSlice, path::PathBuf};

fn seeds(target: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/seeds")
        .join(target)
}

fn read_seeds(target: &str) -> Vec<Vec<u8>> {
    let mut paths: Vec<_> = fs::read_dir(seeds(target))
        .unwrap()
        .map(|seed| seed.unwrap().path())
        .collect();
    paths.sort();
    assert!(paths.len() > 3, "{target}: {} seeds", paths.len());
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// A target's function.
fn run(target: &str, data: &[u8]) {
    match target {
        "store-manifest" => fuzzed::manifest(data),
        "store-index-manifest" => fuzzed::index_manifest(data),
        "store-operation" => fuzzed::operation(data),
        "store-compressed-value" => fuzzed::compressed_value(data),
        "store-value-log" => fuzzed::value_log(tempfile::tempdir().unwrap().path(), data),
        "store-dictionary" => fuzzed::dictionary(tempfile::tempdir().unwrap().path(), data),
        _ => fuzzed::large_value(tempfile::tempdir().unwrap().path(), data),
    }
}

const TARGETS: [&str; 7] = [
    "store-manifest",
    "store-index-manifest",
    "store-operation",
    "store-compressed-value",
    "store-value-log",
    "store-large-value",
    "store-dictionary",
];

#[test]
fn every_seed_of_every_format_is_read_or_refused_without_panic() {
    for target in TARGETS {
        for seed in read_seeds(target) {
            run(target, &seed);
        }
    }
}

#[test]
fn no_seed_cut_short_anywhere_makes_its_reader_panic() {
    for target in TARGETS {
        let step = if target == "store-value-log" { 311 } else { 3 };
        for seed in read_seeds(target) {
            for length in (0..seed.len()).step_by(step) {
                run(target, &seed[..length]);
            }
        }
    }
}

#[test]
fn no_worst_word_of_a_header_under_a_right_checksum_panics() {
    for (target, words) in [("store-value-log", 24), ("store-large-value", 16)] {
        for seed in read_seeds(target) {
            for at in (0..words * 4).step_by(4).filter(|at| at + 8 <= seed.len()) {
                for worst in [[0xFF; 8], [0; 8], [0, 0, 0, 0, 0, 0, 0, 0x80]] {
                    for width in [4, 8] {
                        let mut bytes = seed.clone();
                        bytes[at..at + width].copy_from_slice(&worst[8 - width..]);
                        run(target, &bytes);
                        if target == "store-value-log" && bytes.len() >= 64 {
                            // A segment's header; and a file's, as such.
                            let crc = crc32c([&bytes[8..64]]);
                            bytes[4..8].copy_from_slice(&crc.to_le_bytes());
                            run(target, &bytes);
                            let crc = crc32c([&bytes[8..48]]);
                            bytes[4..8].copy_from_slice(&crc.to_le_bytes());
                            run(target, &bytes);
                        }
                    }
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn random_changes_of_a_seed_are_read_or_refused(
        target in 0..TARGETS.len(),
        pick in any::<prop::sample::Index>(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), 1u8..), 1..8),
    ) {
        let all = read_seeds(TARGETS[target]);
        let mut bytes = all[pick.index(all.len())].clone();
        for (at, flip) in edits {
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] ^= flip;
            }
        }
        run(TARGETS[target], &bytes);
    }

    #[test]
    fn random_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        for target in TARGETS {
            run(target, &bytes);
        }
    }
}

/// A segment with these records, of kind and payload.
fn segment(start: u64, records: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let header = SegmentHeader {
        start,
        epoch: 2,
        bytes: 64 << 10,
        owner: fuzzed::OWNER,
    };
    let mut bytes = header.encode().to_vec();
    for (kind, payload) in records {
        let record = RecordHeader {
            length: payload.len() as u32,
            lsn: start + bytes.len() as u64,
            epoch: 2,
            lag: 0,
            kind: *kind,
        };
        bytes.extend(record.encode(fuzzed::OWNER, &[IoSlice::new(payload)]));
        bytes.extend(payload);
        bytes.resize(bytes.len().next_multiple_of(64), 0);
    }
    bytes
}

fn operation(key: &[u8], body: &[u8]) -> Vec<u8> {
    [&(key.len() as u16).to_le_bytes()[..], key, body].concat()
}

fn in_batch(kind: u16, key: &[u8], body: &[u8]) -> Vec<u8> {
    let rest = [
        &kind.to_le_bytes()[..],
        &(key.len() as u16).to_le_bytes(),
        &(body.len() as u32).to_le_bytes(),
        key,
        body,
    ]
    .concat();
    [&crc32c([&rest[..]]).to_le_bytes()[..], &rest].concat()
}

#[test]
#[ignore = "writes fuzz/seeds"]
fn write_the_seeds() {
    let put = |target: &str, name: &str, bytes: &[u8]| {
        fs::create_dir_all(seeds(target)).unwrap();
        fs::write(seeds(target).join(name), bytes).unwrap();
    };
    let manifest = |name: &str, files: &str, retired: &str| {
        let uuid = fuzzed::OWNER;
        let text = format!(
            "{{\"format_version\":1,\"uuid\":\"{uuid}\",\"epoch\":3,\"pool\":null,\"log_end\":8192,\"large_from\":1,\"files\":[{files}],\"retired\":[{retired}],\"indexed_to\":8192,\"keyspaces\":{{\"last\":0,\"live\":[],\"dropped\":[]}}}}"
        );
        put("store-manifest", name, text.as_bytes());
    };
    let file = |start: u64, end: &str| format!("{{\"start\":{start},\"end\":{end}}}");
    manifest("without-files", "", "");
    manifest(
        "two-files",
        &[file(0, "4096"), file(4096, "null")].join(","),
        "",
    );
    manifest("with-collected-files", &file(8192, "null"), "0,4096");
    manifest("end-before-start", &file(8192, "4096"), "");
    manifest(
        "at-the-end-of-addresses",
        &file(u64::MAX - 4095, &u64::MAX.to_string()),
        "",
    );
    let table = "table 17 25165824 0d9e0d9e0d9e0d9e0d9e0d9e0d9e0d9e 71303040";
    let index = |name: &str, text: &str| put("store-index-manifest", name, text.as_bytes());
    index("empty", "watermark 0\nnext 0\n");
    index(
        "two-runs",
        &format!("watermark 73400320\nnext 19\nrun\n{table}\nrun\n{table}\n"),
    );
    index(
        "a-table-without-a-run",
        &format!("watermark 1\nnext 19\n{table}\n"),
    );
    index(
        "numbers-too-large",
        "watermark 99999999999999999999\nnext 0\n",
    );
    let operations: [(&str, Vec<u8>); 8] = [
        ("put", operation(b"key", b"value")),
        ("delete", operation(b"key", b"")),
        ("large", operation(b"key", &[7; 20])),
        ("key-beyond-the-payload", vec![0xFF, 0xFF, 1]),
        (
            "batch",
            [in_batch(1, b"a", b"1"), in_batch(2, b"b", b"")].concat(),
        ),
        ("batch-with-a-large-value", in_batch(3, b"a", &[7; 20])),
        ("batch-of-an-unknown-kind", in_batch(9, b"a", b"1")),
        ("compressed-in-a-batch", in_batch(0x101, b"a", &[9; 20])),
    ];
    for (name, bytes) in &operations {
        put("store-operation", name, bytes);
    }
    let records = |n: usize| -> Vec<(u16, Vec<u8>)> {
        (0..n)
            .map(|i| {
                (
                    [1, 2, 3, 4][i % 4],
                    operations[[0, 1, 2, 4][i % 4]].1.clone(),
                )
            })
            .collect()
    };
    let mut sealed = segment(0, &[records(9), vec![(0, Vec::new())]].concat());
    sealed.resize(4096, 0);
    put("store-value-log", "a-segment", &segment(0, &records(20)));
    put(
        "store-value-log",
        "two-segments",
        &[&sealed[..], &segment(4096, &records(6))].concat(),
    );
    put("store-value-log", "a-segment-header", &segment(0, &[]));
    put("store-value-log", "zeros", &[0; 8192]);
    put(
        "store-value-log",
        "a-record-across-pages",
        &segment(0, &[(1, operation(b"key", &[5; 9000]))]),
    );
    let compressed = |name: &str, raw: u32, algorithm: u8, frame: &[u8]| {
        let bytes = [&raw.to_le_bytes()[..], &[algorithm], frame].concat();
        put("store-compressed-value", name, &bytes);
    };
    // 15 zeros and what ends a block; the empty frame, and one of 20 zeros.
    let lz4 = [0x17, 0, 1, 0, 0x30, 0, 0, 0];
    let zstd = [0x28, 0xB5, 0x2F, 0xFD, 0x20];
    compressed("lz4", 15, 1, &lz4);
    compressed("lz4-lying", u32::MAX, 1, &lz4);
    compressed("zstd-empty", 0, 2, &[&zstd[..], &[0, 1, 0, 0]].concat());
    compressed("zstd", 20, 2, &[&zstd[..], &[20, 0xA3, 0, 0, 0]].concat());
    compressed(
        "zstd-lying",
        1 << 30,
        2,
        &[&zstd[..], &[20, 0xA3, 0, 0, 0]].concat(),
    );
    // Of dictionary 1: the empty frame, one of 20 zeros, and what begins as one.
    compressed("zstd-dictionary-empty", 0, 3, &[0x21, 1, 0, 1, 0, 0]);
    compressed("zstd-dictionary", 20, 3, &[0x21, 1, 20, 0xA3, 0, 0, 0]);
    compressed(
        "zstd-dictionary-cut",
        100,
        3,
        &[0x21, 1, 100, 0x9D, 0, 0, 8],
    );
    compressed("of-no-algorithm", 3, 7, b"abc");
    let dictionary = |name: &str, number: u32, content: &[u8]| {
        let mut header = [0; 64];
        header[..4].copy_from_slice(b"FDIC");
        header[8..12].copy_from_slice(&number.to_le_bytes());
        header[16..32].copy_from_slice(fuzzed::OWNER.as_bytes());
        let crc = crc32c([&header[8..], content]);
        header[4..8].copy_from_slice(&crc.to_le_bytes());
        put("store-dictionary", name, &[&header[..], content].concat());
    };
    let begins = [0x37, 0xA4, 0x30, 0xEC, 1, 0, 0, 0];
    dictionary("without-tables", 1, &[&begins[..], &[9; 300]].concat());
    dictionary("of-another-number", 2, &begins);
    dictionary("no-dictionary", 1, b"the boat is blue");
    put("store-dictionary", "cut-short", b"FDIC");
    let large = |key: &[u8], length: u32, value: &[u8]| {
        let mut header = [0; 64];
        header[..4].copy_from_slice(b"FLRG");
        header[8] = 1;
        header[16..24].copy_from_slice(&(value.len() as u64).to_le_bytes());
        header[24..28].copy_from_slice(&crc32c([value]).to_le_bytes());
        header[28..32].copy_from_slice(&length.to_le_bytes());
        header[32..48].copy_from_slice(fuzzed::OWNER.as_bytes());
        let crc = crc32c([&header[8..], key]);
        header[4..8].copy_from_slice(&crc.to_le_bytes());
        [&header[..], key, value].concat()
    };
    put("store-large-value", "whole", &large(b"key", 3, &[9; 300]));
    put(
        "store-large-value",
        "without-a-value",
        &large(b"key", 3, b""),
    );
    put(
        "store-large-value",
        "a-key-longer-than-the-file",
        &large(b"key", 65_000, &[9; 300]),
    );
    put(
        "store-large-value",
        "a-key-longer-than-any",
        &large(b"key", u32::MAX, &[9; 300]),
    );
    put("store-large-value", "never-written", &[0; 64]);
    let block = [&17u32.to_le_bytes()[..], &[12, 0, 0, 0, 0], &[9; 12]].concat();
    let mut blocks = large(b"key", 3, &block.repeat(3));
    blocks[48] = 1;
    let crc = crc32c([&blocks[8..67]]);
    blocks[4..8].copy_from_slice(&crc.to_le_bytes());
    put("store-large-value", "in-blocks", &blocks);
    blocks.truncate(100);
    put("store-large-value", "in-blocks-cut-short", &blocks);
}
