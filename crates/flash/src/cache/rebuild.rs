//! From a checkpoint and the lane to the map. docs/flash-format.md, "Recovery".

use super::{device::FlashDevice, files::FileRegistry};
use crate::{
    buffer::Buffer,
    checkpoint::Checkpoint,
    epochs::Epochs,
    error::FlashError,
    layout::{CHECKPOINT_HEADER, CacheHeader, PAGE_ENTRY, POSITION_MAX, get64},
    map::Map,
    record::{CacheRecord, PageEntry, VOID},
};
use forebay_pool::{PAGE, Recovered};
use std::collections::HashMap;

/// The metadata while it is put together.
pub(super) struct RebuiltMetadata {
    /// The number of resizes, by the cache's header.
    pub(super) layout: u32,
    pub(super) map: Map,
    pub(super) files: FileRegistry,
    pub(super) epochs: Epochs,
}

/// By the numbers of files that are gone: their pages before this position are needed no more. They
/// are looked for once, when everything is known: to look for those of each file took as long as
/// all the rest, for each.
type DroppedFiles = HashMap<u32, u64>;

impl FlashDevice<'_> {
    /// The newest whole checkpoint, with its body. It must fit the lane: its records follow without
    /// a gap.
    pub(super) fn newest_checkpoint(
        &self,
        header: &CacheHeader,
        recovered: &Recovered,
    ) -> Result<(Checkpoint, Buffer), FlashError> {
        let mut newest: Option<(Checkpoint, Buffer)> = None;
        let mut unread = None;
        for region in 0..2 {
            let found = match self.read_checkpoint(header, region) {
                Ok(found) => found,
                // The other one may be the newest: the lane says whether it is.
                Err(error) => {
                    unread = Some(error);
                    continue;
                }
            };
            let sequence = newest.as_ref().map(|(newest, _)| newest.sequence);
            newest = match found {
                Some(found) if sequence < Some(found.0.sequence) => Some(found),
                _ => newest,
            };
        }
        let Some((checkpoint, body)) = newest else {
            let none = || self.damaged("neither checkpoint is whole".to_owned());
            return Err(unread.unwrap_or_else(none));
        };
        // A checkpoint that found the lane without an open segment goes on where the next one
        // begins.
        let (head, end) = (recovered.head(), recovered.end().next_multiple_of(PAGE));
        let through = checkpoint.through;
        if head > through || end < through {
            let other = || {
                self.damaged(format!(
                    "its newest whole checkpoint goes on at log address {through}, its lane has {head} to {end}"
                ))
            };
            return Err(unread.unwrap_or_else(other));
        }
        Ok((checkpoint, body))
    }

    /// The checkpoint in a region, with its body, if it is whole.
    fn read_checkpoint(
        &self,
        header: &CacheHeader,
        region: u64,
    ) -> Result<Option<(Checkpoint, Buffer)>, FlashError> {
        const DOING: &str = "reading a checkpoint";
        let at = header.geometry.checkpoint(region);
        let head = self.read(DOING, CHECKPOINT_HEADER, at)?;
        let Some(found) = Checkpoint::decode(&head, header.owner, &header.geometry) else {
            return Ok(None);
        };
        let body = self.read(DOING, found.body_bytes(), at + CHECKPOINT_HEADER)?;
        Ok(found.is_body(&body).then_some((found, body)))
    }

    /// The metadata as of the lane's end.
    pub(super) fn rebuild(
        &self,
        header: &CacheHeader,
        checkpoint: &Checkpoint,
        body: &[u8],
        recovered: &Recovered,
    ) -> Result<RebuiltMetadata, FlashError> {
        let bad = |what: &str| self.damaged(format!("the checkpoint's {what} makes no sense"));
        let mut rebuilt = RebuiltMetadata {
            layout: header.geometry.layout(),
            map: Map::new(header.geometry.slots, checkpoint.front),
            files: FileRegistry::default(),
            epochs: checkpoint.epochs,
        };
        for file in checkpoint.files(body) {
            let (id, name) = file.ok_or_else(|| bad("file"))?;
            rebuilt.files.insert(id, name);
        }
        rebuilt.files.reserve(checkpoint.next_file);
        for entry in checkpoint.pages(body) {
            let entry = entry.ok_or_else(|| bad("page"))?;
            rebuilt.push(entry).map_err(|what| self.damaged(what))?;
        }
        let mut dropped = DroppedFiles::new();
        for record in recovered.records() {
            let (lsn, kind) = (record.header.lsn, record.header.kind);
            if lsn < checkpoint.through {
                continue;
            }
            let applied = match CacheRecord::decode(kind, record.payload) {
                Some(record) => rebuilt.apply(&record, &mut dropped),
                None => Err(format!("of kind {kind} is none of this version")),
            };
            applied.map_err(|what| self.damaged(format!("the record at {lsn} {what}")))?;
        }
        rebuilt.map.void_files(&dropped);
        Ok(rebuilt)
    }
}

impl RebuiltMetadata {
    fn push(&mut self, entry: PageEntry) -> Result<(), String> {
        if entry.flags & VOID == 0 && self.files.get(entry.file).is_none() {
            return Err(format!(
                "names file number {}, which is not registered",
                entry.file
            ));
        }
        self.map.push(entry);
        self.map.recorded = self.map.rear;
        Ok(())
    }

    /// Applies a record. One that the checkpoint has already changes nothing.
    fn apply(
        &mut self,
        record: &CacheRecord<'_>,
        dropped: &mut DroppedFiles,
    ) -> Result<(), String> {
        match *record {
            CacheRecord::Pages { first, entries } => {
                let entries = entries.chunks_exact(PAGE_ENTRY as usize);
                for (n, bytes) in (0..).zip(entries) {
                    let position = first.saturating_add(n);
                    if position < self.map.rear {
                        continue;
                    }
                    let fits = position == self.map.rear && self.map.has_room();
                    let entry = PageEntry::decode(bytes).filter(|_| fits);
                    let entry = entry
                        .ok_or_else(|| format!("names position {position}, which does not fit"))?;
                    self.push(entry)?;
                }
            }
            CacheRecord::Front(front) => {
                // Behind the rear: what came between went home around flash.
                if front >= POSITION_MAX {
                    return Err(format!("moves the front to {front}, behind any rear"));
                }
                self.map.advance(front);
            }
            CacheRecord::Clean(positions) => {
                for position in positions.chunks_exact(8) {
                    self.map.clean(get64(position, 0));
                }
            }
            CacheRecord::Voided(positions) => {
                for position in positions.chunks_exact(8) {
                    self.map.void_at(get64(position, 0));
                }
            }
            CacheRecord::Tombstone {
                file,
                pages,
                before,
            } => self.map.void(file, pages, before),
            CacheRecord::File { id, name } => match self.files.get(id.number) {
                Some(known) if known.id() == id => known.set_name(name),
                None if id.number >= self.files.next() => drop(self.files.insert(id, name)),
                // Dropped since.
                _ => {}
            },
            CacheRecord::Epochs(epochs) => self.epochs = epochs,
            CacheRecord::Layout(layout) => {
                if layout != self.layout {
                    return Err(format!(
                        "is of layout {layout}, and the header that can be read of layout {}: it is older than the metadata",
                        self.layout
                    ));
                }
            }
            CacheRecord::Drop { file, before } => {
                dropped.insert(file, before);
                self.files.remove(file);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
