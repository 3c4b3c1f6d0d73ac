//! A file's state, and the word of the shared page that it is in.

/// What a file is to the run. docs/files-protocol.md, "The state of a file", has the transitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The number is no file's, or its file's no more.
    Free,
    /// The supervisor looks whether it can be absorbed.
    Registering,
    /// What is written to it is logged.
    Absorbed,
    /// It is to be plain: nothing is logged of it any more, and its next change waits until the
    /// lane has nothing of it.
    Leaving,
    /// It is to be plain, and was or may be changed past the lane already, who knows where: what
    /// the lane has of it is never written to it again.
    Strayed,
    /// A process has written over the word.
    Damaged,
}

impl State {
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
    pub state: State,
}

impl Stamp {
    /// The state in 8 bits, the generation in 32, and 24 to tell such a word by: of a file that is
    /// absorbed, a word that a process has written over must not say that it is plain.
    pub(super) fn encode(self) -> u64 {
        let state = match self.state {
            State::Free => 0,
            State::Registering => 1,
            State::Absorbed => 2,
            State::Leaving => 3,
            State::Strayed => 4,
            State::Damaged => return 0,
        };
        let word = u64::from(self.generation) << 8 | state;
        word | check(word) << CHECK_AT
    }

    #[inline]
    pub(super) fn decode(word: u64) -> Self {
        let (said, body) = (word >> CHECK_AT, word & BODY);
        let state = match body & 0xFF {
            0 => State::Free,
            1 => State::Registering,
            2 => State::Absorbed,
            3 => State::Leaving,
            4 => State::Strayed,
            _ => State::Damaged,
        };
        let state = match said == check(body) {
            true => state,
            false => State::Damaged,
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
    fn a_word_that_was_written_over_is_neither_free_nor_any_other_state() {
        for byte in 0..=0xFF {
            let written = u64::from_ne_bytes([byte; 8]);
            assert_eq!(Stamp::decode(written).state, State::Damaged, "{byte:#x}");
        }
        for generation in [0, 1, 77, u32::MAX] {
            for state in [
                State::Free,
                State::Registering,
                State::Absorbed,
                State::Leaving,
                State::Strayed,
            ] {
                let stamp = Stamp { generation, state };
                let word = stamp.encode();
                assert_eq!(Stamp::decode(word), stamp);
                for bit in 0..64 {
                    let damaged = Stamp::decode(word ^ 1 << bit);
                    assert_eq!(damaged.state, State::Damaged, "{stamp:?}, bit {bit}");
                }
            }
        }
    }
}
