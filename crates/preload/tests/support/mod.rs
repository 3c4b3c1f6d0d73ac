//! What the tests share: where the library is, what it exports, and random numbers.
#![allow(dead_code, reason = "each test uses a part of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// Every exported function.
pub const SYMBOLS: &[&str] = &[
    "_Fork",
    "_IO_fclose",
    "_IO_fdopen",
    "_IO_fopen",
    "_IO_popen",
    "__close",
    "__dprintf_chk",
    "__dup2",
    "__fcntl",
    "__lseek",
    "__open",
    "__open64",
    "__open64_2",
    "__open_2",
    "__openat64_2",
    "__openat_2",
    "__pread64",
    "__pread64_chk",
    "__pread_chk",
    "__pwrite64",
    "__read",
    "__read_chk",
    "__vdprintf_chk",
    "__write",
    "aio_error",
    "aio_error64",
    "aio_fsync",
    "aio_fsync64",
    "aio_return",
    "aio_return64",
    "aio_write",
    "aio_write64",
    "backtrace_symbols_fd",
    "bind",
    "chmod",
    "chown",
    "clone",
    "close",
    "close_range",
    "closefrom",
    "copy_file_range",
    "creat",
    "creat64",
    "daemon",
    "dlmopen",
    "dlopen",
    "dlsym",
    "dlvsym",
    "dprintf",
    "dup",
    "dup2",
    "dup3",
    "execl",
    "execle",
    "execlp",
    "execv",
    "execve",
    "execveat",
    "execvp",
    "execvpe",
    "fallocate",
    "fallocate64",
    "fchmod",
    "fchmodat",
    "fchown",
    "fchownat",
    "fclose",
    "fcntl",
    "fcntl64",
    "fdatasync",
    "fdopen",
    "fexecve",
    "fopen",
    "fopen64",
    "fremovexattr",
    "freopen",
    "freopen64",
    "fsetxattr",
    "fsync",
    "ftruncate",
    "ftruncate64",
    "futimens",
    "futimes",
    "futimesat",
    "io_setup",
    "io_submit",
    "io_uring_queue_init",
    "io_uring_queue_init_mem",
    "io_uring_queue_init_params",
    "io_uring_setup",
    "ioctl",
    "lchmod",
    "lchown",
    "link",
    "linkat",
    "lio_listio",
    "lio_listio64",
    "lremovexattr",
    "lseek",
    "lseek64",
    "lsetxattr",
    "lutimes",
    "mkdir",
    "mkdirat",
    "mkdtemp",
    "mkfifo",
    "mkfifoat",
    "mknod",
    "mknodat",
    "mkostemp",
    "mkostemp64",
    "mkostemps",
    "mkostemps64",
    "mkstemp",
    "mkstemp64",
    "mkstemps",
    "mkstemps64",
    "mmap",
    "mmap64",
    "mprotect",
    "mremap",
    "msync",
    "munmap",
    "open",
    "open64",
    "open_by_handle_at",
    "openat",
    "openat2",
    "openat64",
    "pclose",
    "pidfd_getfd",
    "pidfd_spawn",
    "pidfd_spawnp",
    "popen",
    "posix_fadvise",
    "posix_fadvise64",
    "posix_fallocate",
    "posix_fallocate64",
    "posix_spawn",
    "posix_spawn_file_actions_adddup2",
    "posix_spawnp",
    "pread",
    "pread64",
    "preadv",
    "preadv2",
    "preadv64",
    "preadv64v2",
    "pwrite",
    "pwrite64",
    "pwritev",
    "pwritev2",
    "pwritev64",
    "pwritev64v2",
    "read",
    "readdir",
    "readdir64",
    "readv",
    "remove",
    "removexattr",
    "rename",
    "renameat",
    "renameat2",
    "rmdir",
    "send",
    "sendfile",
    "sendfile64",
    "sendmmsg",
    "sendmsg",
    "sendto",
    "seteuid",
    "setresuid",
    "setreuid",
    "setuid",
    "setxattr",
    "splice",
    "symlink",
    "symlinkat",
    "sync",
    "sync_file_range",
    "syncfs",
    "syscall",
    "system",
    "tmpfile",
    "tmpfile64",
    "truncate",
    "truncate64",
    "unlink",
    "unlinkat",
    "unshare",
    "utime",
    "utimensat",
    "utimes",
    "vdprintf",
    "write",
    "writev",
];

/// The library: cargo puts it beside the programs of this package's tests.
pub fn library() -> PathBuf {
    beside_the_tests("libforebay.so")
}

/// The library of this name, of the package that is tested.
pub fn beside_the_tests(name: &str) -> PathBuf {
    let library = std::env::current_exe().unwrap().with_file_name(name);
    assert!(library.exists(), "{} is not there", library.display());
    library
}

/// What a library exports, sorted.
pub fn exported(library: &Path) -> Vec<String> {
    let output = Command::new("nm")
        .args(["-D", "--defined-only", "--format=just-symbols"])
        .arg(library)
        .output()
        .expect("nm, of the binutils that the linker comes with");
    assert!(output.status.success(), "{output:?}");
    let names = String::from_utf8(output.stdout).unwrap();
    let mut exported: Vec<String> = names.lines().map(str::to_owned).collect();
    exported.sort_unstable();
    exported
}

/// SplitMix64.
#[derive(Clone)]
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// True once in `n` times.
    pub fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}
