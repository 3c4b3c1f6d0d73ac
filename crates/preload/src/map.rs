//! `mmap`, `munmap`, `mprotect`, `mremap`. The client's own memory ([`client::is_own_memory`])
//! stays mapped, whatever a program finds and unmaps.
//!
//! A [layer](crate::layer) may guard a mapping, or refuse it; so may what a [checkpoint] needs. A
//! shared mapping of an absorbed file, which is open for writing, can be written to now or after
//! `mprotect`: the file is retired, if the kernel makes the mapping at all.
#![expect(unsafe_code, reason = "exports C functions")]

use crate::{
    call_context::{missing, set_errno},
    checkpoint,
    client_call::tell_client,
    handler::handlers,
    layer::{self, FileEvent},
    pages, plain,
    retire::retire,
};
use forebay_files::client;
use libc::{c_int, c_void, off_t, size_t};
use std::{ops::Range, ptr};

handlers! {
    fn mmap(address: *mut c_void, bytes: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off_t) -> *mut c_void;
    missing missing(libc::MAP_FAILED);
    plain if !is_concerned(address, bytes, flags, fd);
    else |real| {
        // What a program writes from a mapping of the file that it writes to changes meanwhile: the
        // client knows of those.
        if is_shared(flags) && (layer::refuses_mapping(fd, protection, flags) || checkpoint::refuses_mapping(fd, protection)) {
            set_errno(libc::EOPNOTSUPP);
            return libc::MAP_FAILED;
        }
        if !is_anonymous(flags)
            && let Err(failed) = pages::leave(fd)
        {
            return failed.with(libc::MAP_FAILED);
        }
        if is_shared(flags) && client::absorbs(fd) {
            // A mapping that the kernel refuses changes nothing: InnoDB asks whether its log is
            // persistent memory (`MAP_SYNC`). SAFETY: our caller's arguments; the kernel chooses
            // the address, so nothing is mapped over.
            let probe = unsafe { real(ptr::null_mut(), bytes, protection, flags & !AT_ONCE, fd, offset) };
            if probe == libc::MAP_FAILED {
                return probe;
            }
            // SAFETY: it was mapped just now, and the program does not know of it.
            let _ = unsafe { rustix::mm::munmap(probe, bytes) };
            if let Err(failed) = retire(fd) {
                return failed.with(libc::MAP_FAILED);
            }
        }
        if flags & libc::MAP_FIXED != 0 {
            if client::is_own_memory(address.addr(), bytes) {
                return not_there();
            }
            layer::release(address.addr(), bytes);
        }
        let begun = layer::begin(fd).filter(|_| !is_anonymous(flags));
        // SAFETY: our caller's arguments.
        let mapped = unsafe { real(address, bytes, protection, flags, fd, offset) };
        if mapped != libc::MAP_FAILED && may_be_log(flags) {
            tell_client(|| client::mapped(fd, mapped.addr(), bytes));
        }
        if mapped != libc::MAP_FAILED
            && let Some(begun) = begun
        {
            begun.done(FileEvent::Mapped { address: mapped.expose_provenance(), bytes, offset: offset.unsigned_abs(), protection, flags });
        }
        mapped
    };

    fn munmap(address: *mut c_void, bytes: size_t) -> c_int;
    missing missing(-1);
    plain if is_plain(address, bytes) && !client::has_mapped();
    else |real| {
        layer::release(address.addr(), bytes);
        let known = range(address, bytes);
        let is_known = client::unmapping(&known);
        // SAFETY: our caller's arguments.
        let done = around_own(address, bytes, |address, bytes| unsafe { real(address, bytes) });
        if done != 0 && is_known {
            client::stays_mapped(known);
        }
        done
    };

    fn mprotect(address: *mut c_void, bytes: size_t, protection: c_int) -> c_int;
    missing missing(-1);
    plain if is_plain(address, bytes);
    else |real| {
        layer::release(address.addr(), bytes);
        // SAFETY: our caller's arguments.
        around_own(address, bytes, |address, bytes| unsafe { real(address, bytes, protection) })
    };

    fn mremap(address: *mut c_void, bytes: size_t, new_bytes: size_t, flags: c_int, new_address: *mut c_void) -> *mut c_void;
    missing missing(libc::MAP_FAILED);
    plain if is_plain(address, bytes) && !client::has_mapped() && (flags & libc::MREMAP_FIXED == 0 || is_plain(new_address, new_bytes));
    else |real| {
        let lands_on_own = flags & libc::MREMAP_FIXED != 0 && client::is_own_memory(new_address.addr(), new_bytes);
        if lands_on_own || client::is_own_memory(address.addr(), bytes) {
            return not_there();
        }
        layer::release(address.addr(), bytes);
        if flags & libc::MREMAP_FIXED != 0 {
            layer::release(new_address.addr(), new_bytes);
        }
        let known = range(address, bytes);
        let is_known = client::unmapping(&known);
        // SAFETY: our caller's arguments.
        let moved = unsafe { real(address, bytes, new_bytes, flags, new_address) };
        if is_known {
            client::stays_mapped(match moved {
                libc::MAP_FAILED => known,
                moved => range(moved, new_bytes),
            });
        }
        moved
    };
}

/// True if the kernel does what the program asks for at these addresses, and nothing else has to be
/// done.
fn is_plain(address: *mut c_void, bytes: usize) -> bool {
    !layer::guards_memory() && !client::is_own_memory(address.addr(), bytes)
}

/// Changes what is mapped at `bytes` from `address` on, but for what is the client's.
fn around_own(
    address: *mut c_void,
    bytes: usize,
    mut change: impl FnMut(*mut c_void, usize) -> c_int,
) -> c_int {
    if !client::is_own_memory(address.addr(), bytes) {
        return change(address, bytes);
    }
    client::around_own_memory(address.addr(), bytes, |part, bytes| {
        change(address.with_addr(part), bytes)
    })
}

/// As the kernel says it of addresses that the program has nothing at.
fn not_there() -> *mut c_void {
    set_errno(libc::EFAULT);
    libc::MAP_FAILED
}

/// Flags by which a mapping acts at its address, or on its pages, as soon as it is made.
const AT_ONCE: c_int =
    libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE | libc::MAP_POPULATE | libc::MAP_LOCKED;

fn is_anonymous(flags: c_int) -> bool {
    flags & libc::MAP_ANONYMOUS != 0
}

fn range(address: *mut c_void, bytes: usize) -> Range<usize> {
    address.addr()..address.addr().saturating_add(bytes)
}

/// True if a mapping may be of a file that the run absorbs, by whatever descriptor.
fn may_be_log(flags: c_int) -> bool {
    !is_anonymous(flags) && client::any_absorbed()
}

/// True if a mapping is of a file that is not plain, or may be put over one that is guarded or the
/// client's.
fn is_concerned(address: *mut c_void, bytes: usize, flags: c_int, fd: c_int) -> bool {
    !is_anonymous(flags) && !plain::is_plain(fd)
        || may_be_log(flags)
        || is_shared(flags) && checkpoint::may_come()
        || flags & libc::MAP_FIXED != 0 && !is_plain(address, bytes)
}

/// True if a mapping with `flags` is of a file and writes to it.
fn is_shared(flags: c_int) -> bool {
    matches!(
        flags & libc::MAP_TYPE,
        libc::MAP_SHARED | libc::MAP_SHARED_VALIDATE
    ) && !is_anonymous(flags)
}
