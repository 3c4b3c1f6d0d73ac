use super::*;
use crate::{
    absorbed::TableView,
    supervisor::{
        Supervisor,
        member::tests::{member_of, supervisor},
    },
    wire::SupervisorAnswer,
};
use rustix::io::Errno;
use std::{
    cell::Cell,
    fs,
    os::{
        fd::OwnedFd,
        unix::{ffi::OsStrExt, fs::MetadataExt},
    },
    path::Path,
    thread,
    time::Instant,
};

/// After so long a test waits for what never comes.
const LIMIT: Duration = Duration::from_secs(30);

/// A supervisor with a run, and the connection of its only member.
fn supervisor_with_a_run(home: &Path) -> (Supervisor, OwnedFd) {
    let supervisor = supervisor(home, 2);
    let member = member_of(&supervisor);
    (supervisor, member)
}

pub(in crate::supervisor) fn end(supervisor: Supervisor, member: OwnedFd) {
    drop(member);
    supervisor.shared.outlast_members();
    supervisor.finish().unwrap();
}

/// A file that a process opened, and its number: the supervisor lets go of it some time after it is
/// closed.
pub(in crate::supervisor) fn register(
    shared: &SupervisorState,
    run: &RunState,
    path: &Path,
) -> (File, usize) {
    let options = &mut File::options();
    let open = options.append(true).create(true).open(path).unwrap();
    let sent = open.try_clone().unwrap();
    let bytes = path.as_os_str().as_bytes().to_vec();
    let answer = run.register(shared, std::process::id(), bytes, vec![sent.into()]);
    match answer {
        SupervisorAnswer::Absorb { file, .. } => (open, file as usize),
        other => panic!("{other:?}"),
    }
}

fn wait_until_free(run: &RunState, number: usize) {
    let begun = Instant::now();
    while run.page.files[number].stamp().state != FileState::Free {
        assert!(begun.elapsed() < LIMIT, "it is not let go of");
        thread::sleep(Duration::from_millis(1));
    }
}

/// True if this process watches the file, in whatever way.
fn is_watched(inode: u64) -> bool {
    let word = format!(" ino:{inode:x} ");
    let open = fs::read_dir("/proc/self/fdinfo").unwrap();
    let mut said = open.filter_map(|open| fs::read_to_string(open.ok()?.path()).ok());
    said.any(|said| said.contains(&word))
}

/// Promise: as `bytes_a_process_outside_synced_at_once_survive_a_power_cut`.
#[test]
fn a_file_let_go_of_is_unwatched_before_its_number_is_free() {
    let home = tempfile::tempdir().unwrap();
    let (supervisor, member) = supervisor_with_a_run(home.path());
    let shared = &supervisor.shared;
    let run = shared.running().unwrap();
    let path = home.path().join("a.log");
    let (open, number) = register(shared, &run, &path);
    let stat = fs::metadata(&path).unwrap();
    let table = TableView::open(&shared.table.path).unwrap();
    let is_known = || (table.has((stat.dev(), stat.ino())), is_watched(stat.ino()));
    assert_eq!(is_known(), (true, true));
    drop(open);
    let known = thread::scope(|scope| {
        // Who lets go of the file waits for this behind that.
        let _held = run.forgotten.lock();
        scope.spawn(|| run.reclaim(shared, |_| true));
        wait_until_free(&run, number);
        is_known()
    });
    assert_eq!(known, (false, false));
    end(supervisor, member);
}

/// Of two that wait for a first sync one may ask when it is over.
#[test]
fn a_first_sync_asked_for_too_late_keeps_no_closed_file() {
    let home = tempfile::tempdir().unwrap();
    let (supervisor, member) = supervisor_with_a_run(home.path());
    let shared = &supervisor.shared;
    let run = shared.running().unwrap();
    let (open, number) = register(shared, &run, &home.path().join("a.log"));
    let file = &run.page.files[number];
    assert!(file.first_sync.start());
    file.first_sync.end(true);
    run.page.ask_first_sync(number, DueSync::Now);
    drop(open);
    let begun = Instant::now();
    while file.stamp().state != FileState::Free {
        assert!(begun.elapsed() < LIMIT, "it is not let go of");
        run.reclaim(shared, |_| true);
        thread::sleep(Duration::from_millis(1));
    }
    end(supervisor, member);
}

/// Promise: as `a_file_that_was_absorbed_again_gets_only_the_newer_records`.
#[test]
fn a_file_that_is_absorbed_again_gets_another_number() {
    let home = tempfile::tempdir().unwrap();
    let (supervisor, member) = supervisor_with_a_run(home.path());
    let shared = &supervisor.shared;
    let run = shared.running().unwrap();
    let path = home.path().join("a.log");
    let (open, first) = register(shared, &run, &path);
    drop(open);
    run.reclaim(shared, |_| true);
    wait_until_free(&run, first);
    let (_, second) = register(shared, &run, &path);
    assert_ne!(second, first);
    // All of them have been given once.
    *run.registering.lock() = run.numbers().end;
    let (_, third) = register(shared, &run, &home.path().join("b.log"));
    assert_eq!(third, 0);
    end(supervisor, member);
}

#[test]
fn forgotten_files_beyond_the_last_path_count_for_their_pattern() {
    let mut forgotten = ForgottenFiles::default();
    assert!(forgotten.is_empty());
    for n in 0..PATHS_MAX + 100 {
        let pattern = Some(n % 2);
        forgotten.add(
            PathBuf::from(format!("{n}.log")),
            pattern,
            [1, 10, 2],
            false,
        );
    }
    // One that is known already has its own figures still.
    forgotten.add(PathBuf::from("5.log"), Some(1), [1, 10, 2], true);
    assert_eq!(forgotten.by_path.len(), PATHS_MAX);
    let file = &forgotten.by_path[&(PathBuf::from("5.log"), Some(1))];
    assert_eq!((file.counts, file.retired), ([2, 20, 4], true));
    let writes = |pattern| {
        let of = (forgotten.sums()).filter(|(of, _)| *of == Some(pattern));
        of.map(|(_, counts)| counts[0]).sum::<u64>()
    };
    let half = (PATHS_MAX + 100) as u64 / 2;
    assert_eq!([0, 1].map(writes), [half, half + 1]);
}

#[test]
fn a_closed_file_is_let_go_of_when_watches_run_out() {
    let home = tempfile::tempdir().unwrap();
    let (supervisor, member) = supervisor_with_a_run(home.path());
    let shared = &supervisor.shared;
    let run = shared.running().unwrap();
    for errno in [Errno::NOSPC, Errno::MFILE] {
        let (open, number) = register(shared, &run, &home.path().join("a.log"));
        let refused = Cell::new(0);
        let watch = || {
            let is_known = run.known(number).is_some();
            refused.set(refused.get() + u32::from(is_known));
            if is_known { Err(errno) } else { Ok(()) }
        };
        // One that is open is kept.
        assert_eq!(run.with_reclaimed(shared, watch), Err(errno));
        drop(open);
        assert_eq!(run.with_reclaimed(shared, watch), Ok(()));
        assert_eq!(refused.get(), 3);
    }
    // What is refused for another reason is not tried again.
    let denied = run.with_reclaimed(shared, || Err::<(), _>(Errno::ACCESS));
    assert_eq!(denied, Err(Errno::ACCESS));
    end(supervisor, member);
}
