//! Truncation of a file that is open for reading only: no call takes its descriptor.

use super::link_of;
use rustix::io::Errno;
use std::{
    arch::asm,
    ffi::{CStr, CString},
    os::fd::BorrowedFd,
};

/// Cuts the file that is open as `fd` to nothing, also if it is open for reading only.
///
/// # Errors
/// The kernel's; also where the program may not write to the file.
pub(crate) fn truncate_open(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    let link = CString::new(link_of(fd)).map_err(|_| Errno::INVAL)?;
    match truncate(&link, 0) {
        // The kernel's way to say what went wrong.
        failed @ ..0 => Err(Errno::from_raw_os_error(-failed as i32)),
        _ => Ok(()),
    }
}

/// The system call itself. In libforebay.so the C library's `truncate`, and its `syscall`, are
/// hooks: they would take this for what a signal handler does above the call whose lock our caller
/// has, and wait until that gave up.
fn truncate(path: &CStr, bytes: i64) -> isize {
    let result: isize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the string ends in a zero; the kernel only reads it, and keeps all registers but
    // these.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") libc::SYS_truncate as isize => result,
            in("rdi") path.as_ptr(),
            in("rsi") bytes,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack)
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        asm!(
            "svc 0",
            in("x8") libc::SYS_truncate,
            inlateout("x0") path.as_ptr() as isize => result,
            in("x1") bytes,
            options(nostack)
        );
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs::File, os::fd::AsFd};

    #[test]
    fn a_file_open_for_reading_is_cut_to_nothing_and_a_pipe_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, [1; 100]).unwrap();
        let file = File::open(&path).unwrap();
        truncate_open(file.as_fd()).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 0);
        let (pipe, _) = std::io::pipe().unwrap();
        assert_eq!(truncate_open(pipe.as_fd()), Err(Errno::INVAL));
    }
}
