//! `close`, `close_range`, `closefrom`, `unshare`, `dup`, `dup2`, `dup3`, `fcntl`: the files of
//! descriptors.
//!
//! The client must know before an absorbed descriptor goes away, and that cannot be taken back:
//! whatever the kernel would refuse is refused first. Its own descriptors do not exist for the
//! database: they make way for what it puts in their place.
#![expect(unsafe_code, reason = "exports C functions")]

use crate::{
    call_context::{cancellation_point, checked, errno, missing, set_errno, without_cancellation},
    client_call::{client, tell_client},
    handler::{HookHandler as _, handlers},
    layer, metadata, pages,
    plain::is_plain,
    truncated_fds,
};
use forebay_files::client;
use libc::{c_int, c_uint, c_ulong};

handlers! {
    fn close(fd: c_int) -> c_int;
    missing missing(-1);
    plain if is_plain(fd) && !client::is_own(fd) && !truncated_fds::is_marked(fd);
    else |real| {
        if client::is_own(fd) {
            return bad_descriptor();
        }
        cancellation_point();
        without_cancellation(|| {
            tell_client(|| client::closing(fd));
            pages::closing(fd);
            layer::closing(fd);
            // SAFETY: our caller's argument.
            truncated_fds::closing(fd, || unsafe { real(fd) })
        })
    };

    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    missing missing(-1);
    plain if !unshares(first, last, flags) && (!closes(first, last, flags) || !has_ours(first, last));
    else |real| {
        if unshares(first, last, flags) {
            tell_client(client::unsharing);
        }
        // SAFETY: closing what our caller wants closed.
        let close = |first, last| unsafe { real(first, last, flags) };
        match closes(first, last, flags) {
            true => close_spans(first, last, close),
            false => close(first, last),
        }
    };

    fn unshare(flags: c_int) -> c_int;
    missing missing(-1);
    plain if flags & libc::CLONE_FILES == 0;
    else |real| {
        tell_client(client::unsharing);
        // SAFETY: our caller's argument.
        unsafe { real(flags) }
    };

    fn closefrom(first: c_int) -> ();
    missing set_errno(libc::ENOSYS);
    plain if !has_ours(first.max(0).unsigned_abs(), c_uint::MAX);
    else |real| {
        let before = errno();
        close_spans(first.max(0).unsigned_abs(), c_uint::MAX, |first, last| {
            if last == c_uint::MAX {
                // SAFETY: closing what our caller wants closed.
                unsafe { real(first.cast_signed()) }
            } else if let Some(close) = close::hidden() {
                for fd in first..=last {
                    // SAFETY: as above.
                    unsafe { close(fd.cast_signed()) };
                }
            }
            0
        });
        set_errno(before);
    };

    fn dup(fd: c_int) -> c_int;
    missing missing(-1);
    plain if is_plain(fd) && !client::is_absorbing() && !truncated_fds::is_marked(fd);
    else |real| duplicate(fd, || {
        // SAFETY: our caller's argument.
        unsafe { real(fd) }
    });

    fn dup2(from: c_int, to: c_int) -> c_int;
    missing missing(-1);
    plain if !is_standard_error(to) && (is_unconcerned(from, to) || from == to && !client::is_own(to));
    else |real| replace(from, to, || {
        // SAFETY: our caller's arguments.
        unsafe { real(from, to) }
    });

    fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int;
    missing missing(-1);
    plain if !is_standard_error(to) && is_unconcerned(from, to) || from == to || flags & !libc::O_CLOEXEC != 0;
    else |real| replace(from, to, || {
        // SAFETY: our caller's arguments.
        unsafe { real(from, to, flags) }
    });

    fn fcntl(fd: c_int, command: c_int, argument: c_ulong) -> c_int;
    missing missing(-1);
    plain if (is_plain(fd) || !is_about_descriptor(command)) && !is_in_the_way(command);
    else |real| {
        // SAFETY: our caller's arguments.
        let call = || unsafe { real(fd, command, argument) };
        match command {
            libc::F_SETFL => set_flags(fd, argument as c_int, call),
            libc::F_GETFL => shown(fd, call()),
            libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => {
                if is_in_the_way(command) && is_open(fd) {
                    tell_client(|| client::make_way_from(argument as c_int));
                }
                duplicate(fd, call)
            }
            _ => call(),
        }
    };
}

fn bad_descriptor() -> c_int {
    set_errno(libc::EBADF);
    -1
}

/// The `fcntl` commands that need the client.
fn is_about_descriptor(command: c_int) -> bool {
    matches!(
        command,
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC | libc::F_GETFL | libc::F_SETFL
    )
}

/// True if the lowest free descriptor may be one that the client's own are in the way of.
fn is_in_the_way(command: c_int) -> bool {
    matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) && client::is_absorbing()
}

/// The kernel's flags of `fd`, unless they are negative because there are none, with those that it
/// does not know of.
fn shown(fd: c_int, flags: c_int) -> c_int {
    if flags < 0 {
        return flags;
    }
    let mut hidden_flags = 0;
    tell_client(|| hidden_flags = client::hidden_flags(fd));
    flags | hidden_flags | layer::hidden_flags(fd)
}

/// Gives `fd` other flags by `real`.
fn set_flags(fd: c_int, flags: c_int, real: impl FnOnce() -> c_int) -> c_int {
    if let Err(failed) = client(|| client::changing_flags(fd, flags)) {
        return failed.with(-1);
    }
    let result = real();
    if result >= 0 {
        tell_client(|| client::changed_flags(fd, flags));
    }
    result
}

/// Makes a duplicate of `from` by `real`.
fn duplicate(from: c_int, real: impl Fn() -> c_int) -> c_int {
    match client(|| client::duplicating(from, || checked(real()))) {
        Ok(to) => {
            pages::duplicated(from, to);
            layer::duplicated(from, to);
            truncated_fds::duplicated(from, to);
            to
        }
        Err(failed) => failed.with(-1),
    }
}

/// After the C library put something else in the place of the standard streams' descriptors, past
/// the library.
pub(crate) fn standard_replaced() {
    for fd in libc::STDIN_FILENO..=libc::STDERR_FILENO {
        if !is_plain(fd) {
            tell_client(|| client::closing(fd));
            pages::closing(fd);
            layer::closing(fd);
        }
    }
    note_standard_error();
}

/// True if Forebay's words go to the file that has this number, if the program put it there on
/// purpose.
fn is_standard_error(fd: c_int) -> bool {
    fd == libc::STDERR_FILENO
}

/// Standard error is the file that the program has put there.
pub(crate) fn note_standard_error() {
    // A vforked child shares our memory, but not our descriptors.
    if !client::in_vforked_child() {
        client::note_standard_error();
    }
}

/// True if neither is of any interest, nor is the closing of `to`.
fn is_unconcerned(from: c_int, to: c_int) -> bool {
    !concerns(from, to) && !truncated_fds::is_marked(from) && !truncated_fds::is_marked(to)
}

fn concerns(from: c_int, to: c_int) -> bool {
    !is_plain(from) || !is_plain(to) || client::may_be_own(to)
}

/// Makes `to` a duplicate of `from`, another descriptor. The kernel would accept the other
/// arguments.
fn replace(from: c_int, to: c_int, real: impl FnOnce() -> c_int) -> c_int {
    let replace = || match concerns(from, to) && (from != to || client::is_own(to)) {
        true => replace_ours(from, to, real),
        false => real(),
    };
    let done = match from == to {
        true => replace(),
        false => truncated_fds::closing(to, replace),
    };
    if done >= 0 {
        truncated_fds::duplicated(from, to);
    }
    if done >= 0 && is_standard_error(to) {
        let before = errno();
        note_standard_error();
        set_errno(before);
    }
    done
}

/// The same, where one of the two is not plain.
fn replace_ours(from: c_int, to: c_int, real: impl FnOnce() -> c_int) -> c_int {
    if client::is_own(to) && (!is_open(from) || !is_allowed(to)) {
        return bad_descriptor();
    }
    let put = || match client::may_be_own(to) {
        true => client::making_way(to, || checked(real())),
        false => checked(real()),
    };
    match client(|| client::replacing(from, to, put)) {
        Ok(to) => {
            pages::duplicated(from, to);
            layer::duplicated(from, to);
            to
        }
        Err(failed) => failed.with(-1),
    }
}

fn is_open(fd: c_int) -> bool {
    fcntl::hidden().is_some_and(|fcntl| {
        // SAFETY: it only asks.
        (unsafe { fcntl(fd, libc::F_GETFD, 0) }) >= 0
    })
}

/// True if the resource limit allows the descriptor. It may have been lowered below one that is
/// open.
fn is_allowed(fd: c_int) -> bool {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.is_none_or(|limit| u64::from(fd.unsigned_abs()) < limit)
}

/// True if `close_range` with these arguments does anything.
fn is_valid(first: c_uint, last: c_uint, flags: c_int) -> bool {
    let known = (libc::CLOSE_RANGE_CLOEXEC | libc::CLOSE_RANGE_UNSHARE).cast_signed();
    first <= last && flags & !known == 0
}

/// True if it closes anything.
fn closes(first: c_uint, last: c_uint, flags: c_int) -> bool {
    let only_marks = flags & libc::CLOSE_RANGE_CLOEXEC.cast_signed() != 0;
    is_valid(first, last, flags) && !only_marks
}

/// True if it gives the thread descriptors of its own.
fn unshares(first: c_uint, last: c_uint, flags: c_int) -> bool {
    flags & libc::CLOSE_RANGE_UNSHARE.cast_signed() != 0 && is_valid(first, last, flags)
}

/// Those of a range of which something may be known: no table here has any above.
fn known(first: c_uint, last: c_uint) -> impl Iterator<Item = c_int> {
    (first..=last.min(client::DESCRIPTORS as c_uint - 1)).map(c_uint::cast_signed)
}

/// True if an absorbed descriptor, or one of the client's own, is in the range.
fn has_ours(first: c_uint, last: c_uint) -> bool {
    known(first, last).any(|fd| !is_plain(fd) || truncated_fds::is_marked(fd))
        || client::own_within(first, last).next().is_some()
}

/// Closes all from `first` to `last` but the client's own; `close` closes what is between those.
/// Returns what it returns if it fails.
fn close_spans(
    first: c_uint,
    last: c_uint,
    mut close: impl FnMut(c_uint, c_uint) -> c_int,
) -> c_int {
    let is_cut_off = known(first, last)
        .filter(|fd| truncated_fds::take(*fd))
        .count()
        > 0;
    let done = without_cancellation(|| {
        for fd in known(first, last) {
            if client::absorbs(fd) {
                tell_client(|| client::closing(fd));
            }
            pages::closing(fd);
            layer::closing(fd);
        }
        let mut start = first;
        for own in client::own_within(first, last) {
            if start < own {
                let result = close(start, own - 1);
                if result < 0 {
                    return result;
                }
            }
            start = own + 1;
        }
        if start <= last { close(start, last) } else { 0 }
    });
    if is_cut_off {
        metadata::count(None);
    }
    done
}
