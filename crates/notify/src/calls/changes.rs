//! Calls that change a file by its descriptor, and write nothing.
#![expect(unsafe_code, reason = "fallocate in any mode; futimens")]

use super::{CallOutcome, GO_ON, TrappedCall, done};
use crate::listener::last_errno;
use forebay_files::{
    client,
    ioctls::{self, ArgumentPlace, NamedFileUse},
};
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
        if let Some(naming) = ioctls::naming_request(request) {
            for place in naming.places {
                let number = match *place {
                    ArgumentPlace::Itself => self.int(2),
                    ArgumentPlace::At(offset) => {
                        match self.number_at(self.argument(2).wrapping_add(offset as u64)) {
                            Ok(number) => number,
                            // The kernel cannot read it either.
                            Err(Errno::FAULT) => return GO_ON,
                            Err(errno) => return Err(errno),
                        }
                    }
                };
                match naming.named {
                    NamedFileUse::Cloned => self.before_sharing(number)?,
                    NamedFileUse::Changed => self.hand_over(number)?,
                }
            }
        }
        if !ioctls::changes(request) {
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
