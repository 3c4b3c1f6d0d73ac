//! Checking what a backup copied, as it is read back: every record's checksum, every large value's,
//! and every table's.

use super::{INDEX, target::CopyTarget};
use crate::{
    db::StoreCore,
    disk::HeldDirectory,
    error::StoreError,
    index::{Index, IndexOptions},
    large_values::{self, LargeValues},
    log::{self, LogReader, ValueLog, VlogFile, WalkStop},
    manifest::{ManifestState, StoreManifest},
    salvage::GivenUp,
};
use parking_lot::Mutex;
use std::sync::Arc;

impl StoreCore {
    /// Refuses a copy in which anything that was copied fails its checksum.
    pub(super) fn verify_copy(
        &self,
        target: &CopyTarget<'_>,
        state: &ManifestState,
    ) -> Result<(), StoreError> {
        let dir = &*target.dir;
        let held = HeldDirectory::open(dir).map_err(StoreError::io("opening", dir))?;
        let options = IndexOptions {
            create: false,
            cache_bytes: 0,
            ..IndexOptions::default()
        };
        Index::open_below(&held, INDEX, options)?.verify()?;
        let manifest = Arc::new(Mutex::new(StoreManifest::of(&held, state.clone())));
        let disk = Arc::clone(&self.disk);
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
        let disk = Arc::clone(&self.disk);
        let large = LargeValues::open(disk, dir, self.uuid, state.large_from)?;
        for id in large.ids()? {
            if is_copied(large_values::DIR, &large_values::file_name(id)) {
                large.verify(id)?;
            }
        }
        Ok(())
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
