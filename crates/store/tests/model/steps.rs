//! Steps on a store and on the map beside it, and the way they are drawn.

use proptest::prelude::*;
use std::ops::Bound;

/// Ways to open a store: each variant, and resident.
pub const WAYS: u8 = 6;

#[derive(Clone, Debug)]
pub enum Step {
    Put(Key, Size),
    /// So many puts at once, to fill chunks, segments and files.
    PutMany(u16, u16),
    Delete(Key),
    Batch(Vec<(Key, Option<Size>)>),
    /// Reads all keys and some by themselves, and writes; committed or not.
    Transaction(Vec<(Key, Option<Size>)>, bool),
    /// Puts so much behind the key's value, or deletes it once that is long.
    Append(Key, Size),
    /// A value in the place of the present one, or of another.
    Swap(Key, Size, bool),
    /// Counts up by so much, with a key that may be anything else by now.
    Increment(Key, i64),
    Get(Key),
    Scan(Bound<Key>, Bound<Key>, bool),
    Prefix(Key, u8),
    TakeSnapshot,
    DropSnapshot(u8),
    /// Begins a scan, and has it give so many keys; it is finished later.
    BeginScan(bool, u8),
    /// Has a scan give all that it has left.
    FinishScan(u8),
    DeleteAll,
    /// All keys between two bounds, one by one: from the first to the last, or the reverse.
    DeleteEach(Bound<Key>, Bound<Key>, bool),
    /// All keys between two bounds at once; with a key and a size, in a batch that puts it before
    /// or behind that.
    DeleteRange(Bound<Key>, Bound<Key>, Option<(Key, Size, bool)>),
    /// So many times: a key behind all others is put, and the first of those is taken away.
    Queue(u16),
    Flush,
    Collect,
    Compact,
    /// Makes a copy, and opens that.
    Checkpoint,
    /// Reads as another process does; by a look of before, which is refreshed, if there is one.
    Look,
    Close(u8),
    Crash(u8),
}

/// A key's number and class.
#[derive(Clone, Copy, Debug)]
pub struct Key(pub u8, pub u16);

impl Key {
    pub fn bytes(self) -> Vec<u8> {
        let Self(class, number) = self;
        match class {
            0 => vec![(number % 250) as u8 + 1],
            1 => u64::from(number).to_be_bytes().to_vec(),
            2 => format!("a key of ordinary length {number:05}").into_bytes(),
            3 => vec![0; 1 + usize::from(number % 20)],
            _ => [&vec![b'k'; 2000][..], &number.to_be_bytes()].concat(),
        }
    }
}

/// A value's length and first byte.
#[derive(Clone, Copy, Debug)]
pub struct Size(pub u32, pub u8);

impl Size {
    pub fn bytes(self) -> Vec<u8> {
        (0..self.0)
            .map(|i| (i as u8).wrapping_add(self.1))
            .collect()
    }
}

fn key() -> impl Strategy<Value = Key> {
    (0u8..5, 0u16..60).prop_map(|(class, number)| Key(class, number))
}

fn size() -> impl Strategy<Value = Size> {
    let bytes = prop_oneof![
        2 => Just(0u32),
        6 => 1u32..100,
        6 => 100u32..5000,
        // Around half a segment, where values begin to lie in files of their own.
        2 => 30_000u32..33_000,
        1 => 33_000u32..200_000,
    ];
    (bytes, any::<u8>()).prop_map(|(bytes, first)| Size(bytes, first))
}

fn bound() -> impl Strategy<Value = Bound<Key>> {
    prop_oneof![
        Just(Bound::Unbounded),
        key().prop_map(Bound::Included),
        key().prop_map(Bound::Excluded),
    ]
}

pub fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => (key(), size()).prop_map(|(key, size)| Step::Put(key, size)),
        4 => (any::<u16>(), 50u16..700).prop_map(|(from, count)| Step::PutMany(from, count)),
        8 => key().prop_map(Step::Delete),
        6 => proptest::collection::vec((key(), proptest::option::of(size())), 0..8).prop_map(Step::Batch),
        3 => (proptest::collection::vec((key(), proptest::option::of(size())), 0..6), any::<bool>())
            .prop_map(|(changes, commits)| Step::Transaction(changes, commits)),
        4 => (key(), size()).prop_map(|(key, size)| Step::Append(key, size)),
        3 => (key(), size(), any::<bool>()).prop_map(|(key, size, is)| Step::Swap(key, size, is)),
        8 => (0u16..3, any::<i64>()).prop_map(|(number, by)| {
            // Every fourth one by so much that there soon is no room in 8 bytes.
            let by = if by % 4 == 0 { by } else { by % 1000 };
            Step::Increment(Key(1, number), by)
        }),
        8 => key().prop_map(Step::Get),
        4 => (bound(), bound(), any::<bool>()).prop_map(|(from, to, back)| Step::Scan(from, to, back)),
        2 => (key(), 0u8..4).prop_map(|(key, bytes)| Step::Prefix(key, bytes)),
        3 => Just(Step::TakeSnapshot),
        2 => any::<u8>().prop_map(Step::DropSnapshot),
        3 => (any::<bool>(), any::<u8>()).prop_map(|(back, count)| Step::BeginScan(back, count)),
        2 => any::<u8>().prop_map(Step::FinishScan),
        1 => Just(Step::DeleteAll),
        3 => (bound(), bound(), any::<bool>())
            .prop_map(|(from, to, back)| Step::DeleteEach(from, to, back)),
        5 => (bound(), bound(), proptest::option::of((key(), 0u32..100, any::<bool>())))
            .prop_map(|(from, to, put)| {
                let put = put.map(|(key, bytes, behind)| (key, Size(bytes, 9), behind));
                Step::DeleteRange(from, to, put)
            }),
        2 => (1u16..400).prop_map(Step::Queue),
        2 => Just(Step::Flush),
        2 => Just(Step::Collect),
        1 => Just(Step::Compact),
        1 => Just(Step::Checkpoint),
        3 => Just(Step::Look),
        1 => (0u8..WAYS).prop_map(Step::Close),
        2 => (0u8..WAYS).prop_map(Step::Crash),
    ]
}
