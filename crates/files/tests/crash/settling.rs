//! The supervisor is dead, and two members settle the lane at once: one of them does it, the other
//! waits, and goes on where that one dies in the middle of it.

use crate::{
    LATER, OTHER_BOOT, RDWR,
    common::{Lab, Running, content, held_up, holds, kill},
};
use rustix::{
    fs::{CWD, FileType, Mode, OFlags, mknodat, open},
    io::Errno,
};
use std::{
    fs::{self, File},
    io::Write,
    os::unix::fs::FileExt,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

/// Longer than what settles takes, if nothing holds it up.
const WAITS: Duration = Duration::from_millis(700);
const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes of a file that is more than a pipe takes.
const LARGE: usize = 200_000;

/// Syncs that wait: each for a word in a pipe, which stands where the tests have a fault.
struct Held(PathBuf);

impl Held {
    fn hold(lab: &Lab) -> Self {
        let pipe = lab.fault_file();
        mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        Self(pipe)
    }

    /// The other member begins to settle.
    fn by_the_other(lab: &Lab, run: &mut Running) -> Self {
        let held = Self::hold(lab);
        run.call("begin other sync b").unwrap();
        held
    }

    /// A sync waits, and so does the first member, which begins to settle as well: as
    /// [`waiting`](Self::waiting).
    fn both_waiting(&self, run: &mut Running) -> File {
        let waiting = self.waiting();
        run.send(&"sync a");
        assert_eq!(run.answer_within(WAITS), None, "it did not wait");
        waiting
    }

    /// The end of the pipe to write to, once a sync waits: until that is closed.
    fn waiting(&self) -> File {
        let begun = Instant::now();
        loop {
            match open(&self.0, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty()) {
                Ok(pipe) => return pipe.into(),
                Err(Errno::NXIO) if begun.elapsed() < PATIENCE => {
                    thread::sleep(Duration::from_millis(5));
                }
                Err(errno) => panic!("no sync waits: {errno}"),
            }
        }
    }

    /// Lets one sync go, which succeeds.
    fn let_one_go(&self) {
        self.waiting().write_all(b"5 0").unwrap();
        // It has read that, and waits here no longer.
        thread::sleep(Duration::from_millis(50));
    }

    /// Has one sync, and no other, say that it failed.
    fn let_one_fail(&self) {
        self.waiting().write_all(b"5").unwrap();
        thread::sleep(Duration::from_millis(50));
    }

    /// Lets all go.
    fn end(self, pipe: File) {
        fs::remove_file(&self.0).unwrap();
        drop(pipe);
    }
}

/// A run without a supervisor, with two members and a file of each.
fn orphans(lab: &Lab) -> Running {
    let mut run = lab.run();
    for (who, name) in [("", "a"), ("other ", "b")] {
        let path = lab.data(&format!("{name}.log"));
        assert_eq!(run.open(&format!("{who}{name}"), &path, RDWR), 1);
        run.call(format!("{who}pwrite {name} 0 1 3000")).unwrap();
    }
    run.kill_supervisor();
    run
}

/// The same two, of a run whose supervisor stands still: in a sync of the first one's file, if that
/// `is_interrupted` when it dies.
fn stopped(lab: &Lab, is_interrupted: bool) -> Running {
    let mut run = lab.run();
    let path = lab.data("a.log");
    fs::write(&path, content(1, LARGE)).unwrap();
    assert_eq!(run.open("a", &path, RDWR), 1);
    assert_eq!(run.open("other b", &lab.data("b.log"), RDWR), 1);
    let _syncing = is_interrupted.then(|| {
        let pipe = lab.slow_syncs(&path);
        // A second without another write ends the segment, which is drained.
        run.call("pwrite a 0 1 3000").unwrap();
        let syncing = held_up(&pipe);
        // As long as there is a supervisor that has the next one ready.
        run.call("pwrite a 0 1 3000").unwrap();
        syncing
    });
    run.stop_supervisor();
    run.calls(["pwrite a 0 1 3000", "other pwrite b 0 1 3000"]);
    run
}

/// The two without a supervisor, and the file of the first is gone, of which the lane has records.
fn orphans_of_a_file_that_is_gone(lab: &Lab, is_interrupted: bool) -> Running {
    let mut run = stopped(lab, is_interrupted);
    run.call(format!("unlink {}", lab.data("a.log").display()))
        .unwrap();
    run.kill_supervisor();
    run
}

/// A recovery in another boot finds nothing in the lane.
fn finds_nothing(lab: &Lab) {
    for report in lab.recover(Some(OTHER_BOOT), &[]) {
        assert_eq!(report["outcome"], "empty", "{report:?}");
    }
}

/// Both files, written to plainly, are not what the lane had, and a recovery in another boot finds
/// nothing in it.
fn check(lab: &Lab, mut run: Running, other_lives: bool) {
    run.call("pwrite a 0 2 3000").unwrap();
    let b = match other_lives {
        true => {
            run.call("other pwrite b 0 2 3000").unwrap();
            content(2, 3000)
        }
        false => content(1, 3000),
    };
    run.kill_both();
    finds_nothing(lab);
    assert!(fs::read(lab.data("a.log")).unwrap() == content(2, 3000));
    assert!(fs::read(lab.data("b.log")).unwrap() == b);
    assert_eq!(lab.lanes(), 0);
}

/// Promise (processes): One member settles the lane when the supervisor dies, the others wait, and
/// another goes on where that one dies.
#[test]
fn one_of_two_members_settles_the_lane_and_the_other_waits() {
    let lab = Lab::new();
    let mut run = orphans(&lab);
    let held = Held::by_the_other(&lab, &mut run);
    let waiting = held.both_waiting(&mut run);
    held.end(waiting);
    assert_eq!(run.answer().as_deref(), Some("ok 0\n"));
    assert_eq!(run.call("end other"), Ok(0));
    check(&lab, run, true);
}

/// Promise: as `one_of_two_members_settles_the_lane_and_the_other_waits`.
#[test]
fn a_member_settles_the_lane_where_another_died_settling_it() {
    // Of the two files it has synced so many.
    for synced in 0..2 {
        let lab = Lab::new();
        let mut run = orphans(&lab);
        let other = run.other();
        let held = Held::by_the_other(&lab, &mut run);
        for _ in 0..synced {
            held.let_one_go();
        }
        let waiting = held.both_waiting(&mut run);
        kill(&other);
        held.end(waiting);
        assert_eq!(run.answer().as_deref(), Some("ok 0\n"), "{synced}");
        check(&lab, run, false);
    }
}

/// Promise (processes): A recovery has everything where all members die while they settle a lane.
#[test]
fn a_recovery_has_everything_where_both_members_died_settling() {
    let lab = Lab::new();
    let mut run = orphans(&lab);
    let held = Held::by_the_other(&lab, &mut run);
    held.let_one_go();
    let _waiting = held.both_waiting(&mut run);
    run.kill_both();
    // The power fails: of the files nothing is there.
    for name in ["a.log", "b.log"] {
        let path = lab.data(name);
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        fs::write(&path, b"").unwrap();
        let file = File::options().append(true).open(&path).unwrap();
        file.set_modified(modified).unwrap();
    }
    lab.recover_to("replayed", Some(OTHER_BOOT), &[]);
    for name in ["a.log", "b.log"] {
        assert!(fs::read(lab.data(name)).unwrap() == content(1, 3000));
    }
    assert_eq!(lab.lanes(), 0);
}

/// Promise: as `a_lane_is_settled_if_a_dead_settler_only_feared_an_error`.
#[test]
fn a_lane_stays_if_a_dead_settler_could_not_sync_a_gone_file() {
    for is_interrupted in [false, true] {
        let lab = Lab::new();
        let mut run = orphans_of_a_file_that_is_gone(&lab, is_interrupted);
        let other = run.other();
        let held = Held::by_the_other(&lab, &mut run);
        // The whole file system, since the file has no name; then the other file.
        held.let_one_fail();
        let waiting = held.both_waiting(&mut run);
        kill(&other);
        held.end(waiting);
        // A second sync of the file system succeeds, whatever the disk has.
        assert_eq!(run.answer().as_deref(), Some("errno 5\n"));
        assert!(lab.label().starts_with("failed:"), "{}", lab.label());
    }
}

/// Promise (processes): A member that goes on settling takes nothing that the dead one feared for a
/// failure, and forgets no real failure.
#[test]
fn a_lane_is_settled_if_a_dead_settler_only_feared_an_error() {
    let lab = Lab::new();
    let mut run = orphans_of_a_file_that_is_gone(&lab, true);
    let other = run.other();
    let held = Held::by_the_other(&lab, &mut run);
    // In the sync of the whole file system.
    let waiting = held.both_waiting(&mut run);
    kill(&other);
    held.end(waiting);
    assert_eq!(run.answer().as_deref(), Some("ok 0\n"));
    run.kill_both();
    finds_nothing(&lab);
    assert_eq!(lab.lanes(), 0);
}

/// Promise: as `one_of_two_members_settles_the_lane_and_the_other_waits`.
#[test]
fn an_interrupted_file_is_rewritten_again_if_the_settler_dies() {
    let lab = Lab::new();
    let path = lab.data("a.log");
    let mut run = stopped(&lab, true);
    run.kill_supervisor();
    thread::sleep(LATER);
    let other = run.other();
    let held = Held::by_the_other(&lab, &mut run);
    // It has written it again, and is in a sync by which none of that gets to the disk.
    let waiting = held.waiting();
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(&[0; 3000], 0).unwrap();
    file.set_modified(modified).unwrap();
    run.send(&"sync a");
    assert_eq!(run.answer_within(WAITS), None, "it did not wait");
    kill(&other);
    held.end(waiting);
    assert_eq!(run.answer().as_deref(), Some("ok 0\n"));
    holds(&path, &[(1, LARGE)]);
    run.kill_both();
    finds_nothing(&lab);
    assert_eq!(lab.lanes(), 0);
}
