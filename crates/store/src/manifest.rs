//! The manifest: the value-log files, and a note if anything is still in a pool.
//!
//! `MANIFEST` is JSON for people to read, followed by a line with its CRC-32C, and is replaced as a
//! whole. It changes when a value-log file begins or goes, and when the store is opened or closed.
//! docs/store-format.md, "Manifest".

use crate::{
    disk::{Disk, HeldDirectory, replace},
    error::StoreError,
    keyspace::KeyspaceState,
    large_values::ID_MAX,
};
use forebay_pool::{
    Lsn, crc32c,
    format::layout::{LSN_MAX, PAGE},
};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};
use uuid::Uuid;

/// The store's format version.
pub(crate) const VERSION: u32 = 1;
pub(crate) const NAME: &str = "MANIFEST";
const MISSING: &str = "it was removed";
/// A checkpoint or backup has a session number so much above its store's. So the lane of any
/// session of that store is told to be no part of the copy, if one is opened with the store's pool.
pub(crate) const SESSIONS_ABOVE: u32 = 1 << 20;
/// A file that a checkpoint or backup has until it has a manifest.
pub(crate) const UNFINISHED: &str = "UNFINISHED";
/// The file that is to become the manifest.
pub(crate) const TEMPORARY: &str = "MANIFEST.tmp";

/// A value-log file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileRef {
    /// Log address of its first byte behind the header.
    pub(crate) start: Lsn,
    /// Log address behind its last segment; none while it is being written.
    pub(crate) end: Option<Lsn>,
}

/// The pool that holds the end of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PoolRef {
    pub(crate) uuid: Uuid,
    /// Its earlier path, as a hint for people.
    pub(crate) path: String,
}

/// The manifest's contents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ManifestState {
    pub(crate) format_version: u32,
    /// The store's identity: its lane's owner, and part of every record's checksum.
    pub(crate) uuid: Uuid,
    /// Session number; rises with every opening.
    pub(crate) epoch: u32,
    /// The pool in which acknowledged writes may be; none after a clean close.
    pub(crate) pool: Option<PoolRef>,
    /// The log's end, known after a clean close only.
    pub(crate) log_end: Option<Lsn>,
    /// Large values with this number or a higher one were written since the store was last opened.
    pub(crate) large_from: u64,
    /// Value-log files in address order.
    pub(crate) files: Vec<FileRef>,
    /// Files that were collected, or forgotten because a lane has what they hold, and may be there
    /// still: only these may be unlinked with what they hold.
    pub(crate) retired: Vec<Lsn>,
    /// The index was complete below this address when this was written; what is collected lies
    /// below.
    pub(crate) indexed_to: Lsn,
    /// The keyspaces beside the default one.
    pub(crate) keyspaces: KeyspaceState,
}

impl ManifestState {
    /// True if the file that starts there was noted as one that may be unlinked with what it holds.
    pub(crate) fn has_retired(&self, start: Lsn) -> bool {
        self.retired.contains(&start)
    }

    /// These collected files are gone for good.
    pub(crate) fn no_longer_retired(&mut self, gone: &[Lsn]) {
        self.retired.retain(|file| !gone.contains(file));
    }

    /// True if the last session was closed. One that only has everything in the files need not be:
    /// an opening that was cut has noted that.
    pub(crate) fn is_closed(&self) -> bool {
        self.log_end.is_some() && self.pool.is_none()
    }

    /// The contents of the file, which is to stand at `path`.
    pub(crate) fn encode(&self, path: &Path) -> Result<String, StoreError> {
        let json = serde_json::to_string_pretty(self)
            .map_err(|e| StoreError::damaged(path, e.to_string()))?;
        Ok(format!(
            "{json}\ncrc32c {:08x}\n",
            crc32c([json.as_bytes()])
        ))
    }

    /// What no program can have written, if anything.
    fn flaw(&self) -> Option<String> {
        let possible = |lsn: Lsn| lsn <= LSN_MAX;
        let ends = self.files.iter().filter_map(|file| file.end);
        let rest = ends.chain(self.log_end).chain([self.indexed_to]);
        if let Some(lsn) = rest.into_iter().find(|&lsn| !possible(lsn)) {
            return Some(format!("it has log address {lsn}, which no log reaches"));
        }
        if self.large_from > ID_MAX + 1 {
            return Some(format!("it has large value {}", self.large_from));
        }
        let mut end = Some(0);
        for file in &self.files {
            if !file.start.is_multiple_of(PAGE) || !possible(file.start) {
                return Some(format!("a file starts at log address {}", file.start));
            }
            if end.is_none_or(|end| end > file.start) || file.end.is_some_and(|e| e < file.start) {
                return Some(format!("its files are not in order at {}", file.start));
            }
            end = file.end;
        }
        self.keyspaces.flaw()
    }
}

/// The manifest file and its contents.
pub(crate) struct StoreManifest {
    directory: Arc<HeldDirectory>,
    path: PathBuf,
    state: ManifestState,
    /// False before a new store's is written.
    exists: bool,
}

impl StoreManifest {
    /// A new store's manifest, written.
    pub(crate) fn create(
        disk: &dyn Disk,
        directory: &Arc<HeldDirectory>,
    ) -> Result<Self, StoreError> {
        let state = ManifestState {
            format_version: VERSION,
            uuid: Uuid::new_v4(),
            epoch: 0,
            pool: None,
            log_end: Some(0),
            large_from: 0,
            files: Vec::new(),
            retired: Vec::new(),
            indexed_to: 0,
            keyspaces: KeyspaceState::default(),
        };
        let mut manifest = Self {
            exists: false,
            ..Self::of(directory, state)
        };
        manifest.update(disk, |_| {})?;
        Ok(manifest)
    }

    /// Reads the manifest of the store in `directory`; `None` if there is none.
    pub(crate) fn read(directory: &Arc<HeldDirectory>) -> Result<Option<Self>, StoreError> {
        let found = Self::read_state(directory)?;
        Ok(found.map(|state| Self::of(directory, state)))
    }

    fn read_state(directory: &HeldDirectory) -> Result<Option<ManifestState>, StoreError> {
        match directory.read(NAME) {
            Ok(bytes) => Self::parse(directory.path(), &bytes).map(Some),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(StoreError::io("reading", &directory.path().join(NAME))(e)),
        }
    }

    /// The manifest of the store in `directory` with these contents, which are there.
    pub(crate) fn of(directory: &Arc<HeldDirectory>, state: ManifestState) -> Self {
        Self {
            directory: Arc::clone(directory),
            path: directory.path().join(NAME),
            state,
            exists: true,
        }
    }

    /// Reads and checks the bytes of the manifest of the store in `dir`.
    pub(crate) fn parse(dir: &Path, bytes: &[u8]) -> Result<ManifestState, StoreError> {
        let path = dir.join(NAME);
        let damaged = |what: String| StoreError::damaged(&path, what);
        let text = str::from_utf8(bytes).map_err(|_| damaged("it is not text".to_owned()))?;
        let (json, crc) = text
            .trim_end()
            .rsplit_once('\n')
            .ok_or_else(|| damaged("it has no checksum line".to_owned()))?;
        let found = format!("crc32c {:08x}", crc32c([json.as_bytes()]));
        if crc != found {
            return Err(damaged(format!(
                "its checksum line is {crc:?}, its contents give {found:?}"
            )));
        }
        let unparsed = |e| damaged(format!("it does not parse: {e}"));
        let version: ManifestVersion = serde_json::from_str(json).map_err(unparsed)?;
        if version.format_version != VERSION {
            return Err(StoreError::Version {
                dir: dir.to_owned(),
                found: version.format_version,
                known: VERSION,
            });
        }
        let state: ManifestState = serde_json::from_str(json).map_err(unparsed)?;
        match state.flaw() {
            Some(what) => Err(damaged(what)),
            None => Ok(state),
        }
    }

    pub(crate) fn state(&self) -> &ManifestState {
        &self.state
    }

    /// Changes the contents, durably; on an error they stay as they were. The manifest of another
    /// store or session is never replaced.
    pub(crate) fn update(
        &mut self,
        disk: &dyn Disk,
        change: impl Fn(&mut ManifestState),
    ) -> Result<(), StoreError> {
        let mut next = self.state.clone();
        change(&mut next);
        self.check_there(next.epoch)?;
        let text = next.encode(&self.path)?;
        replace(disk, &self.path, text.as_bytes())
            .map_err(StoreError::io("writing", &self.path))?;
        self.state = next;
        self.exists = true;
        Ok(())
    }
}

impl StoreManifest {
    /// Refuses if there is none in the directory any more.
    pub(crate) fn check_exists(&self) -> Result<(), StoreError> {
        match self.directory.open_file(Path::new(NAME), OFlags::RDONLY) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Err(StoreError::Replaced {
                path: self.path.clone(),
                found: MISSING.to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// True if the manifest in the directory has the contents that this one has.
    pub(crate) fn is_there(&self) -> Result<bool, StoreError> {
        let there = Self::read_state(&self.directory)?;
        Ok(there.as_ref() == Some(&self.state))
    }

    /// Refuses if the manifest in the directory is not this session's, which becomes, or is, number
    /// `epoch`, or was removed: then the other files were, too, or are another store by now.
    fn check_there(&self, epoch: u32) -> Result<(), StoreError> {
        let replaced = |found: String| StoreError::Replaced {
            path: self.path.clone(),
            found,
        };
        let there = match Self::read_state(&self.directory) {
            Ok(None) if !self.exists => return Ok(()),
            Ok(None) => return Err(replaced(MISSING.to_owned())),
            Ok(Some(there)) => there,
            Err(error @ StoreError::Io { .. }) => return Err(error),
            Err(error) => return Err(replaced(error.to_string())),
        };
        if there.uuid != self.state.uuid {
            return Err(replaced(format!("it is that of store {}", there.uuid)));
        }
        if ![self.state.epoch, epoch].contains(&there.epoch) {
            return Err(replaced(format!("it is of session {}", there.epoch)));
        }
        Ok(())
    }
}

/// The part of the manifest that every version has.
#[derive(Deserialize)]
struct ManifestVersion {
    format_version: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::RealDisk;
    use std::fs;

    #[test]
    fn a_manifest_is_read_back_and_any_flipped_byte_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let disk = RealDisk::default();
        let held = HeldDirectory::open(dir.path()).unwrap();
        assert!(StoreManifest::read(&held).unwrap().is_none());
        let mut manifest = StoreManifest::create(&disk, &held).unwrap();
        let file = FileRef {
            start: 4096,
            end: None,
        };
        manifest
            .update(&disk, |state| state.files.push(file))
            .unwrap();
        let read = StoreManifest::read(&held).unwrap().unwrap();
        assert_eq!(read.state(), manifest.state());
        let path = dir.path().join(NAME);
        let text = fs::read(&path).unwrap();
        for at in 0..text.len() - 1 {
            let mut flipped = text.clone();
            flipped[at] ^= 2;
            fs::write(&path, flipped).unwrap();
            assert!(StoreManifest::read(&held).is_err(), "byte {at}");
        }
        fs::write(&path, &text[..text.len() / 2]).unwrap();
        assert!(StoreManifest::read(&held).is_err());
    }

    /// Promise (store): A store never replaces the manifest of another store or of another session.
    #[test]
    fn another_store_or_sessions_manifest_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let disk = RealDisk::default();
        let path = dir.path().join(NAME);
        let held = HeldDirectory::open(dir.path()).unwrap();
        let mut manifest = StoreManifest::create(&disk, &held).unwrap();
        let earlier = fs::read(&path).unwrap();
        manifest.update(&disk, |state| state.epoch = 7).unwrap();
        fs::remove_file(&path).unwrap();
        StoreManifest::create(&disk, &held).unwrap();
        let foreign = fs::read(&path).unwrap();
        for other in [earlier, foreign, b"not a manifest".to_vec()] {
            fs::write(&path, &other).unwrap();
            let refused = manifest.update(&disk, |state| state.log_end = None);
            assert!(matches!(refused, Err(StoreError::Replaced { .. })));
            assert_eq!(fs::read(&path).unwrap(), other);
        }
        fs::remove_file(&path).unwrap();
        let refused = manifest.update(&disk, |state| state.log_end = None);
        assert!(matches!(refused, Err(StoreError::Replaced { .. })));
        assert!(!path.exists());
    }

    #[test]
    fn another_version_is_told_from_damage() {
        let dir = tempfile::tempdir().unwrap();
        for strange in [0, VERSION + 1] {
            let json = format!("{{\"format_version\": {strange}, \"something\": \"new\"}}");
            let text = format!("{json}\ncrc32c {:08x}\n", crc32c([json.as_bytes()]));
            fs::write(dir.path().join(NAME), text).unwrap();
            let held = HeldDirectory::open(dir.path()).unwrap();
            match StoreManifest::read(&held) {
                Err(StoreError::Version { found, known, .. }) => {
                    assert_eq!((found, known), (strange, VERSION));
                }
                other => panic!("{:?}", other.map(drop)),
            }
        }
    }
}
