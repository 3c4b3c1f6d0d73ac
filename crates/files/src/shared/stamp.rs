//! A file's state, and the word of the shared page that it is in.

/// A file's standing to the run. docs/files-membership.md, "The state of a file", has the
/// transitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileState {
    /// The number is no file's, or its file's no more.
    Free,
    /// The supervisor looks whether it can be absorbed.
    Registering,
    /// Its writes are logged.
    Absorbed,
    /// It is to be plain: nothing is logged of it any more, and its next change waits until the
    /// lane has nothing of it.
    Leaving,
    /// It is to be plain, and was or may be changed past the lane already, nobody knows where: the
    /// lane's records of it are never written to it again.
    Strayed,
    /// A process has written over the word.
    Damaged,
}

impl FileState {
    /// True if it is to be plain.
    pub fn leaves(self) -> bool {
        matches!(self, Self::Leaving | Self::Strayed)
    }

    /// True if the lane may have something of it.
    pub fn is_in_lane(self) -> bool {
        self == Self::Absorbed || self.leaves()
    }
}

/// A state, and which of the files that had the number it is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Counts the files that have had the number.
    pub generation: u32,
    /// Its state.
    pub state: FileState,
}

impl Stamp {
    /// The state in 8 bits, the generation in 32, and 24 to tell such a word by. A word of an
    /// absorbed file that a process has written over must not say that the file is plain.
    pub(super) fn encode(self) -> u64 {
        let state = match self.state {
            FileState::Free => 0,
            FileState::Registering => 1,
            FileState::Absorbed => 2,
            FileState::Leaving => 3,
            FileState::Strayed => 4,
            FileState::Damaged => return 0,
        };
        let word = u64::from(self.generation) << 8 | state;
        word | check(word) << CHECK_AT
    }

    #[inline]
    pub(super) fn decode(word: u64) -> Self {
        let (said, body) = (word >> CHECK_AT, word & BODY);
        let state = match body & 0xFF {
            0 => FileState::Free,
            1 => FileState::Registering,
            2 => FileState::Absorbed,
            3 => FileState::Leaving,
            4 => FileState::Strayed,
            _ => FileState::Damaged,
        };
        let state = match said == check(body) {
            true => state,
            false => FileState::Damaged,
        };
        Self {
            generation: u32::try_from(body >> 8).unwrap_or(0),
            state,
        }
    }
}

const CHECK_AT: u32 = 40;
const BODY: u64 = (1 << CHECK_AT) - 1;

/// 24 bits, of zeros too.
#[inline]
fn check(body: u64) -> u64 {
    (body ^ 0x5AFE).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> CHECK_AT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overwritten_word_is_damage_and_no_other_state() {
        for byte in 0..=0xFF {
            let written = u64::from_ne_bytes([byte; 8]);
            assert_eq!(
                Stamp::decode(written).state,
                FileState::Damaged,
                "{byte:#x}"
            );
        }
        for generation in [0, 1, 77, u32::MAX] {
            for state in [
                FileState::Free,
                FileState::Registering,
                FileState::Absorbed,
                FileState::Leaving,
                FileState::Strayed,
            ] {
                let stamp = Stamp { generation, state };
                let word = stamp.encode();
                assert_eq!(Stamp::decode(word), stamp);
                for bit in 0..64 {
                    let damaged = Stamp::decode(word ^ 1 << bit);
                    assert_eq!(damaged.state, FileState::Damaged, "{stamp:?}, bit {bit}");
                }
            }
        }
    }
}
