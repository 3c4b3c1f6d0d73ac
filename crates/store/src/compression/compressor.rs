//! [`Compressor`]: the effect of an option on values written under it: the choice to try
//! compression at all, the dictionary of small ones, and the gain.

use super::{
    Compression,
    dictionary::{PackDictionary, SMALL},
    packed::{BYTES_MIN, pack, pack_with, raw_header},
    sampler::ValueSampler,
    scratch::with_scratch,
    training::{TrainedDictionary, TrainingPace, TrainingState, train},
};
use crate::stats::CompressionStats;
use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use std::sync::{
    Arc,
    atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
};

/// So many values of a class in a row may be tried in vain before some are not tried.
const PATIENCE: u32 = 8;
/// The most that are not tried in a row, as a power of two.
const SKIPPED_MAX: u32 = 6;
/// Parts of the counts, so that threads do not wait for each other's.
const PARTS: usize = 16;

/// Compresses the values that are written under one option, and counts them.
pub(crate) struct Compressor {
    compression: Compression,
    /// By the number of bits of a value's length.
    classes: [SizeClass; 32],
    /// None without compression.
    counts: Box<[CompressionCounts]>,
    /// With [`Compression::ZstdDictionary`].
    small: Option<Box<SmallValues>>,
}

/// The dictionary of small values, and its making.
struct SmallValues {
    level: i32,
    current: ArcSwapOption<PackDictionary>,
    sampler: ValueSampler,
    /// None before the store's threads are there.
    training: Mutex<Option<TrainingState>>,
}

/// How the last values of about one length went: the number of those in a row that did not pay in
/// the upper half, those that are not to be tried now in the lower. Threads that come at once may
/// count one less.
#[derive(Default)]
struct SizeClass(AtomicU32);

impl SizeClass {
    /// True if the next value is to be tried.
    fn takes_the_next(&self) -> bool {
        let state = self.0.load(Relaxed);
        let skipped = state & 0xFFFF;
        if skipped > 0 {
            self.0.store(state - 1, Relaxed);
        }
        skipped == 0
    }

    /// Nothing is known any more.
    fn forget(&self) {
        self.0.store(0, Relaxed);
    }

    /// One was tried.
    fn note(&self, paid: bool) {
        let state = self.0.load(Relaxed);
        if paid {
            if state != 0 {
                self.0.store(0, Relaxed);
            }
            return;
        }
        let in_vain = (state >> 16) + 1;
        let skipped = match in_vain.checked_sub(PATIENCE) {
            None => 0,
            Some(beyond) => 1 << beyond.min(SKIPPED_MAX),
        };
        self.0
            .store(in_vain.min(PATIENCE + SKIPPED_MAX) << 16 | skipped, Relaxed);
    }
}

/// Of some threads.
#[derive(Default)]
#[repr(align(128))]
struct CompressionCounts {
    values: AtomicU64,
    raw_bytes: AtomicU64,
    stored_bytes: AtomicU64,
    kept_raw: AtomicU64,
    /// Of small values, where a dictionary is wanted; of those it has been used for.
    small_raw: AtomicU64,
    small_stored: AtomicU64,
    with_dictionary: AtomicU64,
}

impl CompressionCounts {
    /// A value of which so many bytes are stored, if it is compressed.
    fn add(&self, raw_bytes: usize, compressed: Option<usize>) {
        let add = |count: &AtomicU64, by: usize| count.fetch_add(by as u64, Relaxed);
        add(&self.values, 1);
        add(&self.raw_bytes, raw_bytes);
        add(&self.stored_bytes, compressed.unwrap_or(raw_bytes));
        add(&self.kept_raw, usize::from(compressed.is_none()));
    }

    /// The same of a small value that may have a dictionary.
    fn add_small(&self, raw_bytes: usize, compressed: Option<usize>, has_dictionary: bool) {
        let add = |count: &AtomicU64, by: usize| count.fetch_add(by as u64, Relaxed);
        add(&self.small_raw, raw_bytes);
        add(&self.small_stored, compressed.unwrap_or(raw_bytes));
        if has_dictionary && compressed.is_some() {
            add(&self.with_dictionary, 1);
        }
    }
}

impl Compressor {
    pub(crate) fn new(compression: Compression) -> Self {
        Self {
            compression,
            classes: Default::default(),
            counts: match compression {
                Compression::None => Box::default(),
                _ => (0..PARTS).map(|_| CompressionCounts::default()).collect(),
            },
            small: match compression {
                Compression::ZstdDictionary(level) => Some(Box::new(SmallValues {
                    level,
                    current: ArcSwapOption::empty(),
                    sampler: ValueSampler::default(),
                    training: Mutex::default(),
                })),
                _ => None,
            },
        }
    }

    /// Has `write` write the value: whether it is compressed, and what is stored.
    #[inline]
    pub(crate) fn packed<T>(&self, value: &[u8], write: impl FnOnce(bool, &[u8]) -> T) -> T {
        match self.compression {
            Compression::None => write(false, value),
            _ => self.packed_or_raw(value, write),
        }
    }

    fn packed_or_raw<T>(&self, value: &[u8], write: impl FnOnce(bool, &[u8]) -> T) -> T {
        with_scratch(|scratch| {
            let small = self.small.as_deref();
            let small = small.filter(|_| SMALL.contains(&value.len()));
            let current = small.map(|small| {
                small.sampler.offer(scratch.next_small_value(), value);
                small.current.load()
            });
            let dictionary = current.as_ref().and_then(|current| current.as_deref());
            let class = &self.classes[(usize::BITS - value.len().leading_zeros()) as usize % 32];
            let is_worth_it = value.len() >= BYTES_MIN || dictionary.is_some();
            let is_tried = is_worth_it && class.takes_the_next();
            let bytes = match (is_tried, dictionary) {
                (false, _) => None,
                (true, None) => pack(scratch, self.compression, value),
                (true, Some(dictionary)) => pack_with(scratch, dictionary, value),
            };
            if is_tried {
                class.note(bytes.is_some());
            }
            let counts = &self.counts[scratch.number % PARTS];
            counts.add(value.len(), bytes);
            if small.is_some() {
                counts.add_small(value.len(), bytes, dictionary.is_some());
            }
            match bytes {
                Some(bytes) => write(true, &scratch.packed[..bytes]),
                None => write(false, value),
            }
        })
    }

    /// Counts what is stored as it is, without a try; nothing, of no bytes.
    pub(crate) fn count_raw(&self, value: &[u8]) {
        if self.compression != Compression::None && !value.is_empty() {
            self.counts[0].add(value.len(), None);
        }
    }

    /// Has `write` write a block of a value of which some block is compressed: the two parts of
    /// what is stored.
    pub(crate) fn packed_block<T>(&self, block: &[u8], write: impl FnOnce(&[u8], &[u8]) -> T) -> T {
        self.packed(block, |compressed, body| match compressed {
            true => write(&[], body),
            false => write(&raw_header(body.len()), body),
        })
    }

    fn sum(&self, of: fn(&CompressionCounts) -> &AtomicU64) -> u64 {
        self.counts.iter().map(|part| of(part).load(Relaxed)).sum()
    }

    /// The gain so far.
    pub(crate) fn stats(&self) -> CompressionStats {
        let sum = |of| self.sum(of);
        CompressionStats {
            compression: self.compression.to_string(),
            values: sum(|part| &part.values),
            raw_bytes: sum(|part| &part.raw_bytes),
            stored_bytes: sum(|part| &part.stored_bytes),
            kept_raw: sum(|part| &part.kept_raw),
            with_dictionary: sum(|part| &part.with_dictionary),
        }
    }
}

/// For the thread that makes dictionaries.
impl Compressor {
    /// The level of a dictionary, if one is wanted.
    pub(crate) fn dictionary_level(&self) -> Option<i32> {
        self.small.as_ref().map(|small| small.level)
    }

    /// Begins at this pace, with a dictionary that is there and stores so much of a thousand bytes,
    /// if there is one.
    pub(crate) fn begin(&self, pace: TrainingPace, there: Option<(PackDictionary, u32)>) {
        let Some(small) = &self.small else { return };
        let permille = there.as_ref().map(|(_, permille)| *permille);
        *small.training.lock() = Some(TrainingState::new(pace, permille));
        match there {
            Some((dictionary, _)) => small.current.store(Some(Arc::new(dictionary))),
            None => small.sampler.begin(pace.sample_bytes),
        }
    }

    /// Looks how small values fare; true if there is a sample to [train](Self::train) with.
    pub(crate) fn has_sample(&self) -> bool {
        let Some(small) = &self.small else {
            return false;
        };
        if small.sampler.is_full() || small.sampler.is_wanted() {
            return small.sampler.is_full();
        }
        let mut training = small.training.lock();
        if let Some(training) = training.as_mut()
            && training.wants_sample(self.small_bytes())
        {
            small.sampler.begin(training.pace.sample_bytes);
        }
        false
    }

    /// Bytes of small values: put, and stored of them.
    fn small_bytes(&self) -> (u64, u64) {
        (
            self.sum(|part| &part.small_raw),
            self.sum(|part| &part.small_stored),
        )
    }

    /// Makes the dictionary of that number of the sample, if one pays. Takes some tenths of a
    /// second.
    pub(crate) fn train(&self, number: u32) -> Option<TrainedDictionary> {
        let small = self.small.as_ref()?;
        let sample = small.sampler.take();
        let now = small.current.load();
        let trained = train(&sample, number, small.level, now.as_deref());
        if trained.is_none() {
            self.train_later();
        }
        trained
    }

    /// No dictionary is made of the present sample.
    pub(crate) fn train_later(&self) {
        if let Some(small) = &self.small {
            drop(small.sampler.take());
            if let Some(training) = small.training.lock().as_mut() {
                training.in_vain(self.small_bytes());
            }
        }
    }

    /// Takes a dictionary into use, which is durable.
    pub(crate) fn adopt(&self, dictionary: PackDictionary, permille: u32) {
        let Some(small) = &self.small else { return };
        small.current.store(Some(Arc::new(dictionary)));
        if let Some(training) = small.training.lock().as_mut() {
            training.adopted(permille, self.small_bytes());
        }
        // What did not pay may pay now.
        self.classes.iter().for_each(SizeClass::forget);
    }
}

#[cfg(test)]
#[cfg(feature = "lz4")]
mod tests {
    use super::*;
    use forebay_random::Rng;

    fn compressor() -> Compressor {
        Compressor::new(Compression::Lz4)
    }

    fn compresses(compressor: &Compressor, value: &[u8]) -> bool {
        compressor.packed(value, |compressed, body| {
            assert!(!compressed && body == value || body.len() < value.len());
            compressed
        })
    }

    fn noise(random: &mut Rng, bytes: usize) -> Vec<u8> {
        (0..bytes).map(|_| random.next() as u8).collect()
    }

    #[test]
    fn values_that_are_short_or_do_not_become_smaller_stay_raw() {
        let (compressor, mut random) = (compressor(), Rng(1));
        assert!(!compresses(&compressor, &[7; BYTES_MIN - 1]));
        assert!(compresses(&compressor, &[7; BYTES_MIN]));
        assert!(!compresses(&compressor, &noise(&mut random, 1000)));
        let stats = compressor.stats();
        assert_eq!((stats.values, stats.kept_raw), (3, 2));
        assert_eq!(stats.raw_bytes, 63 + 64 + 1000);
        assert!(stats.stored_bytes < stats.raw_bytes);
    }

    #[test]
    fn what_does_not_pay_is_tried_less_and_less_and_then_again() {
        let (compressor, mut random) = (compressor(), Rng(2));
        let mut tried = 0;
        for _ in 0..10_000 {
            let value = noise(&mut random, 500);
            let class = &compressor.classes[9];
            tried += u32::from(class.0.load(Relaxed) & 0xFFFF == 0);
            assert!(!compresses(&compressor, &value));
        }
        assert!((100..400).contains(&tried), "{tried} of 10000 were tried");
        // Those of another length know nothing of it.
        assert!(compresses(&compressor, &[7; 2000]));
        let until = (0..).find(|_| compresses(&compressor, &[7; 500]));
        assert!(until <= Some(1 << SKIPPED_MAX), "{until:?}");
        assert!(compresses(&compressor, &[7; 500]));
    }
}

#[cfg(test)]
#[cfg(feature = "zstd")]
mod dictionary_tests {
    use super::{
        super::{
            dictionary::{DICTIONARY_BYTES_MAX, DictionarySource, UnpackDictionary},
            packed::unpack,
        },
        *,
    };
    use forebay_random::Rng;

    const PACE: TrainingPace = TrainingPace {
        sample_bytes: 64 << 10,
        window_bytes: 64 << 10,
    };

    /// Dictionaries by their numbers, from 1 on.
    #[derive(Default)]
    struct TestDictionaries(Vec<UnpackDictionary>);

    impl DictionarySource for TestDictionaries {
        fn with_dictionary(&self, number: u32, work: &mut dyn FnMut(&UnpackDictionary)) {
            if let Some(found) = self.0.get(number as usize - 1) {
                work(found);
            }
        }
    }

    /// Rows that have their fields' names in common, which differ between kinds.
    fn row(kind: u64, random: &mut Rng) -> Vec<u8> {
        let mut names = Rng(kind);
        let fields = (0..5).map(|_| {
            let name: String = (0..8)
                .map(|_| char::from(b'a' + (names.next() % 26) as u8))
                .collect();
            format!("\"{name}\":{},", random.below(1000))
        });
        fields.collect::<String>().into_bytes()
    }

    fn noise(_: u64, random: &mut Rng) -> Vec<u8> {
        (0..80).map(|_| random.next() as u8).collect()
    }

    /// Puts such values until there is a sample, or so many bytes were put.
    fn fill(compressor: &Compressor, value: impl Fn(&mut Rng) -> Vec<u8>, bytes_max: u64) -> bool {
        let (mut random, before) = (Rng(7), compressor.stats().raw_bytes);
        while !compressor.has_sample() {
            if compressor.stats().raw_bytes - before > bytes_max {
                return false;
            }
            compressor.packed(&value(&mut random), |_, _| ());
        }
        true
    }

    fn adopt(compressor: &Compressor, number: u32, all: &mut TestDictionaries) {
        let trained = compressor.train(number).unwrap();
        assert_eq!(trained.number, number);
        all.0
            .push(UnpackDictionary::new(number, &trained.bytes).unwrap());
        compressor.adopt(trained.prepared, trained.permille);
    }

    /// What is stored of a value, which is read again.
    fn stored(compressor: &Compressor, value: &[u8], all: &TestDictionaries) -> usize {
        compressor.packed(value, |compressed, body| {
            let mut read = b"before".to_vec();
            match compressed {
                true => unpack(body, &mut read, all).unwrap(),
                false => read.extend_from_slice(body),
            }
            assert!(read.strip_prefix(b"before") == Some(value));
            body.len()
        })
    }

    #[test]
    fn small_values_get_a_dictionary_and_are_read_with_it() {
        let compressor = Compressor::new(Compression::ZstdDictionary(3));
        let (mut all, mut random) = (TestDictionaries::default(), Rng(1));
        compressor.begin(PACE, None);
        assert!(fill(&compressor, |random| row(1, random), u64::MAX));
        let before = compressor.stats();
        assert_eq!(before.with_dictionary, 0);
        adopt(&compressor, 1, &mut all);
        let (mut raw, mut with) = (0, 0);
        for _ in 0..1000 {
            let value = row(1, &mut random);
            raw += value.len();
            with += stored(&compressor, &value, &all);
        }
        // Most of a row are its fields' names.
        assert!(with * 2 < raw, "{with} of {raw}");
        assert_eq!(compressor.stats().with_dictionary, 1000);
        // Of every length around the bounds.
        for length in (0..200).chain([4095, 4096, 4097, 100_000]) {
            let long: Vec<u8> = (0..2000).flat_map(|_| row(1, &mut random)).collect();
            stored(&compressor, &long[..length], &all);
        }
        assert!(stored(&compressor, &row(1, &mut random)[..40], &all) < 36);
        // Without it nothing is read, and nothing is made up.
        let value = row(1, &mut random);
        compressor.packed(&value, |_, body| {
            let none = TestDictionaries::default();
            let refused = unpack(body, &mut Vec::new(), &none);
            assert_eq!(refused, Err(super::super::NotUnpacked::Dictionary(1)));
        });
    }

    /// Promise (store): A prepared dictionary takes no more memory than is said, at any level.
    #[test]
    fn a_prepared_dictionary_takes_no_more_memory_than_said() {
        let compressor = Compressor::new(Compression::ZstdDictionary(3));
        compressor.begin(TrainingPace::USUAL, None);
        // With a sample full of rows that differ a dictionary is as large as it may be.
        assert!(fill(
            &compressor,
            |random| row(random.below(150), random),
            u64::MAX
        ));
        let trained = compressor.train(1).unwrap();
        assert!(
            trained.bytes.len() > DICTIONARY_BYTES_MAX / 2,
            "{}",
            trained.bytes.len()
        );
        let read = UnpackDictionary::new(1, &trained.bytes).unwrap();
        assert!(
            read.decoder().sizeof() < 50 << 10,
            "{}",
            read.decoder().sizeof()
        );
        for level in -7..=22 {
            let write = PackDictionary::new(1, &trained.bytes, level).unwrap();
            let bytes = write.encoder().sizeof();
            let most = if level > 3 { 1_500_000 } else { 450_000 };
            assert!(bytes < most, "level {level}: {bytes}");
        }
    }

    #[test]
    fn another_dictionary_is_made_when_one_fares_worse() {
        let compressor = Compressor::new(Compression::ZstdDictionary(3));
        let mut all = TestDictionaries::default();
        compressor.begin(PACE, None);
        assert!(fill(&compressor, |random| row(1, random), u64::MAX));
        adopt(&compressor, 1, &mut all);
        // As long as it does as well, none is wanted.
        assert!(!fill(&compressor, |random| row(1, random), 1 << 20));
        assert!(fill(&compressor, |random| row(2, random), 1 << 20));
        adopt(&compressor, 2, &mut all);
        let value = row(2, &mut Rng(5));
        assert!(stored(&compressor, &value, &all) * 2 < value.len());
        // One that was there is gone on with.
        let again = Compressor::new(Compression::ZstdDictionary(9));
        again.begin(PACE, None);
        assert!(fill(&again, |random| row(2, random), u64::MAX));
        let trained = again.train(7).unwrap();
        let next = Compressor::new(Compression::ZstdDictionary(9));
        next.begin(PACE, Some((trained.prepared, trained.permille)));
        assert!(!fill(&next, |random| row(2, random), 1 << 20));
        assert!(fill(&next, |random| row(3, random), 1 << 20));
    }

    #[test]
    fn values_with_nothing_in_common_get_no_dictionary() {
        let compressor = Compressor::new(Compression::ZstdDictionary(3));
        compressor.begin(PACE, None);
        for _ in 0..3 {
            assert!(fill(&compressor, |random| noise(1, random), 10 << 20));
            assert!(compressor.train(1).is_none());
            assert!(!compressor.has_sample());
        }
        // It is tried less and less often.
        assert!(!fill(&compressor, |random| noise(1, random), 400 << 10));
        assert_eq!(compressor.stats().with_dictionary, 0);
        // Without threads of a store there is no sample either.
        let reads = Compressor::new(Compression::ZstdDictionary(3));
        assert!(!fill(&reads, |random| row(1, random), 1 << 20));
    }
}
