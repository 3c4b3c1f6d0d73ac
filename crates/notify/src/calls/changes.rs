//! Calls that change a file by its descriptor, and write nothing.
#![expect(unsafe_code, reason = "fallocate in any mode; futimens")]

use super::{CallOutcome, GO_ON, TrappedCall, done};
use crate::{filter::REQUESTS, listener::last_errno};
use forebay_files::client;
use libc::c_int;
use rustix::io::Errno;
use std::os::fd::AsRawFd;

impl TrappedCall<'_> {
    pub(super) fn truncate(&self) -> CallOutcome {
        let Some(open) = self.used(self.int(0))? else {
            return self.go_on_changing();
        };
        let Ok(bytes) = u64::try_from(self.argument(1).cast_signed()) else {
            return GO_ON;
        };
        // An append asks where the end was, and is.
        let _position = open.position.lock();
        let result = self
            .begin()
            .and_then(|()| client::truncate(open.number(), bytes));
        client::changed_on(None);
        done(result.map(|()| 0))
    }

    pub(super) fn allocate(&self) -> CallOutcome {
        let Some(open) = self.used(self.int(0))? else {
            return self.go_on_changing();
        };
        let (mode, number) = (self.int(1), open.number());
        let [offset, bytes] = [2, 3].map(|at| self.argument(at).cast_signed());
        let real = || {
            // SAFETY: it takes numbers.
            let done = unsafe { libc::fallocate(number, mode, offset, bytes) };
            if done == 0 { Ok(()) } else { Err(last_errno()) }
        };
        let _position = open.position.lock();
        let result = self.begin().and_then(|()| match mode {
            0 => client::extending(number, real),
            libc::FALLOC_FL_KEEP_SIZE => client::touching(number, real),
            _ => client::retire(number).and_then(|()| real()),
        });
        client::changed_on(None);
        done(result.map(|()| 0))
    }

    /// Bytes are moved by the kernel from one descriptor to another: into no log, and by no log's
    /// position. The arguments are given that have the descriptors, from and to, and the address of
    /// the first one's offset.
    pub(super) fn transfer(&self, [from, to]: [usize; 2], offset: usize) -> CallOutcome {
        let may_share = self.seen.number == libc::SYS_copy_file_range;
        self.hand_over(self.int(to))?;
        match self.argument(offset) == 0 {
            true => self.retire(self.int(from))?,
            false if may_share => self.before_sharing(self.int(from))?,
            false => {}
        }
        self.go_on_changing()
    }

    /// Before a copy may share the blocks of what is open by a number.
    fn before_sharing(&self, number: c_int) -> Result<(), Errno> {
        match self.used(number)? {
            Some(open) => client::cloning(open.number()),
            None => match self.agent.numbers.is_empty() {
                true => Ok(()),
                // One that only reads is no log, but may be of an absorbed file.
                false => self
                    .thread()
                    .directory(number)
                    .map_or(Ok(()), |fd| client::cloning(fd.as_raw_fd())),
            },
        }
    }

    /// An `ioctl` of a log, or one that names another file.
    pub(super) fn request(&self) -> CallOutcome {
        let request = self.argument(1) as u32;
        if let Some(named) = NAMING_REQUESTS.iter().find(|it| it.number == request) {
            for place in named.places {
                let number = match place {
                    None => self.int(2),
                    Some(offset) => match self.number_at(self.argument(2) + offset) {
                        Ok(number) => number,
                        // The kernel cannot read it either.
                        Err(Errno::FAULT) => return GO_ON,
                        Err(errno) => return Err(errno),
                    },
                };
                match named.is_shared {
                    true => self.before_sharing(number)?,
                    false => self.hand_over(number)?,
                }
            }
        }
        if !changes(request) {
            return GO_ON;
        }
        self.hand_over(self.int(0))?;
        self.go_on_changing()
    }

    fn number_at(&self, address: u64) -> Result<c_int, Errno> {
        let bytes = self.thread().read_exactly(address, size_of::<c_int>())?;
        Ok(c_int::from_ne_bytes(bytes.try_into().unwrap_or_default()))
    }
}

/// An `ioctl` that names files in its argument.
struct NamingRequest {
    number: u32,
    /// Where: the argument itself, or at an offset of what it points to.
    places: &'static [Option<u64>],
    /// It is copied from, and may share its blocks. Else it is changed, now or later.
    is_shared: bool,
}

const fn naming(number: u32, places: &'static [Option<u64>], is_shared: bool) -> NamingRequest {
    NamingRequest {
        number,
        places,
        is_shared,
    }
}

/// All of them, in the order of [`REQUESTS`].
const NAMING_REQUESTS: [NamingRequest; 10] = [
    naming(REQUESTS[0], &[None], true),
    naming(REQUESTS[1], &[Some(0)], true),
    naming(REQUESTS[2], &[None], false),
    naming(REQUESTS[3], &[None], false),
    naming(REQUESTS[4], &[Some(0)], false),
    naming(REQUESTS[5], &[Some(4)], false),
    naming(REQUESTS[6], &[Some(8), Some(16)], false),
    naming(REQUESTS[7], &[Some(0)], false),
    naming(REQUESTS[8], &[Some(0)], false),
    naming(REQUESTS[9], &[Some(0)], false),
];

/// Whether an `ioctl` may change a file's contents: any request of the file systems' families that
/// does not only read.
fn changes(request: u32) -> bool {
    /// `FS_IOC_FIEMAP`.
    const FIEMAP: u32 = 0xC020_660B;
    /// Requests that only read say so in their two highest bits.
    const READS: u32 = 2;
    const FAMILIES: [u8; 4] = [b'X', b'f', 0x94, 0xF5];
    let family = (request >> 8) as u8;
    FAMILIES.contains(&family) && request >> 30 != READS && request != FIEMAP
}
