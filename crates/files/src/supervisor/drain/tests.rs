use super::*;
use crate::{
    supervisor::member::tests::{hello, supervisor},
    wire::SupervisorAnswer,
};
use std::os::unix::fs::FileExt;

/// In the lane's state (docs/pool-format.md, "Shared lanes").
const TAIL: u64 = 128;
const NEXT: u64 = 384;
const LINE: u64 = 64;

#[test]
fn a_lane_takes_no_segment_while_a_member_is_stopped_appending() {
    let home = tempfile::tempdir().unwrap();
    let supervisor = supervisor(home.path(), 3);
    let (member, answer, _) = hello(&supervisor.socket_name, supervisor.shared.token);
    assert!(
        matches!(answer, SupervisorAnswer::Welcome { .. }),
        "{answer:?}"
    );
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
