//! Figures of flash caches, as their servers say them (`forebay flash status`).

use super::{
    RunningFlashCache,
    families::{FamilyTable, ReadFamily, families},
};
use forebay_innodb::CacheStatus;

/// Of each flash cache in use.
pub(super) const FLASH: FamilyTable<CacheStatus> = families! {
    &["cache", "pid"], |cache: &CacheStatus|
    Gauge "flash_failing", Things, "1 while flash fails to take writes" => cache.trouble.is_some();
    Gauge "flash_pays", Things, "0 while the policy adaptive goes around flash, which takes no less than the files"
        => cache.flash_pays;
    Gauge "flash_slots", Things, "Slots of the cache" => cache.slots;
    Gauge "flash_used_slots", Things, "Slots in use by any version of a page" => cache.slots_used;
    Gauge "flash_pages", Things, "Pages in the cache" => cache.pages;
    Gauge "flash_dirty_pages", Things, "Pages that are newer than in the files" => cache.dirty_pages;
    Gauge "flash_lost_pages", Things, "Pages newer than in the files that were damaged on flash"
        => cache.lost_pages;
    Counter "flash_hits", Things, "Reads that found their page" => cache.hits;
    Counter "flash_misses", Things, "Reads that did not" => cache.misses;
    Counter "flash_bypassed_pages", Things, "Pages of long rows that passed the cache by" => cache.bypassed;
    Counter "flash_page", Bytes, "Pages that came in" => cache.page_bytes;
    Counter "flash_written", Bytes, "What was written to flash" => cache.flash_bytes;
    Counter "flash_syncs", Things, "Syncs of flash" => cache.flash_syncs;
    Counter "flash_home_pages", Things, "Pages written to the files" => cache.home_pages;
    Counter "flash_errors", Things, "Times that flash failed to write or sync" => cache.flash_errors;
    Counter "flash_damaged_pages", Things, "Pages that were found damaged on flash, or that it could not read"
        => cache.damaged;
};

/// Of these caches.
pub(super) fn of_caches(caches: &[RunningFlashCache]) -> Vec<ReadFamily> {
    let each = caches.iter().map(|(pid, cache)| {
        let labels = vec![cache.flash.clone(), pid.to_string()];
        (labels, cache)
    });
    FLASH.read(&each.collect::<Vec<_>>())
}
