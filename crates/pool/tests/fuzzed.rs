//! The fuzz targets' functions, with the committed seeds and with random changes: no pool, however
//! damaged, makes the program panic, and no record appears that was not there.
//!
//! Promise (pool): A damaged pool, whatever its bytes, makes no program panic or allocate without
//! bound, and yields no record that was not there.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "support/fuzzed.rs"]
mod fuzzed;

use forebay_pool::{
    ClaimOptions, PoolOptions, RecordHeader, crc32c,
    format::{
        layout::PAGE,
        record::{KIND_VOID, peek},
    },
    media::SimMedia,
};
use proptest::prelude::*;
use std::{fs, path::PathBuf, sync::Arc};

fn seeds(target: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/seeds")
        .join(target)
}

fn run_seeds(target: &str, run: impl Fn(&[u8])) {
    let mut number = 0;
    for seed in fs::read_dir(seeds(target)).unwrap() {
        let path = seed.unwrap().path();
        eprintln!("{}", path.display());
        run(&fs::read(&path).unwrap());
        number += 1;
    }
    assert!(number > 3);
}

#[test]
fn every_seed_of_the_record_fuzzer_is_read_without_panic() {
    run_seeds("record", fuzzed::record);
}

#[test]
fn no_seed_of_the_recovery_fuzzer_makes_a_recovery_panic() {
    run_seeds("recovery", fuzzed::recovery);
}

#[test]
fn no_worst_word_of_a_table_under_a_right_checksum_panics() {
    // Superblock, lane entries, map, and the first lines of each segment: all ones, all zeros, and
    // one bit.
    let tables = (0..128).chain(8192..8192 + 4 * 256 + 48);
    let segments = (0..6u16).flat_map(|s| {
        let at = 3 * PAGE as u16 + s * 8192;
        at..at + 256
    });
    // Where `PROPTEST_CASES` says that time is short (an emulator), every seventh word.
    let step = if std::env::var("PROPTEST_CASES").is_ok() {
        28
    } else {
        4
    };
    for at in tables.chain(segments).step_by(step) {
        let there = &fuzzed::POOL[usize::from(at)..usize::from(at) + 8];
        for width in [4, 8] {
            for target in [[0xFF; 8], [0; 8], [0, 0, 0, 0, 0, 0, 0, 0x80]] {
                let mut data = vec![1];
                for byte in 0..width {
                    let edit = [at + byte as u16];
                    data.extend(edit[0].to_le_bytes());
                    data.push(there[byte] ^ target[byte + 8 - width]);
                    // Both superblocks, or the other one counts.
                    if at < 128 {
                        data.extend((4096 + edit[0]).to_le_bytes());
                        data.push(there[byte] ^ target[byte + 8 - width]);
                    }
                }
                fuzzed::recovery(&data);
            }
        }
    }
}

proptest! {
    #[test]
    fn random_changes_of_a_pool_are_recovered_or_refused(how in 0u8..2, edits in prop::collection::vec((0u16.., 1u8..), 0..12)) {
        let mut data = vec![how];
        for (at, flip) in edits {
            data.extend(at.to_le_bytes());
            data.push(flip);
        }
        fuzzed::recovery(&data);
    }

    #[test]
    fn random_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        fuzzed::record(&bytes);
        fuzzed::recovery(&[&[2], &bytes[..]].concat());
    }

    #[test]
    fn random_changes_of_a_segment_are_read_without_panic(segment in 0usize..6, edits in prop::collection::vec((0usize..4096, 1u8..), 0..6)) {
        let at = 3 * PAGE as usize + segment * 8192;
        let mut bytes = fuzzed::POOL[at..at + 4096].to_vec();
        for (at, flip) in edits {
            bytes[at] ^= flip;
        }
        let crc = crc32c([&bytes[8..64]]);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        fuzzed::record(&bytes);
    }
}

/// Edits that make the first record of the fixture's second segment a void of `length` bytes of
/// payload.
fn void_edits(length: u32) -> Vec<(usize, u8)> {
    let at = 3 * PAGE as usize + 8192 + 64;
    let header = peek(&fuzzed::POOL[at..]).unwrap();
    let length = (header.length ^ length).to_le_bytes();
    let kind = (header.kind ^ KIND_VOID).to_le_bytes();
    let of_length = (0..4).map(|byte| (at + 4 + byte, length[byte]));
    of_length
        .chain((0..2).map(|byte| (at + 24 + byte, kind[byte])))
        .collect()
}

fn bytes_of(edits: &[(usize, u8)]) -> Vec<u8> {
    let bytes = |(at, flip): &(usize, u8)| [*at as u8, (*at >> 8) as u8, *flip];
    edits.iter().flat_map(bytes).collect()
}

#[test]
fn voids_of_every_length_are_stepped_over_or_end_a_log() {
    for length in (0..9000)
        .step_by(32)
        .chain([1, 33, u32::MAX, u32::MAX - 31, 1 << 31])
    {
        fuzzed::recovery(&[&[1], &bytes_of(&void_edits(length))[..]].concat());
    }
    // One as long as the record that was there: what follows it is found.
    let header = peek(&fuzzed::POOL[3 * PAGE as usize + 8192 + 64..]).unwrap();
    let edits = void_edits((header.record_bytes() - 32) as u32);
    let count = |edits: &[(usize, u8)]| -> usize {
        let image = fuzzed::edited(&bytes_of(edits));
        let pool = PoolOptions::new()
            .open_on("fuzzed", Arc::new(SimMedia::from_image(image)))
            .unwrap();
        let lanes = fuzzed::OWNERS
            .iter()
            .filter_map(|owner| pool.claim(*owner, &ClaimOptions::new()).ok());
        lanes
            .map(|(_, recovered)| recovered.records().count())
            .sum()
    };
    assert_eq!(count(&edits) + 1, count(&[]));
}

#[test]
#[ignore = "writes fuzz/seeds"]
fn write_the_seeds() {
    let put = |target: &str, name: &str, bytes: &[u8]| {
        fs::create_dir_all(seeds(target)).unwrap();
        fs::write(seeds(target).join(name), bytes).unwrap();
    };
    let segment = |n: usize| &fuzzed::POOL[3 * PAGE as usize + n * 8192..][..8192];
    put("record", "one-record", &segment(1)[64..64 + 192]);
    put("record", "three-records", &segment(1)[64..1024]);
    put("record", "segment", &segment(1)[..2048]);
    put("record", "segment-with-a-torn-end", &segment(0)[..2048]);
    let void = RecordHeader {
        length: 192 - 32,
        lsn: 64,
        epoch: 1,
        lag: 0,
        kind: KIND_VOID,
    };
    let owner = fuzzed::OWNERS[0];
    put(
        "record",
        "a-void",
        &[&void.encode(owner, &[])[..], &[0xA5; 160]].concat(),
    );
    put("record", "zeros", &[0; 64]);
    let recovery = |name: &str, how: u8, list: &[(usize, u8)]| {
        put("recovery", name, &[&[how], &bytes_of(list)[..]].concat());
    };
    recovery("a-void", 1, &void_edits(192 - 32));
    recovery("a-void-longer-than-its-segment", 1, &void_edits(1 << 20));
    let data = 3 * PAGE as usize;
    recovery("whole", 0, &[]);
    recovery("a-flipped-bit-in-a-record", 0, &[(data + 8192 + 300, 4)]);
    recovery(
        "a-flipped-bit-in-a-segment-header",
        0,
        &[(data + 2 * 8192 + 9, 1)],
    );
    recovery("superblock-a", 0, &[(40, 1)]);
    recovery("state-slot", 0, &[(8192 + 256 + 33, 1)]);
    recovery(
        "head-at-the-end-of-addresses",
        1,
        &[(8192 + 256 + 39, 0xFF), (8192 + 256 + 64 + 39, 0xFF)],
    );
    recovery(
        "no-segments",
        1,
        &[(8192 + 256 + 44, 3), (8192 + 256 + 64 + 44, 3)],
    );
    recovery("map", 1, &[(8192 + 1024 + 8, 2)]);
    recovery("record-length", 1, &[(data + 8192 + 64 + 7, 0x80)]);
    recovery("segment-start", 1, &[(data + 8192 + 15, 0xFF)]);
    put(
        "recovery",
        "an-image",
        &[&[2], &fuzzed::POOL[..512]].concat(),
    );
}
