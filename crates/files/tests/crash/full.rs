//! A lane that is full when its supervisor dies: what waits to be logged before the kernel does it
//! is done when nothing in the lane is needed any more, or not at all.

use crate::{
    LATER, OTHER_BOOT, RDWR,
    common::{Lab, Running, content},
};
use std::{fs, thread, time::Duration};

/// Longer than any call takes that waits for nothing.
const WAITS: Duration = Duration::from_secs(1);
/// The size of the file before the first truncation.
const BYTES: u64 = 20_000;

/// A run whose supervisor stands still, with a file that was truncated so often, a byte each time,
/// or until that waits for room in the lane. How often it was that a truncation returned.
fn truncated(lab: &Lab, times: u64) -> (Running, u64) {
    let mut run = lab.run();
    assert_eq!(run.open("a", &lab.data("a.log"), RDWR), 1);
    run.call(format!("pwrite a 0 1 {BYTES}")).unwrap();
    run.call("sync a").unwrap();
    // The next segment is prepared by then.
    thread::sleep(LATER);
    run.stop_supervisor();
    for done in 0..times {
        run.send(&format!("truncate a {}", BYTES - done - 1));
        match run.answer_within(WAITS) {
            Some(answer) => assert_eq!(answer, "ok 0\n"),
            None => return (run, done),
        }
    }
    (run, times)
}

/// Of a run that is over: a recovery in another boot finds nothing to decide.
fn check(lab: &Lab, run: Running, expected: &[u8]) {
    run.kill_both();
    let path = lab.data("a.log");
    assert!(fs::read(&path).unwrap() == expected);
    for report in lab.recover(Some(OTHER_BOOT), &[]) {
        let outcome = report["outcome"].as_str().unwrap();
        assert!(["synced", "empty"].contains(&outcome), "{report:?}");
    }
    assert!(fs::read(&path).unwrap() == expected);
    assert_eq!(lab.lanes(), 0);
}

/// What waits for room fails if no file can be synced when the supervisor dies, and has changed
/// nothing.
fn is_not_done(lab: &Lab, mut run: Running, truncations: u64) {
    lab.inject(libc::EIO, u64::MAX);
    run.kill_supervisor();
    assert_eq!(run.answer(), Some(format!("errno {}\n", libc::EIO)));
    lab.inject(libc::EIO, 0);
    let left = usize::try_from(BYTES - truncations).unwrap();
    check(lab, run, &content(1, BYTES as usize)[..left]);
}

/// Promise (processes): A truncation or an unlink that waits to be logged when the supervisor dies
/// is done once nothing in the lane is needed any more, or fails and is not done.
#[test]
fn a_truncation_waiting_at_the_supervisors_death_is_done_last() {
    let lab = Lab::new();
    let (mut run, done) = truncated(&lab, BYTES);
    run.kill_supervisor();
    assert_eq!(run.answer().as_deref(), Some("ok 0\n"));
    let left = usize::try_from(BYTES - done - 1).unwrap();
    check(&lab, run, &content(1, BYTES as usize)[..left]);
}

/// Promise: as `a_truncation_waiting_at_the_supervisors_death_is_done_last`.
#[test]
fn a_truncation_before_a_lane_that_is_still_needed_is_not_done() {
    let lab = Lab::new();
    let (run, done) = truncated(&lab, BYTES);
    is_not_done(&lab, run, done);
}

/// Promise: as `a_truncation_waiting_at_the_supervisors_death_is_done_last`.
#[test]
fn no_last_name_is_taken_that_a_recovery_would_miss() {
    let (run, done) = truncated(&Lab::new(), BYTES);
    drop(run);
    let lab = Lab::new();
    let (mut run, _) = truncated(&lab, done);
    run.send(&format!("unlink {}", lab.data("a.log").display()));
    assert_eq!(run.answer_within(WAITS), None, "the lane is not full");
    is_not_done(&lab, run, done);
}
