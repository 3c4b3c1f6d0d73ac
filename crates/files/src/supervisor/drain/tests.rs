use super::*;
use crate::supervisor::member::tests::{member_of, supervisor};
use std::os::unix::fs::FileExt;

/// In the lane's state (docs/pool-format.md, "Shared lanes").
const TAIL: u64 = 128;
const NEXT: u64 = 384;
const LINE: u64 = 64;

#[test]
fn each_of_many_files_is_synced_once_and_some_at_a_time() {
    let files: Vec<usize> = (0..1000).collect();
    let (done, most) = (Mutex::new(Vec::new()), AtomicUsize::new(0));
    let now = AtomicUsize::new(0);
    each_at_a_time(&files, |file| {
        most.fetch_max(now.fetch_add(1, Relaxed) + 1, Relaxed);
        thread::sleep(Duration::from_micros(50));
        now.fetch_sub(1, Relaxed);
        done.lock().push(*file);
    });
    let mut done = done.into_inner();
    done.sort_unstable();
    assert_eq!(done, files);
    assert!((2..=AT_A_TIME).contains(&most.into_inner()));
}

#[test]
fn a_directory_that_many_files_left_is_synced_once() {
    let (directories, syncs) = (LostNameSyncs::default(), AtomicUsize::new(0));
    let files: Vec<u64> = (0..200).collect();
    each_at_a_time(&files, |file| {
        // The second one's sync fails, for each of its files.
        let directory = file % 2;
        let done = directories.sync((8, directory), || {
            thread::sleep(Duration::from_millis(5));
            syncs.fetch_add(1, Relaxed);
            match directory {
                0 => Ok(()),
                _ => Err(Errno::NOSPC.into()),
            }
        });
        let errno = done.err().map(|e| errno_of(&e));
        assert_eq!(errno, (directory == 1).then_some(Errno::NOSPC));
    });
    assert_eq!(syncs.into_inner(), 2);
}

#[test]
fn a_lane_takes_no_segment_while_a_member_is_stopped_appending() {
    let home = tempfile::tempdir().unwrap();
    let supervisor = supervisor(home.path(), 3);
    let member = member_of(&supervisor);
    let run = supervisor.shared.running().unwrap();
    while !run.lane.prepare() {
        std::thread::yield_now();
    }
    // It has reserved a record, and is stopped; another has filled the segment and begun the next.
    let state = File::from(run.lane.state_fd().try_clone_to_owned().unwrap());
    let mut word = [0; 8];
    state.read_exact_at(&mut word, NEXT).unwrap();
    let turned = u64::from_le_bytes(word) + LINE;
    state.write_all_at(&turned.to_le_bytes(), TAIL).unwrap();
    assert!(!run.lane.prepare() && !run.lane.is_full());
    std::thread::sleep(3 * LOOK);
    assert_eq!(run.lane.usage().segments, 3);
    // Dead, it is buried, and the run ends.
    drop((member, run));
    supervisor.shared.outlast_members();
    supervisor.finish().unwrap();
}
