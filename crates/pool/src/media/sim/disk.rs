//! The disk of a simulated medium.

use super::{SimEvent, SimState, images::put};
use std::{io, thread};

/// A disk keeps its promises in sectors of so many bytes.
pub(super) const SECTOR: usize = 512;

/// The disk's contents, by whichever process.
pub(super) struct SimDisk {
    bytes: Vec<u8>,
    /// The tables end here.
    tables: u64,
    /// Writes until it fails; none if it does not.
    writes_left: Option<u64>,
}

impl SimDisk {
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        Self {
            bytes,
            tables: u64::MAX,
            writes_left: None,
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn put(&mut self, offset: u64, bytes: &[u8]) {
        put(&mut self.bytes, offset, bytes);
    }

    pub(super) fn set_tables(&mut self, end: u64) {
        self.tables = end;
    }

    pub(super) fn is_table(&self, offset: u64) -> bool {
        offset < self.tables
    }

    pub(super) fn fail_after(&mut self, writes: u64) {
        self.writes_left = Some(writes);
    }

    pub(super) fn has_failed(&self) -> bool {
        self.writes_left == Some(0)
    }

    /// The whole sectors around `bytes` at `offset`, with `bytes` in them, and where they begin.
    fn sectors(&self, offset: u64, bytes: &[u8]) -> (u64, Vec<u8>) {
        let from = offset / SECTOR as u64 * SECTOR as u64;
        let within = usize::try_from(offset - from).unwrap_or(0);
        let length = (within + bytes.len()).next_multiple_of(SECTOR);
        let at = usize::try_from(from).unwrap_or(usize::MAX);
        let mut sectors = self.bytes[at..at + length].to_vec();
        sectors[within..within + bytes.len()].copy_from_slice(bytes);
        (from, sectors)
    }
}

impl SimState {
    /// Writes to the disk, which is sure to have it when this returns, and not before.
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.begin_write(offset, bytes)?;
        self.end_write();
        Ok(())
    }

    /// The disk is sure to have the write that this thread has begun.
    pub(super) fn end_write(&mut self) {
        let thread = thread::current().id();
        self.record(|| SimEvent::Fence { thread });
    }

    /// Begins to write: the disk may have any of it.
    pub(super) fn begin_write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let failed = || Err(io::Error::from_raw_os_error(libc::EIO));
        let Some(disk) = self.disk.as_mut().filter(|disk| !disk.has_failed()) else {
            return failed();
        };
        disk.writes_left = disk.writes_left.map(|left| left - 1);
        let (offset, bytes) = disk.sectors(offset, bytes);
        let fails = disk.has_failed();
        if !fails {
            disk.put(offset, &bytes);
        }
        let thread = thread::current().id();
        self.record(|| SimEvent::Store {
            thread,
            offset,
            bytes,
        });
        if fails {
            // In the middle: any of it may have arrived, for ever in flight.
            return failed();
        }
        Ok(())
    }
}
