use super::*;
use crate::media::SimMedia;
use proptest::prelude::*;

const BYTES: usize = 32 << 10;

fn state(head: u64) -> LaneState {
    LaneState {
        taken: true,
        sequence: 0,
        owner: Uuid::from_u128(7),
        head,
        epoch: 3,
        segments: 2,
        incarnation: 1,
    }
}

fn tables(media: &SimMedia) -> PoolTables<'_> {
    PoolTables {
        media,
        geometry: PoolGeometry::fit(BYTES as u64, 4096, 4).unwrap(),
        pool: Uuid::from_u128(9),
    }
}

#[test]
fn a_state_survives_the_loss_of_the_write_that_follows_it() {
    let medium = SimMedia::new(BYTES);
    let mut entry = tables(&medium).lane(2);
    assert!(entry.state.is_none());
    for page in 1..6u64 {
        tables(&medium).write_lane(2, &mut entry, state(page * PAGE));
        let mut image = medium.image();
        let newest = tables(&medium).geometry.lane_entry(2) as usize + 64 * (page as usize % 2);
        image[newest + 33] ^= 1;
        let torn = SimMedia::from_image(image);
        let read = tables(&torn).lane(2);
        assert!(read.damage.is_some());
        assert_eq!(read.state.map_or(0, |s| s.head), (page - 1) * PAGE);
        assert_eq!(tables(&medium).lane(2).state.unwrap().head, page * PAGE);
    }
}

proptest! {
    #[test]
    fn any_subset_of_a_state_write_leaves_the_old_or_the_new_state(seed: u64) {
        let medium = SimMedia::new(BYTES);
        let mut entry = tables(&medium).lane(0);
        for page in 0..4 {
            tables(&medium).write_lane(0, &mut entry, state(page * PAGE));
            medium.note(page * PAGE);
        }
        let images = medium.crash_images();
        let mut coin = seed | 1;
        for point in 0..images.points() {
            let acknowledged = images.notes_before(point).last();
            let image = images.at(point, || {
                coin = coin.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                coin >> 63 == 1
            });
            let found = tables(&SimMedia::from_image(image)).lane(0).state.map(|s| s.head);
            prop_assert!(found == acknowledged || found == acknowledged.map_or(Some(0), |a| Some(a + PAGE)));
        }
    }
}

#[test]
fn an_impossible_lane_state_is_damage_despite_a_right_checksum() {
    let good = state(8192);
    for (absurd, word) in [
        (LaneState { head: 100, ..good }, "head at 100"),
        (
            LaneState {
                head: u64::MAX - 4095,
                ..good
            },
            "head at",
        ),
        (
            LaneState {
                segments: 0,
                ..good
            },
            "0 segments",
        ),
        (
            LaneState {
                segments: 65,
                ..good
            },
            "65 segments",
        ),
    ] {
        let medium = SimMedia::new(BYTES);
        let mut entry = tables(&medium).lane(0);
        tables(&medium).write_lane(0, &mut entry, good);
        tables(&medium).write_lane(0, &mut entry, absurd);
        let read = tables(&medium).lane(0);
        assert_eq!(read.state.map(|s| s.head), Some(good.head));
        assert!(read.damage.unwrap().contains(word));
    }
    // What `write_lane` does not write: a state from which it could not count on,
    for sequence in [SEQUENCE_MAX + 1, u64::MAX - 2, u64::MAX - 1] {
        let medium = SimMedia::new(BYTES);
        let mut bytes = encode(&LaneState { sequence, ..good });
        let crc = tables(&medium).slot_crc(0, &bytes);
        bytes[0..4].copy_from_slice(&crc.to_le_bytes());
        let at = tables(&medium).geometry.lane_entry(0);
        (&medium as &dyn Media).store(at, &[IoSlice::new(&bytes)]);
        let damage = tables(&medium).lane(0).damage.unwrap();
        assert!(damage.contains("sequence numbers"), "{damage}");
    }
    // a state of neither kind, and the last sequence number.
    for (range, word) in [(4..8, "unknown state"), (8..16, "sequence numbers")] {
        let medium = SimMedia::new(BYTES);
        let mut bytes = encode(&good);
        bytes[range].fill(0xFF);
        let crc = tables(&medium).slot_crc(0, &bytes);
        bytes[0..4].copy_from_slice(&crc.to_le_bytes());
        let at = tables(&medium).geometry.lane_entry(0);
        (&medium as &dyn Media).store(at, &[IoSlice::new(&bytes)]);
        let read = tables(&medium).lane(0);
        assert_eq!(read.state, None);
        assert!(read.damage.unwrap().contains(word));
    }
}

#[test]
fn a_flipped_bit_in_the_segment_map_is_found() {
    let medium = SimMedia::new(BYTES);
    let mut owners = tables(&medium).segment_owners().unwrap();
    owners[3] = Some((1, 5));
    tables(&medium).write_segment_owners(&owners);
    assert_eq!(tables(&medium).segment_owners().unwrap(), owners);
    let word = tables(&medium).geometry.map() as usize + 3 * 8;
    for bit in 0..64 {
        let mut image = medium.image();
        image[word + bit / 8] ^= 1 << (bit % 8);
        let error = tables(&SimMedia::from_image(image))
            .segment_owners()
            .unwrap_err();
        assert!(error.contains("entry 3"), "{error}");
    }
}

#[test]
fn a_long_label_is_cut_between_characters() {
    let medium = SimMedia::new(BYTES);
    tables(&medium).write_label(1, &"ä".repeat(100));
    assert_eq!(tables(&medium).lane(1).label, "ä".repeat(64));
    tables(&medium).write_label(1, &format!("x{}", "ä".repeat(100)));
    assert_eq!(
        tables(&medium).lane(1).label,
        format!("x{}", "ä".repeat(63))
    );
}
