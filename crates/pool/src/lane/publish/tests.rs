use super::*;
use crate::media::{LockGuard, Media, SimMedia};
use std::sync::{Arc, atomic::AtomicU64};

const BYTES: u64 = 1 << 20;

fn window() -> SegmentWindow {
    let media: Arc<dyn Media> = Arc::new(SimMedia::new(BYTES as usize));
    let lock = Arc::new(LockGuard::take(&media, 1, false).unwrap());
    let window = SegmentWindow::new(media, lock, 0, BYTES);
    assert!(window.open(0, 0));
    window
}

fn until(done: impl Fn() -> bool) {
    while !done() {
        thread::yield_now();
    }
}

#[test]
fn a_late_writer_publishes_and_wakes_all_that_finished_first() {
    let (window, finished) = (window(), FinishedRecords::new());
    thread::scope(|scope| {
        for at in [128, 64, 320, 192] {
            let (window, finished) = (&window, &finished);
            scope.spawn(move || {
                finished.publish(window, at, at + if at == 192 { 128 } else { 64 });
                assert!(window.visible() >= at + 64);
            });
            until(|| finished.cell(at).sleep.load(SeqCst) == ASLEEP);
        }
        assert_eq!(window.visible(), 0);
        finished.publish(&window, 0, 64);
        // Without the others: they may not even have been woken yet.
        assert_eq!(window.visible(), 384);
    });
    assert!(finished.0.iter().all(|cell| cell.record.load(SeqCst) == 0));
}

#[test]
fn a_writer_whose_cell_is_taken_publishes_in_its_turn() {
    let (window, finished) = (window(), FinishedRecords::new());
    let same = (2..)
        .map(|lines| lines * 64)
        .find(|at| std::ptr::eq(finished.cell(*at), finished.cell(64)))
        .unwrap();
    thread::scope(|scope| {
        scope.spawn(|| finished.publish(&window, 64, same));
        until(|| finished.cell(64).record.load(SeqCst) != 0);
        let behind = scope.spawn(|| finished.publish(&window, same, same + 64));
        thread::sleep(2 * NAP);
        assert!(!behind.is_finished());
        finished.publish(&window, 0, 64);
        behind.join().unwrap();
    });
    assert_eq!(window.visible(), same + 64);
}

#[test]
fn records_are_published_in_order_whatever_order_they_finish_in() {
    let (window, finished) = (window(), FinishedRecords::new());
    let tail = AtomicU64::new(0);
    thread::scope(|scope| {
        for writer in 0..8u64 {
            let (window, finished, tail) = (&window, &finished, &tail);
            scope.spawn(move || {
                for turn in 0.. {
                    let bytes = 64 * (1 + (writer + turn) % 3);
                    let lsn = tail.fetch_add(bytes, SeqCst);
                    if lsn + bytes > BYTES {
                        // A writer that is refused leaves a gap at the end, which no other waits
                        // for.
                        return;
                    }
                    if (turn * 7 + writer) % 13 == 0 {
                        thread::yield_now();
                    } else if (turn * 5 + writer) % 199 == 0 {
                        thread::sleep(NAP);
                    }
                    finished.publish(window, lsn, lsn + bytes);
                    assert!(window.visible() >= lsn + bytes);
                }
            });
        }
    });
    assert!(window.visible() > BYTES - 256);
    assert!(finished.0.iter().all(|cell| cell.record.load(SeqCst) == 0));
}

#[test]
fn a_note_is_of_one_record_only() {
    for (lsn, end) in [(0, 64), (64, 192), (1 << 61, (1 << 61) + (32 << 20))] {
        assert_eq!(end_of(note(lsn, end), lsn), Some(end));
        assert_eq!(end_of(note(lsn, end), lsn + 64), None);
        assert_eq!(end_of(0, lsn), None);
    }
}

#[test]
fn notes_ahead_are_kept_and_those_behind_forgotten_at_a_wrap() {
    let wrap = (1 << (64 - SIZE_BITS)) * LINE as u64;
    for mark in [wrap - 128, wrap, wrap + 128, 5 * wrap - 64] {
        let finished = FinishedRecords::new();
        for (lsn, end) in [(mark - 192, mark - 64), (mark + 64, mark + 192)] {
            finished.cell(lsn).record.store(note(lsn, end), SeqCst);
        }
        assert_eq!(finished.noted(mark).collect::<Vec<_>>(), [mark + 64]);
        finished.forget_below(mark);
        assert_eq!(finished.end(mark - 192), None);
        assert_eq!(finished.end(mark + 64), Some(mark + 192));
    }
}

#[test]
fn a_writer_without_a_cell_publishes_a_note_only_it_can_see() {
    let (window, finished) = (window(), FinishedRecords::new());
    // As a process that died left it, and as the one before it missed it.
    finished.cell(0).record.store(note(0, 64), SeqCst);
    finished
        .cell(64)
        .record
        .store(note(1 << 40, (1 << 40) + 64), SeqCst);
    assert!(finished.publish(&window, 64, 128));
    assert_eq!(window.visible(), 128);
}
