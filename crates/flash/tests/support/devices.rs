//! Flash and home files that remember what was made durable.
//!
//! Faults that a cache must survive, all of which [`World::cut`] or [`World::fail_one_in`] produce:
//! * the power fails between any two writes, syncs, and stores or fences of the pool, in the order
//!   of the whole machine;
//! * of what was not synced, any subset of sectors has arrived, later ones possibly without earlier
//!   ones: pages are torn;
//! * an operation fails and has done nothing, or half; after a sync that failed, what was not
//!   synced is lost or not, and no later sync says so;
//! * a device says that it has synced and has not: a lie, which the cache cannot survive. The
//!   controls tell it.

pub use super::homes::SimHome;

use super::{
    Rng,
    cut::Devices,
    homes::Copies,
    model::{PAGE, page_of},
};
use forebay_flash::{FileId, Flash};
use forebay_pool::media::SimMedia;
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

pub const SECTOR: usize = 512;

/// A home file: its inode and generation.
pub type HomeKey = (u64, u64);

pub fn key(file: FileId) -> HomeKey {
    (file.identity.inode, file.identity.generation)
}

/// One thing that happened, in the order of the whole machine. The pool's memory has a note with
/// its number.
pub enum Event {
    FlashWrite(usize, Vec<u8>),
    /// The write there has returned: a sync from now on covers it.
    FlashWritten(usize),
    FlashSync,
    FlashSyncFailed,
    /// What is new holds pages of another life.
    FlashLength(usize),
    /// In sectors, or as a whole.
    HomeWrite(HomeKey, usize, Vec<u8>, bool),
    HomeSync(HomeKey),
    HomeSyncFailed(HomeKey),
    /// These copies are kept instead of those before. If that failed, it is done or not.
    Copies(Copies, bool),
    HomeLength(HomeKey, usize),
    /// Something that the test did or was promised.
    Model(super::model::Promise),
}

/// A machine: flash, home files, and the pool's memory.
pub struct World {
    pub sim: Arc<SimMedia>,
    events: Mutex<Vec<Event>>,
    base: Contents,
    pub(super) live: Mutex<Contents>,
    fail_one_in: AtomicU64,
    random: Mutex<Rng>,
    pub flash_lies: AtomicBool,
    pub home_lies: AtomicBool,
    /// Every operation on flash fails.
    pub flash_gone: AtomicBool,
    /// Offsets on flash that cannot be read.
    pub unreadable: Mutex<BTreeSet<usize>>,
    /// Milliseconds that a sync takes.
    pub home_sync_ms: AtomicU64,
    pub flash_sync_ms: AtomicU64,
    /// Every operation on a home fails.
    pub home_gone: AtomicBool,
    /// The operation with this number, counted from 1, fails.
    pub fail_at: AtomicU64,
    /// From the operation with this number on, every operation on flash fails; 0 for none.
    pub flash_gone_at: AtomicU64,
    pub operations: AtomicU64,
    /// Copies are kept: not before what the ones that were found protect is whole.
    pub(super) keeps_copies: AtomicBool,
    /// Something may have been kept, also by what failed.
    pub(super) has_copies: AtomicBool,
}

/// What lies on the devices.
#[derive(Clone, Default)]
pub struct Contents {
    pub flash: Vec<u8>,
    pub homes: BTreeMap<HomeKey, Vec<u8>>,
    pub pool: Vec<u8>,
    pub copies: Copies,
}

impl World {
    pub fn new(contents: Contents) -> Arc<Self> {
        Arc::new(Self {
            sim: Arc::new(SimMedia::from_image(contents.pool.clone())),
            events: Mutex::default(),
            live: Mutex::new(contents.clone()),
            base: contents,
            fail_one_in: AtomicU64::new(0),
            random: Mutex::new(Rng(7)),
            flash_lies: AtomicBool::new(false),
            home_lies: AtomicBool::new(false),
            flash_gone: AtomicBool::new(false),
            unreadable: Mutex::default(),
            home_sync_ms: AtomicU64::new(0),
            flash_sync_ms: AtomicU64::new(0),
            home_gone: AtomicBool::new(false),
            fail_at: AtomicU64::new(0),
            flash_gone_at: AtomicU64::new(0),
            operations: AtomicU64::new(0),
            keeps_copies: AtomicBool::new(false),
            has_copies: AtomicBool::new(false),
        })
    }

    /// From now on one operation in `of` fails; none if 0.
    pub fn fail_one_in(&self, of: u64, seed: u64) {
        *self.random.lock().unwrap() = Rng(seed);
        self.fail_one_in.store(of, SeqCst);
    }

    pub fn note(&self, event: Event) {
        let mut events = self.events.lock().unwrap();
        events.push(event);
        self.sim.note(events.len() as u64 - 1);
    }

    /// What the devices hold as long as nothing is cut.
    pub fn live(&self) -> Contents {
        let mut contents = self.live.lock().unwrap().clone();
        contents.pool = self.sim.image();
        contents
    }

    /// Flips a bit in every copy of a version on flash: in how many.
    pub fn damage(&self, version: u64) -> usize {
        let wanted = page_of(version);
        let mut flipped = 0;
        self.change_flash(|flash| {
            let data = flash.len() % PAGE;
            for slot in flash[data..].chunks_exact_mut(PAGE) {
                if slot == wanted {
                    slot[PAGE / 2] ^= 4;
                    flipped += 1;
                }
            }
        });
        flipped
    }

    pub fn change_flash(&self, change: impl FnOnce(&mut Vec<u8>)) {
        change(&mut self.live.lock().unwrap().flash);
    }

    pub fn home(&self, key: HomeKey, offset: usize, bytes: usize) -> Vec<u8> {
        let mut page = vec![0; bytes];
        self.read_home(key, &mut page, offset as u64).unwrap();
        page
    }

    /// Reads several pages of a home file at once: how many bytes of it there are.
    pub fn read_home(&self, key: HomeKey, to: &mut [u8], offset: u64) -> io::Result<usize> {
        let live = self.live.lock().unwrap();
        let file = live.homes.get(&key).map_or(&[][..], Vec::as_slice);
        io::Read::read(&mut file.get(offset as usize..).unwrap_or_default(), to)
    }

    /// Makes the file so long, durably: what is new is zero.
    pub fn set_length(&self, key: HomeKey, bytes: usize) {
        self.note(Event::HomeLength(key, bytes));
        let mut live = self.live.lock().unwrap();
        live.homes.entry(key).or_default().resize(bytes, 0);
    }

    /// A write past the cache, by who protects it from being torn.
    pub fn write_past(&self, key: HomeKey, offset: usize, bytes: &[u8]) {
        self.note(Event::HomeWrite(key, offset, bytes.to_vec(), true));
        put(
            self.live.lock().unwrap().homes.entry(key).or_default(),
            offset,
            bytes,
        );
    }

    fn fails(&self, gone: &AtomicBool) -> bool {
        let now = self.operations.fetch_add(1, SeqCst) + 1;
        let of = self.fail_one_in.load(SeqCst);
        gone.load(SeqCst)
            || now == self.fail_at.load(SeqCst)
            || of > 0 && self.random.lock().unwrap().chance(of)
    }

    fn flash_fails(&self) -> bool {
        let at = self.flash_gone_at.load(SeqCst);
        let died = at > 0 && self.operations.load(SeqCst) + 1 >= at;
        self.flash_gone.fetch_or(died, SeqCst);
        self.fails(&self.flash_gone)
    }

    pub(super) fn home_fails(&self) -> bool {
        self.fails(&self.home_gone)
    }

    /// Of the writes to flash so far: where, and how many bytes.
    pub fn flash_writes(&self) -> Vec<(usize, usize)> {
        let events = self.events.lock().unwrap();
        let writes = events.iter().filter_map(|event| match event {
            Event::FlashWrite(offset, bytes) => Some((*offset, bytes.len())),
            _ => None,
        });
        writes.collect()
    }

    /// Of the pages written home so far, whole: where, and which version.
    pub fn home_writes(&self) -> Vec<(usize, u64)> {
        let events = self.events.lock().unwrap();
        let writes = events.iter().filter_map(|event| match event {
            Event::HomeWrite(_, offset, bytes, _) if bytes.len() == PAGE => {
                Some((*offset, super::model::version_of(bytes).unwrap()))
            }
            _ => None,
        });
        writes.collect()
    }

    /// Walks through the crash points of what happened: at each of `points`, in order, what is
    /// found after a power cut, and what had happened.
    pub fn cut(
        &self,
        points: &[usize],
        rng: &mut Rng,
        mut found: impl FnMut(Contents, &[Event], &mut Rng),
    ) {
        let images = self.sim.crash_images();
        let events = self.events.lock().unwrap();
        let mut pool = images.start();
        let mut devices = Devices::new(self.base.clone());
        let mut done = 0;
        for &point in points {
            while pool.point() < point && pool.step() {}
            let happened = images.notes_before(point).count();
            for event in &events[done..happened] {
                devices.apply(event, rng);
            }
            done = happened;
            let arrive = [0, 16, 2, 8, 14][rng.below(5) as usize];
            let mut contents = devices.clone().settle(rng, arrive);
            let mut words = Rng(rng.next());
            contents.pool = pool.image(|| words.below(16) < arrive);
            found(contents, &events[..happened], rng);
        }
    }

    /// Crash points that there are.
    pub fn points(&self) -> usize {
        self.sim.crash_images().points()
    }
}

/// Writes into a device or file, which grows as a file does.
pub fn put(to: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    if to.len() < offset + bytes.len() {
        to.resize(offset + bytes.len(), 0);
    }
    to[offset..offset + bytes.len()].copy_from_slice(bytes);
}

/// Whole and plausible pages that no cache wrote are what is new.
pub fn set_flash_length(flash: &mut Vec<u8>, bytes: usize) {
    flash.truncate(bytes);
    let foreign = page_of(7_000_000);
    while flash.len() < bytes {
        flash.push(foreign[flash.len() % PAGE]);
    }
}

/// A device takes so many milliseconds.
pub(super) fn rest(takes: &AtomicU64) {
    let ms = takes.load(SeqCst);
    if ms > 0 {
        thread::sleep(Duration::from_millis(ms));
    }
}

pub(super) fn eio() -> io::Error {
    io::Error::from_raw_os_error(5)
}

pub struct SimFlash(pub Arc<World>);

impl SimFlash {
    /// The device gets the bytes, or if it fails half of them.
    pub(super) fn begin_write(&self, from: &[u8], offset: u64) -> io::Result<()> {
        let fails = self.0.flash_fails();
        let from = if fails {
            &from[..from.len() / 2 / SECTOR * SECTOR]
        } else {
            from
        };
        self.0
            .note(Event::FlashWrite(offset as usize, from.to_vec()));
        put(
            &mut self.0.live.lock().unwrap().flash,
            offset as usize,
            from,
        );
        if fails { Err(eio()) } else { Ok(()) }
    }

    /// And says so.
    pub(super) fn end_write(&self, offset: u64) {
        self.0.note(Event::FlashWritten(offset as usize));
    }
}

impl Flash for SimFlash {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.0.live.lock().unwrap().flash.len() as u64)
    }

    fn read_at(&self, to: &mut [u8], offset: u64) -> io::Result<()> {
        if self.0.flash_fails() {
            return Err(eio());
        }
        let offset = offset as usize;
        let range = offset..offset + to.len();
        if self.0.unreadable.lock().unwrap().range(range).count() > 0 {
            return Err(eio());
        }
        let live = self.0.live.lock().unwrap();
        to.copy_from_slice(&live.flash[offset..offset + to.len()]);
        Ok(())
    }

    fn write_at(&self, from: &[u8], offset: u64) -> io::Result<()> {
        let written = self.begin_write(from, offset);
        self.end_write(offset);
        written
    }

    fn sync(&self) -> io::Result<()> {
        rest(&self.0.flash_sync_ms);
        if self.0.flash_fails() {
            self.0.note(Event::FlashSyncFailed);
            return Err(eio());
        }
        if !self.0.flash_lies.load(SeqCst) {
            self.0.note(Event::FlashSync);
        }
        Ok(())
    }

    fn set_bytes(&self, bytes: u64) -> io::Result<()> {
        if self.0.flash_fails() {
            // It ends with a sync.
            self.0.note(Event::FlashSyncFailed);
            return Err(eio());
        }
        self.0.note(Event::FlashLength(bytes as usize));
        set_flash_length(&mut self.0.live.lock().unwrap().flash, bytes as usize);
        Ok(())
    }

    fn describe(&self) -> String {
        "simulated".to_owned()
    }
}
