//! Calls of a traced program, read from their number and arguments.

use libc::c_long;

/// A call that stopped the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TracedCall {
    /// `fsync`, `fdatasync` of a descriptor.
    Sync(i32),
    /// `sync`, `syncfs`.
    WholeSync,
    /// `msync` that waits.
    MappedSync,
    /// A write at the file position of a descriptor.
    Write(i32),
    /// A write at an offset. `is_synced`: the call says itself that it is durable when it returns.
    WriteAt {
        descriptor: i32,
        offset: u64,
        is_synced: bool,
    },
    /// Room is made in the file, or its size is set.
    Allocate(i32),
    /// A shared mapping that may write to the file.
    Map(i32),
    /// A ring or a context by which the kernel writes later.
    Ring,
}

/// Flags of a write that is durable when it returns.
const SYNCED_WRITE: u64 = (libc::RWF_DSYNC | libc::RWF_SYNC) as u64;

/// The numbers that stop the program whatever their arguments are, but for `mmap`.
pub(crate) const NUMBERS: [c_long; 18] = [
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync,
    libc::SYS_syncfs,
    libc::SYS_msync,
    libc::SYS_fallocate,
    libc::SYS_ftruncate,
    libc::SYS_io_uring_setup,
    libc::SYS_io_setup,
    libc::SYS_copy_file_range,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_mmap,
];

impl TracedCall {
    /// The call of this number with these arguments; `None` for one that says nothing here.
    pub(crate) fn of(number: u64, arguments: &[u64; 6]) -> Option<Self> {
        let descriptor = |at: usize| arguments[at] as i32;
        Some(match number as c_long {
            libc::SYS_fsync | libc::SYS_fdatasync => Self::Sync(descriptor(0)),
            libc::SYS_sync | libc::SYS_syncfs => Self::WholeSync,
            libc::SYS_msync if arguments[2] & libc::MS_SYNC as u64 != 0 => Self::MappedSync,
            libc::SYS_write | libc::SYS_writev => Self::Write(descriptor(0)),
            // The source is not looked at; it is written at the position if no offset is given.
            libc::SYS_sendfile => Self::Write(descriptor(0)),
            libc::SYS_copy_file_range | libc::SYS_splice if arguments[3] == 0 => {
                Self::Write(descriptor(2))
            }
            libc::SYS_pwrite64 | libc::SYS_pwritev => Self::WriteAt {
                descriptor: descriptor(0),
                offset: arguments[3],
                is_synced: false,
            },
            // An offset of -1 means the file position.
            libc::SYS_pwritev2 if arguments[3] as i64 == -1 => Self::Write(descriptor(0)),
            libc::SYS_pwritev2 => Self::WriteAt {
                descriptor: descriptor(0),
                offset: arguments[3],
                is_synced: arguments[5] & SYNCED_WRITE != 0,
            },
            libc::SYS_fallocate | libc::SYS_ftruncate => Self::Allocate(descriptor(0)),
            libc::SYS_mmap if is_shared_and_written(arguments) => Self::Map(descriptor(4)),
            libc::SYS_io_uring_setup | libc::SYS_io_setup => Self::Ring,
            _ => return None,
        })
    }
}

impl TracedCall {
    /// The descriptor that it writes to.
    pub(crate) fn written(self) -> Option<i32> {
        match self {
            Self::Write(descriptor) | Self::WriteAt { descriptor, .. } => Some(descriptor),
            _ => None,
        }
    }
}

fn is_shared_and_written(arguments: &[u64; 6]) -> bool {
    let [_, _, protection, flags, ..] = *arguments;
    protection & libc::PROT_WRITE as u64 != 0
        && matches!(
            flags as i32 & libc::MAP_TYPE,
            libc::MAP_SHARED | libc::MAP_SHARED_VALIDATE
        )
        && flags as i32 & libc::MAP_ANONYMOUS == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_of_minus_one_is_the_file_position() {
        let minus_one = u64::MAX;
        let call = TracedCall::of(libc::SYS_pwritev2 as u64, &[7, 0, 1, minus_one, 0, 0]);
        assert_eq!(call, Some(TracedCall::Write(7)));
    }

    #[test]
    fn a_write_that_says_it_is_durable_is_a_sync() {
        let flags = libc::RWF_DSYNC as u64;
        let call = TracedCall::of(libc::SYS_pwritev2 as u64, &[7, 0, 1, 512, 0, flags]);
        let durable = TracedCall::WriteAt {
            descriptor: 7,
            offset: 512,
            is_synced: true,
        };
        assert_eq!(call, Some(durable));
    }

    #[test]
    fn private_mappings_and_memory_write_to_no_file() {
        let map = |protection: i32, flags: i32| {
            let arguments = [0, 4096, protection as u64, flags as u64, 5, 0];
            TracedCall::of(libc::SYS_mmap as u64, &arguments)
        };
        let write = libc::PROT_READ | libc::PROT_WRITE;
        assert_eq!(map(write, libc::MAP_SHARED), Some(TracedCall::Map(5)));
        assert_eq!(map(libc::PROT_READ, libc::MAP_SHARED), None);
        assert_eq!(map(write, libc::MAP_PRIVATE), None);
        assert_eq!(map(write, libc::MAP_SHARED | libc::MAP_ANONYMOUS), None);
    }
}
