//! Checks a backup's copies, as they are read back: every record's checksum, every large value's,
//! every dictionary's and every table's.

use super::{INDEX, target::CopyTarget};
use crate::{
    db::{Scan, Snapshot, StoreCore, read::WaitPolicy, recovery::walk},
    dictionaries::{self, DictionaryFiles},
    disk::HeldDirectory,
    error::StoreError,
    index::{Index, IndexOptions},
    large_values::{self, LargeValues},
    log::{self, LogReader, ValueLog, VlogFile, WalkStop},
    manifest::{ManifestState, StoreManifest},
    op::KeyChange,
    salvage::GivenUp,
};
use parking_lot::Mutex;
use std::{collections::BTreeSet, sync::Arc};

impl Snapshot {
    /// Refuses a copy in which anything that was copied fails its checksum, or whose log cannot be
    /// read in order from where an opening begins. A damaged large value to which nothing leads, as
    /// a crash leaves one, is left out.
    pub(super) fn verify_copy(
        &self,
        target: &mut CopyTarget<'_>,
        state: &ManifestState,
    ) -> Result<(), StoreError> {
        let shared = self.shared();
        let failed = shared.verify_parts(target, state)?;
        if failed.is_empty() {
            return Ok(());
        }
        let led_to = self.large_led_to()?;
        for (id, error) in failed {
            if led_to.contains(&id) {
                return Err(error);
            }
            target.forget(large_values::DIR, &large_values::file_name(id));
        }
        target.sync_parts()
    }

    /// The large values that a key leads to.
    pub(super) fn large_led_to(&self) -> Result<BTreeSet<u64>, StoreError> {
        let (shared, mut ids, mut buffer) = (self.shared(), BTreeSet::new(), Vec::new());
        let mut all = Scan::everything(self.clone());
        while let Some((key, address)) = all.next_address()? {
            if shared.keyspaces().is_dead(&key) {
                continue;
            }
            if !shared.read_log(address, &mut buffer, WaitPolicy::Yes)? {
                return Err(shared.missing(address));
            }
            if let KeyChange::Large(value) = shared.op_at(&buffer, address)?.change {
                ids.insert(value.id);
            }
        }
        Ok(ids)
    }
}

impl StoreCore {
    /// Checks what was copied, and the log; the large values that fail.
    fn verify_parts(
        &self,
        target: &CopyTarget<'_>,
        state: &ManifestState,
    ) -> Result<Vec<(u64, StoreError)>, StoreError> {
        let dir = &*target.dir;
        let held = HeldDirectory::open(dir).map_err(StoreError::io("opening", dir))?;
        let options = IndexOptions {
            create: false,
            cache_bytes: 0,
            ..IndexOptions::default()
        };
        Index::open_below(&held, INDEX, options)?.verify()?;
        let manifest = Arc::new(Mutex::new(StoreManifest::of(&held, state.clone())));
        let disk = Arc::clone(&target.disk);
        let given_up = GivenUp::new(dir, false);
        let (log, _) = ValueLog::open(disk, dir, 1 << 20, manifest, given_up)?;
        let files = log.files();
        let is_copied = |part: &str, name: &str| {
            let mut copied = target.copied.iter();
            copied.any(|(in_part, copied)| *in_part == part && copied == name)
        };
        for file in files
            .iter()
            .filter(|file| is_copied(log::DIR, &log::file_name(file.start)))
        {
            let end = file.end().or(state.log_end).unwrap_or(file.start);
            self.verify_file(&log, file, end)?;
        }
        let end = state.log_end.unwrap_or(state.indexed_to);
        walk(&log, self.uuid, state.indexed_to, end, |_, _| Ok(()))?;
        let named = &state.keyspaces.dictionaries;
        let disk = Arc::clone(&target.disk);
        let copies = DictionaryFiles::open(disk, dir, self.uuid, named);
        for named in &named.live {
            if is_copied(dictionaries::DIR, &dictionaries::file_name(named.number)) {
                copies.read(named.number)?;
            }
        }
        let disk = Arc::clone(&target.disk);
        let mut failed = Vec::new();
        let large = LargeValues::open(disk, dir, self.uuid, state.large_from)?;
        for id in large.ids()? {
            if is_copied(large_values::DIR, &large_values::file_name(id))
                && let Err(error) = large.verify(id)
            {
                failed.push((id, error));
            }
        }
        Ok(failed)
    }

    fn verify_file(&self, log: &ValueLog, file: &VlogFile, end: u64) -> Result<(), StoreError> {
        let mut reader = LogReader::new(log, self.uuid, file.start, end);
        loop {
            match reader.next()? {
                Ok(_) => {}
                Err(WalkStop::End) => return Ok(()),
                Err(WalkStop::NoFile(at)) => {
                    return Err(StoreError::lost(log.dir(), at, "no file"));
                }
                Err(WalkStop::Invalid(at, found)) => {
                    return Err(StoreError::lost(&file.path, at, found));
                }
            }
        }
    }
}
