//! Figures of flash caches, as their servers say them (`forebay flash status`).

use super::{
    RunningFlashCache,
    families::{
        FamilyRow, FamilyTable,
        MetricKind::{Counter, Gauge},
        MetricUnit::{Bytes, Things},
        ReadFamily,
    },
};
use forebay_innodb::CacheStatus;

/// Of each flash cache in use.
pub(super) const FLASH: FamilyTable<CacheStatus> = FamilyTable {
    labels: &["cache", "pid"],
    rows: &[
        FamilyRow::new(
            Gauge,
            "flash_failing",
            Things,
            "1 while flash fails to take writes",
            |cache| cache.trouble.is_some().into(),
        ),
        FamilyRow::new(
            Gauge,
            "flash_pays",
            Things,
            "0 while the policy adaptive goes around flash, which takes no less than the files",
            |cache| cache.flash_pays.into(),
        ),
        FamilyRow::new(
            Gauge,
            "flash_slots",
            Things,
            "Slots of the cache",
            |cache| cache.slots.into(),
        ),
        FamilyRow::new(
            Gauge,
            "flash_used_slots",
            Things,
            "Slots in use by any version of a page",
            |cache| cache.slots_used.into(),
        ),
        FamilyRow::new(
            Gauge,
            "flash_pages",
            Things,
            "Pages in the cache",
            |cache| cache.pages.into(),
        ),
        FamilyRow::new(
            Gauge,
            "flash_dirty_pages",
            Things,
            "Pages that are newer than in the files",
            |cache| cache.dirty_pages.into(),
        ),
        FamilyRow::new(
            Gauge,
            "flash_lost_pages",
            Things,
            "Pages newer than in the files that were damaged on flash",
            |cache| cache.lost_pages.into(),
        ),
        FamilyRow::new(
            Counter,
            "flash_hits",
            Things,
            "Reads that found their page",
            |cache| cache.hits.into(),
        ),
        FamilyRow::new(
            Counter,
            "flash_misses",
            Things,
            "Reads that did not",
            |cache| cache.misses.into(),
        ),
        FamilyRow::new(
            Counter,
            "flash_bypassed_pages",
            Things,
            "Pages of long rows that passed the cache by",
            |cache| cache.bypassed.into(),
        ),
        FamilyRow::new(
            Counter,
            "flash_page",
            Bytes,
            "Pages that came in",
            |cache| cache.page_bytes.into(),
        ),
        FamilyRow::new(
            Counter,
            "flash_written",
            Bytes,
            "What was written to flash",
            |cache| cache.flash_bytes.into(),
        ),
        FamilyRow::new(Counter, "flash_syncs", Things, "Syncs of flash", |cache| {
            cache.flash_syncs.into()
        }),
        FamilyRow::new(
            Counter,
            "flash_home_pages",
            Things,
            "Pages written to the files",
            |cache| cache.home_pages.into(),
        ),
        FamilyRow::new(
            Counter,
            "flash_errors",
            Things,
            "Times that flash failed to write or sync",
            |cache| cache.flash_errors.into(),
        ),
        FamilyRow::new(
            Counter,
            "flash_damaged_pages",
            Things,
            "Pages that were found damaged on flash, or that it could not read",
            |cache| cache.damaged.into(),
        ),
    ],
};

/// Of these caches.
pub(super) fn of_caches(caches: &[RunningFlashCache]) -> Vec<ReadFamily> {
    let each = caches.iter().map(|(pid, cache)| {
        let labels = vec![cache.flash.clone(), pid.to_string()];
        (labels, cache)
    });
    FLASH.read(&each.collect::<Vec<_>>())
}
