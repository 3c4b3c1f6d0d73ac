//! A member that is in the middle of an append while the owner ends the segment, and does not look
//! at the owner's note behind its record.

use super::*;

/// The mark stands at the note of a void that the owner made, and the writer that moved it there
/// has missed that, which it may. It did so while the owner sealed, or later.
fn moves_over_a_note_that_was_missed(while_sealing: bool) {
    quietly();
    let (_dir, pool) = pool(4);
    let lane = lane(&pool, 4);
    let member = pool.join(lane.state_fd(), 1).unwrap();
    let ((told, reached), (go, wait)) = (mpsc::channel(), mpsc::channel::<()>());
    thread::scope(|scope| {
        scope.spawn(move || {
            steps::hook(move |passed| match passed {
                "shared:written" => {
                    told.send(()).unwrap();
                    wait.recv().unwrap();
                }
                // It does not look; and drops `told`.
                "publish:moved" => panic_any(Died),
                _ => {}
            });
            let appending = || append(&member, 1, 100);
            let _ = catch_unwind(AssertUnwindSafe(appending));
            steps::unhook();
        });
        reached.recv().unwrap();
        let miss = move || {
            go.send(()).unwrap();
            assert!(reached.recv().is_err());
        };
        let end = if while_sealing {
            let mut miss = Some(miss);
            steps::hook(move |passed| {
                if let Some(miss) = miss.take_if(|_| passed == "seal:waits") {
                    miss();
                }
            });
            let end = lane.seal();
            steps::unhook();
            end
        } else {
            let end = lane.seal();
            miss();
            assert!(lane.complete().is_empty());
            lane.prepare();
            end
        };
        let end = end.unwrap().unwrap();
        assert!(lane.complete().iter().any(|segment| segment.end == end));
    });
}

#[test]
fn a_seal_ends_a_segment_though_the_last_writer_misses_its_note() {
    moves_over_a_note_that_was_missed(true);
}

#[test]
fn a_segment_with_a_missed_note_is_complete_at_the_next_prepare() {
    moves_over_a_note_that_was_missed(false);
}
