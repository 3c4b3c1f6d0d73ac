//! Pools that earlier versions wrote open for ever.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use forebay_pool::{
    ClaimOptions, Lane, LaneCheck, Lsn, Pool, PoolOptions, Recovered,
    format::{
        record::{HEADER, KIND_SEAL},
        segment::SEGMENT_HEADER,
    },
    record_bytes,
};
use std::{
    fs,
    io::IoSlice,
    path::{Path, PathBuf},
    time::Duration,
};
use uuid::Uuid;

const SEGMENT: u64 = 8 << 10;
/// Has a lane of three segments, one of them drained, written in two sessions.
const LONG: Uuid = Uuid::from_u128(0x10_46);
/// Has a lane of one segment that ends in a torn record.
const TORN: Uuid = Uuid::from_u128(0x70_42);
/// Gave its lane back.
const GONE: Uuid = Uuid::from_u128(0x60_4E);

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/pool-v1.bin")
}

fn payload(i: u32) -> Vec<u8> {
    (0..100 + 131 * i)
        .map(|byte| (byte * 7 + i) as u8)
        .collect()
}

fn append(lane: &Lane, records: std::ops::Range<u32>) {
    for i in records {
        lane.append(i as u16 + 1, &[IoSlice::new(&payload(i))])
            .unwrap();
    }
}

fn claim(pool: &Pool, owner: Uuid, label: &str, buffers: u16, start: Lsn) -> (Lane, Recovered) {
    let options = ClaimOptions::new()
        .segments(buffers)
        .label(label)
        .start(start);
    pool.claim(owner, &options).unwrap()
}

/// Writes the fixture. Only ever run to add the fixture of a new format version.
#[test]
#[ignore = "writes tests/fixtures/pool-v1.bin"]
fn write_the_fixture_of_version_1() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new.pool");
    let options = PoolOptions::new()
        .size(64 << 10)
        .segment_size(SEGMENT)
        .lanes(4)
        .emulated(true);
    let pool = options.create(&path).unwrap();
    let (gone, _) = claim(&pool, GONE, "gave its lane back", 1, 0);
    let (long, _) = claim(&pool, LONG, "three segments, two sessions", 3, 1 << 20);
    append(&long, 0..8);
    long.seal();
    append(&long, 8..12);
    long.take_sealed(Duration::ZERO).unwrap().release();
    drop(long);
    let (long, _) = claim(&pool, LONG, "", 3, 0);
    append(&long, 12..15);
    drop(long);
    append(&gone, 0..2);
    gone.seal();
    gone.take_sealed(Duration::ZERO).unwrap().release();
    assert!(gone.remove());
    let (torn, _) = claim(&pool, TORN, "ends in a torn record", 1, 0);
    append(&torn, 0..4);
    drop((torn, pool));
    let mut image = fs::read(&path).unwrap();
    let last = payload(3);
    let at = image.windows(last.len()).position(|w| w == last).unwrap();
    image[at + 200..at + last.len()].fill(0);
    fs::write(fixture(), image).unwrap();
}

/// Promise (pool): Every later version opens a pool of format version 1.
#[test]
fn a_pool_of_format_version_1_opens_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("v1.pool");
    fs::copy(fixture(), &path).unwrap();
    let pool = PoolOptions::new().open(&path).unwrap();
    assert!(pool.repaired().is_empty());
    let geometry = pool.geometry();
    assert!(pool.is_emulated());
    assert_eq!(geometry.segment_bytes, SEGMENT);
    assert_eq!(geometry.segments, 6);
    assert_eq!(geometry.lanes, 4);
    assert_eq!(
        pool.uuid().to_string(),
        "7fa7052d-44fa-447b-a5c6-fcf71d7070bb"
    );
    assert_eq!(pool.created_s(), 1795222760);

    let lanes = pool.lanes();
    let labels: Vec<_> = lanes.iter().map(|l| (l.owner, l.label.as_str())).collect();
    assert_eq!(
        labels,
        [
            (TORN, "ends in a torn record"),
            (LONG, "three segments, two sessions")
        ]
    );
    assert_eq!((lanes[1].head, lanes[1].epoch), ((1 << 20) + SEGMENT, 2));
    assert_eq!(pool.segments_free(), Ok(2));
    let check = pool.check_lane(lanes[1].lane);
    assert!(
        matches!(check, LaneCheck::Whole { records: 7, .. }),
        "{check:?}"
    );

    let (lane, recovered) = claim(&pool, LONG, "", 3, 0);
    let found: Vec<_> = recovered
        .records()
        .map(|r| {
            (
                r.header.lsn,
                r.header.epoch,
                r.header.kind,
                r.payload.to_vec(),
            )
        })
        .collect();
    let mut lsn = (1 << 20) + SEGMENT + SEGMENT_HEADER;
    let mut expected = Vec::new();
    for i in 8..15 {
        if i == 12 {
            // The second session sealed the first one's last segment and began one of its own.
            lsn = (lsn + record_bytes(0)).next_multiple_of(4096) + SEGMENT_HEADER;
        }
        let epoch = if i < 12 { 1 } else { 2 };
        expected.push((lsn, epoch, i as u16 + 1, payload(i)));
        lsn += record_bytes(payload(i).len());
    }
    assert!(found == expected);
    // And goes on: the new records are behind the old ones.
    drop(recovered);
    let lsn = lane.append(1, &[IoSlice::new(&payload(3))]).unwrap();
    assert_eq!(
        &lane.read(lsn + HEADER as u64, 493).unwrap()[..],
        payload(3)
    );
    drop(lane);
    let (_, recovered) = claim(&pool, LONG, "", 3, 0);
    assert_eq!(recovered.records().count(), 8);
    assert!(recovered.records().all(|r| r.header.kind != KIND_SEAL));

    let (_, recovered) = claim(&pool, TORN, "", 1, 0);
    let found: Vec<_> = recovered.records().map(|r| r.payload.to_vec()).collect();
    assert!(found == [payload(0), payload(1), payload(2)]);
    assert!(!pool.has_lane(GONE).unwrap());
}
