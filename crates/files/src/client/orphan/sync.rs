//! One member makes all that the lane has durable, so that it can be drained: it syncs each file,
//! and for a file that lost its last name, the directories. Otherwise it would have that
//! name again after a power cut, and the pool nothing of it any more.
//!
//! A file that cannot be found by its names has another one, or none: that is durable when its
//! whole file system is synced.
//!
//! Of a file that the supervisor was syncing when it died an error is feared (`shared::failure`).
//! One with a name is written again, as after an error. For one without, a sync that succeeds is
//! enough: after an error it would not be.

use super::DescriptorUse;
use crate::{
    client::session::MemberSession,
    identity,
    log::paths,
    record,
    shared::{NameLoss, SharedFile},
    snapshot, sys,
};
use rustix::io::Errno;
use std::{
    collections::{BTreeMap, BTreeSet},
    os::fd::BorrowedFd,
};

impl MemberSession {
    /// Syncs all that the lane may have something of. False if a file cannot be: it says so from
    /// then on.
    pub(super) fn sync_each(&self) -> bool {
        let recorded = self.recorded();
        // Each file system once: what lost its name did so before.
        let mut file_systems: BTreeMap<u64, Result<(), Errno>> = BTreeMap::new();
        let mut all = true;
        for (number, file) in self.in_lane() {
            if file.named_in().is_none() {
                continue;
            }
            forebay_pool::failpoint!("orphan:sync");
            // It stays so until the file is synced, or written again, also where this process dies
            // of it.
            self.page.fear_if_interrupted(number);
            let known = file.failure();
            let synced = match (file.gone(), known.error()) {
                (NameLoss::Yes, _) if !recorded.contains(&number) => Ok(()),
                // A second sync would succeed, whatever the disk has, and there is nothing to be
                // written again: that is left to a recovery.
                (NameLoss::Yes, Some(errno)) if !known.is_feared() => Err(errno),
                (NameLoss::Yes, _) => {
                    let (device, _) = file.key();
                    let synced = file_systems.entry(device);
                    *synced.or_insert_with(|| file_system_of(file))
                }
                (_, Some(_)) => self.write_again(number, known),
                (_, None) => self.sync_one(number),
            };
            match synced {
                Ok(()) => all &= self.page.repaired_since(number, known),
                Err(errno) => {
                    all = false;
                    self.page.fail(number, errno);
                }
            }
        }
        all
    }

    /// The numbers of the files that the lane has records of.
    fn recorded(&self) -> BTreeSet<usize> {
        let mut numbers = BTreeSet::new();
        self.lane.records(|each| {
            if let Ok((head, _)) = record::decode(each.header.kind, each.payload) {
                numbers.insert(head.file as usize);
            }
        });
        numbers
    }

    /// Syncs a file; one that cannot be found, and may have another name, with its whole file
    /// system.
    fn sync_one(&self, number: usize) -> Result<(), Errno> {
        match self.with_descriptor(number, DescriptorUse::Sync, data) {
            Err(Errno::NOENT) => file_system_of(&self.page.files[number]),
            done => done,
        }
    }
}

/// Syncs a file's bytes.
pub(super) fn data(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    sys::sync_fault().map_or_else(|| rustix::fs::fdatasync(fd), Err)?;
    sys::confirm_sync(fd)?;
    snapshot::keep_open(fd);
    Ok(())
}

/// Syncs the whole file system that a file is on, or was, by a directory that its paths lead
/// through.
pub(super) fn file_system_of(file: &SharedFile) -> Result<(), Errno> {
    let (device, _) = file.key();
    let paths = paths(file);
    let mut above = paths
        .iter()
        .filter_map(|path| path.parent())
        .flat_map(identity::directories_from);
    let is_on = |stat: rustix::fs::Stat| stat.st_dev == device;
    let directory = above.find(|open| sys::stat_of(open).is_ok_and(is_on));
    sys::sync_file_system(directory.ok_or(Errno::IO)?)
}
