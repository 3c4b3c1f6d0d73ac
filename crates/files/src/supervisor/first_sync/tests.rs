use super::*;
use crate::{
    supervisor::{
        SyncLayer,
        forgotten_files::tests::{end, register},
        member::tests::{member_of, supervisor_on},
    },
    test_mount::Mounted,
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
    let member = member_of(&supervisor);
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
    let member = member_of(&supervisor);
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

/// The device and inode of a file, or directory.
fn key_at(path: &Path) -> FileKey {
    let stat = rustix::fs::stat(path).unwrap();
    (stat.st_dev, stat.st_ino)
}

/// A disk that says what was synced.
#[derive(Default)]
struct ListingDisk(Mutex<Vec<FileKey>>);

impl SyncLayer for ListingDisk {
    fn sync(
        &self,
        file: &File,
        _data_only: bool,
        real: &mut dyn FnMut() -> io::Result<()>,
    ) -> io::Result<()> {
        let stat = rustix::fs::fstat(file)?;
        self.0.lock().push((stat.st_dev, stat.st_ino));
        real()
    }
}

/// Promise: as `synced_log_is_found_after_a_cut_by_each_name_it_had`.
#[test]
fn directory_is_synced_unless_the_files_own_journal_has_it() {
    let (Some(one), Some(other)) = (
        Mounted::made(&["mkfs.ext4", "-q"]),
        Mounted::made(&["mkfs.ext4", "-q", "-O", "^has_journal"]),
    ) else {
        return;
    };
    // A file of the one without a journal, mounted alone over one of the other's.
    let (there, here) = (other.path().join("t.log"), one.path().join("a.log"));
    for path in [&there, &here] {
        std::fs::write(path, "").unwrap();
    }
    let home = tempfile::tempdir().unwrap();
    let disk = Arc::new(ListingDisk::default());
    let supervisor = supervisor_on(home.path(), 2, Some(disk.clone()));
    let shared = &supervisor.shared;
    let member = member_of(&supervisor);
    let run = shared.running().unwrap();
    let is_synced = |path: &Path| {
        let (_open, number) = register(shared, &run, path);
        disk.0.lock().clear();
        run.first_sync(shared, number, run.generation(number));
        assert!(run.page.files[number].is_logged());
        disk.0.lock().contains(&key_at(path.parent().unwrap()))
    };
    assert!(!is_synced(&one.path().join("b.log")));
    assert!(is_synced(&other.path().join("b.log")));
    let Some(alone) = Mounted::over(&there, &here) else {
        return;
    };
    let is_synced = is_synced(&here);
    drop(alone);
    assert!(is_synced, "a journal of another file system has its name");
    end(supervisor, member);
}

#[test]
fn what_is_known_of_a_journal_ends_with_the_open_file() {
    let syncs = FirstSyncs::default();
    let open = Arc::new(File::open("/dev/null").unwrap());
    let (has_names, device) = (true, u64::MAX);
    let journal = KnownJournal {
        has_names,
        open: Arc::downgrade(&open),
    };
    syncs.journals.lock().insert(device, journal);
    assert!(syncs.journals_names(device, &open));
    drop(open);
    // Another file system, whose journal has none, has the device by now.
    let open = Arc::new(File::open("/dev/null").unwrap());
    assert!(!syncs.journals_names(device, &open));
}

/// Promise: as `file_that_is_closed_unsynced_is_never_synced`.
#[test]
fn what_is_closed_unsynced_at_the_end_of_the_run_is_let_go_of() {
    let home = tempfile::tempdir().unwrap();
    let disk = Arc::new(ListingDisk::default());
    let supervisor = supervisor_on(home.path(), 2, Some(disk.clone()));
    let shared = &supervisor.shared;
    let member = member_of(&supervisor);
    let run = shared.running().unwrap();
    let [closed, open] = ["a.log", "b.log"].map(|name| home.path().join(name));
    let held = [&closed, &open].map(|path| register(shared, &run, path));
    let [(file, number), (kept, other)] = held;
    for number in [number, other] {
        run.page.ask_first_sync(number, DueSync::Soon);
    }
    drop(file);
    drop(member);
    shared.outlast_members();
    run.first_sync_all(shared);
    let synced = |path| disk.0.lock().contains(&key_at(path));
    assert_eq!([&closed, &open].map(|path| synced(path)), [false, true]);
    drop(kept);
    supervisor.finish().unwrap();
}
