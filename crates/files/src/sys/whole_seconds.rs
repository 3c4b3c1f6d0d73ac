//! File systems that keep times in whole seconds, as ext4 with inodes of 128 bytes does.

use rustix::{
    fs::{Stat, Timespec, Timestamps, UTIME_OMIT},
    io::Errno,
};
use std::{os::fd::BorrowedFd, thread, time::Duration};

/// Longer than any kernel's tick.
const ANOTHER_TICK: Duration = Duration::from_millis(12);

/// True if the file's times are whole seconds: of one in hundreds by chance, where the ticks of the
/// kernel's clock for them begin with a second.
pub(crate) fn has_whole_seconds(stat: &Stat) -> bool {
    (stat.st_ctime_nsec, stat.st_mtime_nsec) == (0, 0)
}

/// True if the file system keeps times in whole seconds, or that cannot be told: the time of the
/// inode, which no program sets, is one at two moments. The file's other times stay.
pub(crate) fn keeps_seconds(fd: BorrowedFd<'_>) -> bool {
    (0..2).all(|moment| {
        if moment > 0 {
            thread::sleep(ANOTHER_TICK);
        }
        touch_inode(fd).map_or(true, |now| now == 0)
    })
}

/// Sets the time of the inode to now, and says its nanoseconds.
fn touch_inode(fd: BorrowedFd<'_>) -> Result<u64, Errno> {
    let before = rustix::fs::fstat(fd)?;
    let same = Timestamps {
        last_access: Timespec {
            tv_sec: before.st_atime,
            tv_nsec: before.st_atime_nsec as _,
        },
        last_modification: Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
    };
    rustix::fs::futimens(fd, &same)?;
    Ok(rustix::fs::fstat(fd)?.st_ctime_nsec)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs::File, os::fd::AsFd, time::UNIX_EPOCH};

    /// A file system with finer times is never taken for one of whole seconds, whatever times the
    /// file has.
    #[test]
    fn whole_seconds_by_chance_are_no_file_systems() {
        let file = tempfile::tempfile().unwrap();
        let second = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        file.set_modified(second).unwrap();
        let times = |file: &File| {
            let found = file.metadata().unwrap();
            (found.modified().unwrap(), found.accessed().unwrap())
        };
        let before = times(&file);
        assert!(!keeps_seconds(file.as_fd()));
        assert_eq!(times(&file), before);
        let mut stat = rustix::fs::fstat(&file).unwrap();
        assert!(!has_whole_seconds(&stat));
        (stat.st_ctime_nsec, stat.st_mtime_nsec) = (0, 0);
        assert!(has_whole_seconds(&stat));
    }
}
