//! Home files, and the copies of pages that go to them around flash.

use super::{
    devices::{Event, HomeKey, SECTOR, World, eio, key, put, rest},
    model::PAGE,
};
use forebay_flash::{Cache, FileId, FlashError, Home, HomePage};
use std::{
    io,
    sync::{Arc, atomic::Ordering::SeqCst},
};

/// Pages on their way home, and the last position that they came in at. Those that were kept before
/// count until these are durable.
#[derive(Clone, Default)]
pub struct Copies {
    last: u64,
    pages: Vec<(HomeKey, usize, Vec<u8>)>,
}

pub struct SimHome(pub Arc<World>);

impl Home for SimHome {
    fn durable_bytes(&self, file: FileId) -> io::Result<u64> {
        self.sync(file)?;
        Ok(self.0.home_bytes(key(file)) as u64)
    }

    fn write(&self, pages: &[HomePage<'_>]) -> Result<(), (FileId, io::Error)> {
        assert!(
            pages.is_sorted_by_key(|page| (page.file.number, page.offset)),
            "a batch is not sorted"
        );
        for page in pages {
            let fails = self.0.home_fails();
            let (key, offset) = (key(page.file), page.offset as usize);
            assert!(
                self.0.home_bytes(key) >= offset + page.bytes.len(),
                "a page behind the end of its home"
            );
            let bytes = match fails {
                true => &page.bytes[..SECTOR],
                false => page.bytes,
            };
            self.0.write_home(key, offset, bytes);
            if fails {
                return Err((page.file, eio()));
            }
        }
        Ok(())
    }

    fn protect(&self, last: u64, pages: &[HomePage<'_>]) -> Result<(), (FileId, io::Error)> {
        let Some(page) = pages.first().filter(|_| self.0.keeps_copies.load(SeqCst)) else {
            return Ok(());
        };
        let copy = |page: &HomePage<'_>| {
            let offset = page.offset as usize;
            (key(page.file), offset, page.bytes.to_vec())
        };
        let pages = pages.iter().map(copy).collect();
        (self.0.keep(Copies { last, pages })).map_err(|e| (page.file, e))
    }

    fn unprotect(&self) -> io::Result<()> {
        if !self.0.keeps_copies.load(SeqCst) || !self.0.has_copies.load(SeqCst) {
            return Ok(());
        }
        self.0.keep(Copies::default())?;
        self.0.has_copies.store(false, SeqCst);
        Ok(())
    }

    fn sync(&self, file: FileId) -> io::Result<()> {
        rest(&self.0.home_sync_ms);
        if self.0.home_fails() {
            self.0.note(Event::HomeSyncFailed(key(file)));
            return Err(eio());
        }
        if !self.0.home_lies.load(SeqCst) {
            self.0.note(Event::HomeSync(key(file)));
        }
        Ok(())
    }
}

impl World {
    fn home_bytes(&self, key: HomeKey) -> usize {
        let live = self.live.lock().unwrap();
        live.homes.get(&key).map_or(0, Vec::len)
    }

    fn write_home(&self, key: HomeKey, offset: usize, bytes: &[u8]) {
        self.note(Event::HomeWrite(key, offset, bytes.to_vec(), false));
        let mut live = self.live.lock().unwrap();
        put(live.homes.entry(key).or_default(), offset, bytes);
    }

    fn keep(&self, copies: Copies) -> io::Result<()> {
        let failed = self.home_fails();
        self.has_copies.store(true, SeqCst);
        self.note(Event::Copies(copies.clone(), failed));
        if failed {
            return Err(eio());
        }
        self.live.lock().unwrap().copies = copies;
        Ok(())
    }

    /// What the owner of the homes does before a cache that was opened is used: what a crash tore
    /// is made whole. Copies are kept from then on.
    pub fn restore(&self, cache: &Cache) -> Result<(), FlashError> {
        let copies = self.live.lock().unwrap().copies.clone();
        self.has_copies.store(true, SeqCst);
        if !copies.pages.is_empty() && !cache.is_recorded(copies.last) {
            let files = cache.files();
            for (home, offset, bytes) in copies.pages {
                let Some(file) = files.iter().find(|file| key(file.id()) == home) else {
                    continue;
                };
                let page = (offset / PAGE) as u32;
                let is_within = self.home_bytes(home) >= offset + PAGE;
                if is_within && !cache.gives_newer_than_home(file, page) {
                    cache.forget_pages(file, page, page)?;
                    self.write_home(home, offset, &bytes);
                    self.note(Event::HomeSync(home));
                }
            }
            self.note(Event::Copies(Copies::default(), false));
            self.live.lock().unwrap().copies = Copies::default();
        }
        self.keeps_copies.store(true, SeqCst);
        Ok(())
    }
}
