//! [`KeyspaceCatalogue`]: the keyspaces of an open store, and the stored keys that are dead.
//!
//! A key is dead whose keyspace was dropped: it has a number that was given, and no keyspace has it
//! now. Numbers are never used again, so what is dead stays dead, wherever it turns up: in the log,
//! in memory, in tables. No list of dropped keyspaces is needed for that. The one that there is
//! says where there is something to clear away.

use super::{KeyspaceId, KeyspaceInfo, KeyspaceRef, KeyspaceState, stored_key::is_marked};
use crate::{compression::Compressor, error::StoreError};
use arc_swap::{ArcSwap, Guard};
use forebay_pool::Lsn;
use parking_lot::{Mutex, MutexGuard};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

/// The keyspaces of a store.
#[derive(Default)]
pub(crate) struct KeyspaceCatalogue {
    known: ArcSwap<KnownKeyspaces>,
    /// Held while one is made or dropped.
    change: Mutex<()>,
}

#[derive(Clone, Default)]
struct KnownKeyspaces {
    last: u32,
    /// By number.
    live: Vec<Arc<LiveKeyspace>>,
    dropped: Vec<DroppedKeyspace>,
    /// The least time to live of any.
    ttl_least_ms: Option<u64>,
}

/// A keyspace that is there.
pub(crate) struct LiveKeyspace {
    pub(crate) facts: KeyspaceRef,
    /// Of its values.
    pub(crate) compressor: Compressor,
    /// It is being dropped, or was: nothing of it is read or written.
    is_gone: AtomicBool,
}

/// A dropped keyspace that is not cleared away.
#[derive(Clone, Copy)]
pub(crate) struct DroppedKeyspace {
    pub(crate) id: u32,
    /// Memory may have its keys from the log below this address.
    pub(crate) below: Lsn,
}

/// The terms of a value that is put now.
#[derive(Default)]
pub(crate) struct PutTerms {
    /// The milliseconds since the epoch at which it expires, if it does.
    pub(crate) expiry: Option<u64>,
    /// The keyspaces as they are, and the place of its own there; none of the default one.
    keyspace: Option<(Guard<Arc<KnownKeyspaces>>, usize)>,
}

impl PutTerms {
    /// The compressor of its keyspace's values; none of the default one's.
    #[inline]
    pub(crate) fn compressor(&self) -> Option<&Compressor> {
        let (known, at) = self.keyspace.as_ref()?;
        Some(&known.live[*at].compressor)
    }
}

impl LiveKeyspace {
    fn of(facts: KeyspaceRef) -> Arc<Self> {
        Arc::new(Self {
            compressor: Compressor::new(facts.compression),
            facts,
            is_gone: AtomicBool::new(false),
        })
    }

    pub(crate) fn id(&self) -> KeyspaceId {
        KeyspaceId(self.facts.id)
    }

    /// Refuses one that was dropped.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        match self.is_gone.load(Relaxed) {
            false => Ok(()),
            true => Err(StoreError::KeyspaceDropped {
                name: self.facts.name.clone(),
            }),
        }
    }

    /// Refuses reads and writes from now on. False if it did before.
    pub(crate) fn end(&self) -> bool {
        !self.is_gone.swap(true, Relaxed)
    }

    /// It is not dropped after all.
    pub(crate) fn go_on(&self) {
        self.is_gone.store(false, Relaxed);
    }

    /// The milliseconds since the epoch at which a value expires that is put now.
    fn expiry(&self, now: u64) -> Option<u64> {
        self.facts.ttl_ms.map(|ttl| now.saturating_add(ttl))
    }
}

impl KnownKeyspaces {
    fn of(&self, id: u32) -> Option<&Arc<LiveKeyspace>> {
        self.place_of(id).map(|at| &self.live[at])
    }

    fn place_of(&self, id: u32) -> Option<usize> {
        let at = self.live.binary_search_by_key(&id, |live| live.facts.id);
        at.ok()
    }

    fn note_ttl(&mut self) {
        self.ttl_least_ms = self.live.iter().filter_map(|live| live.facts.ttl_ms).min();
    }
}

impl KeyspaceCatalogue {
    /// Takes the manifest's state for the keyspaces. What the log has of a dropped one is not
    /// replayed.
    pub(crate) fn load(&self, state: &KeyspaceState) {
        let live = |facts: &KeyspaceRef| LiveKeyspace::of(facts.clone());
        let mut known = KnownKeyspaces {
            last: state.last,
            live: state.live.iter().map(live).collect(),
            dropped: state
                .dropped
                .iter()
                .map(|&id| DroppedKeyspace { id, below: 0 })
                .collect(),
            ttl_least_ms: None,
        };
        known.live.sort_by_key(|live| live.facts.id);
        known.note_ttl();
        self.known.store(Arc::new(known));
    }

    /// Held while one is made or dropped.
    pub(crate) fn changing(&self) -> MutexGuard<'_, ()> {
        self.change.lock()
    }

    /// The one with that name.
    pub(crate) fn find(&self, name: &str) -> Option<Arc<LiveKeyspace>> {
        let known = self.known.load();
        let mut live = known.live.iter();
        live.find(|live| live.facts.name == name).cloned()
    }

    /// What one is called to people.
    pub(crate) fn name_of(&self, id: KeyspaceId) -> String {
        match self.known.load().of(id.0) {
            None => "the default keyspace".to_owned(),
            Some(live) => format!("keyspace {:?}", live.facts.name),
        }
    }

    /// All there are, by name.
    pub(crate) fn list(&self) -> Vec<KeyspaceInfo> {
        let known = self.known.load();
        let there = known.live.iter().filter(|live| live.check().is_ok());
        let mut list: Vec<_> = there.map(|live| live.facts.info()).collect();
        list.sort_by(|a, b| a.name.cmp(&b.name));
        list
    }

    /// All there are.
    pub(crate) fn all(&self) -> Vec<Arc<LiveKeyspace>> {
        self.known.load().live.clone()
    }

    /// Those of whose small values there is a sample.
    pub(crate) fn with_samples(&self) -> Vec<Arc<LiveKeyspace>> {
        let known = self.known.load();
        let has_sample = |live: &&Arc<LiveKeyspace>| live.compressor.has_sample();
        known.live.iter().filter(has_sample).cloned().collect()
    }

    /// One was made, durably.
    pub(crate) fn add(&self, facts: KeyspaceRef) -> Arc<LiveKeyspace> {
        let made = LiveKeyspace::of(facts);
        self.change_known(|known| {
            known.last = known.last.max(made.facts.id);
            // Numbers rise.
            known.live.push(Arc::clone(&made));
        });
        made
    }

    /// One was dropped, durably; memory may have its keys from the log below an address.
    pub(crate) fn drop(&self, id: u32, below: Lsn) {
        self.change_known(|known| {
            known.live.retain(|live| live.facts.id != id);
            known.dropped.push(DroppedKeyspace { id, below });
        });
    }

    /// Dropped ones of which nothing is left.
    pub(crate) fn forget(&self, ids: &[u32]) {
        self.change_known(|known| known.dropped.retain(|dropped| !ids.contains(&dropped.id)));
    }

    /// The caller is [changing](Self::changing) it.
    fn change_known(&self, change: impl FnOnce(&mut KnownKeyspaces)) {
        let mut known = KnownKeyspaces::clone(&self.known.load());
        change(&mut known);
        known.note_ttl();
        self.known.store(Arc::new(known));
    }

    /// Dropped ones that are not cleared away.
    pub(crate) fn dropped(&self) -> Vec<DroppedKeyspace> {
        self.known.load().dropped.clone()
    }

    pub(crate) fn has_dropped(&self) -> bool {
        !self.known.load().dropped.is_empty()
    }

    /// The least time to live of a keyspace, if any has one.
    pub(crate) fn ttl_least_ms(&self) -> Option<u64> {
        self.known.load().ttl_least_ms
    }

    /// True of the stored key of a keyspace that was dropped.
    #[inline]
    pub(crate) fn is_dead(&self, stored: &[u8]) -> bool {
        is_marked(stored) && self.was_dropped(KeyspaceId::of(stored))
    }

    #[cold]
    fn was_dropped(&self, id: KeyspaceId) -> bool {
        let known = self.known.load();
        id != KeyspaceId::DEFAULT && id.0 <= known.last && known.of(id.0).is_none()
    }

    /// True if all stored keys between these two are a dropped keyspace's.
    pub(crate) fn is_all_dead(&self, first: &[u8], last: &[u8]) -> bool {
        self.is_dead(first) && KeyspaceId::of(first) == KeyspaceId::of(last)
    }

    /// True if there may be any between these two of a dropped one that is not cleared away.
    pub(crate) fn may_be_dead(&self, first: &[u8], last: &[u8]) -> bool {
        is_marked(last) && {
            let known = self.known.load();
            let ids = known.dropped.iter().map(|dropped| KeyspaceId(dropped.id));
            ids.into_iter()
                .any(|id| first < &*id.end() && last >= &*id.first())
        }
    }

    /// The number of its keyspace, if the store never had such a one: it, or what says which there
    /// were, is not of this moment.
    pub(crate) fn unknown(&self, stored: &[u8]) -> Option<u32> {
        let id = KeyspaceId::of(stored).0;
        (is_marked(stored) && id > self.known.load().last).then_some(id)
    }

    /// The terms of a value of this stored key that is put now; `now` is asked for only if that
    /// matters. [`StoreError::KeyspaceDropped`] if nothing may be put.
    #[inline]
    pub(crate) fn put_terms(
        &self,
        stored: &[u8],
        now: impl FnOnce() -> u64,
    ) -> Result<PutTerms, StoreError> {
        match is_marked(stored) {
            false => Ok(PutTerms::default()),
            true => self.put_terms_of(KeyspaceId::of(stored), now),
        }
    }

    #[cold]
    fn put_terms_of(
        &self,
        id: KeyspaceId,
        now: impl FnOnce() -> u64,
    ) -> Result<PutTerms, StoreError> {
        if id == KeyspaceId::DEFAULT {
            return Ok(PutTerms::default());
        }
        let known = self.known.load();
        let at = known.place_of(id.0).ok_or_else(|| dropped(id))?;
        let live = &known.live[at];
        live.check()?;
        Ok(PutTerms {
            expiry: live.facts.ttl_ms.and_then(|_| live.expiry(now())),
            keyspace: Some((known, at)),
        })
    }

    /// True if values of this stored key expire: then whether there is one is known from its record
    /// alone.
    #[inline]
    pub(crate) fn expires(&self, stored: &[u8]) -> bool {
        is_marked(stored) && self.id_expires(KeyspaceId::of(stored))
    }

    #[cold]
    pub(crate) fn id_expires(&self, id: KeyspaceId) -> bool {
        let known = self.known.load();
        known
            .of(id.0)
            .is_some_and(|live| live.facts.ttl_ms.is_some())
    }

    /// Refuses a keyspace that was dropped.
    pub(crate) fn check_id(&self, id: KeyspaceId) -> Result<(), StoreError> {
        self.put_terms_of(id, || 0).map(drop)
    }

    /// Refuses a stored key of a keyspace that was dropped.
    pub(crate) fn check(&self, stored: &[u8]) -> Result<(), StoreError> {
        self.put_terms(stored, || 0).map(drop)
    }
}

/// Where its name is not known any more.
fn dropped(id: KeyspaceId) -> StoreError {
    StoreError::KeyspaceDropped {
        name: format!("number {}", id.0),
    }
}
