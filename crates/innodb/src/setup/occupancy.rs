//! Counts of a cache's pages: dirty, lost, per file.

use super::{cache_files::CacheFiles, error::SetupError, location::CacheLocation};
use crate::home::Homes;
use forebay_flash::Cache;
use serde::{Deserialize, Serialize};
use std::{path::Path, sync::Arc};

/// Counts of a cache's pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheOccupancy {
    /// Pages.
    pub pages: u64,
    /// Pages that are newer than in the files.
    pub dirty: u64,
    /// Slots.
    pub slots: u64,
    /// Another one each time that a server begins to use it.
    pub epoch: u32,
}

impl CacheOccupancy {
    /// Counts of this cache's pages.
    pub(crate) fn of(cache: &Cache) -> Self {
        let stats = cache.stats();
        Self {
            pages: stats.pages,
            dirty: stats.dirty_pages,
            slots: stats.slots,
            epoch: cache.epochs().current,
        }
    }
}

/// Counts of the pages in the cache on this flash file.
///
/// # Errors
/// Whatever keeps a server from using it.
pub fn look(flash: &Path) -> Result<CacheOccupancy, SetupError> {
    let place = CacheLocation::of(flash)?;
    let files = CacheFiles::of(&place)?;
    files.as_owner(|| Ok(CacheOccupancy::of(&files.open(&Arc::new(Homes::new()))?)))
}
