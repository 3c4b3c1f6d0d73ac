//! Changes that the kernel makes after the agent said "go on". They are of a name, a size or an
//! attribute, and an absorbed sync is to be ordered behind them (docs/files-write.md, "Order
//! with the rest of the file system").
//!
//! When the kernel has made one is not told. So each is counted when it is let through, and again
//! at every call that writes or syncs, until its thread is known to have come back from it. That is
//! known by another call of the thread, or by where /proc says that it is.

use forebay_files::client;
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    fs,
    sync::atomic::{AtomicUsize, Ordering},
};

/// Threads that are in such a call, with its number.
#[derive(Default)]
pub(crate) struct PendingChanges {
    /// Their number, so that most calls ask no more than this.
    count: AtomicUsize,
    threads: Mutex<HashMap<u32, i64>>,
}

impl PendingChanges {
    /// A thread's call is about to be let through.
    pub(crate) fn add(&self, thread: u32, number: i64) {
        if !client::counts_changes() {
            return;
        }
        let mut threads = self.threads.lock();
        threads.insert(thread, number);
        self.count.store(threads.len(), Ordering::SeqCst);
        client::changed_on(None);
    }

    /// A thread makes a call: whatever it was in has been done.
    pub(crate) fn came_back(&self, thread: u32) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut threads = self.threads.lock();
        if threads.remove(&thread).is_some() {
            client::changed_on(None);
        }
        self.count.store(threads.len(), Ordering::SeqCst);
    }

    /// Before a write or a sync: work that is not known to be done counts as done just now.
    pub(crate) fn count_again(&self) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut threads = self.threads.lock();
        threads.retain(|thread, number| is_in(*thread, *number));
        client::changed_on(None);
        self.count.store(threads.len(), Ordering::SeqCst);
    }
}

/// False if the thread is certainly not in this call any more. One that runs may be.
pub(crate) fn is_in(thread: u32, number: i64) -> bool {
    match fs::read_to_string(format!("/proc/{thread}/syscall")) {
        Ok(said) => match said.split_ascii_whitespace().next() {
            Some("running") | None => true,
            Some(now) => now.parse() == Ok(number),
        },
        Err(_) => fs::metadata(format!("/proc/{thread}")).is_ok(),
    }
}
