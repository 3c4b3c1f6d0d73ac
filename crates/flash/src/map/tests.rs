use super::*;
use std::collections::HashMap;

fn entry(page: u32, crc: u32, flags: u8) -> PageEntry {
    PageEntry {
        file: 1,
        page,
        crc,
        flags,
    }
}

#[test]
fn the_newest_version_is_found_until_the_front_has_passed_it() {
    let mut map = Map::new(8, 100);
    map.push(entry(1, 10, DIRTY));
    map.push(entry(2, 20, 0));
    map.push(entry(1, 11, DIRTY));
    assert_eq!((map.pages, map.dirty, map.used()), (2, 1, 3));
    let newest = map.find(1, 1).unwrap();
    assert_eq!((newest.position, newest.entry.crc), (102, 11));
    assert!(!map.version(100).newest);
    map.advance(102);
    assert_eq!(map.find(1, 2), None);
    assert_eq!(map.find(1, 1).unwrap().position, 102);
    assert_eq!((map.dirty_of(1), map.dirty_of(2)), (1, 0));
    map.clean(102);
    assert_eq!((map.pages, map.dirty, map.dirty_of(1)), (1, 0, 0));
    map.advance(103);
    assert_eq!((map.find(1, 1), map.pages), (None, 0));
}

#[test]
fn a_tombstone_reaches_every_version_before_it_and_none_behind() {
    for last in [1, u32::MAX] {
        let mut map = Map::new(8, 0);
        for crc in 0..3 {
            map.push(entry(1, crc, DIRTY));
        }
        map.push(entry(0, 9, DIRTY));
        let before = map.rear;
        map.push(entry(1, 3, DIRTY));
        map.void(1, [1, last], before);
        assert_eq!(map.find(1, 1).unwrap().entry.crc, 3);
        for position in 0..3 {
            assert!(map.version(position).is(VOID), "{position}");
        }
        assert!(!map.version(3).is(VOID) && !map.version(4).is(VOID));
        map.void(1, [1, last], map.rear);
        assert_eq!(map.find(1, 1), None);
        assert_eq!((map.pages, map.dirty), (1, 1));
    }
}

/// A slot that is made to say behind the map's back that it has a page of the file becomes void if
/// it is looked at.
#[test]
fn a_files_tombstone_looks_no_further_than_its_oldest_version() {
    let mut map = Map::new(8, 0);
    for file in [2, 1, 3, 1, 3] {
        let entry = entry(file, 0, DIRTY);
        map.push(PageEntry { file, ..entry });
    }
    map.slots[0].file = 1;
    map.void(1, [0, u32::MAX], map.rear);
    assert!(map.version(1).is(VOID) && map.version(3).is(VOID));
    assert!(!map.version(0).is(VOID), "it was looked at");
    // There is nothing more of it.
    map.slots[4].file = 1;
    map.void(1, [0, u32::MAX], map.rear);
    assert!(!map.version(4).is(VOID), "it was looked at");
}

#[test]
fn tombstones_of_several_files_void_what_precedes_each() {
    let mut map = Map::new(8, 0);
    for (file, page) in [(1, 1), (2, 1), (3, 1), (1, 1), (2, 2), (1, 2)] {
        let entry = entry(page, 0, DIRTY);
        map.push(PageEntry { file, ..entry });
    }
    map.void_files(&HashMap::from([(1, 5), (2, 6), (7, 6)]));
    let left: Vec<u64> = (0..6).filter(|&at| !map.version(at).is(VOID)).collect();
    assert_eq!((left, map.pages, map.dirty), (vec![2, 5], 2, 2));
}

/// Random changes beside a plain map and a plain queue.
#[test]
fn the_map_says_what_a_plain_map_says() {
    let mut random = 1u64;
    let mut below = |bound: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) % bound
    };
    let mut map = Map::new(13, 0);
    let mut plain: HashMap<(u32, u32), (u64, u8)> = HashMap::new();
    for crc in 0..20_000 {
        let (file, page) = (1 + below(2) as u32, below(9) as u32);
        match below(8) {
            0 => {
                let to = map.front + below(map.used() + 1);
                map.advance(to);
                plain.retain(|_, (position, _)| *position >= to);
            }
            1 => {
                let last = [page + 1, u32::MAX][below(2) as usize];
                let before = map.rear - below(1 + map.used() / 2);
                map.void(file, [page, last], before);
                plain.retain(|of, (position, _)| {
                    of.0 != file || !(page..=last).contains(&of.1) || *position >= before
                });
            }
            2 => {
                if let Some((position, flags)) = plain.get_mut(&(file, page)) {
                    map.clean(*position);
                    *flags = 0;
                }
            }
            _ if map.used() < 13 => {
                let flags = below(2) as u8;
                let entry = PageEntry {
                    file,
                    ..entry(page, crc, flags)
                };
                plain.insert((file, page), (map.push(entry), flags));
            }
            _ => {}
        }
        let mut dirty = [0; 3];
        for (file, page) in (1..=2).flat_map(|file| (0..10).map(move |page| (file, page))) {
            let found = map.find(file, page).map(|v| (v.position, v.entry.flags));
            assert_eq!(found, plain.get(&(file, page)).copied());
            dirty[file as usize] += u64::from(found.is_some_and(|(_, flags)| flags == DIRTY));
        }
        assert_eq!(map.pages, plain.len() as u64);
        assert_eq!((map.dirty_of(1), map.dirty_of(2)), (dirty[1], dirty[2]));
        assert_eq!(map.dirty, dirty[1] + dirty[2]);
        for file in 1..=2 {
            let queue = (map.front..map.rear).map(|position| map.version(position));
            let needed = queue.filter(|v| v.entry.file == file && !v.is(VOID));
            assert_eq!(map.versions_of(file), needed.count() as u64);
        }
    }
}
