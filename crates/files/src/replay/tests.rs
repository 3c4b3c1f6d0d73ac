//! Lanes that hardly a client writes: forged ones, and those of clients that know less of their
//! files.

use super::*;
use crate::record::{KIND_GONE, KIND_TRUNCATE, KIND_WRITE, PayloadHead, encode_file};
use crate::{identity, lane_label::label};
use forebay_pool::{Lane, PoolOptions};
use rustix::fs::{Mode, OFlags};
use std::{
    fs::{self, File},
    io::IoSlice,
    os::fd::AsFd,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

struct Place {
    home: tempfile::TempDir,
    pool: Pool,
    /// Its lanes say on which mount a file is.
    has_mounts: bool,
}

impl Place {
    fn new() -> Self {
        Self::with(PoolOptions::new().emulated(true))
    }

    fn with(options: PoolOptions) -> Self {
        let home = tempfile::tempdir().unwrap();
        let options = options.size(1 << 20).segment_size(64 << 10);
        let pool = options.create(home.path().join("pool")).unwrap();
        Self {
            home,
            pool,
            has_mounts: true,
        }
    }

    fn file(&self, name: &str) -> (PathBuf, File) {
        let path = self.home.path().join(name);
        let open = File::options()
            .read(true)
            .append(true)
            .create(true)
            .open(&path);
        (path, open.unwrap())
    }

    /// The same, which has content, and its identity.
    fn file_before(&self, name: &str) -> (PathBuf, File, Vec<u8>) {
        let (path, file) = self.file(name);
        fs::write(&path, b"before").unwrap();
        let identity = identity::of(file.as_fd()).unwrap();
        (path, file, identity)
    }

    /// A lane that says that `bytes` were written at the beginning of a file.
    fn lane(&self, identity: &[u8], path: &Path, boot: Uuid, bytes: &[u8]) -> Uuid {
        let owner = Uuid::new_v4();
        let claim = ClaimOptions::new().label(label(LabelMark::None, "forger 1"));
        let (lane, _) = self.pool.claim(owner, &claim).unwrap();
        self.append(&lane, 0, identity, path, boot, bytes);
        owner
    }

    /// The same in a lane, where the file gets a number.
    fn append(
        &self,
        lane: &Lane,
        number: u32,
        identity: &[u8],
        path: &Path,
        boot: Uuid,
        bytes: &[u8],
    ) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let head = PayloadHead {
            file: number,
            at: 0,
            time: u64::try_from(now.as_nanos()).unwrap(),
            ..PayloadHead::default()
        };
        let held = rustix::fs::open(path, OFlags::PATH, Mode::empty());
        let mount = held.ok().filter(|_| self.has_mounts);
        let mount = mount.and_then(|file| identity::mount(file.as_fd()));
        let at = mount.unwrap_or(0);
        let named = encode_file(PayloadHead { at, ..head }, *boot.as_bytes(), identity, path);
        lane.append(crate::record::KIND_FILE, &[IoSlice::new(&named)])
            .unwrap();
        let write = [&head.encode()[..], bytes].concat();
        let last = lane.append(KIND_WRITE, &[IoSlice::new(&write)]).unwrap();
        lane.commit(last + 1).unwrap();
    }

    /// Recovers its only lane.
    fn recover(&self) -> LaneReport {
        let mut reports = recover(&self.pool, &RecoverOptions::default()).unwrap();
        assert_eq!(reports.len(), 1, "{reports:?}");
        reports.remove(0)
    }
}

#[test]
fn a_recovery_with_handles_finds_a_file_named_without_one() {
    let place = Place::new();
    let (path, file) = place.file("a");
    let identities = identity::all_of(file.as_fd());
    assert_eq!(identities.len(), 2, "no handles or no birth times here");
    for identity in identities {
        file.set_len(0).unwrap();
        place.lane(&identity, &path, boot::id().unwrap(), b"acknowledged");
        let report = place.recover();
        assert_eq!(report.outcome, LaneOutcome::Synced, "{report:?}");
        // Found, and right as it is: another process cut it in this boot.
        assert!(report.files[0].is_kept, "{report:?}");
    }
}

/// Promise (recovery): Released records that come back with an older head of a lane are not written
/// over the bytes that a file got since it was absorbed again.
#[test]
fn a_file_that_was_absorbed_again_gets_only_the_newer_records() {
    let place = Place::new();
    let (path, file) = place.file("a");
    fs::write(&path, b"newer").unwrap();
    let (identity, boot) = (identity::of(file.as_fd()).unwrap(), boot::id().unwrap());
    let owner = place.lane(&identity, &path, boot, b"older");
    let (lane, recovered) = place.pool.claim(owner, &ClaimOptions::new()).unwrap();
    drop(recovered);
    place.append(&lane, 1, &identity, &path, boot, b"newer");
    drop(lane);
    let report = place.recover();
    assert_eq!(report.outcome, LaneOutcome::Synced, "{report:?}");
    assert_eq!(fs::read(&path).unwrap(), b"newer");
}

/// Promise: as `a_symbolic_link_at_a_files_name_is_not_followed`.
#[test]
fn what_is_no_regular_file_is_not_opened() {
    let place = Place::new();
    let path = place.home.path().join("fifo");
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.unwrap().success());
    let held = rustix::fs::open(&path, OFlags::PATH, Mode::empty());
    let identity = identity::of(held.unwrap().as_fd()).unwrap();
    // Opening it for reading and writing would succeed, for reading alone wait.
    place.lane(&identity, &path, boot::id().unwrap(), b"forged");
    let report = place.recover();
    assert_ne!(report.outcome, LaneOutcome::Replayed);
}

#[test]
fn a_removal_that_was_announced_and_never_confirmed_counts() {
    let place = Place::new();
    let (path, file) = place.file("a");
    let identity = identity::of(file.as_fd()).unwrap();
    let owner = place.lane(&identity, &path, boot::id().unwrap(), b"acknowledged");
    let (lane, recovered) = place.pool.claim(owner, &ClaimOptions::new()).unwrap();
    drop(recovered);
    let head = PayloadHead {
        at: 0,
        ..PayloadHead::default()
    };
    for kind in [KIND_TRUNCATE, KIND_GONE] {
        lane.append(kind, &[IoSlice::new(&head.encode())]).unwrap();
    }
    drop(lane);
    drop(file);
    fs::remove_file(&path).unwrap();
    let report = place.recover();
    assert_eq!(report.outcome, LaneOutcome::Synced, "{report:?}");
    assert!(report.files[0].note.is_some());
}

/// Promise (recovery): A recovery takes no file for newer than the pool where it does not know
/// whether the file system was mounted all the time.
#[test]
fn no_file_is_newer_than_the_pool_where_mounts_are_unknown() {
    let mut place = Place::with(PoolOptions::new().on_disk(true));
    let (path, _file, identity) = place.file_before("a");
    for (has_mounts, outcome, content) in [
        (true, LaneOutcome::Synced, &b"before"[..]),
        (false, LaneOutcome::Replayed, b"acknowledged"),
    ] {
        place.has_mounts = has_mounts;
        place.lane(&identity, &path, boot::id().unwrap(), b"acknowledged");
        let report = place.recover();
        assert_eq!(report.outcome, outcome, "{report:?}");
        assert_eq!(fs::read(&path).unwrap(), content);
    }
}

/// Promise: as `no_file_is_newer_than_the_pool_where_mounts_are_unknown`.
#[test]
fn unknown_mounts_keep_an_emulated_pool_from_its_own_disk() {
    let mut place = Place::new();
    place.has_mounts = false;
    let (path, _file, identity) = place.file_before("a");
    place.lane(&identity, &path, boot::id().unwrap(), b"acknowledged");
    let report = place.recover();
    assert_eq!(report.outcome, LaneOutcome::Refused, "{report:?}");
    assert_eq!(fs::read(&path).unwrap(), b"before");
}

/// Promise (processes): A process that takes a lane over writes to no file that another process has
/// open.
#[test]
fn a_takeover_writes_to_no_file_that_another_process_has_open() {
    let mut place = Place::with(PoolOptions::new().on_disk(true));
    let (path, file, identity) = place.file_before("a");
    let boot = boot::id().unwrap();
    let lane = |place: &Place| place.lane(&identity, &path, boot, b"acknowledged");
    // Where it was there all the time it is newer than the lane.
    let owner = lane(&place);
    let report = take_over(&place.pool, owner).unwrap();
    assert_eq!(report.outcome, LaneOutcome::Synced, "{report:?}");
    assert_eq!(fs::read(&path).unwrap(), b"before");
    place.has_mounts = false;
    let owner = lane(&place);
    let report = take_over(&place.pool, owner).unwrap();
    assert_eq!(report.outcome, LaneOutcome::Refused, "{report:?}");
    assert_eq!(fs::read(&path).unwrap(), b"before");
    drop(file);
    let report = take_over(&place.pool, owner).unwrap();
    assert_eq!(report.outcome, LaneOutcome::Replayed, "{report:?}");
    assert_eq!(fs::read(&path).unwrap(), b"acknowledged");
    assert!(place.pool.lanes().is_empty());
}

/// Promise: as `writes_between_two_recoveries_are_not_taken_for_theirs`.
#[test]
fn a_replay_waits_for_a_just_changed_file_beside_a_newer_one() {
    let place = Place::new();
    let boot = boot::id().unwrap();
    let [a, b] = ["a", "b"].map(|name| {
        let (path, file) = place.file(name);
        fs::write(&path, b"acknowledged").unwrap();
        (identity::of(file.as_fd()).unwrap(), path)
    });
    let owner = place.lane(&a.0, &a.1, boot, b"acknowledged");
    let (lane, _) = place.pool.claim(owner, &ClaimOptions::new()).unwrap();
    place.append(&lane, 1, &b.0, &b.1, boot, b"acknowledged");
    drop(lane);
    let (lane, recovered) = place.pool.claim(owner, &ClaimOptions::new()).unwrap();
    let files = read(&place.pool, lane.number(), &recovered).unwrap();
    let situation = RecoverySituation {
        same_boot: true,
        pool_is_whole: true,
        on_disk: false,
        emulated_on: None,
        pool: place.pool.path(),
        mark: LabelMark::None,
        takes_over: false,
        options: &RecoverOptions::default(),
    };
    let plan = |file| {
        situation
            .decide(file, find(file, &LearnedPlaces::default()))
            .unwrap()
    };
    let mut plans: Vec<FilePlan> = files.iter().map(plan).collect();
    let now = || Duration::from_nanos(sys::file_time_now());
    // The clock that is asked may be a tick behind.
    let changed = now() + Duration::from_millis(9);
    let tomorrow = changed + Duration::from_secs(86_400);
    for (plan, time) in plans.iter_mut().zip([changed, tomorrow]) {
        let FilePlan::Sync(target, _) = plan else {
            panic!("it holds what the lane says");
        };
        target.modified = time;
    }
    let mut work = LaneWork::new(ReplayAttempt::new(&lane, "", LabelMark::None), false, false);
    work.begin(&files, &plans).unwrap();
    assert!(!LabelMark::None.replaying(now()).made(changed));
}
