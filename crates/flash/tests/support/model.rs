//! The model of each page: its possible contents.
//!
//! Every version of a page has a number of its own, and its bytes follow from that, so a torn page
//! is known for one. 0 is a page of zeros.

use super::{
    Rng,
    devices::{Event, HomeKey},
};
use std::collections::BTreeMap;

pub const FILES: u64 = 3;
pub const PAGES: u32 = 12;
pub const PAGE: usize = 1024;
/// What a page is that may be anything: torn, if a home write of it had failed before it was cut
/// off.
pub const ANYTHING: u64 = u64::MAX;

/// The bytes of a version.
pub fn page_of(version: u64) -> Vec<u8> {
    if version == 0 {
        return vec![0; PAGE];
    }
    let mut rng = Rng(version);
    let mut page = version.to_le_bytes().to_vec();
    while page.len() < PAGE {
        page.extend(rng.next().to_le_bytes());
    }
    page
}

/// The version that these bytes are, if they are whole.
pub fn version_of(page: &[u8]) -> Option<u64> {
    let version = u64::from_le_bytes(page[..8].try_into().unwrap());
    (page == page_of(version)).then_some(version)
}

/// Something that was begun or promised.
#[derive(Clone, Debug)]
pub enum Promise {
    /// A version is about to be written.
    Writing(HomeKey, u32, u64),
    /// It was refused.
    Refused(HomeKey, u32, u64),
    /// A sync of the file returned.
    Synced(HomeKey),
    /// Pages from this one on are about to be cut off.
    Cutting(HomeKey, u32),
    /// They are zeros now.
    Cut(HomeKey, u32),
    /// The file is about to be dropped.
    Dropping(HomeKey),
    /// It is, and its inode has another one.
    Dropped(HomeKey),
}

#[derive(Clone, Debug)]
struct Page {
    /// What it may be found to be; the last one is what it is while nothing is cut.
    may_be: Vec<u64>,
    /// All it ever was.
    was: Vec<u64>,
}

impl Default for Page {
    fn default() -> Self {
        Self {
            may_be: vec![0],
            was: vec![0],
        }
    }
}

#[derive(Clone, Default)]
pub struct Model {
    pages: BTreeMap<(u64, u32), Page>,
    generations: BTreeMap<u64, u64>,
}

impl Model {
    /// The file that an inode is now.
    pub fn file(&self, inode: u64) -> HomeKey {
        (inode, self.generations.get(&inode).copied().unwrap_or(1))
    }

    pub fn learn(&mut self, promise: &Promise) {
        match *promise {
            Promise::Writing((inode, _), page, version) => {
                let page = self.page(inode, page);
                page.may_be.push(version);
                page.was.push(version);
            }
            Promise::Refused((inode, _), page, version) => {
                self.page(inode, page).may_be.retain(|v| *v != version);
            }
            Promise::Synced((inode, _)) => {
                for page in self.all(inode, 0) {
                    let newest = page.may_be.pop();
                    page.may_be = newest.into_iter().collect();
                }
            }
            Promise::Cutting((inode, _), from) => {
                for page in self.all(inode, from) {
                    page.may_be.splice(0..0, page.was.iter().copied());
                    page.may_be.insert(0, ANYTHING);
                }
            }
            Promise::Cut((inode, _), from) => {
                for page in self.all(inode, from) {
                    page.may_be = vec![0];
                }
            }
            Promise::Dropping((inode, _)) => self.learn(&Promise::Cutting((inode, 0), 0)),
            Promise::Dropped((inode, generation)) => {
                self.generations.insert(inode, generation + 1);
                for page in self.all(inode, 0) {
                    *page = Page::default();
                }
            }
        }
    }

    pub fn learn_all(&mut self, events: &[Event]) {
        for event in events {
            if let Event::Model(promise) = event {
                self.learn(promise);
            }
        }
    }

    fn page(&mut self, inode: u64, page: u32) -> &mut Page {
        self.pages.entry((inode, page)).or_default()
    }

    fn all(&mut self, inode: u64, from: u32) -> Vec<&mut Page> {
        for page in from..PAGES {
            self.page(inode, page);
        }
        (self.pages.range_mut((inode, from)..=(inode, u32::MAX)))
            .map(|(_, page)| page)
            .collect()
    }

    /// What the page is, while nothing is cut.
    pub fn now(&self, inode: u64, page: u32) -> u64 {
        let page = self.pages.get(&(inode, page));
        page.map_or(0, |page| *page.may_be.last().unwrap())
    }

    /// After a cut this was found: it stays so.
    pub fn found(&mut self, inode: u64, page: u32, bytes: &[u8]) -> Result<(), String> {
        let of = (inode, page);
        let page = self.page(inode, page);
        let version = match version_of(bytes) {
            Some(version) => version,
            None if page.may_be.contains(&ANYTHING) => ANYTHING,
            None => return Err(format!("page {of:?} is torn, it may be {:?}", page.may_be)),
        };
        if !page.may_be.contains(&version) {
            return Err(format!(
                "page {of:?} is {version}, it may be {:?}",
                page.may_be
            ));
        }
        page.may_be = vec![version];
        Ok(())
    }
}
