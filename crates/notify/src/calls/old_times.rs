//! Older calls that set a file's times: `utime`, `utimes`, `futimesat`.

use super::{CallOutcome, GO_ON, TrappedCall};
use libc::timespec;
use rustix::io::Errno;

/// Words that the kernel takes as two times.
enum OldTimes {
    /// `struct utimbuf`: two times in seconds.
    Seconds,
    /// Two `struct timeval`, of seconds and microseconds.
    Microseconds,
}

impl TrappedCall<'_> {
    pub(super) fn touch_old(&self) -> CallOutcome {
        let here = libc::AT_FDCWD;
        let (name, at, kind) = match self.seen.number {
            libc::SYS_utime => ((here, 0), 1, OldTimes::Seconds),
            libc::SYS_utimes => ((here, 0), 1, OldTimes::Microseconds),
            _ => ((self.int(0), 1), 2, OldTimes::Microseconds),
        };
        let Ok(times) = self.old_times(at, &kind) else {
            return GO_ON;
        };
        self.touch_what((name, 0), times)
    }

    /// None if both are to be the present; the kernel says what is wrong with them.
    fn old_times(&self, at: usize, kind: &OldTimes) -> Result<Option<[timespec; 2]>, Errno> {
        let address = self.argument(at);
        if address == 0 {
            return Ok(None);
        }
        let time = |seconds: u64, nanoseconds: i64| timespec {
            tv_sec: seconds.cast_signed(),
            tv_nsec: nanoseconds,
        };
        match kind {
            OldTimes::Seconds => {
                let words = self.thread().words::<2>(address)?;
                Ok(Some(words.map(|seconds| time(seconds, 0))))
            }
            OldTimes::Microseconds => {
                let [first, first_us, second, second_us] = self.thread().words(address)?;
                if first_us.max(second_us) >= 1_000_000 {
                    return Err(Errno::INVAL);
                }
                let nanoseconds = |us: u64| us.cast_signed() * 1000;
                Ok(Some([
                    time(first, nanoseconds(first_us)),
                    time(second, nanoseconds(second_us)),
                ]))
            }
        }
    }
}
