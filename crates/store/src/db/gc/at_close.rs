//! A small store is left small: before it closes, a log that is mostly garbage is collected.
//!
//! The collector allows for the garbage of four files, however little is live, and leaves the file
//! that grows alone. On a pool on a disk a put that is committed alone takes a page, so a thousand
//! tiny puts would leave 4 MiB of files. Here the last file is ended, and what is live in all of
//! them goes to a new one. Larger logs are left to the collector: a close is to be short.

use crate::{
    db::StoreCore,
    error::StoreError,
    log::{LogTail, VlogFile},
    stats::GcReport,
};

/// A larger log is not looked at.
const LOG_MAX: u64 = 64 << 20;
/// Less garbage is not worth it, nor is less than half of the log.
const GARBAGE_MIN: u64 = 2 << 20;

impl StoreCore {
    /// Collects a small log of which most is garbage. The index has all of it, and the files.
    pub(in crate::db) fn collect_before_close(&self) -> Result<(), StoreError> {
        let LogTail::Pool(_) = &self.tail else {
            return Ok(());
        };
        if !self.options.gc || self.log.reserve().is_short() {
            return Ok(());
        }
        // The collector may have written since the log was flushed. From here on nobody does.
        let mut progress = self.collector.collecting.lock();
        self.tail.flush()?;
        self.ingest_everything()?;
        let end = self.tail.drained();
        let extent = |file: &VlogFile| file.end().unwrap_or(end).saturating_sub(file.start);
        let files = self.log.files();
        let log_bytes: u64 = files.iter().map(|file| extent(file)).sum();
        if !(GARBAGE_MIN..=LOG_MAX).contains(&log_bytes) {
            return Ok(());
        }
        let garbage = |file: &VlogFile| {
            let share = self.sample(file, file.start + extent(file)).garbage();
            (extent(file) as f64 * share) as u64
        };
        let garbage: u64 = files.iter().map(|file| garbage(file)).sum();
        drop(files);
        if garbage < GARBAGE_MIN || garbage < log_bytes / 2 {
            return Ok(());
        }
        // What lies behind is cut off.
        debug_assert_eq!(self.tail.tail(), end);
        self.log.complete_at(end)?;
        self.collect_everything(&mut progress, &mut GcReport::default())?;
        drop(progress);
        self.tail.flush()?;
        self.ingest_everything()
    }
}

#[cfg(test)]
mod tests {
    use crate::{Durability, StoreOptions, index::ValueForm, log::RoomClaim, op::KIND_PUT};
    use forebay_pool::PoolOptions;
    use std::{
        fs,
        sync::{Arc, mpsc},
        thread,
        time::{Duration, Instant},
    };

    /// Looks at a thread in a row that find it asleep.
    const LOOKS: usize = 40;

    fn is_asleep(thread: rustix::thread::Pid) -> bool {
        let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap();
        let state = stat.rsplit_once(')').unwrap().1;
        state.trim_start().starts_with('S')
    }

    /// Promise: as `a_store_closed_while_collecting_opens_without_its_pool`.
    #[test]
    fn a_close_keeps_what_the_collector_appends_meanwhile() {
        let dir = tempfile::tempdir().unwrap();
        let pool = PoolOptions::new()
            .emulated(true)
            .size(4 << 20)
            .segment_size(64 << 10)
            .create(dir.path().join("pool"))
            .unwrap();
        let path = dir.path().join("store");
        let options = StoreOptions::new()
            .durability(Durability::Buffered(8))
            .file_size(4 << 20);
        let store = options.open(&path, &pool).unwrap();
        let shared = Arc::clone(&store.shared);
        let (keys, mut value) = (300_u32, [7; 1000]);
        for i in 0..12 * keys {
            store.put(&(i % keys).to_be_bytes(), &value).unwrap();
        }
        // A file is being collected from now on.
        let collecting = shared.collector.collecting.lock();
        let (tell, told) = mpsc::channel();
        let closing = thread::spawn(move || {
            tell.send(rustix::thread::gettid()).unwrap();
            store.close()
        });
        // Until the close has done all that it can, and waits for the collector.
        let (closer, deadline) = (
            told.recv().unwrap(),
            Instant::now() + Duration::from_secs(60),
        );
        let mut asleep = 0;
        while asleep < LOOKS {
            assert!(Instant::now() < deadline, "the close does not wait");
            thread::sleep(Duration::from_millis(5));
            let waits = shared.watermark() >= shared.tail.tail() && is_asleep(closer);
            asleep = if waits { asleep + 1 } else { 0 };
        }
        // Copies of what is live: of another content, to be told from what they are copies of.
        value = [8; 1000];
        for key in 0..keys {
            let key = key.to_be_bytes();
            let (claim, form) = (RoomClaim::Put, ValueForm::Record);
            let copied = shared.write_one(claim, KIND_PUT, &key, &value, form, || true);
            assert!(copied.unwrap().is_some());
        }
        shared.tail.flush().unwrap();
        drop(collecting);
        closing.join().unwrap().unwrap();
        drop(shared);
        let options = StoreOptions::new().durability(Durability::Fsync);
        let store = options.open(&path, None).unwrap();
        for key in 0..keys {
            let found = store.get(&key.to_be_bytes()).unwrap();
            assert_eq!(found.as_deref(), Some(&value[..]), "{key}");
        }
        assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
    }
}
