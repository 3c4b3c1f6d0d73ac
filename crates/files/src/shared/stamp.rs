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
    /// It is to be plain: nothing is logged of it any more, and its next change waits until the lane has nothing of it.
    Leaving,
    /// It is to be plain, and was or may be changed past the lane already, who knows where: what the lane has of it is never written to it again.
    Strayed,
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
    pub(super) fn encode(self) -> u64 {
        let state = match self.state {
            State::Free => 0,
            State::Registering => 1,
            State::Absorbed => 2,
            State::Leaving => 3,
            State::Strayed => 4,
        };
        u64::from(self.generation) << 8 | state
    }

    pub(super) fn decode(word: u64) -> Self {
        let state = match word & 0xFF {
            1 => State::Registering,
            2 => State::Absorbed,
            3 => State::Leaving,
            4 => State::Strayed,
            _ => State::Free,
        };
        Self {
            generation: u32::try_from(word >> 8 & u64::from(u32::MAX)).unwrap_or(0),
            state,
        }
    }
}
