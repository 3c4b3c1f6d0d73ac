//! Making dictionaries, by a thread of the store's: the choice of the moment ([`TrainingState`]),
//! the training itself, and the decision whether a dictionary pays.
//!
//! The values of a sample that are not trained with tell: a dictionary is used if it makes those
//! smaller by a part more than what compresses them now.

use super::{
    Compression,
    dictionary::PackDictionary,
    packed::{BYTES_MIN, pack, pack_with},
    sampler::SmallSample,
    scratch::with_scratch,
};

/// A dictionary has to save one part in so many of what is stored without it.
const GAIN: usize = 8;
/// A further dictionary is tried when small values take one part in so many more than at first.
const LOSS: u32 = 10;
/// One value in so many of a sample is held out.
const HELD_OUT: usize = 4;
/// Between two tries no more bytes of small values are put than these.
const WINDOW_MAX: u64 = 1 << 30;

/// How many small values are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TrainingPace {
    /// Bytes of a sample: 64 times the dictionary.
    pub(crate) sample_bytes: usize,
    /// Bytes of small values that are put between two looks at how they fare.
    pub(crate) window_bytes: u64,
}

impl TrainingPace {
    pub(crate) const USUAL: Self = Self {
        sample_bytes: 1 << 20,
        window_bytes: 16 << 20,
    };
}

/// A dictionary that pays.
pub(crate) struct TrainedDictionary {
    pub(crate) number: u32,
    pub(crate) bytes: Vec<u8>,
    pub(crate) prepared: PackDictionary,
    /// What is stored of a thousand bytes of small values with it.
    pub(crate) permille: u32,
}

/// How small values fare, as the thread that makes dictionaries sees it.
pub(super) struct TrainingState {
    pub(super) pace: TrainingPace,
    /// Small values' bytes at the last look: raw and stored.
    seen: (u64, u64),
    /// Bytes of small values until the next look.
    window_bytes: u64,
    /// What was stored of a thousand bytes with the dictionary in use at first; lately.
    permille: u32,
    lately: u32,
    has_dictionary: bool,
}

impl TrainingState {
    /// Of no dictionary, or of one that stores so much of a thousand bytes.
    pub(super) fn new(pace: TrainingPace, permille: Option<u32>) -> Self {
        Self {
            pace,
            seen: (0, 0),
            window_bytes: pace.window_bytes,
            permille: permille.unwrap_or(0),
            lately: 0,
            has_dictionary: permille.is_some(),
        }
    }

    /// True if a sample is wanted, now that so many bytes of small values were put and stored.
    pub(super) fn wants_sample(&mut self, seen: (u64, u64)) -> bool {
        let window = (
            seen.0.saturating_sub(self.seen.0),
            seen.1.saturating_sub(self.seen.1),
        );
        if window.0 < self.window_bytes {
            return false;
        }
        self.seen = seen;
        self.lately = u32::try_from(window.1 * 1000 / window.0.max(1)).unwrap_or(u32::MAX);
        !self.has_dictionary || self.lately > self.permille.saturating_add(self.permille / LOSS)
    }

    /// A dictionary was taken into use, when so many bytes of small values were put and stored.
    pub(super) fn adopted(&mut self, permille: u32, seen: (u64, u64)) {
        (self.permille, self.has_dictionary, self.seen) = (permille, true, seen);
        self.window_bytes = self.pace.window_bytes;
    }

    /// None paid, or could be made: it is tried later, and what is stored now is usual.
    pub(super) fn in_vain(&mut self, seen: (u64, u64)) {
        self.seen = seen;
        self.window_bytes = (self.window_bytes * 2).min(WINDOW_MAX);
        self.permille = self.permille.max(self.lately);
    }
}

/// Makes a dictionary of that number; `None` if none pays, or can be made, for want of values that
/// have anything in common.
#[cfg(feature = "zstd")]
pub(super) fn train(
    sample: &SmallSample,
    number: u32,
    level: i32,
    now: Option<&PackDictionary>,
) -> Option<TrainedDictionary> {
    use super::dictionary::{DICTIONARY_BYTES_MAX, set_number};
    let is_held_out = |(place, _): &(usize, &[u8])| place % HELD_OUT == 0;
    let all = || sample.values().enumerate();
    let (mut bytes, mut lengths) = (Vec::new(), Vec::new());
    for (_, value) in all().filter(|value| !is_held_out(value)) {
        bytes.extend_from_slice(value);
        lengths.push(value.len());
    }
    let trained = zstd::dict::from_continuous(&bytes, &lengths, DICTIONARY_BYTES_MAX);
    let mut bytes = trained.ok()?;
    if !set_number(&mut bytes, number) {
        return None;
    }
    let prepared = PackDictionary::new(number, &bytes, level).ok()?;
    let held_out = || all().filter(is_held_out).map(|(_, value)| value);
    let raw: usize = held_out().map(<[u8]>::len).sum();
    let before = stored_bytes(held_out(), level, now);
    let after = stored_bytes(held_out(), level, Some(&prepared));
    (raw > 0 && after + before / GAIN <= before).then(|| TrainedDictionary {
        number,
        bytes,
        prepared,
        permille: u32::try_from(after * 1000 / raw).unwrap_or(u32::MAX),
    })
}

#[cfg(not(feature = "zstd"))]
pub(super) fn train(
    _: &SmallSample,
    _: u32,
    _: i32,
    _: Option<&PackDictionary>,
) -> Option<TrainedDictionary> {
    None
}

/// What is stored of these small values.
fn stored_bytes<'v>(
    values: impl Iterator<Item = &'v [u8]>,
    level: i32,
    dictionary: Option<&PackDictionary>,
) -> usize {
    let stored = |value: &[u8]| {
        with_scratch(|scratch| match dictionary {
            Some(dictionary) => pack_with(scratch, dictionary, value),
            None if value.len() >= BYTES_MIN => pack(scratch, Compression::Zstd(level), value),
            None => None,
        })
    };
    values
        .map(|value| stored(value).unwrap_or(value.len()))
        .sum()
}
