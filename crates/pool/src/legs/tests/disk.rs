//! Legs on a disk of this machine, beside those in other machines' memory.

use super::{
    BYTES, LEG_BYTES,
    pool::{create_on, join, log},
    server::{FakeServer, until},
};
use crate::{
    ClaimOptions, PoolOptions, Uuid,
    legs::{address::LegAddress, link::LegLink, superblock::LEG_DATA},
};
use rustix::fs::{FlockOperation, flock};
use std::{
    fs::{self, File},
    io::IoSlice,
    path::PathBuf,
    sync::mpsc,
    time::Duration,
};

/// A directory beside this program: a temporary directory may be in memory.
fn on_disk() -> tempfile::TempDir {
    let program = std::env::current_exe().unwrap();
    tempfile::tempdir_in(program.parent().unwrap()).unwrap()
}

/// A pool on a server and in the file `leg` beside the pool's, and what each is called.
struct DiskAndServer {
    dir: tempfile::TempDir,
    server: FakeServer,
}

impl DiskAndServer {
    fn new() -> Self {
        Self {
            dir: on_disk(),
            server: FakeServer::start(LEG_BYTES),
        }
    }

    fn pool(&self) -> PathBuf {
        self.dir.path().join("pool")
    }

    fn leg(&self) -> String {
        self.dir.path().join("leg").to_str().unwrap().to_owned()
    }

    fn urls(&self) -> Vec<String> {
        vec![self.server.url(), self.leg()]
    }

    /// The records of a lane when this leg is given up.
    fn recovered_without(&self, leg: &str, owner: Uuid) -> Vec<Vec<u8>> {
        let given_up = vec![leg.to_owned()];
        let opened = PoolOptions::new().lost_legs(given_up).open(self.pool());
        let (_lane, found) = opened.unwrap().claim(owner, &ClaimOptions::new()).unwrap();
        found.records().map(|it| it.payload.to_vec()).collect()
    }
}

/// Promise (pool): With one leg on this machine's disk and one in another machine's memory, what
/// was committed is recovered from either alone.
#[test]
fn either_a_disk_or_another_machine_has_what_was_committed() {
    for lost in 0..2 {
        let place = DiskAndServer::new();
        let pool = create_on(&place.pool(), place.urls()).unwrap();
        let owner = Uuid::new_v4();
        let lane = pool.claim_shared(owner, &ClaimOptions::new()).unwrap();
        let member = join(&place.pool(), &pool, &lane);
        for text in ["one", "two"] {
            assert!(log(&member, text));
        }
        assert!(!member.is_degraded());
        drop((member, lane));
        drop(pool);
        match lost {
            0 => place.server.stop(false),
            _ => fs::remove_file(place.leg()).unwrap(),
        }
        let refused = PoolOptions::new().open(place.pool()).map(drop).unwrap_err();
        assert!(
            refused.to_string().contains(&place.urls()[lost]),
            "{refused}"
        );
        let found = place.recovered_without(&place.urls()[lost], owner);
        assert_eq!(found, [b"one", b"two"], "without {}", place.urls()[lost]);
    }
}

/// Promise (pool): A leg on a disk that fails costs no commit, and is made complete when it is
/// there again, empty.
#[test]
fn a_disk_that_fails_is_out_until_it_is_complete_again() {
    let place = DiskAndServer::new();
    let pool = create_on(&place.pool(), place.urls()).unwrap();
    let owner = Uuid::new_v4();
    let lane = pool.claim_shared(owner, &ClaimOptions::new()).unwrap();
    let member = join(&place.pool(), &pool, &lane);
    assert!(log(&member, "on both"));
    let leg = File::options().write(true).open(place.leg()).unwrap();
    leg.set_len(0).unwrap();
    until("word of the leg", || member.is_degraded());
    assert!(log(&member, "on one"));
    let told = pool.degradation().unwrap();
    assert!(told.contains(&place.leg()), "{told}");
    leg.set_len(LEG_BYTES as u64).unwrap();
    until("a complete leg", || pool.degradation().is_none());
    assert!(log(&member, "on both again"));
    drop((member, lane));
    drop(pool);
    place.server.stop(false);
    let found = place.recovered_without(&place.server.url(), owner);
    assert_eq!(found.len(), 3);
}

/// A disk keeps what it has when the power of all machines fails, also what is old.
///
/// Promise (pool): A leg on a disk that was left out is believed by no recovery, whatever else is
/// lost.
#[test]
fn a_disk_that_was_left_out_is_never_believed() {
    let place = DiskAndServer::new();
    let pool = create_on(&place.pool(), place.urls()).unwrap();
    let owner = Uuid::new_v4();
    let lane = pool.claim_shared(owner, &ClaimOptions::new()).unwrap();
    let member = join(&place.pool(), &pool, &lane);
    assert!(log(&member, "on both"));
    let old = fs::read(place.leg()).unwrap();
    let leg = File::options().write(true).open(place.leg()).unwrap();
    leg.set_len(0).unwrap();
    until("word of the leg", || member.is_degraded());
    assert!(log(&member, "on one"));
    drop((member, lane));
    drop(pool);
    // The disk is there again, as it was; the other machine has lost its memory.
    fs::write(place.leg(), old).unwrap();
    place.server.stop(true);
    place.server.go_on();
    for given_up in [vec![], vec![place.server.url()]] {
        let opened = PoolOptions::new()
            .lost_legs(given_up.clone())
            .open(place.pool());
        let said = opened.map(drop).unwrap_err().to_string();
        let why = if given_up.is_empty() {
            "--lost-leg"
        } else {
            "left out"
        };
        assert!(said.contains(why), "{said}");
    }
}

/// A name such as /dev/vdb may lead to another disk after the next boot.
///
/// Promise (pool): A disk that holds something else is not brought up to date, also where its
/// beginning is empty.
#[test]
fn a_disk_that_holds_something_else_stays_out() {
    let place = DiskAndServer::new();
    drop(create_on(&place.pool(), place.urls()).unwrap());
    // As of btrfs, whose first 64 KiB are empty.
    let mut foreign = vec![0; LEG_BYTES];
    foreign[(64 << 10) + 64..][..8].copy_from_slice(b"_BHRfS_M");
    fs::write(place.leg(), &foreign).unwrap();
    let given_up = vec![place.leg()];
    let opened = PoolOptions::new().lost_legs(given_up).open(place.pool());
    let pool = opened.unwrap();
    let _lane = pool.claim(Uuid::new_v4(), &ClaimOptions::new()).unwrap();
    until("word of what it holds", || {
        pool.describe().contains("Btrfs")
    });
    assert_eq!(fs::read(place.leg()).unwrap(), foreign);
    // Emptied by who knows, it is.
    fs::write(place.leg(), vec![0; LEG_BYTES]).unwrap();
    until("a complete leg", || pool.degradation().is_none());
}

/// Promise (pool): Copies that are all on this machine are too few, however many they are.
#[test]
fn copies_on_this_machine_alone_are_too_few() {
    let place = DiskAndServer::new();
    let options = PoolOptions::new().size(BYTES as u64).segment_size(64 << 10);
    let made = options.lanes(4).legs(place.urls()).copies(Some(1));
    let pool = made.create(place.pool()).unwrap();
    let owner = Uuid::new_v4();
    let lane = pool.claim_shared(owner, &ClaimOptions::new()).unwrap();
    let member = join(&place.pool(), &pool, &lane);
    assert!(log(&member, "on both") && !member.is_degraded());
    place.server.stop(true);
    assert!(log(&member, "on the disk") && member.is_degraded());
    place.server.go_on();
    until("a copy elsewhere", || pool.degradation().is_none());
    // Without the disk one copy elsewhere is as many as were wanted.
    fs::write(place.leg(), []).unwrap();
    until("the disk's loss", || pool.describe().contains("OUT"));
    assert!(log(&member, "elsewhere") && !member.is_degraded());
}

/// A hung disk's write may come when another process writes already: the lock says that it is not
/// over.
#[test]
fn a_disk_is_written_to_by_one_process_at_a_time() {
    let place = DiskAndServer::new();
    let owner = Uuid::new_v4();
    drop(create_on(&place.pool(), place.urls()).unwrap());
    let other = File::open(place.leg()).unwrap();
    flock(&other, FlockOperation::LockExclusive).unwrap();
    let pool = PoolOptions::new().open(place.pool()).unwrap();
    let (lane, _) = pool.claim(owner, &ClaimOptions::new()).unwrap();
    let told = pool.degradation().unwrap();
    assert!(told.contains(&place.leg()), "{told}");
    // It does without, until the other process has ended.
    lane.append(1, &[IoSlice::new(b"record")]).unwrap();
    drop(other);
    until("a complete leg", || pool.degradation().is_none());
}

#[test]
fn a_disk_that_hangs_is_no_leg_any_more() {
    let dir = on_disk();
    let path = dir.path().join("leg");
    fs::write(&path, vec![0; LEG_BYTES]).unwrap();
    let address = LegAddress::parse(path.to_str().unwrap()).unwrap();
    let link = LegLink::connect(&address, false).unwrap();
    // Before there is a thread.
    link.write_and_wait(LEG_DATA, &[1; 4096]).unwrap();
    link.pipeline().unwrap();
    let mut page = [0; 4096];
    link.read(LEG_DATA, &mut page).unwrap();
    assert_eq!(page, [1; 4096]);
    let (told, heard) = mpsc::channel();
    let hung = link.hang();
    for byte in [2, 3] {
        let told = told.clone();
        link.write(LEG_DATA, &[byte; 4096], move |answer| {
            told.send(answer).unwrap()
        });
    }
    for _ in 0..2 {
        let answer = heard.recv_timeout(Duration::from_secs(20)).unwrap();
        let error = answer.unwrap_err().to_string();
        assert!(error.contains("the disk left a request"), "{error}");
    }
    // Another one is not done any more, whatever becomes of the first.
    drop(hung);
    until("the lock's end", || {
        let other = File::open(&path).unwrap();
        flock(&other, FlockOperation::NonBlockingLockExclusive).is_ok()
    });
    let at = LEG_DATA as usize;
    let found = fs::read(&path).unwrap()[at];
    assert!(found == 1 || found == 2, "{found}");
}

/// Promise (pool): What cannot be a leg on a disk is refused in words, and nothing is left of the
/// pool.
#[test]
fn a_disk_that_can_be_no_leg_is_refused_with_the_reason() {
    let place = DiskAndServer::new();
    let refused = |urls: Vec<String>| {
        let refused = create_on(&place.pool(), urls).map(drop).unwrap_err();
        assert!(!place.pool().exists(), "{refused}");
        refused.to_string()
    };
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let in_memory = memory.path().join("leg");
    for (urls, why) in [
        (vec![place.leg()], "--disk"),
        (
            vec![place.server.url(), "/no/such/leg".to_owned()],
            "/no/such/leg",
        ),
        (vec![place.server.url(), "leg".to_owned()], "whole path"),
        (
            vec![place.server.url(), in_memory.to_str().unwrap().to_owned()],
            "memory",
        ),
    ] {
        let said = refused(urls);
        assert!(said.contains(why), "{why}: {said}");
    }
    assert!(!in_memory.exists());
    fs::write(place.leg(), "somebody's").unwrap();
    let said = refused(place.urls());
    assert!(said.contains(&place.leg()), "{said}");
    assert_eq!(fs::read(place.leg()).unwrap(), b"somebody's");
    fs::remove_file(place.leg()).unwrap();
    place.server.stop(false);
    let _ = refused(place.urls());
    assert!(!fs::exists(place.leg()).unwrap(), "a leg is left");
    // A leg that is too small when it is used.
    let small = DiskAndServer::new();
    drop(create_on(&small.pool(), small.urls()).unwrap());
    let leg = File::options().write(true).open(small.leg()).unwrap();
    leg.set_len((BYTES / 2) as u64).unwrap();
    small.server.stop(false);
    let opened = PoolOptions::new().open(small.pool()).map(drop);
    let said = opened.unwrap_err().to_string();
    assert!(said.contains("are needed"), "{said}");
}
