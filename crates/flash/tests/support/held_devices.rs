//! Devices that hold a call, so that a test does something in just that moment.

use super::devices::{SimFlash, SimHome, World};
use forebay_flash::{FileId, Flash, Home, HomePage};
use std::{
    io,
    sync::{Arc, Condvar, Mutex},
    time::Duration,
};

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Is {
    #[default]
    Open,
    Shut,
    Holding,
}

/// Holds one call, from when it is shut until it is opened. Others pass.
#[derive(Default)]
pub struct Gate {
    is: Mutex<Is>,
    changed: Condvar,
}

impl Gate {
    /// The next call is held. One that is held goes on.
    pub fn shut(&self) {
        *self.is.lock().unwrap() = Is::Shut;
        self.changed.notify_all();
    }

    /// Waits until a call is held.
    pub fn wait(&self) {
        const LONG: Duration = Duration::from_secs(60);
        let is = self.is.lock().unwrap();
        let waits = |is: &mut Is| *is != Is::Holding;
        let (is, _) = self.changed.wait_timeout_while(is, LONG, waits).unwrap();
        assert!(*is == Is::Holding, "no call came");
    }

    /// The call that is held goes on.
    pub fn open(&self) {
        *self.is.lock().unwrap() = Is::Open;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let mut is = self.is.lock().unwrap();
        if *is == Is::Shut {
            *is = Is::Holding;
            self.changed.notify_all();
            drop(self.changed.wait_while(is, |is| *is == Is::Holding));
        }
    }
}

pub struct HeldFlash {
    flash: SimFlash,
    /// Before a read.
    pub reads: Gate,
    /// In a write: a sync does not cover it.
    pub under_way: Gate,
    /// After a write, before it returns.
    pub writes: Gate,
}

impl HeldFlash {
    pub fn of(world: &Arc<World>) -> Self {
        Self {
            flash: SimFlash(Arc::clone(world)),
            reads: Gate::default(),
            under_way: Gate::default(),
            writes: Gate::default(),
        }
    }
}

impl Flash for HeldFlash {
    fn bytes(&self) -> io::Result<u64> {
        self.flash.bytes()
    }

    fn read_at(&self, to: &mut [u8], offset: u64) -> io::Result<()> {
        self.reads.pass();
        self.flash.read_at(to, offset)
    }

    fn write_at(&self, from: &[u8], offset: u64) -> io::Result<()> {
        let written = self.flash.begin_write(from, offset);
        self.under_way.pass();
        self.flash.end_write(offset);
        self.writes.pass();
        written
    }

    fn sync(&self) -> io::Result<()> {
        self.flash.sync()
    }

    fn set_bytes(&self, bytes: u64) -> io::Result<()> {
        self.flash.set_bytes(bytes)
    }

    fn describe(&self) -> String {
        self.flash.describe()
    }
}

pub struct HeldHome {
    home: SimHome,
    /// After copies were kept, before the pages are written.
    pub writes: Gate,
    /// After they were written, before they are synced.
    pub syncs: Gate,
    /// After a sync, before it returns.
    pub synced: Gate,
}

impl HeldHome {
    pub fn of(world: &Arc<World>) -> Self {
        Self {
            home: SimHome(Arc::clone(world)),
            writes: Gate::default(),
            syncs: Gate::default(),
            synced: Gate::default(),
        }
    }
}

impl Home for HeldHome {
    fn durable_bytes(&self, file: FileId) -> io::Result<u64> {
        self.home.durable_bytes(file)
    }

    fn write(&self, pages: &[HomePage<'_>]) -> Result<(), (FileId, io::Error)> {
        self.writes.pass();
        let written = self.home.write(pages);
        self.syncs.pass();
        written
    }

    fn protect(&self, last: u64, pages: &[HomePage<'_>]) -> Result<(), (FileId, io::Error)> {
        self.home.protect(last, pages)
    }

    fn unprotect(&self) -> io::Result<()> {
        self.home.unprotect()
    }

    fn sync(&self, file: FileId) -> io::Result<()> {
        let synced = self.home.sync(file);
        self.synced.pass();
        synced
    }
}
