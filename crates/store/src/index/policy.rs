//! Chooses the runs to merge, by their sizes and their share of tombstones.
//!
//! Runs are merged with the runs next to them in age, starting at the newest. A merge takes in
//! older runs as long as the next is not much larger than all taken so far, and is worth starting
//! when it joins four. Sizes thus grow geometrically with age, and an entry is rewritten about once
//! each time the data that is newer than it doubles. So 80 runs of equal size cost 2.7 rewrites for
//! each entry, and a lookup meets three or four runs, seven at worst
//! (`tests::the_cost_of_eighty_equal_runs`).
//!
//! A tombstone goes when it is merged with the oldest run. That is done when a quarter of all
//! entries are tombstones: each costs the writing of four entries, and what a scan has to pass over
//! is bounded by what is live. Or it is done when scans have passed over as many tombstones as
//! there are entries, however few tombstones that are: then the merge costs what they have cost
//! already. What deleted ranges hide counts as tombstones do; it costs no scan anything.
//!
//! One file is open for each table, so a large merge makes larger tables: so large that [`TABLES`]
//! make a run. The bound is a size at which a table's filter, while it is written, still takes
//! little memory beside the memtable ([`table_bytes`]).
//!
//! The price is space: the oldest run may hold keys that newer runs have replaced, up to about
//! twice the live entries. An entry is some twenty bytes; the value log is the place that matters.

/// Fewest runs that are merged for the sake of size.
pub(super) const WIDTH_MIN: usize = 4;

/// Most runs that are left alone, whatever their sizes.
const RUNS_MAX: usize = 8;

/// One in so many entries may be a tombstone.
const TOMBSTONES: u64 = 4;

/// So many deleted ranges are merged away, whatever they hide: each look-up is one among them.
const RANGES: usize = 1000;

/// Tables of a run that are many enough.
const TABLES: u64 = 32;

/// So many times larger than the least is the largest table; more if its filter is written in
/// parts, which takes no memory meanwhile.
const LARGER_MAX: u64 = 8;
const LARGER_IN_PARTS_MAX: u64 = 32;

/// Size of the tables that a merge of so many bytes makes, given the size of those that an
/// ingestion makes.
pub(super) fn table_bytes(least: u64, merged: u64, in_parts: bool) -> u64 {
    let larger_max = if in_parts {
        LARGER_IN_PARTS_MAX
    } else {
        LARGER_MAX
    };
    (merged / TABLES).clamp(least, least.saturating_mul(larger_max))
}

/// True if all runs are to be merged for the sake of tombstones, of which scans have `passed` over
/// so many.
pub(super) fn is_dense(entries: u64, tombstones: u64, passed: u64) -> bool {
    tombstones > 0 && (tombstones >= entries.div_ceil(TOMBSTONES) || passed >= entries)
}

/// True if all runs are to be merged for the sake of deleted ranges.
pub(super) fn are_many_ranges(ranges: usize) -> bool {
    ranges >= RANGES
}

/// The number of the newest runs to merge, given all sizes, newest first; 0 for none.
pub(super) fn pick(sizes: &[u64]) -> usize {
    let Some((&newest, older)) = sizes.split_first() else {
        return 0;
    };
    let mut sum = newest;
    let mut width = 1;
    for &size in older {
        if size > sum.saturating_add(sum / 2) {
            break;
        }
        sum = sum.saturating_add(size);
        width += 1;
    }
    if width >= WIDTH_MIN {
        width
    } else if sizes.len() > RUNS_MAX {
        width.max(sizes.len() - RUNS_MAX + 1)
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_runs_and_much_larger_runs_are_left_alone() {
        assert_eq!(pick(&[]), 0);
        assert_eq!(pick(&[1]), 0);
        assert_eq!(pick(&[1, 1, 1]), 0);
        assert_eq!(pick(&[1, 1, 1, 100]), 0);
        assert_eq!(pick(&[1, 2, 4, 8, 16, 32]), 0);
    }

    #[test]
    fn four_like_runs_are_merged_with_runs_that_are_not_much_larger() {
        assert_eq!(pick(&[1, 1, 1, 1]), 4);
        assert_eq!(pick(&[1, 1, 1, 1, 4, 16]), 5);
        assert_eq!(pick(&[1, 1, 1, 1, 16]), 4);
        assert_eq!(pick(&[0, 0, 0, 0, 0]), 5);
        assert_eq!(pick(&[u64::MAX; 5]), 5);
    }

    #[test]
    fn tombstones_are_merged_away_if_many_or_passed_over_often() {
        assert!(!is_dense(0, 0, 1000));
        assert!(!is_dense(1000, 249, 999));
        assert!(is_dense(1000, 250, 0));
        assert!(is_dense(1000, 1, 1000));
        assert!(!is_dense(1000, 0, 1000));
    }

    /// Promise (store): An index of 180 GB of 100-byte values has some 50 tables, one of 1 TB some
    /// 260, and as many again while all are merged.
    #[test]
    fn a_terabytes_index_needs_fewer_files_than_a_process_may_open() {
        const LEAST: u64 = 32 << 20;
        assert_eq!(table_bytes(LEAST, 0, false), LEAST);
        assert_eq!(table_bytes(LEAST, 32 * LEAST, false), LEAST);
        assert_eq!(table_bytes(LEAST, u64::MAX, false), 256 << 20);
        // 100-byte values: some 28 bytes of the index each. All runs are merged, so what is merged
        // is there twice.
        for (values, tables_max) in [(180e9, 100), (1e12, 600)] {
            let merged = (values / 100.0 * 28.0) as u64;
            let tables = merged / table_bytes(LEAST, merged, true);
            assert!(2 * tables < tables_max, "{tables}");
        }
    }

    #[test]
    fn too_many_runs_are_merged_whatever_their_sizes() {
        let doubling: Vec<u64> = (0..14).map(|n| 1 << n).collect();
        assert_eq!(pick(&doubling), 7);
        let shrinking: Vec<u64> = (0..14).rev().map(|n| 1 << n).collect();
        assert_eq!(pick(&shrinking), 14);
    }

    #[test]
    fn the_cost_of_eighty_equal_runs() {
        let (mut sizes, mut written, mut met, mut most) = (Vec::new(), 0, 0, 0);
        for _ in 0..80 {
            sizes.insert(0, 100);
            most = most.max(sizes.len());
            while let width @ 1.. = pick(&sizes) {
                let merged: u64 = sizes.drain(..width).sum();
                written += merged;
                sizes.insert(0, merged);
            }
            met += sizes.len();
        }
        let rewrites = written as f64 / 8000.0;
        let runs = met as f64 / 80.0;
        eprintln!("{rewrites:.2} rewrites, {runs:.1} runs on average, {most} at most");
        assert!(rewrites < 3.0, "{rewrites}");
        assert!(runs < 4.0 && most <= 8, "{runs} {most}");
    }
}
