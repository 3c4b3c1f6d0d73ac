//! The filter of the program's calls: it picks those that are seen. By number and arguments only,
//! since it cannot look at memory. docs/notify.md, "What is trapped".
//!
//! Each call has a block of its own, which ends with what becomes of it; calls that no block names
//! the kernel never asks about (it knows that they are allowed whatever their arguments are).

use crate::number_window::NumberWindow;
use forebay_files::{AGENT_QUESTION, ioctls::NAMING_REQUESTS};
use libc::{
    BPF_ABS, BPF_ALU, BPF_AND, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, BPF_W,
    c_long, sock_filter,
};

/// `AUDIT_ARCH_…` of this machine.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xC000_00B7;

/// `struct seccomp_data`: the number; the architecture; the arguments.
const NUMBER: u32 = 0;
const MACHINE: u32 = 4;
const ARGUMENTS: u32 = 16;
/// The number of a call with addresses of 32 bits has this bit.
const X32: u32 = 0x4000_0000;

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const TRAP: u32 = libc::SECCOMP_RET_USER_NOTIF;

/// The condition on which a call is seen.
enum CallCondition {
    Always,
    /// One of these arguments is a number of the window.
    Descriptor(&'static [u32]),
    /// An argument has one of these bits.
    Bits(u32, u32),
    /// This argument is a number of the window, and the second one of these; or the same of another
    /// pair.
    Command(&'static [(u32, &'static [u32])]),
    /// The first argument is one of these.
    Option(&'static [i32]),
    /// The first or the third argument is a number of the window, or the second an `ioctl` that
    /// names files in its argument.
    Request,
    /// The fifth is a number of the window, and the fourth has this bit.
    Mapping(u32),
    /// The second is no lower than the window.
    Range,
}

use CallCondition::{Always, Bits, Command, Descriptor, Mapping, Option, Range, Request};

const FIRST: CallCondition = Descriptor(&[0]);
const DUPLICATES: [u32; 2] = [
    libc::F_DUPFD.cast_unsigned(),
    libc::F_DUPFD_CLOEXEC.cast_unsigned(),
];
const CHANGES: u32 = (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC).cast_unsigned();

/// The calls of all machines. Those that programs make most come first.
const CALLS: &[(c_long, CallCondition)] = &[
    (libc::SYS_read, FIRST),
    (libc::SYS_write, FIRST),
    (libc::SYS_close, FIRST),
    (libc::SYS_lseek, FIRST),
    (libc::SYS_writev, FIRST),
    (libc::SYS_readv, FIRST),
    (libc::SYS_pwrite64, FIRST),
    (libc::SYS_mmap, Mapping(libc::MAP_SHARED.cast_unsigned())),
    (
        libc::SYS_fcntl,
        Command(&[
            (0, &DUPLICATES),
            (
                0,
                &[libc::F_GETFL.cast_unsigned(), libc::F_SETFL.cast_unsigned()],
            ),
            // A duplicate of anything, to a number of the window.
            (2, &DUPLICATES),
        ]),
    ),
    (libc::SYS_openat, Bits(2, CHANGES)),
    (libc::SYS_openat2, Always),
    (libc::SYS_pwritev, FIRST),
    (libc::SYS_pwritev2, FIRST),
    (libc::SYS_preadv2, FIRST),
    (libc::SYS_fsync, Always),
    (libc::SYS_fdatasync, Always),
    (libc::SYS_sync, Always),
    (libc::SYS_syncfs, Always),
    (libc::SYS_msync, Bits(2, libc::MS_SYNC.cast_unsigned())),
    (libc::SYS_sync_file_range, FIRST),
    (libc::SYS_ftruncate, Always),
    (libc::SYS_truncate, Always),
    (libc::SYS_fallocate, Always),
    (libc::SYS_copy_file_range, Always),
    (libc::SYS_sendfile, Descriptor(&[0, 1])),
    (libc::SYS_splice, Descriptor(&[0, 2])),
    (libc::SYS_ioctl, Request),
    (libc::SYS_dup, FIRST),
    (libc::SYS_dup3, Descriptor(&[0, 1])),
    (libc::SYS_close_range, Range),
    (libc::SYS_sendmsg, Always),
    (libc::SYS_sendmmsg, Always),
    (libc::SYS_pidfd_getfd, Descriptor(&[1])),
    (libc::SYS_renameat2, Always),
    (libc::SYS_unlinkat, Always),
    (libc::SYS_linkat, Always),
    (libc::SYS_utimensat, Always),
    (libc::SYS_mkdirat, Always),
    (libc::SYS_mknodat, Always),
    (libc::SYS_symlinkat, Always),
    (libc::SYS_fchmod, Always),
    (libc::SYS_fchmodat, Always),
    (libc::SYS_fchown, Always),
    (libc::SYS_fchownat, Always),
    (libc::SYS_setxattr, Always),
    (libc::SYS_lsetxattr, Always),
    (libc::SYS_fsetxattr, Always),
    (libc::SYS_removexattr, Always),
    (libc::SYS_lremovexattr, Always),
    (libc::SYS_fremovexattr, Always),
    (libc::SYS_bind, Always),
    (libc::SYS_landlock_restrict_self, Always),
    (
        libc::SYS_prctl,
        Option(&[libc::PR_SET_DUMPABLE, AGENT_QUESTION]),
    ),
    (libc::SYS_setuid, Always),
    (libc::SYS_setgid, Always),
    (libc::SYS_setreuid, Always),
    (libc::SYS_setregid, Always),
    (libc::SYS_setresuid, Always),
    (libc::SYS_setresgid, Always),
    (libc::SYS_setfsuid, Always),
    (libc::SYS_setfsgid, Always),
    (libc::SYS_open_by_handle_at, Bits(2, CHANGES)),
    (libc::SYS_io_uring_setup, Always),
    (libc::SYS_io_setup, Always),
];

/// Those that only this machine has.
#[cfg(target_arch = "x86_64")]
const MORE_CALLS: &[(c_long, CallCondition)] = &[
    (libc::SYS_open, Bits(1, CHANGES)),
    (libc::SYS_creat, Always),
    (libc::SYS_dup2, Descriptor(&[0, 1])),
    (libc::SYS_rename, Always),
    (libc::SYS_renameat, Always),
    (libc::SYS_unlink, Always),
    (libc::SYS_link, Always),
    (libc::SYS_mkdir, Always),
    (libc::SYS_rmdir, Always),
    (libc::SYS_mknod, Always),
    (libc::SYS_symlink, Always),
    (libc::SYS_chmod, Always),
    (libc::SYS_chown, Always),
    (libc::SYS_lchown, Always),
    (libc::SYS_utime, Always),
    (libc::SYS_utimes, Always),
    (libc::SYS_futimesat, Always),
];
#[cfg(target_arch = "aarch64")]
const MORE_CALLS: &[(c_long, CallCondition)] = &[(libc::SYS_renameat, Always)];

/// The filter, with this window of numbers that only logs have.
pub(crate) fn filter(window: NumberWindow) -> Vec<sock_filter> {
    let foreign = other_machine(window);
    let mut steps = vec![
        load(MACHINE),
        jump(BPF_JEQ, ARCHITECTURE, foreign.len() as u8, 0),
    ];
    steps.extend(foreign);
    steps.push(load(NUMBER));
    if cfg!(target_arch = "x86_64") {
        let foreign = other_machine(window);
        steps.push(jump(BPF_JSET, X32, 0, foreign.len() as u8));
        steps.extend(foreign);
    }
    for (number, condition) in CALLS.iter().chain(MORE_CALLS) {
        let block = block(condition, window);
        steps.push(jump(BPF_JEQ, *number as u32, 0, block.len() as u8));
        steps.extend(block);
    }
    steps.push(end(ALLOW));
    steps
}

/// A call of another kind of machine, whose number means another: it fails if it may reach a log by
/// its number, or makes a ring. Those that take an address there have none in the lowest 64 KiB.
/// Ends in each case.
fn other_machine(window: NumberWindow) -> Vec<sock_filter> {
    let refused = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned();
    let mut steps = vec![
        load(NUMBER),
        step(BPF_ALU | BPF_AND | BPF_K, !X32, 0, 0),
        jump(BPF_JEQ, libc::SYS_io_uring_setup as u32, 0, 1),
        end(refused),
    ];
    steps.extend(within(0, window, 0, 1));
    steps.push(end(refused));
    steps.push(end(ALLOW));
    steps
}

/// The filter's instructions for a call. Ends in each case.
fn block(condition: &CallCondition, window: NumberWindow) -> Vec<sock_filter> {
    let mut steps = Vec::new();
    match condition {
        Always => {
            steps.push(end(TRAP));
            return steps;
        }
        Descriptor(arguments) => {
            for argument in *arguments {
                steps.extend(within(*argument, window, 0, 1));
                steps.push(end(TRAP));
            }
        }
        Bits(argument, bits) => {
            steps.push(load_argument(*argument));
            steps.push(jump(BPF_JSET, *bits, 0, 1));
            steps.push(end(TRAP));
        }
        Command(pairs) => {
            for (argument, commands) in *pairs {
                let of_commands = 1 + 2 * commands.len() as u8;
                steps.extend(within(*argument, window, 0, of_commands));
                steps.push(load_argument(1));
                for command in *commands {
                    steps.push(jump(BPF_JEQ, *command, 0, 1));
                    steps.push(end(TRAP));
                }
            }
        }
        Option(options) => {
            steps.push(load_argument(0));
            for option in *options {
                steps.push(jump(BPF_JEQ, option.cast_unsigned(), 0, 1));
                steps.push(end(TRAP));
            }
        }
        Request => {
            for argument in [0, 2] {
                steps.extend(within(argument, window, 0, 1));
                steps.push(end(TRAP));
            }
            steps.push(load_argument(1));
            for request in &NAMING_REQUESTS {
                steps.push(jump(BPF_JEQ, request.number, 0, 1));
                steps.push(end(TRAP));
            }
        }
        Mapping(bit) => {
            steps.extend(within(4, window, 0, 3));
            steps.push(load_argument(3));
            steps.push(jump(BPF_JSET, *bit, 0, 1));
            steps.push(end(TRAP));
        }
        Range => {
            steps.push(load_argument(1));
            steps.push(jump(BPF_JGE, window.first.cast_unsigned(), 0, 1));
            steps.push(end(TRAP));
        }
    }
    steps.push(end(ALLOW));
    steps
}

/// Goes on `yes` steps further if an argument is a number of the window, `no` steps if not.
fn within(argument: u32, window: NumberWindow, yes: u8, no: u8) -> Vec<sock_filter> {
    vec![
        load_argument(argument),
        jump(BPF_JGE, window.first.cast_unsigned(), 0, no + 1),
        jump(BPF_JGE, window.end.cast_unsigned(), no, yes),
    ]
}

fn load(at: u32) -> sock_filter {
    step(BPF_LD | BPF_W | BPF_ABS, at, 0, 0)
}

/// The lower half of an argument: a descriptor, flags and a length's window have no more.
fn load_argument(number: u32) -> sock_filter {
    const LOW: u32 = if cfg!(target_endian = "little") { 0 } else { 4 };
    load(ARGUMENTS + 8 * number + LOW)
}

fn jump(kind: u32, to: u32, yes: u8, no: u8) -> sock_filter {
    step(BPF_JMP | kind | BPF_K, to, yes, no)
}

fn end(what: u32) -> sock_filter {
    step(BPF_RET | BPF_K, what, 0, 0)
}

fn step(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    let code = code as u16;
    sock_filter { code, jt, jf, k }
}
