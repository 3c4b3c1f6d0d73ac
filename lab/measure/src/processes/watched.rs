//! A process that is known by a descriptor of it, whichever process started it.

use rustix::{
    fd::OwnedFd,
    param::clock_ticks_per_second,
    process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal},
};
use std::{
    fs,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

/// How long a process that was killed may take to end: it may be in the middle of a sync.
pub(super) const END_WAIT: Duration = Duration::from_secs(60);

/// How long a process may take to stop that waits for a processor, and one that sleeps in the
/// kernel where no signal reaches it: that starts nothing, either.
const STOP_WAIT: Duration = Duration::from_secs(10);
const SLEEP_WAIT: Duration = Duration::from_millis(200);

/// A process, not necessarily a child. Dropping this does nothing to it.
#[derive(Clone, Debug)]
pub struct Watched {
    pid: i32,
    fd: Arc<OwnedFd>,
}

impl Watched {
    /// The process `pid`, which the caller knows to be running.
    ///
    /// # Errors
    /// I/O errors; `ESRCH` if it is gone.
    pub fn of(pid: i32) -> std::io::Result<Self> {
        let number = Pid::from_raw(pid).ok_or(rustix::io::Errno::SRCH)?;
        let fd = Arc::new(pidfd_open(number, PidfdFlags::empty())?);
        Ok(Self { pid, fd })
    }

    /// Its number.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// True if both are the same one, not only the same process.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.fd, &other.fd)
    }

    /// Sends it a signal. Nothing happens if it is gone.
    pub fn signal(&self, signal: Signal) {
        let _ = pidfd_send_signal(&*self.fd, signal);
    }

    /// Kills it and all that it started. What a wrapper started just now is not known here yet, and
    /// would outlive it; one that is stopped starts nothing.
    pub(super) fn kill_tree(&self) -> Vec<Self> {
        self.signal(Signal::STOP);
        self.wait_stopped();
        let mut killed: Vec<Self> = self.children().iter().flat_map(Self::kill_tree).collect();
        self.signal(Signal::KILL);
        killed.push(self.clone());
        killed
    }

    /// Waits until it has stopped, or ended, or does neither.
    fn wait_stopped(&self) {
        let begun = Instant::now();
        let limit = || match stat_of(self.pid)?.state {
            'T' | 't' | 'Z' | 'X' => None,
            'D' => Some(SLEEP_WAIT),
            _ => Some(STOP_WAIT),
        };
        while limit().is_some_and(|limit| begun.elapsed() < limit) {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// The processes that it started and that run.
    fn children(&self) -> Vec<Self> {
        let pid = self.pid;
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter();
        let lists = threads
            .flatten()
            .filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("children")).ok());
        let children: String = lists.collect::<Vec<_>>().join(" ");
        children
            .split_whitespace()
            .filter_map(|child| Self::of(child.parse().ok()?).ok())
            .collect()
    }

    /// The processor time that all its threads have had: in its own code, and in the kernel.
    /// Nothing of one that is gone.
    #[must_use]
    pub fn processor_time(&self) -> [Duration; 2] {
        let ticks = stat_of(self.pid).map_or([0; 2], |stat| stat.ticks);
        ticks.map(|ticks| {
            Duration::from_secs(ticks) / clock_ticks_per_second().clamp(1, u32::MAX.into()) as u32
        })
    }

    /// Waits until it has ended (a child not yet waited for counts as ended). False if it has not
    /// by then.
    #[must_use]
    pub fn wait_gone(&self, timeout: Duration) -> bool {
        is_gone_within(&self.fd, timeout)
    }
}

/// Kills the processes of a group, and waits until they are gone: at the end of their output they
/// may still hold locks. False if one is not gone in time.
pub fn kill_group(group: Pid) -> bool {
    let _ = kill_process_group(group, Signal::KILL);
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let members: Vec<Watched> = entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| stat_of(*pid).is_some_and(|stat| stat.group == group.as_raw_nonzero().get()))
        .filter_map(|pid| Watched::of(pid).ok())
        .collect();
    members.iter().all(|member| member.wait_gone(END_WAIT))
}

/// What the kernel tells of a process.
struct Stat {
    state: char,
    group: i32,
    /// Of processor time: in its own code, and in the kernel.
    ticks: [u64; 2],
}

/// Of one that is not gone.
fn stat_of(pid: i32) -> Option<Stat> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // PID (NAME) STATE PARENT GROUP …: the program's name may have anything in it.
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace();
    Some(Stat {
        state: fields.next()?.chars().next()?,
        group: fields.nth(1)?.parse().ok()?,
        ticks: [fields.nth(8)?.parse().ok()?, fields.next()?.parse().ok()?],
    })
}

/// Waits until a process has ended (a child not yet waited for counts as ended). False if it has
/// not by then.
fn is_gone_within(process: &OwnedFd, timeout: Duration) -> bool {
    use rustix::event::{PollFd, PollFlags, poll};
    let until = Instant::now() + timeout;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let time = rustix::time::Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        match poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&time)) {
            Ok(0) => return false,
            Ok(_) => return true,
            Err(_) if left.is_zero() => return false,
            Err(_) => {}
        }
    }
}
