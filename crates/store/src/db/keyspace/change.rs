//! Making and dropping a keyspace. docs/store-format.md, "Keyspaces".
//!
//! One is made when the manifest has it: before that nothing is written with its number. One is
//! dropped in these steps:
//!
//! 1. Its handles, snapshots and scans refuse everything. So nothing that is acknowledged from now
//!    on is lost by 2.
//! 2. Take it out of the manifest, durably, with its number noted as dropped.
//! 3. Its keys are dead from now on, wherever they are (`keyspace::catalogue`): ingestions and
//!    merges of the index leave them out, the collector copies none of their records, and large
//!    values to which they lead go.
//! 4. In the background: the index's runs that have any are written anew without them
//!    (`index::lsm::clearing`), and the collector looks again at all files.
//! 5. When the index has none, and what memory had at 3 came into the index, the number goes out of
//!    the manifest's list.
//!
//! If 2 fails, 1 stays as it is: whether the manifest has the drop is known after another try, or
//! at the next opening. Any crash leaves the keyspace whole, or dropped with 4 to be done.

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
    /// A name has 1 to 255 bytes without control characters. A store has up to 1,024 keyspaces.
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
    /// transactions. It is gone when this returns, also after a crash. Its space comes back in the
    /// background, without its records being copied: value-log files that hold nothing else are
    /// removed, once no snapshot of before is open.
    ///
    /// A copy of the store that was made before has it still, and so has one that is being made and
    /// whose manifest is written already.
    ///
    /// # Errors
    /// [`StoreError::NoKeyspace`]. I/O errors: whether it was dropped is known after another try,
    /// or when the store is opened again; until then nothing is read or written in it.
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
        let made = self.log.state().keyspaces.next(name, options)?;
        self.log.note(|state| state.keyspaces.add(made.clone()))?;
        forebay_pool::failpoint!("store:keyspace-made");
        Ok(self.keyspaces().add(made))
    }

    /// Steps 1 to 3.
    fn drop_keyspace(&self, name: &str) -> Result<(), StoreError> {
        let keyspaces = self.keyspaces();
        let _changing = keyspaces.changing();
        let live = keyspaces.find(name).ok_or_else(|| StoreError::NoKeyspace {
            name: name.to_owned(),
        })?;
        let id = live.facts.id;
        live.end();
        self.log.note(|state| state.keyspaces.drop(id))?;
        forebay_pool::failpoint!("store:keyspace-dropped");
        keyspaces.drop(id, self.tail.tail());
        self.request_ingestion();
        self.request_compaction();
        self.collector.look_anew();
        Ok(())
    }

    /// Step 5.
    pub(in crate::db) fn forget_cleared_keyspaces(&self) -> Result<(), StoreError> {
        let keyspaces = self.keyspaces();
        // In this order: what was in memory then is in the index now.
        let in_memory = self.view.load().chunks().any(|chunk| !chunk.is_empty());
        let watermark = self.watermark();
        let mut cleared = Vec::new();
        for dropped in keyspaces.dropped() {
            let has_come = !in_memory || dropped.below <= watermark;
            if has_come && !self.index.has_any_of(dropped.id)? {
                cleared.push(dropped.id);
            }
        }
        if cleared.is_empty() {
            return Ok(());
        }
        let _changing = keyspaces.changing();
        self.log.note(|state| {
            let is_left = |id: &u32| !cleared.contains(id);
            state.keyspaces.dropped.retain(is_left);
        })?;
        keyspaces.forget(&cleared);
        Ok(())
    }
}
