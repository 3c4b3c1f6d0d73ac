//! Crafted numbers in a manifest, a file's header or an index are refused without overflow.

use crate::{
    check,
    common::{Bench, value_log_files},
    manifest, put, quiet, refused, session,
};
use forebay_pool::crc32c;
use forebay_store::Durability;
use std::{
    fs,
    io::{self, Write as _},
};

/// Promise: as `crates/store/tests/fuzzed.rs`.
#[test]
fn crafted_lengths_of_manifest_and_header_are_refused() {
    let bench = Bench::new();
    let options = quiet(Durability::Fsync);
    session(&bench, &options, 0..100);
    let text = fs::read_to_string(manifest(&bench)).unwrap();
    let json = text.trim_end().rsplit_once('\n').unwrap().0;
    let state: serde_json::Value = serde_json::from_str(json).unwrap();
    for (pointer, number) in [
        ("/files/1/end", 1),
        ("/files/1/end", u64::MAX),
        ("/files/1/end", u64::MAX - 1),
        ("/files/1/start", !4095),
        ("/log_end", u64::MAX),
        ("/log_end", u64::MAX - 5000),
    ] {
        let mut crafted = state.clone();
        *crafted.pointer_mut(pointer).unwrap() = number.into();
        let json = serde_json::to_string_pretty(&crafted).unwrap();
        let text = format!("{json}\ncrc32c {:08x}\n", crc32c([json.as_bytes()]));
        fs::write(manifest(&bench), text).unwrap();
        refused(&bench, Durability::Fsync, &["othing was changed"]);
    }
    fs::write(manifest(&bench), &text).unwrap();
    let last = value_log_files(&bench.path()).pop().unwrap();
    let whole = fs::read(&last).unwrap();
    for (start, bytes) in [(None, u64::MAX), (None, u64::MAX - 4095), (Some(1), 1)] {
        let mut crafted = whole.clone();
        if let Some(start) = start {
            crafted[16..24].copy_from_slice(&u64::to_le_bytes(start));
        }
        crafted[24..32].copy_from_slice(&bytes.to_le_bytes());
        let crc = crc32c([&crafted[8..48]]);
        crafted[4..8].copy_from_slice(&crc.to_le_bytes());
        fs::write(&last, &crafted).unwrap();
        refused(&bench, Durability::Fsync, &["nothing was changed"]);
    }
    fs::write(&last, whole).unwrap();
    check(&bench.open(&options), 0..100, 1);
}

#[test]
fn a_crafted_watermark_of_an_index_is_refused_without_overflow() {
    for (variant, closed) in [(Durability::Fsync, false), (Durability::NoSync, true)] {
        let bench = Bench::new();
        let store = bench.open(&quiet(variant));
        put(&store, 0..5, 1);
        match closed {
            true => store.close().unwrap(),
            false => drop(store),
        }
        let path = bench.path().join("index").join("MANIFEST");
        let text = fs::read_to_string(&path).unwrap();
        let (_, body) = text.split_once('\n').unwrap();
        let (_, rest) = body.split_once('\n').unwrap();
        for watermark in [u64::MAX, u64::MAX - 5000] {
            let body = format!("watermark {watermark}\n{rest}");
            let mut sum = lsm_tree::checksum::ChecksummedWriter::new(io::sink());
            sum.write_all(body.as_bytes()).unwrap();
            let sum = sum.checksum().into_u128();
            fs::write(&path, format!("forebay-index 1 {sum:032x}\n{body}")).unwrap();
            refused(
                &bench,
                variant,
                &["which no log reaches", "othing was changed"],
            );
        }
        fs::write(&path, &text).unwrap();
        check(&bench.open(&quiet(variant)), 0..5, 1);
    }
}
