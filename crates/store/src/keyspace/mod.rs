//! Keyspaces: keys of their own within one store, with options of their own.
//!
//! * `stored_key`: how the log and the index have a keyspace's keys;
//! * `catalogue`: which keyspaces there are in memory, and which keys are dead;
//! * here: which there are in the manifest, and what a caller says and is told of one.
//!
//! docs/store-format.md, "Keyspaces".

mod catalogue;
mod stored_key;

pub(crate) use catalogue::{KeyspaceCatalogue, LiveKeyspace, PutTerms};
pub(crate) use stored_key::{KeyRoom, KeyspaceId, is_marked, stored_prefix, user_key};

use crate::{compression::Compression, error::StoreError};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeSet, time::Duration};

/// Keyspaces that a store has at most: each is a line of a manifest that is replaced as a whole.
pub(crate) const KEYSPACES_MAX: usize = 1024;
/// And bytes that these lines take at most: half of what a full disk keeps for a new manifest
/// (`log::reserve`). The value-log files have the rest.
const MANIFEST_BYTES_MAX: usize = 128 << 10;
/// Longest name, bytes.
const NAME_BYTES_MAX: usize = 255;

/// Options to make a keyspace. An existing one is opened with what it was made with.
///
/// ```
/// use forebay_store::KeyspaceOptions;
/// use std::time::Duration;
/// let sessions = KeyspaceOptions::new().ttl(Duration::from_secs(3600));
/// assert_ne!(sessions, KeyspaceOptions::new());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyspaceOptions {
    pub(crate) ttl: Option<Duration>,
    pub(crate) compression: Compression,
}

impl KeyspaceOptions {
    /// Values stay until they are deleted, as they are.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// use forebay_store::KeyspaceOptions;
    /// let users = store.keyspace("users", KeyspaceOptions::new())?;
    /// users.put("alice", "alice@example.org")?;
    /// assert!(users.ttl().is_none());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn new() -> Self {
        Self {
            ttl: None,
            compression: Compression::None,
        }
    }

    /// Each value expires so long after it was put, at least a millisecond: reads find it no more,
    /// and the collector gives its space back. A put again begins anew; one that replaces a value
    /// by [`update`](crate::Keyspace::update) or [`increment`](crate::Keyspace::increment) is one.
    ///
    /// The wall clock of the machine decides (`CLOCK_REALTIME`), at the put and at the read. If it
    /// is set forward values expire early. If it is set back, values that had expired are there
    /// again until it has caught up, but for those that the collector has dropped meanwhile: these
    /// never come back. A [snapshot](crate::Store::snapshot), a scan and a transaction see what had
    /// not expired when they began.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// use forebay_store::KeyspaceOptions;
    /// use std::{thread, time::Duration};
    /// let moment = Duration::from_millis(20);
    /// let sessions = store.keyspace("sessions", KeyspaceOptions::new().ttl(moment))?;
    /// sessions.put("4711", "alice")?;
    /// thread::sleep(2 * moment);
    /// assert!(!sessions.contains_key("4711")?);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Sets the compression of values that are put. The keyspace keeps it as it keeps its time to
    /// live; [`StoreOptions::compression`](crate::StoreOptions::compression) is of the default
    /// keyspace alone.
    ///
    /// ```
    /// use forebay_store::{Compression, KeyspaceOptions};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// let options = KeyspaceOptions::new().compression(Compression::Lz4);
    /// let pages = store.keyspace("pages", options)?;
    /// pages.put("home", &"<p>The boat is blue.</p>".repeat(100))?;
    /// let gained = pages.compression_stats();
    /// assert!(gained.stored_bytes < gained.raw_bytes / 10);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// Refuses a compression that this program has not got.
    fn check_compression(&self, name: &str) -> Result<(), StoreError> {
        match self.compression.objection() {
            None => Ok(()),
            Some(what) => Err(StoreError::BadKeyspace {
                name: name.to_owned(),
                what: format!(
                    "its values are to be compressed by {}: {what}",
                    self.compression
                ),
            }),
        }
    }

    /// In milliseconds, as the manifest has it.
    fn ttl_ms(&self, name: &str) -> Result<Option<u64>, StoreError> {
        let Some(ttl) = self.ttl else { return Ok(None) };
        match u64::try_from(ttl.as_millis()) {
            Ok(0) | Err(_) => Err(StoreError::BadKeyspace {
                name: name.to_owned(),
                what: format!(
                    "its values are to expire after {ttl:?}; 1 ms to 2^64 - 1 ms are possible"
                ),
            }),
            Ok(ttl) => Ok(Some(ttl)),
        }
    }
}

/// A keyspace that a store has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct KeyspaceInfo {
    /// Its name.
    pub name: String,
    /// Time from its put to a value's expiry, if it expires.
    pub ttl: Option<Duration>,
    /// The compression of its values.
    pub compression: Compression,
}

/// The manifest's note of one keyspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeyspaceRef {
    pub(crate) id: u32,
    pub(crate) name: String,
    /// Milliseconds after which a value expires.
    pub(crate) ttl_ms: Option<u64>,
    /// The compression of values that are put.
    #[serde(default, skip_serializing_if = "Compression::is_none")]
    pub(crate) compression: Compression,
}

impl KeyspaceRef {
    pub(crate) fn info(&self) -> KeyspaceInfo {
        KeyspaceInfo {
            name: self.name.clone(),
            ttl: self.ttl_ms.map(Duration::from_millis),
            compression: self.compression,
        }
    }

    /// Refuses other options than it was made with.
    pub(crate) fn check_options(&self, options: &KeyspaceOptions) -> Result<(), StoreError> {
        let asked = options.ttl_ms(&self.name)?;
        options.check_compression(&self.name)?;
        let differs = |is: String, asked: String| {
            Err(StoreError::BadKeyspace {
                name: self.name.clone(),
                what: format!(
                    "its values {is}, and it was opened with options by which they {asked}; open \
                     it with the options that it was made with, or make another one"
                ),
            })
        };
        let expire = |ttl: Option<u64>| match ttl {
            None => "expire never".to_owned(),
            Some(ttl) => format!("expire after {:?}", Duration::from_millis(ttl)),
        };
        let compressed = |by: Compression| match by {
            Compression::None => "are stored as they are".to_owned(),
            by => format!("are compressed by {by}"),
        };
        if asked != self.ttl_ms {
            return differs(expire(self.ttl_ms), expire(asked));
        }
        if options.compression != self.compression {
            return differs(
                compressed(self.compression),
                compressed(options.compression),
            );
        }
        Ok(())
    }
}

/// The manifest's state of all keyspaces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeyspaceState {
    /// The highest number that a keyspace ever had: none is used again.
    pub(crate) last: u32,
    /// By number.
    pub(crate) live: Vec<KeyspaceRef>,
    /// Numbers of dropped ones of which the index may have entries still.
    pub(crate) dropped: Vec<u32>,
    /// The dictionaries of their compressed values, and of the default keyspace's.
    #[serde(default, skip_serializing_if = "DictionaryState::is_empty")]
    pub(crate) dictionaries: DictionaryState,
}

/// The manifest's state of all dictionaries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DictionaryState {
    /// The highest number that a dictionary ever had: none is used again.
    pub(crate) last: u32,
    /// By number.
    pub(crate) live: Vec<DictionaryRef>,
}

/// The manifest's note of one dictionary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DictionaryRef {
    pub(crate) number: u32,
    /// 0: the default one.
    pub(crate) keyspace: u32,
    /// Of its file.
    pub(crate) bytes: u32,
    /// In its file.
    pub(crate) crc: u32,
}

impl DictionaryState {
    /// Dictionaries that a store has at most: each takes memory when it is used, and lines of the
    /// manifest.
    pub(crate) const COUNT_MAX: usize = 128;
    /// And a keyspace.
    const KEYSPACE_MAX: usize = 8;

    /// True of a store that never had one: nothing is written of them then.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// True if there may be another one of that keyspace's values beside these.
    pub(crate) fn has_room(live: &[DictionaryRef], keyspace: u32) -> bool {
        let of_it = live.iter().filter(|live| live.keyspace == keyspace);
        live.len() < Self::COUNT_MAX && of_it.count() < Self::KEYSPACE_MAX
    }

    /// True if it names that one.
    pub(crate) fn has(&self, number: u32) -> bool {
        self.live.iter().any(|live| live.number == number)
    }

    /// Notes a new one.
    pub(crate) fn add(&mut self, made: DictionaryRef) {
        self.last = self.last.max(made.number);
        self.live.push(made);
    }

    /// One that no program can have written, beside these keyspaces, if there is one.
    fn flaw(&self, keyspaces: &[KeyspaceRef]) -> Option<String> {
        let mut before = 0;
        let wrong = self.live.iter().find(|live| {
            let is_its = |keyspace: &KeyspaceRef| keyspace.id == live.keyspace;
            let is_in_order = live.number > before && live.number <= self.last;
            before = live.number;
            !is_in_order || live.keyspace != 0 && !keyspaces.iter().any(is_its)
        });
        wrong.map(|live| format!("dictionary {} is out of place", live.number))
    }
}

impl KeyspaceState {
    /// One more with this name.
    pub(crate) fn next(
        &self,
        name: &str,
        options: &KeyspaceOptions,
    ) -> Result<KeyspaceRef, StoreError> {
        let bad = |what: String| {
            Err(StoreError::BadKeyspace {
                name: name.to_owned(),
                what,
            })
        };
        if let Some(what) = name_flaw(name) {
            return bad(what);
        }
        options.check_compression(name)?;
        if self.live.len() >= KEYSPACES_MAX || self.last == u32::MAX {
            return bad(format!(
                "the store has {} of {KEYSPACES_MAX}; drop one, or use a prefix of the keys",
                self.live.len()
            ));
        }
        let made = KeyspaceRef {
            id: self.last + 1,
            name: name.to_owned(),
            ttl_ms: options.ttl_ms(name)?,
            compression: options.compression,
        };
        let mut with_it = self.clone();
        // These have a bound of their own.
        with_it.dictionaries = DictionaryState::default();
        with_it.add(made.clone());
        let bytes = with_it.manifest_bytes();
        if bytes > MANIFEST_BYTES_MAX {
            return bad(format!(
                "the manifest would have {bytes} bytes of keyspaces, and may have \
                 {MANIFEST_BYTES_MAX}; drop one, give them shorter names, or use a prefix of the \
                 keys"
            ));
        }
        Ok(made)
    }

    /// Bytes that it takes in a manifest, whose lines are indented once more than its own.
    fn manifest_bytes(&self) -> usize {
        let text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.len() + 2 * text.lines().count()
    }

    /// Notes a new one.
    pub(crate) fn add(&mut self, made: KeyspaceRef) {
        self.last = self.last.max(made.id);
        self.live.push(made);
    }

    /// Notes that one was dropped.
    pub(crate) fn drop(&mut self, id: u32) {
        self.live.retain(|live| live.id != id);
        (self.dictionaries.live).retain(|dictionary| dictionary.keyspace != id);
        if !self.dropped.contains(&id) {
            self.dropped.push(id);
        }
    }

    /// As they are now, for a copy of what there was at an `earlier` moment: it may have entries of
    /// whatever was dropped since, although the store itself has none any more.
    pub(crate) fn of_copy_since(mut self, earlier: &Self) -> Self {
        let known = earlier.live.iter().map(|live| live.id);
        let known: Vec<u32> = known.chain(earlier.dropped.iter().copied()).collect();
        for id in known {
            if !self.live.iter().any(|live| live.id == id) {
                self.drop(id);
            }
        }
        self
    }

    /// A state that no program can have written, if there is one.
    pub(crate) fn flaw(&self) -> Option<String> {
        let (mut names, mut ids) = (BTreeSet::new(), BTreeSet::new());
        for live in &self.live {
            if let Some(what) = name_flaw(&live.name) {
                return Some(format!("a keyspace is named {:?}: {what}", live.name));
            }
            if live.ttl_ms == Some(0) || !names.insert(&live.name) {
                return Some(format!("keyspace {:?} contradicts itself", live.name));
            }
        }
        let live = self.live.iter().map(|live| live.id);
        let mut all = live.chain(self.dropped.iter().copied());
        let wrong = all.find(|&id| id == 0 || id > self.last || !ids.insert(id));
        wrong
            .map(|id| format!("keyspace number {id} is out of place"))
            .or_else(|| self.dictionaries.flaw(&self.live))
    }
}

/// Why it is no name, if so.
fn name_flaw(name: &str) -> Option<String> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        let bytes = name.len();
        return Some(format!(
            "a name has 1 to {NAME_BYTES_MAX} bytes, and this one {bytes}"
        ));
    }
    let strange = name.chars().find(|c| c.is_control())?;
    Some(format!(
        "a name has no control characters, and this one has {strange:?}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_catalogue_that_contradicts_itself_is_told() {
        let mut state = KeyspaceState::default();
        for name in ["a", "b", "c"] {
            let next = state.next(name, &KeyspaceOptions::new()).unwrap();
            state.add(next);
        }
        state.drop(2);
        for (number, keyspace) in [(2, 0), (3, 1), (7, 3)] {
            state.dictionaries.add(DictionaryRef {
                number,
                keyspace,
                bytes: 64,
                crc: 7,
            });
        }
        assert_eq!(state.flaw(), None);
        let fourth = state.next("b", &KeyspaceOptions::new()).unwrap();
        assert_eq!(fourth.id, 4);
        let broken: [fn(&mut KeyspaceState); 11] = [
            |s| s.last = 2,
            |s| s.live[0].id = 0,
            |s| s.live[0].id = 3,
            |s| s.dropped.push(3),
            |s| s.live[0].name = "c".to_owned(),
            |s| s.live[0].name = "\n".to_owned(),
            |s| s.live[0].ttl_ms = Some(0),
            |s| s.dictionaries.last = 6,
            |s| s.dictionaries.live[0].number = 3,
            |s| s.dictionaries.live[1].keyspace = 2,
            |s| s.dictionaries.live.swap(0, 1),
        ];
        for breaks in broken {
            let mut state = state.clone();
            breaks(&mut state);
            assert!(state.flaw().is_some(), "{state:?}");
        }
    }

    /// What the store has cleared away and forgotten a copy that was begun before may have still.
    #[test]
    fn a_copy_clears_what_was_forgotten_while_it_was_made() {
        let mut earlier = KeyspaceState::default();
        for name in ["stays", "dropped", "dropped before", "dropped lately"] {
            earlier.add(earlier.next(name, &KeyspaceOptions::new()).unwrap());
        }
        earlier.drop(3);
        let mut now = earlier.clone();
        now.drop(2);
        now.dropped.clear();
        now.add(now.next("new", &KeyspaceOptions::new()).unwrap());
        now.drop(4);
        let mut copy = now.of_copy_since(&earlier);
        copy.dropped.sort_unstable();
        assert_eq!(copy.dropped, [2, 3, 4]);
        let live: Vec<u32> = copy.live.iter().map(|live| live.id).collect();
        assert_eq!((live, copy.flaw()), (vec![1, 5], None));
    }
}
