//! Sorting places by their keys, which are lent one at a time.
//!
//! Each place is numbered by eight bytes of its key behind what all keys have in common, so that
//! most comparisons are of numbers side by side in memory. Those with equal numbers are sorted by
//! the next eight bytes, and so on; after some rounds, by their whole keys.

/// Keys with this many prefixes in common, eight bytes at a time, are sorted as a whole.
const DEPTH_MAX: u32 = 16;

/// Eight bytes of a key behind the first `skip`, zeros behind its end, as a number of the same
/// order.
pub(super) fn eight(key: &[u8], skip: usize) -> u64 {
    let mut bytes = [0; 8];
    let rest = key.get(skip..).unwrap_or_default();
    let len = rest.len().min(8);
    bytes[..len].copy_from_slice(&rest[..len]);
    u64::from_be_bytes(bytes)
}

pub(super) fn shared_len(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Lends the key at a place.
type KeyOf<'a> = dyn Fn(u32, &mut dyn FnMut(&[u8])) + 'a;

/// Sorts places by their keys, which `key_of` lends.
pub(super) fn sort_places(places: &mut [(u64, u32)], key_of: impl Fn(u32, &mut dyn FnMut(&[u8]))) {
    let mut shared: Option<Vec<u8>> = None;
    for &(_, place) in &*places {
        key_of(place, &mut |key| match &mut shared {
            None => shared = Some(key.to_vec()),
            Some(shared) => shared.truncate(shared_len(shared, key)),
        });
    }
    sort_behind(places, shared.map_or(0, |shared| shared.len()), 0, &key_of);
}

/// Sorts places whose keys have the first `skip` bytes in common, where those that are shorter
/// count as followed by zeros. Most comparisons are of eight bytes side by side in memory.
fn sort_behind(places: &mut [(u64, u32)], skip: usize, depth: u32, key_of: &KeyOf<'_>) {
    for (number, place) in &mut *places {
        key_of(*place, &mut |key| *number = eight(key, skip));
    }
    sort_numbered(places, skip, depth, key_of);
}

/// The same for places that have their numbers.
pub(super) fn sort_numbered(
    places: &mut [(u64, u32)],
    skip: usize,
    depth: u32,
    key_of: &KeyOf<'_>,
) {
    places.sort_unstable_by_key(|&(number, _)| number);
    for group in places.chunk_by_mut(|a, b| a.0 == b.0) {
        if group.len() == 1 {
            continue;
        }
        let number = group[0].0;
        let mut longest = 0;
        for &(_, place) in &*group {
            key_of(place, &mut |key| longest = longest.max(key.len()));
        }
        if longest > skip + 8 && depth < DEPTH_MAX {
            sort_behind(group, skip + 8, depth + 1, key_of);
        } else {
            sort_whole(group, key_of);
        }
        group.iter_mut().for_each(|(n, _)| *n = number);
    }
}

fn sort_whole(group: &mut [(u64, u32)], key_of: &KeyOf<'_>) {
    let mut keys: Vec<(Vec<u8>, u32)> = Vec::with_capacity(group.len());
    for &(_, place) in &*group {
        key_of(place, &mut |key| keys.push((key.to_vec(), place)));
    }
    keys.sort_unstable();
    for ((_, slot), (_, place)) in group.iter_mut().zip(keys) {
        *slot = place;
    }
}
