//! What a writing thread does, as a function of the seed, the thread and a counter.

use crate::data::Random;
use serde::{Deserialize, Serialize};

/// What a storm's writers do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mix {
    /// Puts of new keys with values of 4 KiB.
    Puts,
    /// Puts and deletes over a small set of keys, batches, and values of 0 bytes up to so many.
    All {
        /// The largest value, larger than half a segment if that path is to be taken.
        value_bytes_max: usize,
    },
}

/// Keys of a thread under [`Mix::All`]: few, so that they are overwritten and deleted often.
const KEYS: u64 = 600;

/// A value: enough to make its bytes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueId {
    seed: u64,
    bytes: usize,
}

impl ValueId {
    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.bytes];
        Random::new(self.seed).fill(&mut bytes);
        bytes
    }
}

/// A change of one key: a new value, or none.
pub type Change = (Vec<u8>, Option<ValueId>);

/// The endless operations of one thread. Each is one change or an atomic batch of several.
pub struct Ops {
    mix: Mix,
    thread: u32,
    random: Random,
    seed: u64,
    count: u64,
}

impl Ops {
    /// The operations of `thread` that `seed` gives.
    #[must_use]
    pub fn new(mix: Mix, seed: u64, thread: u32) -> Self {
        let seed = crate::data::mix(seed ^ u64::from(thread) << 48);
        Self {
            mix,
            thread,
            random: Random::new(seed),
            seed,
            count: 0,
        }
    }

    fn put(&mut self, key: Vec<u8>, bytes: usize) -> Change {
        let seed = self.random.number();
        (key, Some(ValueId { seed, bytes }))
    }

    fn any_change(&mut self, bytes_max: usize) -> Change {
        let key = format!("thread {} key {}", self.thread, self.random.below(KEYS)).into_bytes();
        if self.random.below(5) == 0 {
            return (key, None);
        }
        let bytes = match self.random.below(100) {
            0 => self.random.below(bytes_max as u64 + 1),
            1..20 => self.random.below(8 << 10),
            _ => self.random.below(200),
        };
        self.put(key, bytes.min(bytes_max as u64) as usize)
    }
}

impl Iterator for Ops {
    type Item = Vec<Change>;

    fn next(&mut self) -> Option<Vec<Change>> {
        self.count += 1;
        Some(match self.mix {
            Mix::Puts => {
                let key = format!("{:016x}-{}", self.seed, self.count).into_bytes();
                vec![self.put(key, 4096)]
            }
            Mix::All { value_bytes_max } => match self.random.below(5) {
                0 => {
                    let changes = 2 + self.random.below(7);
                    (0..changes)
                        .map(|_| self.any_change(value_bytes_max.min(4096)))
                        .collect()
                }
                _ => vec![self.any_change(value_bytes_max)],
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_operations_and_another_thread_others() {
        let mix = Mix::All {
            value_bytes_max: 100_000,
        };
        let some = |seed, thread| -> Vec<_> { Ops::new(mix, seed, thread).take(500).collect() };
        assert_eq!(some(1, 0), some(1, 0));
        assert_ne!(some(1, 0), some(1, 1));
        assert_ne!(some(1, 0), some(2, 0));
        let all = some(1, 0);
        assert!(all.iter().any(|op| op.len() > 1), "batches");
        assert!(
            all.iter().flatten().any(|(_, value)| value.is_none()),
            "deletes"
        );
        assert!(
            all.iter()
                .flatten()
                .any(|(_, v)| v.is_some_and(|v| v.bytes > 10_000)),
            "large values"
        );
    }

    #[test]
    fn a_value_is_made_again_from_its_identity() {
        let value = ValueId { seed: 9, bytes: 77 };
        assert_eq!(value.bytes(), value.bytes());
        assert_eq!(value.bytes().len(), 77);
    }
}
