//! Scans of a keyspace from both ends, and seeks, beside the pairs that they are to give.

use crate::{common::Rng, model::key};
use forebay_store::{ScanRange, Snapshot};
use std::ops::{Bound, RangeBounds};

pub type Pair = (Vec<u8>, Vec<u8>);

/// Keys that may be there, and some around them.
fn probe(rng: &mut Rng) -> Vec<u8> {
    match rng.below(12) {
        0 => Vec::new(),
        1 => vec![0xff; 3],
        2 => vec![0xff],
        number => [
            &key(rng.below(256) as u8)[..],
            &[b'/'][..usize::from(number == 3)],
        ]
        .concat(),
    }
}

fn bound(rng: &mut Rng) -> Bound<Vec<u8>> {
    match rng.below(6) {
        0 => Bound::Included(probe(rng)),
        1 => Bound::Excluded(probe(rng)),
        _ => Bound::Unbounded,
    }
}

/// Moves about in some range of a snapshot that has these pairs.
pub fn move_about(snapshot: &Snapshot, pairs: &[Pair], rng: &mut Rng) {
    let bounds = (bound(rng), bound(rng));
    let (reversed, keys_only) = (rng.chance(2), rng.chance(3));
    let mut range = ScanRange::new::<Vec<u8>>(bounds.clone());
    let within = pairs.iter().filter(|(key, _)| bounds.contains(key));
    let mut expected: Vec<Pair> = within.cloned().collect();
    if reversed {
        range = range.reversed();
        expected.reverse();
    }
    if keys_only {
        range = range.keys_only();
        expected.iter_mut().for_each(|(_, value)| value.clear());
    }
    // How many come before a key in the scan's direction, or with it.
    let up_to = |key: &[u8], with: bool| {
        expected.partition_point(|(other, _)| match reversed {
            false => &other[..] < key || (with && other == key),
            true => &other[..] > key || (with && other == key),
        })
    };
    let mut scan = snapshot.scan(range).unwrap();
    let mut left = 0..expected.len();
    for step in 0..30 {
        match rng.below(6) {
            0 if step > 0 => {
                let sought = probe(rng);
                scan.seek(&sought);
                left = up_to(&sought, false)..expected.len();
            }
            1 if step > 0 => {
                let sought = probe(rng);
                scan.seek_back(&sought);
                left = 0..up_to(&sought, true);
            }
            way => {
                let most = rng.one_of(&[5, 5, 5, 200]);
                for _ in 0..=rng.below(most) {
                    let (found, at) = match way % 2 {
                        0 => (scan.next(), left.next()),
                        _ => (scan.next_back(), left.next_back()),
                    };
                    let found = found.map(|pair| {
                        let (key, value) = pair.unwrap();
                        (key, value.into_vec())
                    });
                    assert!(found.as_ref() == at.map(|at| &expected[at]), "{bounds:?}");
                    if at.is_none() {
                        break;
                    }
                }
            }
        }
    }
}
