use super::*;
use crate::{
    supervisor::{
        SyncLayer,
        member::tests::{member_of, supervisor_on},
    },
    wire::{self, ClientRequest, SupervisorAnswer},
};
use std::{
    io,
    os::{fd::AsFd, unix::ffi::OsStrExt},
};

/// In the place of [`END_WAIT`].
const WAIT: Duration = Duration::from_millis(50);

/// A disk whose syncs take many times that, once it is slow.
#[derive(Default)]
struct SlowDisk {
    is_slow: AtomicBool,
    slow_syncs: AtomicU32,
}

impl SyncLayer for SlowDisk {
    fn sync(
        &self,
        _file: &File,
        _data_only: bool,
        real: &mut dyn FnMut() -> io::Result<()>,
    ) -> io::Result<()> {
        if self.is_slow.load(Relaxed) {
            std::thread::sleep(10 * WAIT);
            self.slow_syncs.fetch_add(1, Relaxed);
        }
        real()
    }
}

#[test]
fn a_run_on_a_slow_disk_ends_with_nothing_left_in_the_pool() {
    let home = tempfile::tempdir().unwrap();
    let disk = Arc::new(SlowDisk::default());
    let supervisor = supervisor_on(home.path(), 2, Some(disk.clone()));
    let shared = &supervisor.shared;
    let member = member_of(&supervisor);
    let path = home.path().join("a.log");
    let file = File::create(&path).unwrap();
    let register = ClientRequest::Register {
        path: path.as_os_str().as_bytes().to_vec(),
    };
    wire::send(member.as_fd(), &register, &[file.as_fd()]).unwrap();
    let (answer, _) = wire::receive::<SupervisorAnswer>(member.as_fd()).unwrap();
    let SupervisorAnswer::Absorb { file: number, .. } = answer else {
        panic!("{answer:?}");
    };
    let run = shared.running().unwrap();
    let number = number as usize;
    run.first_sync(shared, number, run.generation(number));
    disk.is_slow.store(true, Relaxed);
    run.log().touched(number, 1).unwrap();
    drop((member, file));
    shared.outlast_members();
    run.end(shared, WAIT).unwrap();
    assert!(disk.slow_syncs.load(Relaxed) > 0 && shared.pool.lanes().is_empty());
}

#[test]
fn places_of_files_have_memory_before_they_are_used() {
    let home = tempfile::tempdir().unwrap();
    let supervisor = supervisor_on(home.path(), 2, None);
    let shared = &supervisor.shared;
    let member = member_of(&supervisor);
    let run = shared.running().unwrap();
    let reserved = || rustix::fs::fstat(&run.page_fd).unwrap().st_blocks as u64 * 512;
    for count in 1..=4 {
        assert!(run.take_more_numbers(shared));
        let used = count * PART;
        assert_eq!(run.page.used(), used);
        let parts = SharedPageLayout::parts_of(0..used);
        let needed: u64 = parts.map(|part| part.end - part.start).iter().sum();
        // And no more than that, but for the last page of either.
        assert!((needed..needed + (3 << 16)).contains(&reserved()));
    }
    drop(member);
    shared.outlast_members();
    supervisor.finish().unwrap();
}
