//! The stage of an agent's service to its program: idle, serving or dormant.
//!
//! An agent of a child begins *idle*. With the first log it *serves*, for good. If the library
//! begins in a process of the program before that, it is *dormant* for good: all calls go on, and
//! the library does what concerns logs. Never both: each would wait for the other's locks.

use std::sync::atomic::{AtomicU8, Ordering::SeqCst};

/// See the module's head.
pub(crate) struct ServingStage {
    stage: AtomicU8,
    is_childs: bool,
}

const IDLE: u8 = 0;
const SERVES: u8 = 1;
const DORMANT: u8 = 2;

impl ServingStage {
    /// Of an agent that serves its program in any case.
    pub(crate) fn serving() -> Self {
        Self {
            stage: AtomicU8::new(SERVES),
            is_childs: false,
        }
    }

    /// Of a child's agent.
    pub(crate) fn idle() -> Self {
        Self {
            stage: AtomicU8::new(IDLE),
            is_childs: true,
        }
    }

    /// True of the agent of a child, which is not above its program.
    pub(crate) fn is_childs(&self) -> bool {
        self.is_childs
    }

    /// The program opens a log: true if the agent serves from now on, and true if that is new.
    pub(crate) fn serve(&self) -> (bool, bool) {
        match self.stage.compare_exchange(IDLE, SERVES, SeqCst, SeqCst) {
            Ok(_) => (true, true),
            Err(stage) => (stage == SERVES, false),
        }
    }

    /// True if the agent does nothing from now on.
    pub(crate) fn lie_dormant(&self) -> bool {
        let before = self.stage.compare_exchange(IDLE, DORMANT, SeqCst, SeqCst);
        before.is_ok() || before == Err(DORMANT)
    }

    /// True if the agent does nothing.
    pub(crate) fn is_dormant(&self) -> bool {
        self.stage.load(SeqCst) == DORMANT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_serves_never_lies_dormant_and_the_reverse() {
        let stage = ServingStage::idle();
        assert!(!stage.is_dormant());
        assert_eq!(stage.serve(), (true, true));
        assert_eq!(stage.serve(), (true, false));
        assert!(!stage.lie_dormant() && !stage.is_dormant());
        assert!(!ServingStage::serving().lie_dormant());
        let stage = ServingStage::idle();
        assert!(stage.lie_dormant() && stage.lie_dormant() && stage.is_dormant());
        assert_eq!(stage.serve(), (false, false));
    }
}
