//! This process's standing to its run: one word, of which a forked child has a copy.
//! docs/files-membership.md, "Members", draws it.

use std::sync::{
    OnceLock,
    atomic::{
        AtomicBool, AtomicU8,
        Ordering::{AcqRel, Acquire, Relaxed},
    },
};

/// A process's standing to its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum RunStanding {
    /// It is in no run, or the library's constructor has not been called.
    Outside,
    /// It becomes a member with the first log that it opens.
    Eligible,
    /// It has a session.
    Member,
    /// A forked child of a member: it becomes one itself when it uses an absorbed file.
    Forked,
    /// A member that absorbs nothing more, until the files that it has are plain.
    Leaving,
    /// A forked child of one that is leaving, which becomes the same when it uses an absorbed file.
    ForkedLeaving,
    /// It cannot become a member any more: it is another user's, was refused, or gave up before it
    /// was one, perhaps in a constructor that ran before the library's.
    Left,
}

impl RunStanding {
    const ALL: [Self; 7] = [
        Self::Outside,
        Self::Eligible,
        Self::Member,
        Self::Forked,
        Self::Leaving,
        Self::ForkedLeaving,
        Self::Left,
    ];

    /// It is a member, or may become one, that absorbs what it opens.
    fn absorbs(self) -> bool {
        matches!(self, Self::Eligible | Self::Member | Self::Forked)
    }

    /// It has files of the run, as a member or from the parent that is one.
    fn has_files(self) -> bool {
        !matches!(self, Self::Outside | Self::Eligible | Self::Left)
    }

    /// It becomes a member when it uses a file.
    fn is_to_join(self) -> bool {
        matches!(self, Self::Forked | Self::ForkedLeaving)
    }

    /// In a child that it forks.
    fn forked(self) -> Self {
        match self {
            Self::Member => Self::Forked,
            Self::Leaving => Self::ForkedLeaving,
            other => other,
        }
    }

    /// Once it has a session.
    fn joined(self) -> Self {
        match self {
            Self::Outside | Self::Eligible | Self::Forked | Self::Member => Self::Member,
            // Another thread gave up meanwhile.
            Self::Leaving | Self::ForkedLeaving | Self::Left => Self::Leaving,
        }
    }

    /// Once it is to absorb nothing more.
    fn given_up(self) -> Self {
        match self {
            Self::Member | Self::Leaving => Self::Leaving,
            Self::Forked | Self::ForkedLeaving => Self::ForkedLeaving,
            Self::Outside | Self::Eligible | Self::Left => Self::Left,
        }
    }

    /// Once the library's constructor has found it to be of a run.
    fn begun(self) -> Self {
        match self {
            Self::Outside => Self::Eligible,
            other => other,
        }
    }

    /// Once it was refused as the child of a member. Another thread may have joined meanwhile.
    fn refused(self) -> Self {
        match self {
            Self::Forked | Self::ForkedLeaving => Self::Left,
            other => other,
        }
    }
}

static STANDING: AtomicU8 = AtomicU8::new(RunStanding::Outside as u8);

#[inline]
fn standing() -> RunStanding {
    RunStanding::ALL[usize::from(STANDING.load(Acquire))]
}

/// Changes the standing, and gives the earlier one.
fn change(to: impl Fn(RunStanding) -> RunStanding) -> RunStanding {
    let of = |word: u8| RunStanding::ALL[usize::from(word)];
    let next = |word| Some(to(of(word)) as u8);
    // It never fails: there is always a next.
    let was = STANDING.fetch_update(AcqRel, Acquire, next);
    was.map_or_else(of, of)
}

/// This process is one of a run.
pub(super) fn begin() {
    change(RunStanding::begun);
}

/// In a forked child, and where a member begins anew. Neither allocates nor locks.
pub(super) fn note_forked() {
    change(RunStanding::forked);
}

/// This process has a session.
pub(super) fn note_joined() {
    change(RunStanding::joined);
}

/// This process absorbs nothing more. True if that is new.
pub(super) fn give_up() -> bool {
    change(RunStanding::given_up).absorbs()
}

/// This child of a member cannot become one.
pub(super) fn note_refused() {
    change(RunStanding::refused);
}

/// This process is no member any more, and cannot become one.
pub(super) fn leave() {
    change(|_| RunStanding::Left);
}

/// Before the process becomes another user: it is to absorb nothing more, and if it is no member
/// yet it becomes none.
pub(super) fn leave_soon() {
    change(|standing| match standing.given_up() {
        RunStanding::ForkedLeaving => RunStanding::Left,
        other => other,
    });
}

/// True if this process is in a run, and is a member or may become one.
#[must_use]
pub fn may_join() -> bool {
    standing().absorbs()
}

/// True if this process has files that the run absorbs as a member, or as the child of one. A load.
/// A thread that joins just now has a session before this says so.
#[inline]
pub(super) fn has_files() -> bool {
    standing().has_files()
}

/// True in the child of a member that is to become one itself.
#[inline]
pub(super) fn is_to_join() -> bool {
    standing().is_to_join()
}

/// This process has descriptors that it inherited of files that the run absorbs.
static INHERITED: AtomicBool = AtomicBool::new(false);

/// Notes that the program has inherited some when it starts.
pub(super) fn note_inherited() {
    INHERITED.store(true, Relaxed);
}

/// True if this process inherited, when it was executed, descriptors of files that the run absorbs.
#[inline]
pub(super) fn has_inherited() -> bool {
    INHERITED.load(Relaxed)
}

/// The reason that files which the profile names stay plain in this process, for status.
static PLAIN_FOR: OnceLock<String> = OnceLock::new();

/// Files that the profile names stay plain in this process: the first reason is the one.
pub(super) fn stays_plain_for(why: impl Into<String>) {
    let _ = PLAIN_FOR.set(why.into());
}

/// The reason that they do, if they do.
pub(super) fn plain_for() -> Option<String> {
    PLAIN_FOR.get().cloned()
}

/// Asked before this process joins.
static BEFORE_JOINING: OnceLock<fn() -> Result<(), String>> = OnceLock::new();

/// Has `check` asked before this process joins the run: it gives the reason that it must not.
pub fn before_joining(check: fn() -> Result<(), String>) {
    let _ = BEFORE_JOINING.set(check);
}

/// Before this process joins: the answer of the check.
pub(super) fn ask_to_join() -> Result<(), String> {
    BEFORE_JOINING.get().map_or(Ok(()), |check| check())
}

#[cfg(test)]
mod tests {
    use super::RunStanding::{self, *};

    #[test]
    fn a_word_is_read_back_as_the_standing_that_it_was() {
        for (number, standing) in RunStanding::ALL.into_iter().enumerate() {
            assert_eq!(standing as usize, number);
        }
    }

    #[test]
    fn a_child_joins_for_its_parents_files_and_absorbs_no_more() {
        for standing in RunStanding::ALL {
            let child = standing.forked();
            assert_eq!(child.absorbs(), standing.absorbs(), "{standing:?}");
            assert_eq!(child.has_files(), standing.has_files(), "{standing:?}");
            assert_eq!(child.is_to_join(), standing.has_files(), "{standing:?}");
        }
    }

    #[test]
    fn who_gave_up_or_left_absorbs_nothing_again() {
        let steps = [
            RunStanding::begun,
            RunStanding::forked,
            RunStanding::joined,
            RunStanding::refused,
            RunStanding::given_up,
        ];
        for begun in [Leaving, ForkedLeaving, Left] {
            let mut reached = vec![begun];
            let mut at = 0;
            while let Some(&standing) = reached.get(at) {
                assert!(!standing.absorbs(), "{begun:?} became {standing:?}");
                for next in steps.map(|step| step(standing)) {
                    if !reached.contains(&next) {
                        reached.push(next);
                    }
                }
                at += 1;
            }
        }
    }

    /// Constructors of the program's own libraries run before the library's.
    #[test]
    fn who_gave_up_before_the_constructor_absorbs_nothing_after_it() {
        assert_eq!(Outside.begun(), Eligible);
        assert_eq!(Outside.given_up().begun(), Left);
    }

    #[test]
    fn a_thread_that_is_refused_late_ends_no_membership() {
        assert_eq!(Forked.joined().refused(), Member);
        assert_eq!(ForkedLeaving.joined().refused(), Leaving);
        assert_eq!(Forked.refused().joined(), Leaving);
    }
}
