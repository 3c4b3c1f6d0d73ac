use super::*;

fn header() -> CacheHeader {
    CacheHeader {
        geometry: CacheGeometry::fit(4 << 20, 16 << 10, 16, 8).unwrap(),
        owner: Uuid::from_u128(7),
        pool: Uuid::from_u128(9),
    }
}

#[test]
fn a_header_is_read_as_it_was_written_and_no_flipped_bit_passes() {
    let bytes = header().encode();
    assert_eq!(CacheHeader::decode(&bytes), Ok(header()));
    for bit in 0..HEADER * 8 {
        let mut flipped = bytes;
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(CacheHeader::decode(&flipped).is_err(), "bit {bit}");
    }
    assert_eq!(CacheHeader::decode(&[0; 4096]), Err(BadHeader::Blank));
    assert_eq!(CacheHeader::decode(&[1; 4096]), Err(BadHeader::Foreign));
}

#[test]
fn a_cache_uses_what_there_is_and_not_a_byte_more() {
    for bytes in (200_000..3_000_000).step_by(7_777) {
        let Ok(geometry) = CacheGeometry::fit(bytes, 4096, 16, 2) else {
            continue;
        };
        assert!(geometry.bytes() <= bytes);
        let more = CacheGeometry {
            slots: geometry.slots + 3,
            ..geometry
        };
        assert!(more.bytes() > bytes, "{bytes} bytes have room for more");
        assert!(geometry.data().is_multiple_of(BLOCK));
        assert_eq!(geometry.slot(u64::from(geometry.slots)), geometry.data());
    }
}

/// From each size to each: the slots stay where they are, and nothing that the layout before needs
/// is written over.
///
/// Promise: as `a_cache_of_another_size_has_what_it_had_and_goes_on`.
#[test]
fn a_resize_keeps_the_slots_and_moves_the_checkpoints() {
    let sizes: Vec<u64> = (300_000..1_500_000).step_by(71_111).collect();
    for &first in &sizes {
        let mut now = CacheGeometry::fit(first, 4096, 16, 2).unwrap();
        for &bytes in sizes.iter().chain(sizes.iter().rev()) {
            let Ok(Some(new)) = now.resized(bytes, 2) else {
                continue;
            };
            assert!(new.bytes() <= bytes && new.data() == now.data());
            assert_eq!(new.layout(), now.layout() + 1);
            let [begin, end] = [new.checkpoint(0), new.checkpoint(2)];
            let apart = end <= now.checkpoint(0) || now.checkpoint(2) <= begin;
            assert!(apart, "{now:?} {new:?}");
            let stay = u64::from(now.slots.min(new.slots));
            assert!(begin >= now.data() + stay * 4096, "{now:?} {new:?}");
            let header = CacheHeader {
                geometry: new,
                ..header()
            };
            assert_eq!(CacheHeader::decode(&header.encode()), Ok(header));
            assert_eq!(new.resized(bytes, 2).unwrap(), None, "it has that size");
            now = new;
        }
        assert!(now.layout() > 5);
    }
}

#[test]
fn a_header_of_an_unknown_version_is_refused_by_its_version() {
    for version in [0, VERSION + 1, 7] {
        let mut bytes = header().encode();
        put32(&mut bytes, 8, version);
        let crc = crc32c([&bytes[8..HEADER]]);
        put32(&mut bytes, 4, crc);
        let refused = CacheHeader::decode(&bytes);
        assert_eq!(refused, Err(BadHeader::Version(version)));
    }
}

#[test]
fn a_cache_that_was_never_resized_has_the_size_it_was_made_with() {
    let geometry = header().geometry;
    assert_eq!(geometry.resized(4 << 20, 8).unwrap(), None);
    let more = geometry.resized((4 << 20) + 20_000, 8).unwrap_err();
    assert!(more.to_string().contains("too little more"), "{more}");
    let less = geometry.resized(200_000, 8).unwrap_err();
    assert!(less.to_string().contains("Give a larger file"), "{less}");
}

/// The least size has no room for the metadata behind its slots, and any size between has more
/// slots than were made first.
#[test]
fn a_cache_has_its_first_size_again_whatever_that_was() {
    for first in (180_000..600_000).step_by(4_096) {
        let Ok(made) = CacheGeometry::fit(first, 4096, 16, 4) else {
            continue;
        };
        let mut now = made;
        for more in [first + 200_000, first + 900_000, first + 5_000_000] {
            let Ok(Some(grown)) = now.resized(more, 4) else {
                panic!("{first} cannot grow to {more}");
            };
            now = grown;
            let back = now.resized(first, 4);
            let back = back.unwrap().unwrap();
            assert!(back.bytes() <= first && back.data() == made.data());
            let [begin, end] = [back.checkpoint(0), back.checkpoint(2)];
            let apart = end <= now.checkpoint(0) || now.checkpoint(2) <= begin;
            assert!(apart, "{now:?} {back:?}");
            let slots = back.data()..back.slot(u64::from(back.slots) - 1) + 4096;
            assert!(end <= slots.start || begin >= slots.end, "{back:?}");
            let header = CacheHeader {
                geometry: back,
                ..header()
            };
            assert_eq!(CacheHeader::decode(&header.encode()), Ok(header));
            assert_eq!(back.resized(first, 4).unwrap(), None);
            now = back;
        }
    }
}

#[test]
fn sizes_that_make_no_cache_are_refused_with_the_reason() {
    let reason = |bytes, page, files, group| {
        CacheGeometry::fit(bytes, page, files, group)
            .unwrap_err()
            .to_string()
    };
    assert!(reason(1 << 20, 3000, 16, 8).contains("a power of two"));
    assert!(reason(1 << 20, 16 << 10, 0, 8).contains("room for 0 files"));
    assert!(reason(1 << 20, 16 << 10, 16, 64).contains("Give a larger file"));
    assert!(reason(0, 16 << 10, 16, 64).contains("0 bytes hold 0 pages"));
}
