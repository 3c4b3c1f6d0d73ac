//! The label of a lane: its owner, and facts that a recovery has to know of it.
//! docs/files-replay.md.
//!
//! ```text
//!  0  leads    8   eight bytes, so that it changes at once
//!  8  begun   10   0; 1 while its supervisor syncs files
//!     " " and whose lane it is
//!
//!     Of one that is being replayed, or was:
//!  8  begun   13   seconds since 1970 when the last attempt began, to the hundredth
//! 21  lasts   11   "+" and after how many hundredths it changed files no more, the last eight digits in one word
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
/// Follows the first of these while files are synced: one byte differs.
const SYNCING: &str = "0000000001";
/// A replay says at least this often that it goes on.
pub(crate) const BEAT: Duration = Duration::from_secs(1);
/// A replay that was cut changed files for no longer than this after it last said that it goes on.
const BEAT_MAX: Duration = Duration::from_secs(5);
/// The unit of times in labels; longer than the tick of the clock that files get their times from.
const HUNDREDTH: Duration = Duration::from_millis(10);
/// A replay's wait to be told apart: past the hundredth of a file's time, with the clock a tick
/// behind.
pub(crate) const APART: Duration = Duration::from_millis(30);
/// The modification time of a file that an attempt changed and did not finish, from when the next
/// one begins: which time is its own then is said anew. No program sets it.
pub(crate) const UNFINISHED: Duration = Duration::from_secs(0x466F_7265);

/// A lane label's message to a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LabelMark {
    /// Nothing.
    None,
    /// A sync of its files was under way when its supervisor died, which may have been told that it
    /// failed.
    Syncing,
    /// A sync of one of its files failed: the kernel's bytes of them may never reach the disk.
    Failed,
    /// Its process named files that it had not absorbed: nothing of it is believed unless asked
    /// for.
    Denied,
    /// It is being replayed, or its replay was cut.
    Replay(ReplayProgress),
}

/// The progress of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplayProgress {
    /// Start of its last attempt, since 1970; zero if that has changed no file.
    pub(crate) begun: Duration,
    /// After how long that changed files no more.
    pub(crate) lasts: Duration,
    /// A sync had failed before.
    pub(crate) failed: bool,
}

impl LabelMark {
    /// True if a sync of one of its files failed.
    pub(crate) fn failed(self) -> bool {
        matches!(
            self,
            Self::Failed | Self::Replay(ReplayProgress { failed: true, .. })
        )
    }

    /// The same, and a sync failed.
    pub(crate) fn and_failed(self) -> Self {
        match self {
            Self::Replay(replay) => Self::Replay(ReplayProgress {
                failed: true,
                ..replay
            }),
            Self::None | Self::Syncing | Self::Failed => Self::Failed,
            Self::Denied => Self::Denied,
        }
    }

    /// True if a replay that was cut may have given a file this modification time.
    pub(crate) fn made(self, time: Duration) -> bool {
        let Self::Replay(ReplayProgress { begun, lasts, .. }) = self else {
            return false;
        };
        time == UNFINISHED || begun > Duration::ZERO && (begun..=begun + lasts).contains(&time)
    }

    /// The same, where all files that a replay changed and did not finish have the time that says
    /// so.
    pub(crate) fn apart(self) -> Self {
        match self {
            Self::Replay(replay) => Self::Replay(ReplayProgress {
                begun: Duration::ZERO,
                lasts: Duration::ZERO,
                ..replay
            }),
            mark => mark,
        }
    }

    /// The mark of a replay that goes on `now`.
    pub(crate) fn replaying(self, now: Duration) -> Self {
        self.lasting(now, BEAT_MAX)
    }

    /// The mark of one that went on, and ends `now`.
    pub(crate) fn ended(self, now: Duration) -> Self {
        self.lasting(now, HUNDREDTH)
    }

    fn lasting(self, now: Duration, longer: Duration) -> Self {
        let begun = match self {
            Self::Replay(replay) if replay.begun <= now && replay.begun > Duration::ZERO => {
                replay.begun
            }
            _ => to_hundredth(now),
        };
        Self::Replay(ReplayProgress {
            begun,
            lasts: HUNDREDTH * (hundredths(now - begun) + 1) + longer,
            failed: self.failed(),
        })
    }
}

/// True if a replay that begins `now` does not take a change at `changed` for its own. Otherwise
/// one that begins [`APART`] later does not.
pub(crate) fn is_told_apart(changed: Duration, now: Duration) -> bool {
    // The clock that is asked may be a tick behind the file's time.
    !(to_hundredth(now)..=now + HUNDREDTH).contains(&changed)
}

/// Start of the hundredth of a second that `time` is in: a replay says so that it began.
fn to_hundredth(time: Duration) -> Duration {
    time - Duration::from_nanos(u64::from(time.subsec_nanos() % HUNDREDTH.subsec_nanos()))
}

/// The number of whole hundredths of a second in this.
fn hundredths(time: Duration) -> u32 {
    u32::try_from(time.as_millis() / HUNDREDTH.as_millis()).unwrap_or(u32::MAX)
}

/// The label of a client's lane; `whose` says which program's, and its process.
pub(crate) fn label(mark: LabelMark, whose: &str) -> String {
    match mark {
        LabelMark::None => format!("{LABEL}{:010} {whose}", 0),
        LabelMark::Syncing => format!("{LABEL}{SYNCING} {whose}"),
        LabelMark::Failed => format!("{LABEL_FAILED}{:010} {whose}", 0),
        LabelMark::Denied => format!("{LABEL_DENIED}{:010} {whose}", 0),
        LabelMark::Replay(replay) => {
            let leads = match replay.failed {
                true => LABEL_REPLAY_FAILED,
                false => LABEL_REPLAY,
            };
            let (seconds, part) = (replay.begun.as_secs(), replay.begun.subsec_millis() / 10);
            let lasts = hundredths(replay.lasts);
            format!("{leads}{seconds:010}.{part:02}+{lasts:010} {whose}")
        }
    }
}

/// True if a lane with this label is one of this tier.
pub fn is_files(label: &str) -> bool {
    parse(label).is_some()
}

/// The same lane's label with another mark.
pub(crate) fn relabelled(before: &str, mark: LabelMark) -> String {
    label(mark, parse(before).map_or("", |(_, whose)| whose))
}

/// A label's parts: its mark, and the lane's owner. `None` for a lane that is not of this tier.
pub(crate) fn parse(label: &str) -> Option<(LabelMark, &str)> {
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
    let mark = match leads {
        LABEL if times == SYNCING => LabelMark::Syncing,
        LABEL => LabelMark::None,
        LABEL_FAILED => LabelMark::Failed,
        LABEL_DENIED => LabelMark::Denied,
        _ => {
            let (begun, lasts) = parse_times(times).unwrap_or_default();
            let failed = leads == LABEL_REPLAY_FAILED;
            LabelMark::Replay(ReplayProgress {
                begun,
                lasts,
                failed,
            })
        }
    };
    Some((mark, whose))
}

/// Start of a replay, and its duration. `None` if the label does not say so.
fn parse_times(text: &str) -> Option<(Duration, Duration)> {
    let (begun, lasts) = text.split_once('+')?;
    let (seconds, part) = begun.split_once('.')?;
    // More digits than a clock has are no time.
    let number = |text: &str| text.parse::<u32>().ok();
    let begun = Duration::from_secs(number(seconds)?.into()) + HUNDREDTH * number(part)?;
    Some((begun, HUNDREDTH * number(lasts)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGUN: Duration = Duration::from_millis(1_763_700_000_640);

    fn replaying(failed: bool) -> LabelMark {
        LabelMark::Replay(ReplayProgress {
            begun: BEGUN,
            lasts: Duration::from_secs(77),
            failed,
        })
    }

    #[test]
    fn a_label_tells_whose_lane_it_is_and_what_became_of_it() {
        let marks = [
            LabelMark::None,
            LabelMark::Syncing,
            LabelMark::Failed,
            LabelMark::Denied,
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
        // Times that no replay says are none: no change of a file is taken for the replay's.
        for times in ["1763700000", "1763700000.64", "99999999999.00+1", "x.y+z"] {
            let label = format!("replay: {times} redis 1");
            let Some((mark @ LabelMark::Replay(_), "redis 1")) = parse(&label) else {
                panic!("{label} is no replay's");
            };
            assert!(!mark.made(Duration::from_secs(1_763_700_000)), "{times}");
        }
    }

    #[test]
    fn a_replay_that_takes_long_knows_its_own_changes_and_no_others() {
        let after = |seconds: f64| BEGUN + Duration::from_secs_f64(seconds);
        let cut = LabelMark::None
            .replaying(after(0.003))
            .replaying(after(77.0));
        for own in [0.003, 0.01, 40.0, 77.0, 81.0] {
            assert!(cut.made(after(own)), "{own}");
        }
        assert!(!cut.made(after(83.0)));
        for before in [1, 10, 600] {
            assert!(!cut.made(BEGUN - Duration::from_millis(before)), "{before}");
        }
        let ended = cut.ended(after(80.0));
        assert!(ended.made(after(80.005)) && !ended.made(after(80.1)));
        assert!(!LabelMark::Failed.made(BEGUN));
        assert!(LabelMark::Failed.replaying(BEGUN).failed());
    }

    #[test]
    fn later_replays_know_an_unfinished_ones_changes_and_no_others() {
        let cut = replaying(false);
        let next = cut.apart().replaying(BEGUN + Duration::from_secs(500));
        for mark in [cut, cut.apart(), next] {
            assert!(mark.made(UNFINISHED), "{mark:?}");
        }
        assert!(!LabelMark::None.made(UNFINISHED) && !LabelMark::Failed.made(UNFINISHED));
        for time in [0, 40, 499] {
            assert!(!next.made(BEGUN + Duration::from_secs(time)), "{time}");
        }
        assert!(next.made(BEGUN + Duration::from_secs(501)));
        assert!(!cut.apart().made(Duration::ZERO));
        assert_eq!(LabelMark::None.apart(), LabelMark::None);
    }

    /// Promise: as `writes_between_two_recoveries_are_not_taken_for_theirs`.
    #[test]
    fn a_replay_begins_after_the_centisecond_of_a_files_change() {
        let after = |milliseconds: u64| BEGUN + Duration::from_millis(milliseconds);
        for changed in 0..60 {
            for now in 0..60 {
                // The clock that a replay asks may be a tick of 4 ms behind; one that was set back
                // is not waited for.
                let is_apart = is_told_apart(after(changed), after(now));
                let begins = match is_apart {
                    true => now,
                    false => now + 26,
                };
                if changed <= now + 10 {
                    let mark = LabelMark::None.replaying(after(begins));
                    assert!(!mark.made(after(changed)), "{changed} {now}");
                }
                assert_eq!(is_apart, changed < now / 10 * 10 || changed > now + 10);
            }
        }
    }

    #[test]
    fn while_a_replay_goes_on_one_word_of_its_label_changes() {
        let at = |seconds: u64| {
            let mark = replaying(false).replaying(BEGUN + Duration::from_secs(seconds));
            label(mark, "redis 1")
        };
        let (one, other) = (at(9), at(99_999));
        assert_eq!(one.len(), other.len());
        let differs: Vec<usize> = (0..one.len())
            .filter(|at| one.as_bytes()[*at] != other.as_bytes()[*at])
            .collect();
        assert!(
            differs.iter().all(|at| at / 8 == differs[0] / 8),
            "{differs:?}"
        );
    }
}
