//! The filter of calls that stop the program: a classic BPF program, so that all others run at
//! their own speed.

use crate::calls::NUMBERS;
use libc::{
    BPF_ABS, BPF_JEQ, BPF_JMP, BPF_JSET, BPF_JUMP, BPF_K, BPF_LD, BPF_RET, BPF_STMT, BPF_W,
    sock_filter,
};
use nix::errno::Errno;

/// `AUDIT_ARCH_…` of this machine.
#[cfg(target_arch = "x86_64")]
pub(crate) const ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
pub(crate) const ARCHITECTURE: u32 = 0xC000_00B7;

/// Offsets in `struct seccomp_data` of the number, the architecture, and the low halves of
/// arguments.
const NUMBER: u32 = 0;
const MACHINE: u32 = 4;
const ARGUMENTS: u32 = 16;

const LOAD: u16 = (BPF_LD | BPF_W | BPF_ABS) as u16;
const EQUAL: u16 = (BPF_JMP | BPF_JEQ | BPF_K) as u16;
const BITS: u16 = (BPF_JMP | BPF_JSET | BPF_K) as u16;
const RETURN: u16 = (BPF_RET | BPF_K) as u16;

/// The program. Made before a fork: the child must not allocate.
pub(crate) fn program() -> Vec<sock_filter> {
    let load = |at| stmt(LOAD, at);
    let answer = |what| stmt(RETURN, what);
    let argument = |at: u32| load(ARGUMENTS + 8 * at);
    let mut code = vec![
        load(MACHINE),
        jump(EQUAL, ARCHITECTURE, 1, 0),
        answer(libc::SECCOMP_RET_ALLOW),
        load(NUMBER),
    ];
    for number in NUMBERS
        .into_iter()
        .filter(|&number| number != libc::SYS_mmap)
    {
        code.push(jump(EQUAL, number as u32, 0, 1));
        code.push(answer(libc::SECCOMP_RET_TRACE));
    }
    // Memory is mapped often, and a file that is written through its mapping seldom.
    code.extend([
        jump(EQUAL, libc::SYS_mmap as u32, 1, 0),
        answer(libc::SECCOMP_RET_ALLOW),
        argument(2),
        jump(BITS, libc::PROT_WRITE as u32, 1, 0),
        answer(libc::SECCOMP_RET_ALLOW),
        argument(3),
        jump(BITS, libc::MAP_SHARED as u32, 1, 0),
        answer(libc::SECCOMP_RET_ALLOW),
        answer(libc::SECCOMP_RET_TRACE),
    ]);
    code
}

#[allow(unsafe_code)]
fn stmt(code: u16, k: u32) -> sock_filter {
    // SAFETY: it makes a value of its arguments, and is unsafe only since it is a C macro.
    unsafe { BPF_STMT(code, k) }
}

#[allow(unsafe_code)]
fn jump(code: u16, k: u32, if_true: u8, if_false: u8) -> sock_filter {
    // SAFETY: as above.
    unsafe { BPF_JUMP(code, k, if_true, if_false) }
}

/// Installs `program` for this thread and all that it forks and executes. Where this process has
/// not `CAP_SYS_ADMIN`, no program that it executes gains rights from then on. Async-signal-safe.
///
/// # Errors
/// The kernel's.
#[allow(unsafe_code)]
pub(crate) fn install(program: &[sock_filter]) -> Result<(), Errno> {
    const MODE_FILTER: libc::c_ulong = libc::SECCOMP_SET_MODE_FILTER as libc::c_ulong;
    let described = libc::sock_fprog {
        len: program.len() as libc::c_ushort,
        filter: program.as_ptr().cast_mut(),
    };
    let attempt = || {
        // SAFETY: the kernel reads the program during the call, and nothing writes through the
        // pointer.
        let done =
            unsafe { libc::syscall(libc::SYS_seccomp, MODE_FILTER, 0, &raw const described) };
        Errno::result(done).map(drop)
    };
    match attempt() {
        Err(Errno::EACCES) => {
            // SAFETY: it takes numbers.
            let done = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
            Errno::result(done)?;
            attempt()
        }
        done => done,
    }
}
