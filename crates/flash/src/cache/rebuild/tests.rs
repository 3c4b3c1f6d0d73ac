use super::*;
use crate::{
    file::{FileId, Identity},
    record::{CLEAN, DIRTY, DROP, FILE, FRONT, PAGES, TOMBSTONE, VOIDED, encode_drop, encode_file},
};

fn rebuilt() -> RebuiltMetadata {
    RebuiltMetadata {
        layout: 0,
        map: Map::new(16, 0),
        files: FileRegistry::default(),
        epochs: Epochs::default(),
    }
}

fn apply(rebuilt: &mut RebuiltMetadata, kind: u16, payload: &[u8]) -> Result<(), String> {
    let record = CacheRecord::decode(kind, payload).ok_or("is none")?;
    let mut dropped = DroppedFiles::new();
    let applied = rebuilt.apply(&record, &mut dropped);
    rebuilt.map.void_files(&dropped);
    applied
}

fn file(number: u32) -> Vec<u8> {
    let identity = Identity {
        device: 1,
        inode: 2,
        generation: 3,
    };
    let mut bytes = Vec::new();
    encode_file(FileId { number, identity }, "t", &mut bytes);
    bytes
}

fn pages(first: u64, count: u32) -> Vec<u8> {
    pages_of(0, first, count)
}

fn pages_of(file: u32, first: u64, count: u32) -> Vec<u8> {
    let mut bytes = first.to_le_bytes().to_vec();
    for page in 0..count {
        let entry = PageEntry {
            file,
            page,
            crc: 0,
            flags: DIRTY,
        };
        entry.encode(&mut bytes);
    }
    bytes
}

#[test]
fn records_applied_twice_change_nothing_the_second_time() {
    let mut rebuilt = rebuilt();
    let front = 2u64.to_le_bytes();
    let log: [(u16, Vec<u8>); 4] = [
        (FILE, file(0)),
        (PAGES, pages(0, 5)),
        (FRONT, front.to_vec()),
        (CLEAN, 3u64.to_le_bytes().to_vec()),
    ];
    for _ in 0..2 {
        for (kind, payload) in &log {
            apply(&mut rebuilt, *kind, payload).unwrap();
        }
        let map = &rebuilt.map;
        assert_eq!(
            (map.front, map.recorded, map.pages, map.dirty),
            (2, 5, 3, 2)
        );
        assert_eq!(rebuilt.files.next(), 1);
    }
}

#[test]
fn one_pass_at_the_end_finds_the_pages_of_all_gone_files() {
    let mut rebuilt = rebuilt();
    let mut dropped = DroppedFiles::new();
    let mut apply = |kind, payload: &[u8]| {
        let record = CacheRecord::decode(kind, payload).unwrap();
        rebuilt.apply(&record, &mut dropped).unwrap();
        rebuilt.map.pages
    };
    for number in 0..4 {
        apply(FILE, &file(number));
        apply(PAGES, &pages_of(number, 2 * u64::from(number), 2));
    }
    for number in [0, 1, 3] {
        assert_eq!(apply(DROP, &encode_drop(number, 8)), 8, "they are there");
    }
    rebuilt.map.void_files(&dropped);
    assert_eq!((rebuilt.map.pages, rebuilt.map.dirty), (2, 2));
    let void: Vec<u64> = (0..8)
        .filter(|&position| rebuilt.map.version(position).is(VOID))
        .collect();
    assert_eq!(void, [0, 1, 2, 3, 6, 7]);
}

#[test]
fn records_that_do_not_follow_each_other_are_refused() {
    let mut rebuilt = rebuilt();
    assert!(
        apply(&mut rebuilt, PAGES, &pages(0, 1)).is_err(),
        "no such file"
    );
    apply(&mut rebuilt, FILE, &file(0)).unwrap();
    assert!(apply(&mut rebuilt, PAGES, &pages(1, 1)).is_err(), "a gap");
    assert!(
        apply(&mut rebuilt, PAGES, &pages(0, 17)).is_err(),
        "no slot"
    );
    assert!(
        apply(&mut rebuilt, FRONT, &u64::MAX.to_le_bytes()).is_err(),
        "behind any rear"
    );
    // What came before went around flash.
    apply(&mut rebuilt, FRONT, &17u64.to_le_bytes()).unwrap();
    assert!(apply(&mut rebuilt, PAGES, &pages(18, 1)).is_err(), "a gap");
    apply(&mut rebuilt, PAGES, &pages(17, 1)).unwrap();
    assert!(apply(&mut rebuilt, 77, &[]).is_err());
}

#[test]
fn no_bytes_make_a_recovery_panic() {
    let mut random = 3u64;
    let mut next = || {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        random >> 33
    };
    for _ in 0..50_000 {
        let mut rebuilt = rebuilt();
        let _ = apply(&mut rebuilt, FILE, &file(0));
        for _ in 0..4 {
            let kind = [PAGES, FRONT, CLEAN, TOMBSTONE, FILE, DROP, VOIDED][next() as usize % 7];
            let mut payload = match kind {
                PAGES => pages(rebuilt.map.rear, next() as u32 % 4),
                FILE => file(next() as u32 % 3),
                FRONT => vec![0; 8],
                CLEAN | VOIDED => vec![0; 16],
                TOMBSTONE => vec![0; 20],
                _ => vec![0; 12],
            };
            for _ in 0..next() % 4 {
                let at = next() as usize % payload.len();
                payload[at] = [0, 1, 0x7F, 0xFF, next() as u8][next() as usize % 5];
            }
            if next() % 8 == 0 {
                payload.fill(0xFF);
            }
            let _ = apply(&mut rebuilt, kind, &payload);
        }
        assert!(rebuilt.map.used() <= 16);
    }
}
