//! A page file in use: its reads and writes, by way of the cache.
//!
//! Whole pages go to the cache. Whatever else is done to a file (a write that is no page, a
//! mapping) makes it *plain* first: its pages go home, and the cache forgets it. The system
//! tablespace cannot become plain, since its guarded pages are not in it; there the call fails.

mod part;
mod state;
mod uncached;

use crate::{
    complain::{complain_once, said},
    identity::KnownFile,
    page::PAGE_BYTES,
    page_layout::PageLayout,
    session::CacheSession,
};
use forebay_flash::{Cache, CachedFile, Enqueued, FileId, FlashError};
use parking_lot::{Mutex, RwLock};
use part::read_part;
use rustix::io::Errno;
pub(crate) use state::PageRoute;
use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{
            AtomicBool,
            Ordering::{AcqRel, Acquire, Release},
        },
    },
    thread,
    time::Duration,
};
pub use uncached::{RealRead, RealWrite};

/// A writer waits so long for room before it is told that homes fail.
const HOMES_FAIL: Duration = Duration::from_secs(1);

/// See the module's head.
pub(crate) struct PageFile {
    pub known: KnownFile,
    pub path: PathBuf,
    pub is_system: bool,
    pub state: RwLock<PageRoute>,
    /// It was changed past the cache since it was synced last: its length, or what is written while
    /// it is undecided.
    changed: AtomicBool,
    /// A descriptor of it was opened with `O_DSYNC` or `O_SYNC`: what is written is durable when
    /// the write returns.
    write_through: AtomicBool,
    /// Held during a real sync: who finds nothing changed waits for the one that covers the change.
    syncing: Mutex<()>,
    /// Its home, which is open still though the file became plain: to close it would drop the locks
    /// that the program has on the file.
    left: Mutex<Option<FileId>>,
}

impl PageFile {
    pub(crate) fn new(known: KnownFile, path: PathBuf, is_system: bool, state: PageRoute) -> Self {
        Self {
            known,
            path,
            is_system,
            state: RwLock::new(state),
            // What an earlier process left in the page cache.
            changed: AtomicBool::new(true),
            write_through: AtomicBool::new(false),
            syncing: Mutex::new(()),
            left: Mutex::new(None),
        }
    }

    /// From now on each write is durable before it returns.
    pub(crate) fn set_write_through(&self) {
        self.write_through.store(true, Release);
    }

    /// Its home is changed past the cache by `change`: a sync that begins after it is a real one,
    /// whatever a sync beside it found.
    pub(crate) fn changing<T>(&self, change: impl FnOnce() -> T) -> T {
        let changed = change();
        self.changed.store(true, Release);
        changed
    }

    /// Fills `to` from `offset`, as far as the file goes.
    pub(crate) fn read(
        &self,
        session: &CacheSession,
        to: &mut [u8],
        offset: u64,
        real: RealRead<'_>,
    ) -> Result<usize, Errno> {
        let state = self.state.read();
        let PageRoute::Cached(file) = &*state else {
            return real(to, offset);
        };
        let mut done = 0;
        while done < to.len() {
            let at = offset + done as u64;
            let within = (at % PAGE_BYTES as u64) as usize;
            let bytes = (to.len() - done).min(PAGE_BYTES - within);
            let part = &mut to[done..done + bytes];
            let read = read_part(session, file, part, at, &mut *real)?;
            done += read;
            if read < bytes {
                break;
            }
        }
        Ok(done)
    }

    /// Writes pages to the cache; anything else to the file, which may become plain for it. What
    /// is written to page 0 was [decided](crate::cache_route) on before.
    pub(crate) fn write(
        &self,
        session: &CacheSession,
        from: &[u8],
        offset: u64,
        real: RealWrite<'_>,
    ) -> Result<usize, Errno> {
        let file = match &*self.state.read() {
            PageRoute::Cached(file) if is_pages(from, offset) => {
                if !session.is_active() {
                    complain_once(
                        "a page file is written to before the system tablespace is open: that is refused, since the flash cache is not in use yet",
                    );
                    return Err(Errno::IO);
                }
                let written = self.write_pages(session, file, from, offset, real)?;
                if self.write_through.load(Acquire) {
                    session.cache.sync(file).map_err(|e| said(&e))?;
                }
                return Ok(written);
            }
            PageRoute::Cached(file) => Some(Arc::clone(file)),
            _ => None,
        };
        if file.is_some() {
            self.leave(session, "is written to in parts of pages")?;
        }
        self.changing(|| real(from, offset))
    }

    fn write_pages(
        &self,
        session: &CacheSession,
        file: &CachedFile,
        from: &[u8],
        offset: u64,
        real: RealWrite<'_>,
    ) -> Result<usize, Errno> {
        let mut done = 0;
        for (page, bytes) in (number(offset)..).zip(from.chunks_exact(PAGE_BYTES)) {
            match enqueue_patiently(&session.cache, file, page, bytes) {
                Ok(Enqueued::Cached) => {}
                Ok(Enqueued::Past(past)) => {
                    let written = self.changing(|| real(bytes, offset + done as u64));
                    drop(past);
                    match written {
                        Ok(PAGE_BYTES) => {}
                        Ok(some) => return Ok(done + some),
                        Err(e) if done == 0 => return Err(e),
                        Err(_) => return Ok(done),
                    }
                }
                Err(error) => return Err(said(&error)),
            }
            done += PAGE_BYTES;
        }
        Ok(done)
    }

    pub(crate) fn say_plain(&self, pages: PageLayout) {
        let why = match pages {
            PageLayout::Whole => return,
            PageLayout::Compressed => "its pages are compressed",
            PageLayout::OtherSize => "its pages are not of 16 KiB",
        };
        complain_once(&format!(
            "{} stays plain, and is not protected from torn pages by the flash cache: {why}. Keep innodb_doublewrite on where such tables are",
            self.path.display()
        ));
    }

    /// Makes the file's writes durable.
    pub(crate) fn sync(
        &self,
        session: &CacheSession,
        real: &mut dyn FnMut() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let state = self.state.read();
        let PageRoute::Cached(file) = &*state else {
            return real();
        };
        {
            let _one_at_a_time = self.syncing.lock();
            if self.changed.swap(false, AcqRel) {
                // What the kernel says of it once it does not say of the home's descriptor.
                let synced = session.cache.syncing_home(real);
                synced.inspect_err(|_| self.changed.store(true, Release))?;
            }
        }
        session.cache.sync(file).map_err(|e| said(&e))
    }

    /// Cuts off, or makes longer: pages to be cut off are brought home and then forgotten durably
    /// before the kernel does it. If the kernel refuses it, the file has its pages.
    pub(crate) fn truncate(
        &self,
        session: &CacheSession,
        bytes: u64,
        real: &mut dyn FnMut() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let whole = bytes.is_multiple_of(PAGE_BYTES as u64);
        if self.is_system && bytes < crate::guard::bytes_min() {
            return Err(self.refused("cut off in its first pages"));
        }
        if !whole {
            self.leave(session, "gets a length that is no number of pages")?;
        }
        // Nothing comes in meanwhile.
        let state = self.state.write();
        if let PageRoute::Cached(file) = &*state {
            give_back(session, file, [number(bytes), u32::MAX])?;
            self.changing(&mut *real)?;
            return ask_length(session, file);
        }
        self.changing(real)
    }

    /// It was cut off as it was opened, after [`truncate`](Self::truncate) had asked for its
    /// length.
    pub(crate) fn truncated(&self, session: &CacheSession) -> Result<(), Errno> {
        match &*self.state.read() {
            PageRoute::Cached(file) => ask_length(session, file),
            PageRoute::Undecided | PageRoute::Plain => Ok(()),
        }
    }

    /// Punches a hole into, or zeros, whole pages: as a truncation of these.
    pub(crate) fn punch(
        &self,
        session: &CacheSession,
        [offset, bytes]: [u64; 2],
        real: &mut dyn FnMut() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        if !matches!(&*self.state.read(), PageRoute::Cached(_)) {
            return self.changing(real);
        }
        let page = PAGE_BYTES as u64;
        let guarded = offset < crate::guard::bytes_min();
        if !offset.is_multiple_of(page) || !bytes.is_multiple_of(page) || bytes == 0 {
            self.leave(session, "is punched within pages")?;
        } else if self.is_system && guarded {
            return Err(self.refused("punched in its first pages"));
        }
        let state = self.state.write();
        if let PageRoute::Cached(file) = &*state {
            let last = number(offset + bytes - 1);
            give_back(session, file, [number(offset), last])?;
        }
        self.changing(real)
    }

    /// Makes the file plain: everything of it is home, and the cache has nothing, when this
    /// returns.
    pub(crate) fn leave(&self, session: &CacheSession, why: &str) -> Result<(), Errno> {
        let mut state = self.state.write();
        let file = match &*state {
            PageRoute::Cached(file) => Arc::clone(file),
            PageRoute::Plain => return Ok(()),
            PageRoute::Undecided => {
                self.say_left(why);
                *state = PageRoute::Plain;
                return Ok(());
            }
        };
        if self.is_system {
            return Err(self.refused(why));
        }
        // Most of it while other pages may go home, too.
        (session.cache.bring_home(&file, 0, u32::MAX))
            .and_then(|()| session.let_go(&file))
            .map_err(|e| said(&e))?;
        self.say_left(why);
        *state = PageRoute::Plain;
        *self.left.lock() = Some(file.id());
        Ok(())
    }

    /// True if it became plain, and its home is open still.
    pub(crate) fn has_left(&self) -> bool {
        self.left.lock().is_some()
    }

    /// The home that is open still, if `is_closed`: it is the caller's to close.
    pub(crate) fn take_left(&self, is_closed: impl FnOnce() -> bool) -> Option<FileId> {
        self.left.lock().take_if(|_| is_closed())
    }

    fn say_left(&self, why: &str) {
        complain_once(&format!(
            "{} is plain from now on, and not protected from torn pages by the flash cache: it {why}",
            self.path.display()
        ));
    }

    fn refused(&self, why: &str) -> Errno {
        complain_once(&format!(
            "{} {why}: that is refused while it is in the flash cache",
            self.path.display()
        ));
        Errno::IO
    }
}

/// Before the kernel is asked to change these pages: the file has them, and the cache forgets them,
/// durably. Without the first a change that is refused would leave the file with older ones.
fn give_back(
    session: &CacheSession,
    file: &CachedFile,
    [first, last]: [u32; 2],
) -> Result<(), Errno> {
    let cache = &session.cache;
    cache
        .bring_home(file, first, last)
        .and_then(|()| cache.forget_pages(file, first, last))
        .map_err(|e| said(&e))
}

/// After the file was cut off: the length that is durable is this one from now on, so it may grow
/// to what it was at once.
fn ask_length(session: &CacheSession, file: &CachedFile) -> Result<(), Errno> {
    let bytes = session.cache.durable_bytes(file);
    bytes.map(drop).map_err(|e| said(&e))
}

/// As [`Cache::enqueue`], once more after a while if there is no room because homes fail: a server
/// that is told so at once writes at once again, and notes each failure in its log.
fn enqueue_patiently<'a>(
    cache: &'a Cache,
    file: &'a CachedFile,
    page: u32,
    bytes: &[u8],
) -> Result<Enqueued<'a>, FlashError> {
    match cache.enqueue(file, page, bytes) {
        Err(FlashError::Home { .. }) => {
            thread::sleep(HOMES_FAIL);
            cache.enqueue(file, page, bytes)
        }
        taken => taken,
    }
}

/// The page that this byte is in.
fn number(offset: u64) -> u32 {
    u32::try_from(offset / PAGE_BYTES as u64).unwrap_or(u32::MAX)
}

fn is_pages(bytes: &[u8], offset: u64) -> bool {
    !bytes.is_empty()
        && bytes.len().is_multiple_of(PAGE_BYTES)
        && offset.is_multiple_of(PAGE_BYTES as u64)
        && offset / PAGE_BYTES as u64 + (bytes.len() / PAGE_BYTES) as u64 <= u64::from(u32::MAX)
}
