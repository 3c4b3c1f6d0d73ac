//! Making and dropping a keyspace. docs/store-format.md, "Keyspaces".
//!
//! One is made when the manifest has it: before that nothing is written with its number. One is
//! dropped in these steps:
//!
//! 1. Its handles, snapshots and scans refuse everything. Writers look again under their stripe,
//!    and transactions at all that they have read: who has appended by the time that all stripes
//!    were held came before the drop, and nobody comes behind.
//! 2. Make durable what was written so far: who drops a keyspace may have copied it elsewhere, and
//!    must not lose both.
//! 3. Take it out of the manifest, durably, with its number noted as dropped.
//! 4. Its keys are dead from now on, wherever they are (`keyspace::catalogue`): ingestions and
//!    merges of the index leave them out, the collector copies none of their records, and large
//!    values to which they lead go. So do its dictionaries, which left the manifest with it.
//! 5. In the background: the index's runs that have any are written anew without them
//!    (`index::lsm::clearing`), and the collector looks again at all files.
//! 6. When the index has none, and what memory had at 4 came into the index, the number goes out of
//!    the manifest's list.
//!
//! If 2 fails, 1 is taken back. If 3 fails, 1 stays as it is: whether the manifest has the drop is
//! known after another try, or at the next opening. Any crash leaves the keyspace whole, or dropped
//! with 5 to be done.

use super::Keyspace;
use crate::{
    db::{Store, StoreCore},
    error::StoreError,
    keyspace::{KeyspaceInfo, KeyspaceOptions, LiveKeyspace},
};
use std::sync::Arc;

impl Store {
    /// Opens the keyspace of that name, or makes it. It is durable when this returns.
    ///
    /// A name has 1 to 255 bytes without control characters. A store has up to 1,024 keyspaces, of
    /// which the manifest takes 128 KiB: names of 40 bytes leave room for so many, or shorter ones
    /// with options.
    ///
    /// # Errors
    /// [`StoreError::BadKeyspace`] for a name that is none, and for other options than the keyspace
    /// was made with; [`StoreError::KeyspaceDropped`] while a drop of it that failed is not done
    /// again; I/O errors.
    ///
    /// ```
    /// use forebay_store::KeyspaceOptions;
    /// use std::time::Duration;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// let hour = KeyspaceOptions::new().ttl(Duration::from_secs(3600));
    /// let sessions = store.keyspace("sessions", hour)?;
    /// sessions.put("alice", "logged in")?; // for an hour
    /// assert!(store.keyspace("sessions", KeyspaceOptions::new()).is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub fn keyspace(
        &self,
        name: &str,
        options: KeyspaceOptions,
    ) -> Result<Keyspace<'_>, StoreError> {
        self.shared.check_process()?;
        let live = match self.shared.keyspaces().find(name) {
            Some(live) => live,
            None => self.shared.make_keyspace(name, &options)?,
        };
        live.facts.check_options(&options)?;
        live.check()?;
        Ok(Keyspace { store: self, live })
    }

    /// Opens the keyspace of that name as it was made.
    ///
    /// # Errors
    /// [`StoreError::NoKeyspace`].
    ///
    /// ```
    /// use forebay_store::KeyspaceOptions;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// store.keyspace("owners", KeyspaceOptions::new())?;
    /// assert_eq!(store.existing_keyspace("owners")?.ttl(), None);
    /// assert!(store.existing_keyspace("Owners").is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub fn existing_keyspace(&self, name: &str) -> Result<Keyspace<'_>, StoreError> {
        self.shared.check_process()?;
        let live = self.shared.find_keyspace(name)?;
        Ok(Keyspace { store: self, live })
    }

    /// The keyspaces there are, by name; the default one, which has none, is not among them. In a
    /// forked child, whose the store is not, none.
    ///
    /// ```
    /// use forebay_store::KeyspaceOptions;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// store.keyspace("owners", KeyspaceOptions::new())?;
    /// for keyspace in store.keyspaces() {
    ///     println!("{}", keyspace.name);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn keyspaces(&self) -> Vec<KeyspaceInfo> {
        match self.shared.check_process() {
            Ok(()) => self.shared.keyspaces().list(),
            Err(_) => Vec::new(),
        }
    }

    /// Drops the keyspace of that name with all that is in it, also in open snapshots and
    /// transactions. It is gone when this returns, also after a crash, and whatever was written
    /// before, to any keyspace, is durable. Its space comes back in the background, without its
    /// records being copied: value-log files that hold nothing else are removed, once no snapshot
    /// of before is open.
    ///
    /// A copy of the store that was made before has it still, and so has one that is being made and
    /// whose manifest is written already.
    ///
    /// # Errors
    /// [`StoreError::NoKeyspace`]; [`StoreError::ReadOnly`] if the pool failed: nothing was dropped
    /// then. I/O errors: whether it was dropped is known after another try, or when the store is
    /// opened again; until then nothing is read or written in it.
    ///
    /// ```
    /// use forebay_store::{KeyspaceOptions, StoreError};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// let owners = store.keyspace("owners", KeyspaceOptions::new())?;
    /// owners.put("boat", "alice")?;
    /// store.drop_keyspace("owners")?;
    /// assert!(matches!(owners.get("boat"), Err(StoreError::KeyspaceDropped { .. })));
    /// let owners = store.keyspace("owners", KeyspaceOptions::new())?; // another one
    /// assert!(owners.get("boat")?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn drop_keyspace(&self, name: &str) -> Result<(), StoreError> {
        self.shared.check_process()?;
        self.shared.drop_keyspace(name)
    }
}

impl StoreCore {
    /// The keyspace of that name.
    pub(in crate::db) fn find_keyspace(&self, name: &str) -> Result<Arc<LiveKeyspace>, StoreError> {
        let live = self.keyspaces().find(name);
        let live = live.ok_or_else(|| StoreError::NoKeyspace {
            name: name.to_owned(),
        })?;
        live.check()?;
        Ok(live)
    }

    fn make_keyspace(
        &self,
        name: &str,
        options: &KeyspaceOptions,
    ) -> Result<Arc<LiveKeyspace>, StoreError> {
        let _changing = self.keyspaces().changing();
        // Another thread may have been first.
        if let Some(live) = self.keyspaces().find(name) {
            return Ok(live);
        }
        // It makes no room: the reserve is not for it.
        self.check_room()?;
        let made = self.log.state().keyspaces.next(name, options)?;
        self.log.note(|state| state.keyspaces.add(made.clone()))?;
        forebay_pool::failpoint!("store:keyspace-made");
        let made = self.keyspaces().add(made);
        self.begin_dictionary(made.id(), &made.compressor);
        Ok(made)
    }

    /// Steps 1 to 4.
    fn drop_keyspace(&self, name: &str) -> Result<(), StoreError> {
        let keyspaces = self.keyspaces();
        let _changing = keyspaces.changing();
        let live = keyspaces.find(name).ok_or_else(|| StoreError::NoKeyspace {
            name: name.to_owned(),
        })?;
        let id = live.facts.id;
        let is_first = live.end();
        drop(self.locks.hold(true));
        if let Err(error) = self.tail.commit_written() {
            // The manifest is as it was, unless an earlier try came so far.
            if is_first {
                live.go_on();
            }
            return Err(error);
        }
        self.log.note(|state| state.keyspaces.drop(id))?;
        forebay_pool::failpoint!("store:keyspace-dropped");
        keyspaces.drop(id, self.tail.tail());
        self.dictionaries.forget(live.id());
        self.request_ingestion();
        self.request_compaction();
        self.collector.look_anew();
        Ok(())
    }

    /// Step 6. Nothing depends on it: who calls tries again.
    pub(in crate::db) fn forget_cleared_keyspaces(&self) -> Result<(), StoreError> {
        let keyspaces = self.keyspaces();
        // In this order: what was in memory at the drop was there at the look, or is in the index.
        let all = keyspaces.dropped();
        let in_memory = self.view.load().chunks().any(|chunk| !chunk.is_empty());
        let watermark = self.watermark();
        let mut cleared = Vec::new();
        for dropped in all {
            let has_come = !in_memory || dropped.below <= watermark;
            if has_come && !self.index.has_any_of(dropped.id)? {
                cleared.push(dropped.id);
            }
        }
        if cleared.is_empty() {
            return Ok(());
        }
        let _changing = keyspaces.changing();
        self.log.note_at_leisure(|state| {
            let is_left = |id: &u32| !cleared.contains(id);
            state.keyspaces.dropped.retain(is_left);
        })?;
        keyspaces.forget(&cleared);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Durability, StoreOptions,
        disk::{
            RealDisk,
            faulty::{Fault, FaultPlan, FaultyDisk},
        },
        index::ValueForm,
        log::{ReserveNeed, RoomClaim},
        op::KIND_PUT,
    };
    use std::{
        path::Path,
        thread,
        time::{Duration, Instant},
    };

    fn open(dir: &Path) -> (Store, Arc<FaultPlan>) {
        let plan = Arc::new(FaultPlan::default());
        let disk = FaultyDisk::new(Arc::new(RealDisk::default()), Arc::clone(&plan));
        let options = StoreOptions::new().durability(Durability::NoSync).gc(false);
        let store = options.open_on(Arc::new(disk), None, dir, None).unwrap();
        (store, plan)
    }

    /// Promise (store): A drop waits for writers that are about to append, and none that comes
    /// later is acknowledged.
    #[test]
    fn a_drop_waits_for_writers_and_later_ones_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = open(&dir.path().join("store"));
        let one = store.keyspace("one", KeyspaceOptions::new()).unwrap();
        one.put("key", "value").unwrap();
        // As a writer that lost its processor between its look and its append.
        let writer = store.shared.locks.stripe().lock();
        thread::scope(|scope| {
            let drops = scope.spawn(|| store.drop_keyspace("one"));
            while one.id().is_ok() {
                thread::yield_now();
            }
            thread::sleep(Duration::from_millis(20));
            assert!(!drops.is_finished());
            assert!(store.shared.log.state().keyspaces.live.len() == 1);
            drop(writer);
            drops.join().unwrap().unwrap();
        });
        // As one that has looked before the drop, and locks its stripe only now.
        let key = one.live.id().to_stored(b"key");
        let late = store.shared.write_one(
            RoomClaim::Put,
            KIND_PUT,
            &key,
            b"late",
            ValueForm::Record,
            || true,
        );
        assert!(matches!(late, Err(StoreError::KeyspaceDropped { .. })));
        // And a reader: it may have missed the key, and does not say that it is not there.
        let missed = store.shared.get(&one.live.id().to_stored(b"absent"));
        assert!(matches!(missed, Err(StoreError::KeyspaceDropped { .. })));
    }

    /// Promise (store): A drop that cannot make durable what was written before leaves the keyspace
    /// as it was.
    #[test]
    fn a_drop_without_its_commit_is_taken_back() {
        let dir = tempfile::tempdir().unwrap();
        let (store, plan) = open(&dir.path().join("store"));
        let one = store.keyspace("one", KeyspaceOptions::new()).unwrap();
        one.put("key", "value").unwrap();
        plan.strike(1, Fault::Error);
        assert!(store.drop_keyspace("one").is_err());
        plan.heal();
        assert_eq!(one.get("key").unwrap().as_deref(), Some(&b"value"[..]));
        assert_eq!(store.shared.log.state().keyspaces.live.len(), 1);
    }

    #[test]
    fn no_keyspace_is_made_on_a_disk_that_is_full() {
        let dir = tempfile::tempdir().unwrap();
        let (store, plan) = open(&dir.path().join("store"));
        store.put("key", "value").unwrap();
        plan.strike(1, Fault::FullFor(u64::MAX / 2));
        store.shared.log.reserve().release(ReserveNeed::Log);
        let kept = store.shared.log.reserve().kept_bytes();
        let refused = store.keyspace("one", KeyspaceOptions::new()).err().unwrap();
        // As a put is, before anything is tried.
        assert!(refused.to_string().contains("have to be free"), "{refused}");
        assert_eq!(store.shared.log.reserve().kept_bytes(), kept);
        plan.heal();
        let begun = Instant::now();
        while let Err(error) = store.keyspace("one", KeyspaceOptions::new()) {
            assert!(begun.elapsed() < Duration::from_secs(60), "{error}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Promise (store): That the last trace of a dropped keyspace cannot be cleared away keeps no
    /// writer waiting and takes nothing of the reserve.
    #[test]
    fn a_number_that_cannot_be_forgotten_is_no_trouble() {
        let dir = tempfile::tempdir().unwrap();
        let (store, plan) = open(&dir.path().join("store"));
        store.keyspace("one", KeyspaceOptions::new()).unwrap();
        let (shared, id) = (&store.shared, 1);
        shared.log.note(|state| state.keyspaces.drop(id)).unwrap();
        plan.strike(1, Fault::FullFor(u64::MAX / 2));
        shared.keyspaces().drop(id, 0);
        shared.request_compaction();
        let begun = Instant::now();
        while plan.struck() < 2 {
            assert!(begun.elapsed() < Duration::from_secs(60));
            thread::sleep(Duration::from_millis(1));
        }
        assert!(!shared.log.reserve().is_short());
        assert_eq!(store.stats().trouble, None);
        plan.heal();
        while store.stats().dropped_keyspaces > 0 {
            assert!(begun.elapsed() < Duration::from_secs(60));
            thread::sleep(Duration::from_millis(10));
        }
        assert!(shared.log.state().keyspaces.dropped.is_empty());
    }
}
