//! A process that is asked before any file is opened, as an on-access scanner is: the supervisor
//! does not wait for it while it waits for the supervisor.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{Lab, content, disk::Disk};
use nix::sys::fanotify::{
    EventFFlags, Fanotify, FanotifyEvent, FanotifyResponse, InitFlags, MarkFlags, MaskFlags,
    Response,
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::CWD,
};
use std::{
    fs,
    os::unix::fs::FileExt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

const RDWR: i32 = libc::O_RDWR | libc::O_CREAT;
/// So long an `open` that has to wait may take.
const LIMIT: Duration = Duration::from_secs(30);

/// Is asked about everything that is opened on a mount, and answers one process never.
struct Scanner {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Scanner {
    fn new(mount: &Path, never: u32) -> Self {
        let flags = InitFlags::FAN_CLASS_CONTENT | InitFlags::FAN_CLOEXEC | InitFlags::FAN_NONBLOCK;
        let group = Fanotify::init(flags, EventFFlags::O_RDONLY | EventFFlags::O_CLOEXEC).unwrap();
        let marks = MarkFlags::FAN_MARK_ADD | MarkFlags::FAN_MARK_MOUNT;
        let asked = MaskFlags::FAN_OPEN_PERM | MaskFlags::FAN_ONDIR;
        group.mark(marks, asked, CWD, Some(mount)).unwrap();
        let ends = Arc::<AtomicBool>::default();
        let end = Arc::clone(&ends);
        let thread = thread::spawn(move || {
            let mut kept: Vec<FanotifyEvent> = Vec::new();
            while !end.load(SeqCst) {
                let a_moment = Timespec::try_from(Duration::from_millis(20)).unwrap();
                let _ = poll(&mut [PollFd::new(&group, PollFlags::IN)], Some(&a_moment));
                for event in group.read_events().unwrap_or_default() {
                    if event.pid().unsigned_abs() == never {
                        kept.push(event);
                    } else if let Some(fd) = event.fd() {
                        let _ =
                            group.write_response(FanotifyResponse::new(fd, Response::FAN_ALLOW));
                    }
                }
            }
        });
        Self {
            ends,
            thread: Some(thread),
        }
    }
}

impl Drop for Scanner {
    fn drop(&mut self) {
        self.ends.store(true, SeqCst);
        let _ = self.thread.take().unwrap().join();
    }
}

#[test]
fn opener_goes_on_while_the_supervisor_may_open_nothing() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: fanotify's permission events are root's");
        return;
    }
    for make in [&["mkfs.ext4", "-q"][..], &["mkfs.xfs", "-q", "-f"]] {
        let lab = Lab::new();
        let Some(disk) = Disk::mount(&lab, make, 320) else {
            return;
        };
        let mut run = lab.run();
        let paths = ["a.log", "b.log", "c.log"].map(|name| lab.data(name));
        for (name, path) in ["a", "b", "c"].iter().zip(&paths) {
            assert_eq!(run.open(name, path, RDWR), 1);
            // Of the last one nothing is logged yet.
            if *name != "c" {
                run.call(format!("pwrite {name} 0 1 300")).unwrap();
            }
        }
        let scanner = Scanner::new(&disk.at, run.supervisor.id());
        for path in paths {
            let begun = Instant::now();
            let stranger = thread::spawn(move || {
                let file = fs::File::options().write(true).open(path).unwrap();
                file.write_all_at(&content(2, 300), 0).unwrap();
            });
            while !stranger.is_finished() {
                assert!(begun.elapsed() < LIMIT, "the opener hangs");
                thread::sleep(Duration::from_millis(10));
            }
            stranger.join().unwrap();
        }
        drop(scanner);
        run.end();
    }
}
