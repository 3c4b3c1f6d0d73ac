use super::*;
use crate::{
    supervisor::{
        SyncLayer,
        forgotten_files::tests::{end, register},
        member::tests::{hello, supervisor_on},
    },
    wire::SupervisorAnswer,
};
use std::{io, path::Path, sync::atomic::AtomicBool, sync::mpsc};

/// After so long a test waits for what never comes.
const LIMIT: Duration = Duration::from_secs(30);

/// A disk on which the first sync of all hangs until it is let go on.
struct HangingDisk {
    is_first: AtomicBool,
    hangs: Mutex<mpsc::Sender<()>>,
    go_on: Mutex<mpsc::Receiver<()>>,
}

impl SyncLayer for HangingDisk {
    fn sync(
        &self,
        _file: &File,
        _data_only: bool,
        real: &mut dyn FnMut() -> io::Result<()>,
    ) -> io::Result<()> {
        if self.is_first.swap(false, Relaxed) {
            self.hangs.lock().send(()).unwrap();
            let _ = self.go_on.lock().recv_timeout(LIMIT);
        }
        real()
    }

    fn is_elsewhere(&self, _path: &Path) -> bool {
        false
    }
}

/// Promise: as `synced_log_is_found_after_a_cut_by_each_name_it_had`.
#[test]
fn a_first_sync_that_outlasts_its_file_is_not_the_next_ones() {
    let home = tempfile::tempdir().unwrap();
    let (hangs, hung) = mpsc::channel();
    let (go_on, going_on) = mpsc::channel();
    let disk = HangingDisk {
        is_first: AtomicBool::new(true),
        hangs: Mutex::new(hangs),
        go_on: Mutex::new(going_on),
    };
    let supervisor = supervisor_on(home.path(), 2, Some(Arc::new(disk)));
    let shared = &supervisor.shared;
    let (member, answer, _) = hello(&supervisor.socket_name, shared.token);
    assert!(
        matches!(answer, SupervisorAnswer::Welcome { .. }),
        "{answer:?}"
    );
    let run = shared.running().unwrap();
    let (_open, number) = register(shared, &run, &home.path().join("a.log"));
    let generation = run.generation(number);
    std::fs::create_dir(home.path().join("d")).unwrap();
    let _next = thread::scope(|scope| {
        let outlasting = scope.spawn(|| run.first_sync(shared, number, generation));
        hung.recv_timeout(LIMIT).unwrap();
        run.retire(shared, number, generation, LIMIT).unwrap();
        // The number is given next.
        *run.registering.lock() = number;
        let (next, same) = register(shared, &run, &home.path().join("d/b.log"));
        assert_eq!(same, number);
        let file = &run.page.files[number];
        go_on.send(()).unwrap();
        outlasting.join().unwrap();
        assert!(!file.is_logged() && !file.first_sync.is_under_way());
        assert!(run.known(number).unwrap().directory.is_none());
        // It has its own.
        run.first_sync(shared, number, run.generation(number));
        assert!(file.is_logged());
        next
    });
    end(supervisor, member);
}

/// Promise: as `synced_log_is_found_after_a_cut_by_each_name_it_had`.
#[test]
fn a_first_sync_does_not_wait_for_the_one_of_the_file_before() {
    let home = tempfile::tempdir().unwrap();
    let supervisor = supervisor_on(home.path(), 2, None);
    let shared = &supervisor.shared;
    let (member, ..) = hello(&supervisor.socket_name, shared.token);
    let run = shared.running().unwrap();
    let (_open, number) = register(shared, &run, &home.path().join("a.log"));
    let generation = run.generation(number);
    // That of the file that had the number before hangs still.
    let before = (number, generation.wrapping_sub(1));
    run.first_syncs.begun.lock().push(before);
    run.begin_first_sync(shared, number, generation);
    let begun = MonotonicTime::now();
    while !run.page.files[number].is_logged() {
        assert!(begun.elapsed() < LIMIT, "it has no first sync");
        thread::sleep(Duration::from_millis(1));
    }
    end(supervisor, member);
}
