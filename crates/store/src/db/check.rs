//! Checks that the parts of a store belong together, before an opening changes anything.
//! docs/store-format.md, "What belongs together".
//!
//! A directory that was copied or restored in parts, or together with a pool of another moment, has
//! parts that contradict each other. Going on with the older one would end in unlinking, cutting or
//! writing over what only the newer one knows of. So each way in which that can be told is looked
//! for here:
//!
//! | part | detected by |
//! |---|---|
//! | a MANIFEST that is older than the value log | a file that holds log and is not named; behind `log_end`, a record of a later session (but the seal of an opening that was cut) |
//! | a value log that is older than the MANIFEST, the index, or the pool | a file that is missing or too short; zeros at a complete file's end, before `log_end`, before the watermark, before the lane's head |
//! | an index that is older than the MANIFEST | a watermark below `indexed_to`, if the log between is not all there any more; otherwise it is replayed |
//! | an index that is newer than the log | a watermark behind the log's end |
//! | a pool that is older | no lane of ours, and no `log_end`. Or a last session below the manifest's `epoch` (in a pool that it does not name: not above it). Or a log that ends below the watermark. Or, in a file, a record behind the end of the lane's log |
//! | a pool that is newer than the value log | zeros in the files below the lane's head |
//! | a pool left out | `pool` in the manifest. A pool that an older manifest does not name, and that is given, has its records found |
//!
//! Nothing here writes.

use crate::{
    error::StoreError,
    log::{UnlistedFiles, ValueLog, VlogFile, ZEROS_AT_AN_END},
    manifest::ManifestState,
};
use forebay_pool::{Lsn, Recovered, format::record::KIND_SEAL, format::segment::next_start};
use std::path::Path;

/// The parts that an opening has found, as far as it can without changing anything.
pub(super) struct StoreParts<'a> {
    pub(super) log: &'a ValueLog,
    pub(super) unnamed: &'a [UnlistedFiles],
    pub(super) state: &'a ManifestState,
    /// Log address below which the index says that it is complete.
    pub(super) watermark: Lsn,
    /// The pool's records of this store.
    pub(super) lane: Option<&'a Recovered>,
}

/// Two parts that are not of one moment.
#[derive(Debug)]
pub(super) struct Contradiction {
    /// The finding.
    pub(super) found: String,
    /// The loss if the store is opened all the same.
    pub(super) gives_up: String,
    /// The files hold more than the pool's lane: what that holds is not to be written over them.
    pub(super) lane_is_stale: bool,
    /// What to say if there is nothing else.
    alone: Option<StoreError>,
}

impl Contradiction {
    fn new(found: String, gives_up: String) -> Self {
        Self {
            found,
            gives_up,
            lane_is_stale: false,
            alone: None,
        }
    }
}

/// Refuses what was found, if anything.
fn refuse(dir: &Path, mut found: Vec<Contradiction>) -> Result<(), StoreError> {
    if found.is_empty() {
        return Ok(());
    }
    if let [one] = &mut found[..]
        && let Some(error) = one.alone.take()
    {
        return Err(error);
    }
    let join = |part: fn(&Contradiction) -> &String| {
        let mut parts: Vec<&str> = found.iter().map(|c| &**part(c)).collect();
        parts.dedup();
        parts.join("; ")
    };
    Err(StoreError::NotOneMoment {
        dir: dir.to_owned(),
        found: join(|c| &c.found),
        gives_up: join(|c| &c.gives_up),
    })
}

impl StoreParts<'_> {
    /// Refuses parts that contradict each other, naming what `salvage` would give up.
    pub(super) fn refuse_contradictions(&self, dir: &Path) -> Result<(), StoreError> {
        refuse(dir, self.contradictions()?)
    }

    /// The same beside an owner whose log goes on in a lane: what can be told although the files
    /// and a copy of the lane are of two moments.
    pub(super) fn refuse_contradictions_beside(&self, dir: &Path) -> Result<(), StoreError> {
        let found = self.files_unknown().into_iter().chain(self.index_older());
        refuse(dir, found.collect())
    }

    /// Everything that contradicts itself.
    pub(super) fn contradictions(&self) -> Result<Vec<Contradiction>, StoreError> {
        let mut all = Vec::new();
        all.extend(self.files_unknown());
        all.extend(self.index_older());
        all.extend(self.index_newer());
        all.extend(self.log_goes_on()?);
        all.extend(self.log_stops_short()?);
        Ok(all)
    }

    /// Files of this store that MANIFEST does not name, and that are not known to be dead.
    fn files_unknown(&self) -> Option<Contradiction> {
        let alive: Vec<&UnlistedFiles> = self
            .unnamed
            .iter()
            .filter(|found| !found.is_dead(self.state))
            .collect();
        let (first, bytes) = (
            alive.first()?,
            alive.iter().map(|file| file.bytes).sum::<u64>(),
        );
        let files = format!("{} value-log files with {bytes} bytes", alive.len());
        Some(Contradiction::new(
            format!(
                "MANIFEST does not name {files}, of which {} is the first: it is older than they are",
                first.path.display()
            ),
            format!("what is in {files} (they are moved to given-up/)"),
        ))
    }

    /// The index may be older than the manifest as long as the log has everything in between.
    fn index_older(&self) -> Option<Contradiction> {
        let (from, to) = (self.watermark, self.state.indexed_to);
        let files = self.log.files();
        let mut at = from;
        while let Some(file) = files.iter().find(|file| file.holds(at)) {
            at = file.end().unwrap_or(Lsn::MAX);
        }
        (at < to).then(|| {
            Contradiction::new(
                format!(
                    "the index is complete up to log address {from} only, was so up to {to} when MANIFEST was written, and the log between is not all there any more: index/ is older"
                ),
                format!("writes and deletes between log addresses {from} and {to}: what was deleted may be there again"),
            )
        })
    }

    /// The index must not know more than the log has.
    fn index_newer(&self) -> Option<Contradiction> {
        let (end, whose) = match (self.lane, self.state.log_end) {
            (Some(lane), _) => (lane.end(), "the log in the pool"),
            (None, Some(end)) => (end, "by MANIFEST the log"),
            (None, None) => return None,
        };
        // The index may have been told of the seal behind the last record.
        (next_start(end) < self.watermark).then(|| {
            Contradiction::new(
                format!(
                    "{whose} ends at {end}, but its index was told of it up to {}",
                    self.watermark
                ),
                format!(
                    "what was written between log addresses {end} and {} and is not in a value-log file",
                    self.watermark
                ),
            )
        })
    }

    /// Nothing may stand in the files behind the log's end, where that is known.
    fn log_goes_on(&self) -> Result<Option<Contradiction>, StoreError> {
        let (end, least) = match (self.lane, self.state.log_end) {
            // Drained before, and not in the lane any more.
            (Some(lane), _) => (next_start(lane.end()), self.state.epoch),
            // An opening that was cut may have sealed the log's end in its own name.
            (None, Some(end)) => (next_start(end), self.state.epoch.saturating_add(1)),
            // The log's end is looked for in the files.
            (None, None) => return Ok(None),
        };
        for file in self.log.files().iter() {
            if file.end().is_some_and(|file_end| file_end <= end) {
                continue;
            }
            let later = file.find_record(self.state.uuid, end, ZEROS_AT_AN_END, |header| {
                header.epoch >= least && header.kind != KIND_SEAL && header.lsn >= end
            });
            let Some(lsn) = later? else { continue };
            let path = file.path.display();
            let (older, found) = match self.lane {
                Some(_) => ("the pool", format!("the pool's log ends at {end}")),
                None => ("MANIFEST", format!("by MANIFEST the log ends at {end}")),
            };
            return Ok(Some(Contradiction {
                lane_is_stale: self.lane.is_some(),
                ..Contradiction::new(
                    format!("{found}, but {path} has a later record at {lsn}: {older} is older"),
                    format!(
                        "what is in no value-log file by now, and of {path} what cannot be read in order from log address {end} on"
                    ),
                )
            }));
        }
        Ok(None)
    }

    /// The files must have the log as far as it is known to have been made durable in them.
    fn log_stops_short(&self) -> Result<Option<Contradiction>, StoreError> {
        let reached = match (self.lane, self.state.log_end) {
            (Some(lane), _) => lane.head(),
            (None, Some(end)) => end.max(self.watermark),
            (None, None) => self.watermark,
        };
        for file in self.log.files().iter() {
            let to = file.end().unwrap_or(reached).min(reached);
            if to <= file.start {
                continue;
            }
            if let Some(found) = self.stops_short(file, to, reached)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn stops_short(
        &self,
        file: &VlogFile,
        to: Lsn,
        reached: Lsn,
    ) -> Result<Option<Contradiction>, StoreError> {
        let path = file.path.display();
        let there = file.start.saturating_add(file.bytes_there()?);
        let lost = |from: Lsn| format!("what was written between log addresses {from} and {to}");
        // The last page need not be whole: a log ends at a page, its last record before.
        if next_start(there) < to {
            let (length, needed) = (file.offset(there), file.offset(to));
            let what = format!("is truncated: it has {length} bytes, {needed} are needed");
            return Ok(Some(Contradiction {
                alone: Some(StoreError::ValueLog {
                    path: file.path.clone(),
                    what: what.clone(),
                }),
                ..Contradiction::new(format!("value-log file {path} {what}"), lost(there))
            }));
        }
        let stops = match file.stops_short_of(self.state.uuid, to.min(there)) {
            // What cannot be read is reported by the reads that need it, and costs nothing else.
            Err(StoreError::Io { .. }) => None,
            found => found?,
        };
        Ok(stops.map(|from| {
            let found = format!(
                "value-log file {path} has nothing from log address {from} on, where the log goes on to {reached}: it was cut short, or copied while it was written"
            );
            Contradiction::new(found, lost(from))
        }))
    }
}
