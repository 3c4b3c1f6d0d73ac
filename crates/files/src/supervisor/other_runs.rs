//! Other runs on this machine: one that absorbs a file which a process of this run has open lets go
//! of it first. docs/files-membership.md, "Two runs".
//!
//! Other runs are found by their tables ([`absorbed`](crate::absorbed)), whichever user's they are;
//! but only those count whose owner may write to the file: no other user can keep it from being
//! absorbed.

use super::{
    SupervisorState,
    other_pools::{self, DeadRunRecords, WantedFile},
};
use crate::{
    absorbed::{self, FileKey, StrangeTable, TableView},
    marks,
    processes::NotedProcess,
    record::silence,
    run_files::TABLE_PREFIX,
    sys,
    wire::{self, ClientRequest, SupervisorAnswer},
};
use parking_lot::Mutex;
use rustix::{fs::Stat, io::Errno, time::ClockId};
use std::{
    collections::HashSet,
    os::fd::AsFd,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};
use uuid::Uuid;

/// The longest time of another run's answer: its process has a [silence] to let go.
const ANSWER_WAIT: Duration = Duration::from_secs(15);
/// Attempts to reach it.
const ATTEMPTS: u32 = 5;

/// The outcome of asking.
pub(super) enum OtherRunAnswer {
    /// No other run absorbs the file.
    None,
    /// One did, or its lane waits for its recovery.
    LetGo(String),
    /// One does, and cannot be told.
    Unheard(String),
}

/// The tables of the other runs: looked for anew when a file came into or went from their
/// directory.
#[derive(Default)]
pub(super) struct RunTables {
    known: Mutex<Option<(DirectoryStamp, Arc<[PathBuf]>)>>,
    /// Tables of dead runs, and pools, for each of which there was a silence since this run began.
    silent: Mutex<HashSet<PathBuf>>,
}

/// The stamp that tells if a directory is unchanged: device, inode, and the time of its last
/// change.
type DirectoryStamp = (FileKey, (i64, u64));

impl RunTables {
    /// The tables but our own.
    fn others(&self, own: &Path) -> Arc<[PathBuf]> {
        let directory = Path::new(absorbed::SHARED_DIR);
        let Ok(stat) = rustix::fs::stat(directory) else {
            return Arc::default();
        };
        let changed = (stat.st_mtime, stat.st_mtime_nsec);
        let look = ((stat.st_dev, stat.st_ino), changed);
        let mut known = self.known.lock();
        if let Some((_, paths)) = known.as_ref().filter(|(last, _)| *last == look) {
            return Arc::clone(paths);
        }
        let entries = std::fs::read_dir(directory);
        let found = entries.into_iter().flatten().flatten().filter(|entry| {
            let name = entry.file_name();
            name.to_string_lossy().starts_with(TABLE_PREFIX) && entry.path() != own
        });
        let paths: Arc<[PathBuf]> = found.map(|entry| entry.path()).collect();
        // The clock of such times ticks: what came in the tick in which it was looked at may have
        // the same.
        let is_settled = rustix::time::clock_gettime(ClockId::Realtime).tv_sec > stat.st_mtime + 1;
        *known = is_settled.then(|| (look, Arc::clone(&paths)));
        paths
    }

    /// Waits for a silence, the first time that this table of a dead run, or pool, is named:
    /// nothing more comes to its lane.
    pub(super) fn be_silent(&self, whose: &Path) {
        let mut silent = self.silent.lock();
        if !silent.contains(whose) {
            thread::sleep(silence(true));
            silent.insert(whose.to_owned());
        }
    }

    /// True if the run that has this lane has a table here.
    pub(super) fn has_owner(&self, own: &Path, owner: Uuid) -> bool {
        self.others(own).iter().any(|path| {
            let fd = absorbed::open_table(path).ok();
            let table = fd.and_then(|fd| TableView::copy_of(fd.as_fd()).ok());
            let place = table.and_then(|table| table.lane.place());
            place.is_some_and(|place| place.owner == owner)
        })
    }
}

/// Asks every other run that absorbs the file, given with the time when it was made, to let go of
/// it, and waits. The file lies in this directory, and may be known to be open nowhere else.
pub(super) fn let_go(
    shared: &SupervisorState,
    file: (FileKey, u64),
    wanted: WantedFile<'_>,
    (directory, alone): (&Path, Result<bool, Errno>),
) -> OtherRunAnswer {
    let mut found = OtherRunAnswer::None;
    for path in shared.tables.others(&shared.table.path).iter() {
        let (table, process) = match look_at(path, shared.boot, file, wanted.stat) {
            None => continue,
            Some(TableFinding::Absorber(table, process)) => (table, process),
            Some(TableFinding::Strange(table)) => {
                let is_marked = marks::are_possible(directory);
                match of_another_version(path, &table, is_marked, alone) {
                    OtherRunAnswer::None => continue,
                    unheard @ OtherRunAnswer::Unheard(_) => return unheard,
                    answer => found = answer,
                }
                thread::sleep(silence(true));
                continue;
            }
        };
        let who = format!("process {} of another forebay run", process.id);
        if table.is_alive() {
            if let Err(errno) = ask(&table.socket(), file.0) {
                return OtherRunAnswer::Unheard(format!(
                    "{who} absorbs it, and its supervisor does not answer: {errno}"
                ));
            }
            found = OtherRunAnswer::LetGo(format!("{who} absorbed it"));
            continue;
        }
        if process.lives() {
            // It lets go at its next call; one that does nothing logs nothing. Its pool may be on a
            // disk.
            thread::sleep(silence(true));
            found = OtherRunAnswer::LetGo(format!(
                "{who}, whose supervisor was killed, absorbed it: forebay recover brings that pool's records to the file"
            ));
            continue;
        }
        match other_pools::left_by(shared, (path, &table), wanted) {
            DeadRunRecords::Nothing => {}
            // What that lane had is older than all that follows, for every recovery to see.
            DeadRunRecords::Replaced => table
                .to_note(path)
                .iter()
                .for_each(|own| own.lane.set_settled()),
            DeadRunRecords::Something(what) => {
                let why = format!("records of it may wait in {what}");
                let what = format!("{who}, which was killed, absorbed a file of this one: {why}");
                sys::complain_repeated(&what, &what);
                found = OtherRunAnswer::LetGo(why);
            }
        }
    }
    found
}

/// A table's finding on the file.
enum TableFinding {
    /// This process absorbs it.
    Absorber(TableView, NotedProcess),
    /// Nothing that is understood.
    Strange(StrangeTable),
}

/// The meaning of a run of another version for the file. What it absorbs is not known, and it
/// understands no question. Of a file that nobody else has open, records may wait in its pool at
/// most: the directory's marks say which that is ([`other_pools::check_marked`]). Where there can
/// be none the file stays plain here, and what is written to it comes after a silence.
fn of_another_version(
    path: &Path,
    table: &StrangeTable,
    is_marked: bool,
    alone: Result<bool, Errno>,
) -> OtherRunAnswer {
    let shown = path.display();
    let is_alone = alone == Ok(true) || table.is_over();
    if is_alone && is_marked {
        return OtherRunAnswer::None;
    }
    if is_alone {
        return OtherRunAnswer::LetGo(format!(
            "records of it may wait in the pool of a run of another version of forebay. Start that run's program anew under this version; if it has ended, forebay recover its pool, and remove {shown}"
        ));
    }
    OtherRunAnswer::Unheard(format!(
        "a run that may absorb it is of another version of forebay ({shown}): start its program anew under this version first"
    ))
}

/// The finding of the table at `path` on the file, if it counts.
fn look_at(
    path: &Path,
    boot: Uuid,
    (key, born): (FileKey, u64),
    stat: &Stat,
) -> Option<TableFinding> {
    let fd = absorbed::open_table(path).ok()?;
    let owner = rustix::fs::fstat(&fd).ok()?.st_uid;
    if !sys::may_write(owner, stat) {
        return None;
    }
    let Ok(table) = TableView::copy_of(fd.as_fd()) else {
        return StrangeTable::of(fd, boot).map(TableFinding::Strange);
    };
    let process = table.is_of(boot).then(|| table.holder_of(key, born))??;
    // As it was when it was copied. Of one whose supervisor died meanwhile asking fails.
    Some(TableFinding::Absorber(table, process))
}

fn ask(socket_name: &[u8], (dev, ino): FileKey) -> Result<(), Errno> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        let done = ask_once(socket_name, (dev, ino));
        if done.is_ok() || attempt == ATTEMPTS {
            return done;
        }
        thread::sleep(Duration::from_millis(100));
    }
}

fn ask_once(socket_name: &[u8], (dev, ino): FileKey) -> Result<(), Errno> {
    let socket = wire::connect(socket_name, Some(ANSWER_WAIT))?;
    wire::send(
        socket.as_fd(),
        &ClientRequest::OtherRunAnswer { dev, ino },
        &[],
    )?;
    match wire::receive::<SupervisorAnswer>(socket.as_fd())? {
        (SupervisorAnswer::Done, _) => Ok(()),
        _ => Err(Errno::ACCESS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, fs::File};

    /// Promise (files): A run refuses to write to a file that is open elsewhere while a run of
    /// another version of Forebay may absorb it.
    #[test]
    fn table_of_another_version_is_no_missing_table() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("table");
        let boot = Uuid::from_u128(7);
        fs::write(&path, absorbed::head_of_another_layout(boot)).unwrap();
        let stat = rustix::fs::stat(&path).unwrap();
        let found = |boot| look_at(&path, boot, ((8, 9), 5), &stat);
        assert!(found(Uuid::from_u128(8)).is_none());
        let of = |is_marked, alone| match found(boot) {
            Some(TableFinding::Strange(table)) => {
                of_another_version(&path, &table, is_marked, alone)
            }
            _ => panic!("it is not seen"),
        };
        let said = |alone| of(false, alone);
        // Nobody has the table any more, but for a moment a child that another test starts.
        let is_over = |_| {
            thread::sleep(Duration::from_millis(10));
            matches!(said(Ok(false)), OtherRunAnswer::LetGo(_))
        };
        assert!((0..500).any(is_over));
        let _held = File::open(&path).unwrap();
        for alone in [Ok(false), Err(Errno::ACCESS)] {
            let OtherRunAnswer::Unheard(why) = said(alone) else {
                panic!("{alone:?}");
            };
            assert!(why.contains("another version of forebay"), "{why}");
        }
        assert!(matches!(said(Ok(true)), OtherRunAnswer::LetGo(_)));
        assert!(matches!(of(true, Ok(true)), OtherRunAnswer::None));
        assert!(matches!(of(true, Ok(false)), OtherRunAnswer::Unheard(_)));
        fs::write(&path, b"absorbed by nobody, of no version").unwrap();
        assert!(found(boot).is_none());
    }
}
