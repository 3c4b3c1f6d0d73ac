//! Figures of stores: the library's statistics. A program that embeds a store has the same by
//! `Store::stats`.

use super::{
    NamedStore,
    families::{FamilyTable, ReadFamily, families},
};
use forebay_store::{Stats, WaitStats};

/// Of each store.
const STORE: FamilyTable<Stats> = families! {
    &["store"], |stats: &Stats|
    Gauge "store_failing", Things, "1 while the value log or the index cannot be written, or no garbage be collected"
        => stats.trouble.is_some();
    Counter "store_writes", Things, "Puts, deletes and batch operations since it was opened" => stats.writes;
    Counter "store_logged", Bytes, "What was ever logged, headers included" => stats.log_tail;
    Gauge "store_lag", Bytes, "Bytes in the pool and in no value-log file yet"
        => stats.log_tail.saturating_sub(stats.log_drained);
    Gauge "store_value_log", Bytes, "All value-log files" => stats.value_log_bytes;
    Gauge "store_large_value", Bytes, "Large values in files of their own" => stats.large_value_bytes;
    Gauge "store_garbage", Bytes, "Estimated garbage in the value log" => stats.garbage_bytes;
    Counter "store_relocated", Bytes, "Bytes that garbage collection wrote again since it was opened"
        => stats.gc_relocated_bytes;
    Gauge "store_memtable_keys", Things, "Keys in memory, older versions included" => stats.memtable_keys;
    Gauge "store_memtable", Bytes, "Memory of these" => stats.memtable_bytes;
    Counter "store_syncs", Things, "Syncs of value-log files since it was opened" => stats.sync_calls;
    Counter "store_sync", Seconds, "Time that these took" => stats.sync_seconds;
};

/// Waits of its writers.
const WAITS: FamilyTable<WaitStats> = families! {
    &["store", "reason"], |waits: &WaitStats|
    Counter "store_waits", Things, "Times that a writer waited since it was opened" => waits.times;
    Counter "store_wait", Seconds, "Time that writers waited" => waits.seconds;
};

/// Of these stores.
pub(super) fn of_stores(stores: &[NamedStore]) -> Vec<ReadFamily> {
    let each = stores.iter().map(|(dir, stats)| (vec![dir.clone()], stats));
    let mut families = STORE.read(&each.collect::<Vec<_>>());
    let waits: Vec<(Vec<String>, WaitStats)> = (stores.iter())
        .flat_map(|(dir, stats)| {
            let named = stats.waits.named().into_iter();
            named.map(move |(reason, waits)| (vec![dir.clone(), reason.to_owned()], waits))
        })
        .collect();
    let waits = waits.iter().map(|(labels, waits)| (labels.clone(), waits));
    families.extend(WAITS.read(&waits.collect::<Vec<_>>()));
    families
}

/// For the documentation's test.
#[cfg(test)]
pub(super) fn told() -> Vec<[String; 4]> {
    let mut all = STORE.told();
    all.extend(WAITS.told());
    all
}
