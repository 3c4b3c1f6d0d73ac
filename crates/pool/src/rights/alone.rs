//! Tests of root's work for other users: in a process with one thread, as a command has.

use super::wait_for;
use rustix::process::WaitStatus;
use std::{
    env,
    panic::{AssertUnwindSafe, catch_unwind},
    process::Command,
    thread,
};

/// Runs the calling test's `body` in a process of its own that has one thread; for root only.
///
/// # Panics
/// If `body` does, or there is no such process.
#[expect(clippy::print_stdout, reason = "a test's words")]
pub fn alone(body: impl FnOnce()) {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: not root");
        return;
    }
    let arguments = ["--exact", "--test-threads=1", "--nocapture"];
    if !arguments
        .iter()
        .all(|one| env::args().any(|given| given == *one))
    {
        let name = thread::current().name().unwrap_or_default().to_owned();
        let executable = env::current_exe().unwrap_or_default();
        let ran = Command::new(executable).arg(name).args(arguments).output();
        let passed = ran.as_ref().is_ok_and(|ran| {
            let said = String::from_utf8_lossy(&ran.stdout);
            ran.status.success() && said.contains("1 passed")
        });
        assert!(passed, "{ran:?}");
        return;
    }
    // SAFETY: the harness's own thread waits for this one, and holds nothing that is locked.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let is_done = catch_unwind(AssertUnwindSafe(body)).is_ok();
        // SAFETY: nothing of the harness's is to run here.
        unsafe { libc::_exit(i32::from(!is_done)) };
    }
    assert_eq!(wait_for(child).and_then(WaitStatus::exit_status), Some(0));
}
