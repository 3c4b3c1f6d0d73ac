//! Merges: the one that is due, its beginning, a step of it, and its output in the place of its
//! inputs.

use super::{Index, failed};
use crate::index::{
    IndexCause, IndexError,
    merge::Merge,
    policy,
    run::TableRun,
    view::IndexView,
    writer::{NewTables, TableMaker},
};
use std::{
    ops::Range,
    sync::{Arc, atomic::Ordering},
};

/// Memory for whole filters and block indexes that an entry is estimated to take, in tenths of a
/// byte.
const PINNED_PER_ENTRY_TENTHS: u64 = 15;

impl Index {
    /// Begins a merge of these runs of `view`.
    pub(super) fn begin(&self, view: &IndexView, runs: Range<usize>) -> Merge {
        let oldest = runs.end == view.runs.len();
        let inputs = view.runs[runs].to_vec();
        let entries: u64 = inputs
            .iter()
            .flat_map(|run| run.tables())
            .map(|table| table.entries())
            .sum();
        let in_parts =
            oldest && entries.saturating_mul(PINNED_PER_ENTRY_TENTHS) / 10 > self.pinned_bytes;
        let bytes = inputs.iter().map(|run| run.bytes()).sum();
        let maker = TableMaker {
            table_bytes: policy::table_bytes(self.maker.table_bytes, bytes, in_parts),
            known: view.watermark,
            ..self.maker.clone()
        };
        Merge::new(inputs, oldest, in_parts, maker, Arc::clone(&view.deleted))
    }

    /// Puts a finished merge's output in the place of its inputs.
    fn install(&self, mut merge: Merge) -> Result<(), IndexError> {
        let asked_for = merge.asked_for.take();
        let (inputs, new) = merge.finish();
        let output = TableRun::new(self.maker.dir.path(), new.tables.clone())?;
        self.commit(new, |view| {
            // Runs are only ever added in front, and only a merge takes runs away; merges share
            // none.
            let mut runs = view.runs.clone();
            let first = inputs.first();
            let at = runs
                .iter()
                .position(|run| first.is_some_and(|input| Arc::ptr_eq(run, input)));
            let Some(at) = at else {
                let what = "the runs that were merged are there no longer".into();
                return Err(failed(
                    self.maker.dir.path(),
                    "merging runs",
                    IndexCause::Invalid(what),
                ));
            };
            runs.splice(at..(at + inputs.len()).min(runs.len()), output);
            Ok(view.with_runs(runs))
        })?;
        if let Some(asked_for) = asked_for {
            asked_for.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The merge of no more than `room` bytes that the present runs call for, if any, given the
    /// merges under way.
    pub(super) fn due(&self, view: &IndexView, merges: &[Merge], room: u64) -> usize {
        let fits =
            |runs: usize| view.runs[..runs].iter().map(|run| run.bytes()).sum::<u64>() <= room;
        let passed = view.passed.since_merge();
        let dense = policy::is_dense(view.entries().0, view.dead_entries(), passed)
            || policy::are_many_ranges(view.deleted.len());
        if dense && merges.is_empty() && fits(view.runs.len()) {
            return view.runs.len();
        }
        let free = view
            .runs
            .iter()
            .take_while(|run| !merges.iter().any(|merge| merge.takes(run)));
        let sizes: Vec<u64> = free.map(|run| run.bytes()).collect();
        let width = policy::pick(&sizes);
        if fits(width) {
            return width;
        }
        let mut narrower = (policy::WIDTH_MIN..width).rev();
        narrower.find(|&width| fits(width)).unwrap_or(0)
    }

    /// The view without tables of which deleted ranges hide every key: their space is given back
    /// without their being read. A merge of one of them is given up, unless it has done more than
    /// is spared: ranges that are deleted all the time would let none ever end. So would they one
    /// that was asked for.
    pub(super) fn without_hidden_tables(
        &self,
        view: Arc<IndexView>,
        merges: &mut Vec<Merge>,
    ) -> Result<Arc<IndexView>, IndexError> {
        if view.deleted.is_empty() {
            return Ok(view);
        }
        let hidden_bytes = |run: &Arc<TableRun>| -> u64 {
            let tables = run.tables().iter();
            let hidden = tables.filter(|table| table.is_hidden(&view.deleted));
            hidden.map(|table| table.facts().bytes).sum()
        };
        let goes_on = |merge: &Merge| {
            let spared: u64 = merge.inputs.iter().map(hidden_bytes).sum();
            merge.asked_for.is_some() || spared == 0 || merge.done_bytes() > spared
        };
        let kept: Vec<_> = merges.iter().filter(|merge| goes_on(merge)).collect();
        let can_go =
            |run: &Arc<TableRun>| hidden_bytes(run) > 0 && !kept.iter().any(|it| it.takes(run));
        if !view.runs.iter().any(can_go) {
            return Ok(view);
        }
        merges.retain(goes_on);
        let dir = self.maker.dir.path();
        self.commit(NewTables::default(), |view| {
            let mut runs = Vec::with_capacity(view.runs.len());
            for run in &view.runs {
                let tables = run.tables().iter();
                let kept: Vec<_> = tables
                    .filter(|table| !table.is_hidden(&view.deleted))
                    .cloned()
                    .collect();
                // Merges under way know their runs.
                if kept.len() == run.tables().len() || merges.iter().any(|it| it.takes(run)) {
                    runs.push(Arc::clone(run));
                } else {
                    runs.extend(TableRun::new(dir, kept)?);
                }
            }
            Ok(view.with_runs(runs))
        })?;
        drop(view);
        self.sweep();
        Ok(self.view())
    }

    /// Works on the newest merge; an error gives it up.
    pub(super) fn step(&self, merges: &mut Vec<Merge>) -> Result<(), IndexError> {
        let Some(mut merge) = merges.pop() else {
            return Ok(());
        };
        if merge.step()? {
            self.install(merge)?;
            self.sweep();
        } else {
            merges.push(merge);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        index::{Index, IndexOptions, MergeState, RecordAddress},
        range_tombstones::RangeTombstone,
    };

    /// Promise: as `garbage_on_a_full_disk_is_collected_when_asked_for`.
    #[test]
    fn a_merge_without_room_is_not_begun_and_a_smaller_one_is() {
        let dir = tempfile::tempdir().unwrap();
        let index = Index::open(dir.path(), IndexOptions::default()).unwrap();
        let address = RecordAddress::at(0);
        // One that is large, and newer ones that are not, together more than it.
        for keys in [20_000_u32, 4000, 4000, 4000, 4000, 4000] {
            let keys: Vec<_> = (0..keys).map(|n| (n * 7).to_be_bytes()).collect();
            let mut entries = keys.iter().map(|key| (&key[..], address));
            index.ingest(&mut entries, 0).unwrap();
        }
        let runs = || index.stats().runs;
        assert!(index.lacks(1000) && !index.compact_within(1000).unwrap());
        assert_eq!(runs(), 6);
        let room = index.stats().disk_bytes / 2;
        assert!(!index.lacks(room));
        while index.compact_within(room).unwrap() {}
        assert!(runs() < 4, "{}", runs());
        assert!(!index.lacks(u64::MAX));
    }

    #[test]
    fn a_merge_of_all_without_room_is_refused_and_nothing_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let index = Index::open(dir.path(), IndexOptions::default()).unwrap();
        (0..3).for_each(|lsn| index.test_ingest(0..10_000, &[], lsn));
        let bytes = index.stats().disk_bytes;
        let of_all = index.begin_merge_of_all(bytes).unwrap();
        let refused = index.begin_merge_of_all(bytes - 1).err().unwrap();
        assert!(crate::StoreError::from(refused).is_full_disk());
        assert_eq!(index.stats().runs, 3);
        assert_eq!(index.step_of_all(&of_all).unwrap(), MergeState::Installed);
        assert_eq!(index.stats().runs, 1);
    }

    /// Promise: as `a_merge_that_is_given_up_is_begun_again_or_an_error`.
    #[test]
    fn a_range_that_hides_a_table_does_not_end_a_merge_of_all() {
        let dir = tempfile::tempdir().unwrap();
        let index = Index::open(dir.path(), IndexOptions::default()).unwrap();
        index.test_ingest(0..1000, &[], 0);
        index.test_ingest(5000..6000, &[], 1);
        index.test_ingest(0..10, &[], 2);
        let of_all = index.begin_merge_of_all(u64::MAX).unwrap();
        let range = |from: u32, to: u32, lsn| {
            let (from, to) = (from.to_be_bytes(), to.to_be_bytes());
            vec![RangeTombstone::new(&from, Some(&to), lsn)]
        };
        let none = &mut std::iter::empty();
        index.ingest_with(none, range(4000, 7000, 5), 6).unwrap();
        // Of the thread that compacts beside.
        index.compact().unwrap();
        assert_eq!(index.step_of_all(&of_all).unwrap(), MergeState::Installed);
        assert_eq!(index.stats().runs, 1);
        index.merge_all().unwrap();
        let stats = index.stats();
        assert_eq!((stats.entries, stats.deleted_ranges), (1000, 0));
        // And where none is asked for, the table goes unread.
        index.test_ingest(8000..9000, &[], 7);
        index.ingest_with(none, range(8000, 9000, 8), 9).unwrap();
        index.compact().unwrap();
        assert_eq!(index.stats().entries, 1000);
    }

    #[test]
    fn a_merge_that_has_done_more_than_a_range_spares_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let options = IndexOptions {
            table_bytes: 8 << 10,
            ..IndexOptions::default()
        };
        let index = Index::open(dir.path(), options).unwrap();
        let runs = 4;
        (0..runs).for_each(|lsn| index.test_ingest(0..60_000, &[], lsn));
        let under_way = || -> Vec<u64> {
            let merges = index.merges.lock();
            merges.iter().map(|merge| merge.done_bytes()).collect()
        };
        let hide = |from: u32, to: u32, lsn| {
            let (from, to) = (from.to_be_bytes(), to.to_be_bytes());
            let ranges = vec![RangeTombstone::new(&from, Some(&to), lsn)];
            index
                .ingest_with(&mut std::iter::empty(), ranges, lsn + 1)
                .unwrap();
        };
        index.compact().unwrap();
        let [begun] = under_way()[..] else { panic!() };
        // Most of all: as good as nothing is done.
        hide(15_000, 60_000, 10);
        index.compact().unwrap();
        let [again] = under_way()[..] else { panic!() };
        assert!(again <= begun, "{again} of {begun}");
        while under_way()[0] < index.stats().disk_bytes / 8 {
            index.compact().unwrap();
        }
        let before = under_way()[0];
        hide(12_000, 13_200, 20);
        let view = index.snapshot();
        assert!(view.tables().any(|table| table.is_hidden(view.deleted())));
        drop(view);
        index.compact().unwrap();
        assert!(under_way()[0] > before);
        while index.compact().unwrap() {}
        index.merge_all().unwrap();
        assert_eq!(index.stats().entries, 13_800);
    }
}
