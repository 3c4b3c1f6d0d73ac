//! The label of a lane: whose it is, and what a recovery has to know of it. docs/files-protocol.md, "Replay".
//!
//! ```text
//!  0  leads    8   eight bytes, so that it changes at once
//!  8  begun   10   seconds since 1970 when a replay began, 0 if none did
//! 18  elapsed 14   only while it is being replayed: "+" and the seconds since then, the last eight digits in one word
//!     " " and whose lane it is
//! ```

use std::time::Duration;

/// Leads the label of a lane of this tier.
const LABEL: &str = "files:  ";
/// Leads the label of a lane whose replay has begun.
const LABEL_REPLAY: &str = "replay: ";
/// Leads the label of a lane of which a file could not be synced.
const LABEL_FAILED: &str = "failed: ";
/// Leads the label of both.
const LABEL_REPLAY_FAILED: &str = "refail: ";
/// Leads the label of a lane that said what its process cannot have written.
const LABEL_DENIED: &str = "denied: ";
/// A replay says at least this often that it goes on.
pub(super) const BEAT: Duration = Duration::from_secs(1);
/// A replay that was cut changed files for no longer than this after it last said that it goes on.
const BEAT_MAX: Duration = Duration::from_secs(5);

/// What a lane's label says to a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// Nothing.
    None,
    /// A sync of one of its files failed: what the kernel has of them may never reach the disk.
    Failed,
    /// Its process named files that it had not absorbed: nothing of it is believed unless asked for.
    Denied,
    /// It is being replayed, or its replay was cut.
    Replay(Replaying),
}

/// How far a replay came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Replaying {
    /// When the first of its attempts began, since 1970.
    pub(crate) begun: Duration,
    /// How long after that it last said that it goes on.
    pub(crate) elapsed: Duration,
    /// A sync had failed before.
    pub(crate) failed: bool,
}

impl Mark {
    /// True if a sync of one of its files failed.
    pub(super) fn failed(self) -> bool {
        matches!(
            self,
            Self::Failed | Self::Replay(Replaying { failed: true, .. })
        )
    }

    /// The same, and a sync failed.
    pub(super) fn and_failed(self) -> Self {
        match self {
            Self::Replay(replay) => Self::Replay(Replaying {
                failed: true,
                ..replay
            }),
            Self::None | Self::Failed => Self::Failed,
            Self::Denied => Self::Denied,
        }
    }

    /// True if a replay that was cut may have given a file this modification time.
    pub(super) fn made(self, time: Duration) -> bool {
        let Self::Replay(replay) = self else {
            return false;
        };
        (replay.begun..=replay.begun + replay.elapsed + BEAT_MAX).contains(&time)
    }

    /// The mark of a replay that goes on `now`: it began when the first did that was cut.
    pub(super) fn replaying(self, now: Duration) -> Self {
        let begun = match self {
            Self::Replay(replay) if replay.begun <= now && replay.begun > Duration::ZERO => {
                replay.begun
            }
            _ => Duration::from_secs(now.as_secs()),
        };
        Self::Replay(Replaying {
            begun,
            elapsed: Duration::from_secs((now - begun).as_secs()),
            failed: self.failed(),
        })
    }
}

/// The label of a client's lane; `whose` says which program's, and its process.
pub(crate) fn label(mark: Mark, whose: &str) -> String {
    match mark {
        Mark::None => format!("{LABEL}{:010} {whose}", 0),
        Mark::Failed => format!("{LABEL_FAILED}{:010} {whose}", 0),
        Mark::Denied => format!("{LABEL_DENIED}{:010} {whose}", 0),
        Mark::Replay(replay) => {
            let leads = match replay.failed {
                true => LABEL_REPLAY_FAILED,
                false => LABEL_REPLAY,
            };
            let (begun, elapsed) = (replay.begun.as_secs(), replay.elapsed.as_secs());
            format!("{leads}{begun:010}+{elapsed:013} {whose}")
        }
    }
}

/// True if a lane with this label is one of this tier.
pub(crate) fn is_files(label: &str) -> bool {
    parse(label).is_some()
}

/// The same lane's label with another mark.
pub(crate) fn relabelled(before: &str, mark: Mark) -> String {
    label(mark, parse(before).map_or("", |(_, whose)| whose))
}

/// A label's parts: its mark, and whose lane it is. `None` for a lane that is not of this tier.
pub(super) fn parse(label: &str) -> Option<(Mark, &str)> {
    let leads = [
        LABEL,
        LABEL_FAILED,
        LABEL_DENIED,
        LABEL_REPLAY,
        LABEL_REPLAY_FAILED,
    ];
    let (leads, rest) = leads
        .into_iter()
        .find_map(|leads| Some((leads, label.strip_prefix(leads)?)))?;
    let (times, whose) = rest.split_once(' ').unwrap_or((rest, ""));
    // Before version 3 there was the first only.
    let (begun, elapsed) = times.split_once('+').unwrap_or((times, ""));
    // More digits than a clock has are no time.
    let seconds = |text: &str| Duration::from_secs(text.parse::<u32>().unwrap_or(0).into());
    let mark = match leads {
        LABEL => Mark::None,
        LABEL_FAILED => Mark::Failed,
        LABEL_DENIED => Mark::Denied,
        _ => Mark::Replay(Replaying {
            begun: seconds(begun),
            elapsed: seconds(elapsed),
            failed: leads == LABEL_REPLAY_FAILED,
        }),
    };
    Some((mark, whose))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaying(failed: bool) -> Mark {
        Mark::Replay(Replaying {
            begun: Duration::from_secs(1_763_700_000),
            elapsed: Duration::from_secs(77),
            failed,
        })
    }

    #[test]
    fn a_label_tells_whose_lane_it_is_and_what_became_of_it() {
        let marks = [
            Mark::None,
            Mark::Failed,
            Mark::Denied,
            replaying(false),
            replaying(true),
        ];
        for mark in marks {
            let label = label(mark, "redis-server 7");
            assert_eq!(parse(&label), Some((mark, "redis-server 7")));
            for other in marks {
                let relabelled = relabelled(&label, other);
                assert_eq!(parse(&relabelled), Some((other, "redis-server 7")));
            }
        }
        assert_eq!(parse("store /data"), None);
        // As an earlier version wrote it.
        let Some((Mark::Replay(earlier), "redis 1")) = parse("replay: 1763700000 redis 1") else {
            panic!("an earlier version's label is not understood");
        };
        assert_eq!(earlier.elapsed, Duration::ZERO);
    }

    #[test]
    fn a_replay_that_takes_long_knows_its_own_changes_and_no_later_ones() {
        let begun = Duration::from_secs(1_763_700_000);
        let cut = replaying(false);
        assert!(cut.made(begun + Duration::from_secs(40)));
        assert!(!cut.made(begun + Duration::from_secs(77) + 2 * BEAT_MAX));
        assert!(!cut.made(begun - Duration::from_secs(1)));
        // The next attempt goes on with the first one's beginning.
        let again = cut.replaying(begun + Duration::from_secs(500));
        assert!(again.made(begun + Duration::from_secs(40)));
        assert!(again.made(begun + Duration::from_secs(501)));
        assert!(!Mark::Failed.made(begun));
        assert!(Mark::Failed.replaying(begun).failed());
    }

    #[test]
    fn while_a_replay_goes_on_one_word_of_its_label_changes() {
        let at = |seconds: u64| {
            let mark = replaying(false).replaying(Duration::from_secs(1_763_700_000 + seconds));
            label(mark, "redis 1")
        };
        let (one, other) = (at(9), at(99_999));
        let differs: Vec<usize> = (0..one.len())
            .filter(|at| one.as_bytes()[*at] != other.as_bytes()[*at])
            .collect();
        assert!(
            differs.iter().all(|at| at / 8 == differs[0] / 8),
            "{differs:?}"
        );
    }
}
