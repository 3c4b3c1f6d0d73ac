//! The library's life in a process: its start, `fork`, its end.
#![expect(
    unsafe_code,
    reason = "runs before main and after it, and after fork; exports a C function"
)]

use crate::{
    call_context::{Failed, inside, missing, tell_client},
    descriptor, layer,
    real::hooks,
};
use forebay_files::client;
use libc::{c_int, pid_t};
use std::sync::atomic::{AtomicI32, Ordering};

hooks! {
    // `fork` calls the handlers of `pthread_atfork`, this does not.
    fn [_Fork] () -> pid_t;
    missing missing(-1);
    plain if false;
    else |real| {
        forking();
        // SAFETY: our caller's wish.
        let child = unsafe { real() };
        if child == 0 {
            forked();
        }
        child
    };

    fn [daemon] (stay: c_int, keep: c_int) -> c_int;
    missing missing(-1);
    plain if false;
    else |real| {
        // SAFETY: our caller's wish.
        let result = unsafe { real(stay, keep) };
        if result == 0 && keep == 0 {
            descriptor::standard_replaced();
        }
        result
    };
}

/// The process that the client works for.
static PROCESS: AtomicI32 = AtomicI32::new(0);

fn own_pid() -> pid_t {
    // SAFETY: it needs nothing.
    unsafe { libc::getpid() }
}

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

extern "C" fn start() {
    // libaio's and liburing's functions are looked for when they are called.
    crate::change::find_all();
    crate::descriptor::find_all();
    crate::dprintf::find_all();
    crate::identity::find_all();
    crate::map::find_all();
    crate::message::find_all();
    crate::name::find_all();
    crate::open::find_all();
    crate::position::find_all();
    crate::stdio::find_all();
    crate::times::find_all();
    crate::sync::find_all();
    crate::system_call::find_all();
    crate::write::find_all();
    find_all();
    PROCESS.store(own_pid(), Ordering::Relaxed);
    // SAFETY: the handlers are functions of this library, which is never unloaded.
    let registered =
        unsafe { libc::pthread_atfork(Some(before_fork), None, Some(forked_in_child)) };
    if registered == 0 {
        // Without it a child would go on as if it were its parent: then nothing is absorbed.
        tell_client(client::start);
        layer::start();
        tell_client(forebay_pages::start);
    }
}

extern "C" fn end() {
    // The child of a `clone` that no handler heard of must not end its parent's session.
    if PROCESS.load(Ordering::Relaxed) == own_pid() {
        tell_client(forebay_pages::exiting);
        tell_client(client::exiting);
    }
}

unsafe extern "C" fn before_fork() {
    forking();
}

unsafe extern "C" fn forked_in_child() {
    forked();
}

/// Before this thread forks.
pub(crate) fn forking() {
    if client::is_inside() {
        tell_client(client::forking_above);
    }
}

/// In a forked child.
pub(crate) fn forked() {
    PROCESS.store(own_pid(), Ordering::Relaxed);
    let _: Result<(), Failed> = inside(|| {
        client::forked();
        Ok(())
    });
    forebay_pages::forked();
    layer::forked();
}
