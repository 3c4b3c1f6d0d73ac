//! State of the whole process: its handlers of signals, its place in the background, its user.

use crate::world::{World, call};
use libc::{c_int, c_void};
use std::ptr;

extern "C" fn on_signal(_: c_int) {}

/// Handlers of signals, and what they were before.
pub fn handle(world: &mut World) {
    let number = world
        .rng
        .one_of(&[libc::SIGSEGV, libc::SIGSEGV, libc::SIGUSR1, 99]);
    let mut ours: libc::sigaction = unsafe { std::mem::zeroed() };
    let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
    ours.sa_sigaction = on_signal as *const () as usize;
    let about = format!("{number}");
    let name = world.spelling(&["sigaction", "signal"]);
    if name == "signal" {
        let kept = unsafe {
            libc::sigaction(number, ptr::null(), &raw mut before);
            before
        };
        let old =
            call!(world, name, about, (number => c_int, libc::SIG_DFL => usize) -> *mut c_void);
        let is_same = old.addr() == kept.sa_sigaction || old.addr() == libc::SIG_ERR;
        world.say(&format!("the handler before: {is_same}"));
        unsafe { libc::sigaction(number, &raw const kept, ptr::null_mut()) };
        return;
    }
    call!(
        world, name, about,
        (number => c_int, &raw const ours => *const libc::sigaction, &raw mut before => *mut libc::sigaction) -> c_int
    );
    let mut now: libc::sigaction = unsafe { std::mem::zeroed() };
    unsafe { libc::sigaction(number, &raw const before, &raw mut now) };
    world.say(&format!("ours: {}", now.sa_sigaction == ours.sa_sigaction));
}

/// A child puts itself in the background, and says by its standard output how that went.
pub fn daemon(world: &mut World) {
    let name = world.spelling(&["daemon"]);
    let keep = world.rng.one_of(&[0, 1]);
    let mut pipe = [-1; 2];
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    let child = unsafe { libc::fork() };
    if child == 0 {
        world.is_child = true;
        let result = call!(world, name, keep.to_string(), (1 => c_int, keep => c_int) -> c_int);
        let lost = unsafe { libc::write(1, c"".as_ptr().cast(), 0) };
        let said = [result as u8, lost as u8];
        unsafe { libc::write(pipe[1], said.as_ptr().cast(), said.len()) };
        unsafe { libc::_exit(0) };
    }
    unsafe { libc::close(pipe[1]) };
    let mut said = [9_u8; 2];
    let read = unsafe { libc::read(pipe[0], said.as_mut_ptr().cast(), said.len()) };
    unsafe { libc::close(pipe[0]) };
    let mut status = 0;
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    world.find(name);
    world.say(&format!("{name} {keep}: {read} {said:?} {status}"));
}

/// The calls that change whose process it is, to what it is already.
pub fn become_the_same(world: &mut World) {
    let (uid, effective) = unsafe { (libc::getuid(), libc::geteuid()) };
    let kept = libc::uid_t::MAX;
    match world.spelling(&["setuid", "seteuid", "setreuid", "setresuid"]) {
        "setuid" => {
            call!(world, "setuid", "", (uid => libc::uid_t) -> c_int);
        }
        "seteuid" => {
            call!(world, "seteuid", "", (effective => libc::uid_t) -> c_int);
        }
        "setreuid" => {
            call!(world, "setreuid", "", (uid => libc::uid_t, kept => libc::uid_t) -> c_int);
        }
        _ => {
            call!(world, "setresuid", "", (kept => libc::uid_t, effective => libc::uid_t, kept => libc::uid_t) -> c_int);
        }
    }
}

/// Whether there are processes: this one, its own other thread's number, none, its group.
pub fn look_for(world: &mut World) {
    let (said, hears) = std::sync::mpsc::channel();
    let (ends, end) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        said.send(unsafe { libc::gettid() }).unwrap();
        let _ = end.recv();
    });
    let own = unsafe { libc::getpid() };
    let other = hears.recv().unwrap();
    for (about, number) in [
        ("own", own),
        ("thread", other),
        ("none", libc::pid_t::MAX),
        ("group", 0),
    ] {
        call!(world, "kill", about, (number => libc::pid_t, 0 => c_int) -> c_int);
    }
    drop(ends);
    thread.join().unwrap();
}
