//! The time slice of a thread on a processor that others want.
#![expect(
    unsafe_code,
    reason = "system calls without a safe form, of the calling thread alone"
)]

use libc::{SYS_sched_getattr, SYS_sched_setattr, sched_attr, syscall};
use std::{io, mem, time::Duration};

/// The shortest that Linux grants.
const SHORTEST: Duration = Duration::from_micros(100);

/// The calling thread gets no less of a processor, but in slices as short as the system grants: so
/// a writer that wakes up need not wait until this thread's slice of milliseconds is over. Linux
/// knows that since 6.12; before, nothing changes.
///
/// # Errors
/// What the system says: some sandboxes refuse.
pub(super) fn shorten() -> io::Result<()> {
    let mut attr = get()?;
    // Real-time threads have no slices, or such as their owner wants.
    if !matches!(
        attr.sched_policy.cast_signed(),
        libc::SCHED_OTHER | libc::SCHED_BATCH
    ) {
        return Ok(());
    }
    attr.sched_runtime = SHORTEST.as_nanos() as u64;
    // SAFETY: reads the attributes, whose size they say; 0 is the calling thread.
    match unsafe { syscall(SYS_sched_setattr, 0, &raw const attr, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The calling thread's attributes.
fn get() -> io::Result<sched_attr> {
    const SIZE: u32 = mem::size_of::<sched_attr>() as u32;
    let mut attr = sched_attr {
        size: SIZE,
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: writes no more than so many bytes of the attributes; 0 is the calling thread.
    match unsafe { syscall(SYS_sched_getattr, 0, &raw mut attr, SIZE, 0) } {
        0 => Ok(attr),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_with_short_slices_keeps_its_policy_and_its_priority() {
        let before = get().unwrap();
        shorten().unwrap();
        let after = get().unwrap();
        assert_eq!(
            (before.sched_policy, before.sched_nice),
            (after.sched_policy, after.sched_nice)
        );
        // Kernels before 6.12 say nothing about the slice.
        assert!([0, 100_000].contains(&after.sched_runtime));
    }
}
