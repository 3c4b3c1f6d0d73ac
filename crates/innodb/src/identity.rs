//! A page file's identity for ever: its inode, and the nanosecond in which it was born, since an
//! inode is used again. The device is left out: its number may be another after a boot, and some
//! file systems have only that number to name themselves.

use forebay_flash::Identity;
use rustix::{
    fd::AsFd,
    fs::{AtFlags, FileType, StatxFlags, statx},
    io::Errno,
};

/// A file as the kernel knows it as long as it is there: device and inode.
pub(crate) type InodeKey = (u64, u64);

/// A regular file's identity and status.
pub(crate) struct KnownFile {
    pub key: InodeKey,
    pub identity: Identity,
    pub bytes: u64,
    pub links: u32,
}

/// Looks at an open file. None if it is no regular file.
///
/// # Errors
/// `EOPNOTSUPP` where the file system does not say when a file was born: then one inode's files
/// cannot be told from each other.
pub(crate) fn of(fd: impl AsFd) -> Result<Option<KnownFile>, Errno> {
    let fd = fd.as_fd();
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let stat = statx(fd, c"", AtFlags::EMPTY_PATH, wanted)?;
    if FileType::from_raw_mode(stat.stx_mode.into()) != FileType::RegularFile {
        return Ok(None);
    }
    if stat.stx_mask & StatxFlags::BTIME.bits() == 0 {
        return Err(Errno::OPNOTSUPP);
    }
    let device = rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor);
    let born = stat
        .stx_btime
        .tv_sec
        .unsigned_abs()
        .wrapping_mul(1_000_000_000)
        .wrapping_add(u64::from(stat.stx_btime.tv_nsec));
    Ok(Some(KnownFile {
        key: (device, stat.stx_ino),
        identity: Identity {
            device: 0,
            inode: stat.stx_ino,
            generation: born,
        },
        bytes: stat.stx_size,
        links: stat.stx_nlink,
    }))
}

/// As [`of`], of a page file that is opened or truncated: the identity that its cache would know it
/// by. None if it can be in no cache: it is no regular file, or its file system does not say when
/// it was born, and the cache `knows` no file of its inode.
///
/// # Errors
/// It cannot be told who the file is: what it has may be older than what the cache has, and it must
/// not be used.
pub(crate) fn of_page_file(
    looked_at: Result<Option<KnownFile>, Errno>,
    knows_inode: impl FnOnce() -> Result<bool, Errno>,
) -> Result<Option<KnownFile>, Errno> {
    match looked_at {
        Err(Errno::OPNOTSUPP) if !knows_inode()? => Ok(None),
        known => known,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise (flash-run): A page file that cannot be looked at or looked for is refused, not read
    /// as it is, and not taken for deleted.
    #[test]
    fn a_page_file_of_which_it_cannot_be_told_who_it_is_is_refused() {
        for errno in [Errno::NOMEM, Errno::IO, Errno::INTR, Errno::NOSYS] {
            let refused = of_page_file(Err(errno), || Ok(false));
            assert_eq!(refused.err(), Some(errno));
        }
        let refused = of_page_file(Err(Errno::OPNOTSUPP), || Ok(true));
        assert_eq!(refused.err(), Some(Errno::OPNOTSUPP));
        let refused = of_page_file(Err(Errno::OPNOTSUPP), || Err(Errno::IO));
        assert_eq!(refused.err(), Some(Errno::IO));
    }

    #[test]
    fn a_file_that_can_be_in_no_cache_is_used_as_it_is() {
        assert!(matches!(
            of_page_file(Err(Errno::OPNOTSUPP), || Ok(false)),
            Ok(None)
        ));
        assert!(matches!(of_page_file(Ok(None), || Ok(true)), Ok(None)));
    }
}
