//! The fuzzers' entry points, for arbitrary bytes; also called by an ordinary test, with seeds and
//! random bytes.

#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use forebay_pool::{
    ClaimOptions, Lane, Lsn, PoolErrorKind, PoolOptions, Recovered, crc32c,
    format::{
        layout::{LANE_TABLE, PAGE, SUPERBLOCKS},
        record::{self, HEADER, KIND_VOID},
        segment::{RecordWalk, SEGMENT_HEADER, SegmentHeader, WalkEnd, witness},
    },
    media::SimMedia,
    record_bytes,
};
use std::{
    collections::HashSet,
    io::IoSlice,
    sync::{Arc, OnceLock},
    time::Duration,
};
use uuid::Uuid;

/// A pool with three lanes, see the test that wrote it.
pub const POOL: &[u8] = include_bytes!("../fixtures/pool-v1.bin");
pub const OWNERS: [Uuid; 3] = [
    Uuid::from_u128(0x10_46),
    Uuid::from_u128(0x70_42),
    Uuid::from_u128(0x60_4E),
];

/// Reads `data` as a record, and as a segment with the header it has, or none has.
pub fn record(data: &[u8]) {
    for owner in OWNERS {
        if let Ok(header) = record::peek(data)
            && let Ok(found) = record::read(data, header.lsn, owner)
        {
            assert_eq!(found.payload, &data[HEADER..HEADER + found.payload.len()]);
            if header.kind == KIND_VOID {
                assert!(found.payload.is_empty());
            } else {
                assert_eq!(header.record_bytes(), record_bytes(found.payload.len()));
            }
            assert!(header.durable_before() <= header.lsn);
            if data[28..HEADER] == [0; 4] {
                let again = header.encode(owner, &[IoSlice::new(found.payload)]);
                assert_eq!(again, data[..HEADER]);
            }
        }
        let _ = witness(data, owner, 0, 0);
    }
    let word = |at: usize| {
        let mut bytes = [0; 8];
        let from = data.get(at..).unwrap_or_default();
        let n = from.len().min(8);
        bytes[..n].copy_from_slice(&from[..n]);
        u64::from_le_bytes(bytes)
    };
    // The bounds of `decode` hold for what it returns; the walk must do without them.
    let any = SegmentHeader {
        start: word(8),
        epoch: word(16) as u32,
        bytes: word(24),
        owner: OWNERS[0],
    };
    let decoded = SegmentHeader::decode(data);
    if let Some(header) = decoded {
        assert!(header.start.is_multiple_of(PAGE));
        assert!(header.start.checked_add(header.bytes).is_some());
    }
    for header in decoded.into_iter().chain([any]) {
        let mut expected = header.start.saturating_add(SEGMENT_HEADER);
        for found in RecordWalk::new(data, header, u32::MAX) {
            // Voids are stepped over.
            assert!(found.header.lsn >= expected && found.header.kind != KIND_VOID);
            expected = found.header.lsn + found.header.record_bytes();
        }
        let _ = RecordWalk::new(data, header, u32::MAX).finish();
    }
}

/// [`POOL`] with these edits and right checksums.
pub fn edited(edits: &[u8]) -> Vec<u8> {
    let mut image = POOL.to_vec();
    for edit in edits.chunks_exact(3) {
        image[usize::from(u16::from_le_bytes([edit[0], edit[1]]))] ^= edit[2];
    }
    make_checksums_right(&mut image);
    image
}

/// Opens, claims, reads and writes a pool that `data` changed. The first byte says how:
/// 0: `data` is a row of edits (offset, 2 bytes; the bits to flip) of [`POOL`];
/// 1: the same, and then every checksum is made right again; 2: `data` is the image.
pub fn recovery(data: &[u8]) {
    let Some((how, data)) = data.split_first() else {
        return;
    };
    let mut image = POOL.to_vec();
    match how % 3 {
        2 => image = data.to_vec(),
        how => {
            for edit in data.chunks_exact(3) {
                image[usize::from(u16::from_le_bytes([edit[0], edit[1]]))] ^= edit[2];
            }
            if how == 1 {
                make_checksums_right(&mut image);
            }
        }
    }
    // Only checksums tell what was in the original image.
    let trusted = how % 3 == 0;
    let open = |image: Vec<u8>| {
        PoolOptions::new().open_on("fuzzed", Arc::new(SimMedia::from_image(image)))
    };
    let sim = Arc::new(SimMedia::from_image(image.clone()));
    let Ok(pool) = PoolOptions::new().open_on("fuzzed", sim.clone()) else {
        return;
    };
    let _ = (pool.lanes(), pool.segments_free());
    for lane in 0..pool.geometry().lanes.min(8) {
        let _ = pool.check_lane(lane);
    }
    for owner in OWNERS {
        for salvage in [false, true] {
            let options = ClaimOptions::new().salvage(salvage);
            match pool.claim(owner, &options) {
                Ok((lane, recovered)) => {
                    judge(owner, &recovered, trusted && !salvage);
                    drop(recovered);
                    go_on(&lane);
                    break;
                }
                Err(e) => {
                    assert!(!e.to_string().is_empty());
                    let lost = matches!(e.kind, PoolErrorKind::LostRecords { .. });
                    assert!(!(lost && salvage), "salvage refused: {e}");
                }
            }
        }
    }
    // What went on is itself a pool.
    if let Ok(pool) = open(sim.image()) {
        for owner in OWNERS {
            let _ = pool.claim(owner, &ClaimOptions::new());
        }
    }
}

/// Fails unless the records are in log order, and (if `trusted`) each was in the original image.
fn judge(owner: Uuid, recovered: &Recovered, trusted: bool) {
    let mut before = recovered.head();
    for found in recovered.records() {
        assert!(found.header.lsn >= before);
        before = found.header.lsn + found.header.record_bytes();
        assert!(before <= recovered.end());
        if trusted {
            let known = (owner, found.header.lsn, found.payload.to_vec());
            assert!(originals().contains(&known), "a record appeared");
        }
    }
}

/// Appends, drains and reads as an owner does; nothing may block or break.
fn go_on(lane: &Lane) {
    lane.set_stalled("there is no drain".into());
    for i in 0..3u8 {
        if let Ok(lsn) = lane.append(9, &[IoSlice::new(&[i; 700])]) {
            let bytes = lane.read(lsn + HEADER as u64, 700).expect("just appended");
            assert_eq!(bytes[..], [i; 700]);
        }
    }
    lane.seal();
    while let Some(sealed) = lane.take_sealed(Duration::ZERO) {
        let header = SegmentHeader::decode(sealed.bytes()).expect("a segment has a header");
        // It holds something, voids only perhaps.
        let (end, _) = RecordWalk::new(sealed.bytes(), header, lane.epoch()).finish();
        assert!(matches!(end, WalkEnd::Sealed(end) if end > header.start + SEGMENT_HEADER));
        sealed.release();
    }
    lane.append(9, &[IoSlice::new(b"there is room now")])
        .unwrap();
}

/// Every valid record anywhere in the original image.
fn originals() -> &'static HashSet<(Uuid, Lsn, Vec<u8>)> {
    static FOUND: OnceLock<HashSet<(Uuid, Lsn, Vec<u8>)>> = OnceLock::new();
    FOUND.get_or_init(|| valid_records(POOL).map(|(_, found)| found).collect())
}

/// The valid records in `image`, with their offsets.
fn valid_records(image: &[u8]) -> impl Iterator<Item = (usize, (Uuid, Lsn, Vec<u8>))> {
    (0..image.len()).step_by(64).flat_map(move |at| {
        OWNERS.into_iter().filter_map(move |owner| {
            let header = record::peek(&image[at..]).ok()?;
            let found = record::read(&image[at..], header.lsn, owner).ok()?;
            Some((at, (owner, header.lsn, found.payload.to_vec())))
        })
    })
}

/// Gives every structure of the original image the checksum of what it says now, so that the
/// checks behind the checksums are reached.
fn make_checksums_right(image: &mut [u8]) {
    let put = |image: &mut [u8], at: usize, crc: u32| {
        image[at..at + 4].copy_from_slice(&crc.to_le_bytes())
    };
    for at in SUPERBLOCKS.map(|at| at as usize) {
        put(image, at + 12, 0);
        let crc = crc32c([&image[at..at + 128]]);
        put(image, at + 12, crc);
    }
    let pool = image[16..32].to_vec();
    for lane in 0..4u32 {
        for slot in 0..2 {
            let at = LANE_TABLE as usize + lane as usize * 256 + slot * 64;
            let crc = crc32c([&pool[..], &lane.to_le_bytes(), &image[at + 4..at + 64]]);
            put(image, at, crc);
        }
    }
    for segment in 0..6u64 {
        let at = LANE_TABLE as usize + 4 * 256 + segment as usize * 8;
        let word = u64::from_le_bytes(image[at..at + 8].try_into().unwrap());
        let lane = ((word & 0xFFFF) as u32).wrapping_sub(1);
        let incarnation = ((word >> 32) as u32).to_le_bytes();
        let check = crc32c([
            &pool[..],
            &segment.to_le_bytes(),
            &lane.to_le_bytes(),
            &incarnation,
        ]);
        if word != 0 {
            image[at + 2..at + 4].copy_from_slice(&check.to_le_bytes()[..2]);
        }
        let at = 3 * PAGE as usize + segment as usize * 8192;
        if &image[at..at + 4] == b"FSEG" {
            let crc = crc32c([&image[at + 8..at + 64]]);
            put(image, at + 4, crc);
        }
    }
    for (at, (owner, ..)) in valid_records(POOL) {
        let Ok(header) = record::peek(&image[at..]) else {
            continue;
        };
        let end = at + HEADER + header.length as usize;
        // A void's is over the header alone.
        let end = if header.kind == KIND_VOID {
            at + HEADER
        } else {
            end
        };
        if let Some(payload) = image.get(at + HEADER..end) {
            let crc = crc32c([owner.as_bytes(), &image[at + 4..at + HEADER], payload]);
            put(image, at, crc);
        }
    }
}
