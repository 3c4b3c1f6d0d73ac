//! Rings (`io_uring`) that a process makes past the functions that are hooked: by liburing in the
//! program itself, or by a system call of its own. What goes through one cannot be seen, so before
//! the process joins the run:
//!
//! 1. it must have no code that makes one ([`find`]), nor have one open: else it stays plain, and
//!    says so;
//! 2. a filter (seccomp) refuses them from then on with `ENOSYS`, where the process may install one
//!    without losing rights: with `CAP_SYS_ADMIN`, or with `no_new_privs` already set. It lets
//!    through what is [announced](announced), and liburing's own code, whose functions are hooked.
//!
//! A filter that is there already may end a process for installing another, so then there is none
//! of ours. Programs that are executed keep it.
#![expect(
    unsafe_code,
    reason = "reads the code of the program; installs a filter"
)]

use crate::{
    forked_child, kernel,
    next_definition::{self, LibraryCode},
};
use forebay_files::client;
use libc::{c_long, c_uint, sock_filter, sock_fprog};
use std::{
    fs,
    ops::Range,
    slice,
    sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::Relaxed},
};

/// The third argument of an announced `io_uring_setup`, which has two: the kernel does not look at
/// it, and the filter does.
const ANNOUNCED: u64 = 0x666f_7265_6261_7921;

/// The number of loads of libraries at which no code was found that makes a ring; 0 before.
static CLEAN_AT: AtomicU64 = AtomicU64::new(0);

/// The process that the library was started in. In a forked child no library is looked for: the
/// dynamic linker's locks are as its parent's threads left them.
static STARTED_IN: AtomicI32 = AtomicI32::new(0);

/// Has the client ask before this process joins.
pub(crate) fn start() {
    STARTED_IN.store(forked_child::own_pid(), Relaxed);
    client::before_joining(before_joining);
}

/// Makes a ring that this library has heard of. As the system call.
///
/// # Safety
///
/// As `io_uring_setup`.
pub(crate) unsafe fn announced(entries: c_long, parameters: c_long) -> c_long {
    let words = [entries, parameters, ANNOUNCED as c_long, 0, 0, 0];
    // SAFETY: our caller's promise.
    unsafe { kernel::call(libc::SYS_io_uring_setup, words) }
}

/// Before this process forks: the finding holds for its children, each of which would look again.
pub(crate) fn forking() {
    if client::may_join() {
        find();
    }
}

fn before_joining() -> Result<(), String> {
    // The program does without then, as the profile says.
    if client::refuses_io_uring() && refuse_others() {
        return Ok(());
    }
    if let Some(name) = find() {
        return Err(format!(
            "{name} makes io_urings by itself, and not by a library, and writes through one cannot be seen"
        ));
    }
    if has_ring() {
        return Err(
            "an io_uring is open in the process, and writes through it cannot be seen".to_owned(),
        );
    }
    refuse_others();
    Ok(())
}

/// The name of the program, or of a library in it, that has code to make a ring and is not
/// liburing.
fn find() -> Option<String> {
    if is_forked() && CLEAN_AT.load(Relaxed) != 0 {
        return None;
    }
    let loaded = next_definition::times_loaded();
    if CLEAN_AT.load(Relaxed) == loaded {
        return None;
    }
    let mut found = None;
    next_definition::each_code(|code| {
        if !is_known(&code) && makes_rings(bytes(&code)) {
            found = Some(match code.file_name() {
                b"" => "the program".to_owned(),
                name => String::from_utf8_lossy(name).into_owned(),
            });
        }
        found.is_some()
    });
    if found.is_none() {
        CLEAN_AT.store(loaded, Relaxed);
    }
    found
}

fn is_forked() -> bool {
    STARTED_IN.load(Relaxed) != forked_child::own_pid()
}

fn bytes<'a>(code: &LibraryCode<'a>) -> &'a [u8] {
    let start = std::ptr::with_exposed_provenance(code.addresses.start);
    // SAFETY: it can be read, and stays as it is while the libraries are walked through.
    unsafe { slice::from_raw_parts(start, code.addresses.len()) }
}

/// True if code is a library's that makes system calls of all kinds, or whose functions are hooked.
fn is_known(code: &LibraryCode<'_>) -> bool {
    const KNOWN: [&[u8]; 5] = [
        b"libc.",
        b"libc-",
        b"ld-linux",
        b"linux-vdso",
        b"libpthread",
    ];
    let name = code.file_name();
    code.is_ours || is_liburing(code) || KNOWN.iter().any(|known| name.starts_with(known))
}

fn is_liburing(code: &LibraryCode<'_>) -> bool {
    code.file_name().starts_with(b"liburing")
}

/// True if there is a system call behind the number of `io_uring_setup`, no further than a compiler
/// puts it.
#[cfg(target_arch = "x86_64")]
fn makes_rings(code: &[u8]) -> bool {
    const NUMBER: [u8; 4] = (libc::SYS_io_uring_setup as u32).to_le_bytes();
    /// `syscall`.
    const CALL: [u8; 2] = [0x0F, 0x05];
    const NEAR: usize = 64;
    let mut rest = code;
    while let Some(at) = first(rest, NUMBER[0]) {
        rest = &rest[at..];
        let behind = &rest[..rest.len().min(NEAR)];
        if behind.starts_with(&NUMBER) && behind.windows(CALL.len()).any(|two| two == CALL) {
            return true;
        }
        rest = &rest[1..];
    }
    false
}

/// The first place of a byte: the code of a large server is searched in a millisecond.
#[cfg(target_arch = "x86_64")]
fn first(bytes: &[u8], byte: u8) -> Option<usize> {
    // SAFETY: so many bytes are there.
    let found = unsafe { libc::memchr(bytes.as_ptr().cast(), byte.into(), bytes.len()) };
    (!found.is_null()).then(|| found.addr() - bytes.as_ptr().addr())
}

/// The same, of instructions: the number comes into the register for it.
#[cfg(target_arch = "aarch64")]
fn makes_rings(code: &[u8]) -> bool {
    /// `mov w8, #425` and `mov x8, #425`.
    const NUMBER: [u32; 2] = [0x5280_3528, 0xD280_3528];
    /// `svc #0`.
    const CALL: u32 = 0xD400_0001;
    const NEAR: usize = 16;
    let (instructions, _) = code.as_chunks::<4>();
    let is = |at: usize, wanted: &[u32]| wanted.contains(&u32::from_le_bytes(instructions[at]));
    (0..instructions.len()).any(|at| {
        let end = instructions.len().min(at + NEAR);
        is(at, &NUMBER) && (at..end).any(|behind| is(behind, &[CALL]))
    })
}

/// True if a ring is open, which may be inherited. Not known where there is no /proc.
fn has_ring() -> bool {
    let Ok(links) = fs::read_dir("/proc/thread-self/fd") else {
        return false;
    };
    let targets = links
        .flatten()
        .filter_map(|link| fs::read_link(link.path()).ok());
    targets
        .into_iter()
        .any(|target| target.as_os_str() == "anon_inode:[io_uring]")
}

/// Has the kernel refuse rings that are not announced, to all threads of this process and to what
/// they execute; true if it does.
fn refuse_others() -> bool {
    /// A forked child has its parent's filter.
    static IS_INSTALLED: AtomicBool = AtomicBool::new(false);
    if IS_INSTALLED.load(Relaxed) || !may_install() {
        return IS_INSTALLED.load(Relaxed);
    }
    let program = filter();
    let program = sock_fprog {
        len: program.len() as u16,
        filter: program.as_ptr().cast_mut(),
    };
    let flags = libc::SECCOMP_FILTER_FLAG_TSYNC | libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    let words = [
        libc::SECCOMP_SET_MODE_FILTER.into(),
        flags as c_long,
        (&raw const program).expose_provenance() as c_long,
        0,
        0,
        0,
    ];
    // SAFETY: the program is there as long as the call lasts. Where threads have filters of their
    // own, the number of one is returned.
    let is_done = unsafe { kernel::call(libc::SYS_seccomp, words) } == 0;
    IS_INSTALLED.store(is_done, Relaxed);
    is_done
}

/// True if the process may install a filter, and has none.
fn may_install() -> bool {
    const SYS_ADMIN: u32 = 21;
    let Ok(status) = fs::read_to_string("/proc/thread-self/status") else {
        return false;
    };
    let value = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.map_or("", |value| value.trim_start_matches(':').trim())
    };
    let rights = u64::from_str_radix(value("CapEff"), 16).unwrap_or(0);
    value("Seccomp") == "0" && (value("NoNewPrivs") == "1" || rights >> SYS_ADMIN & 1 == 1)
}

/// The filter, for all machines that a process may make calls of: the number is the same.
fn filter() -> Vec<sock_filter> {
    // Of the kernel's headers, as the libc crate has them.
    use libc::{
        BPF_ABS, BPF_ALU, BPF_AND, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W,
    };
    /// `struct seccomp_data`: the number; the instruction's address; the third argument.
    const NUMBER: u32 = 0;
    const ADDRESS: u32 = 8;
    const ARGUMENT: u32 = 32;
    /// The number of a call with addresses of 32 bits has this bit.
    const X32: u32 = 0x4000_0000;
    let load = |at| step(BPF_LD | BPF_W | BPF_ABS, at, 0, 0);
    let equal = |to, yes, no| step(BPF_JMP | BPF_JEQ | BPF_K, to, yes, no);
    let least = |to, yes, no| step(BPF_JMP | BPF_JGE | BPF_K, to, yes, no);
    let end = |what| step(BPF_RET | BPF_K, what, 0, 0);
    let allow = || end(libc::SECCOMP_RET_ALLOW);
    let [low, high] = halves(ANNOUNCED);
    let mut steps = vec![
        load(NUMBER),
        step(BPF_ALU | BPF_AND | BPF_K, !X32, 0, 0),
        equal(libc::SYS_io_uring_setup as u32, 1, 0),
        allow(),
        load(ARGUMENT),
        equal(low, 0, 3),
        load(ARGUMENT + 4),
        equal(high, 0, 1),
        allow(),
    ];
    for library in liburing() {
        let ([start, from], [stop, to]) =
            (halves(library.start as u64), halves(library.end as u64));
        if from == to {
            steps.extend([
                load(ADDRESS + 4),
                equal(from, 0, 4),
                load(ADDRESS),
                least(start, 0, 2),
                least(stop, 1, 0),
                allow(),
            ]);
        }
    }
    steps.push(end(libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32));
    steps
}

/// The addresses of liburing's code: the functions by which it makes rings are hooked.
fn liburing() -> Vec<Range<usize>> {
    // It lies where the filter says also if the program loads it later.
    if !is_forked() {
        // SAFETY: a string. The library is never unloaded.
        unsafe { libc::dlopen(c"liburing.so.2".as_ptr(), libc::RTLD_LAZY) };
    }
    let mut found = Vec::new();
    next_definition::each_code(|code| {
        if is_liburing(&code) {
            found.push(code.addresses);
        }
        false
    });
    found
}

fn step(code: c_uint, k: u32, jt: u8, jf: u8) -> sock_filter {
    let code = code as u16;
    sock_filter { code, jt, jf, k }
}

/// The lower and the higher half.
fn halves(word: u64) -> [u32; 2] {
    [word as u32, (word >> 32) as u32]
}
