//! Records that wait for a file in a pool, from runs that ended without bringing them to it.
//! docs/files-membership.md, "Two runs".
//!
//! Lanes are only looked at, and nothing is claimed. A lane that a process has is not looked into.

use crate::{lane_label::is_files, lane_place::LanePlace, record, sys};
use forebay_pool::{LaneCheck, LaneStatus, Pool, PoolOptions};
use rustix::{
    fs::{Dev, FileType, Mode, OFlags},
    io::Errno,
};
use std::{
    collections::{BTreeSet, HashMap},
    fs::File,
    os::fd::AsFd,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

/// A process that only looks into a lane has it for a moment: so often, and so long, it is waited
/// for.
const LOOKS: u32 = 5;
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Records of a file in a lane that no process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PendingRecords {
    /// Wall clocks of the first and the last one.
    pub(crate) first: Duration,
    pub(crate) last: Duration,
    /// The boot in which they were written, and the mount that the file was on, if that is known.
    pub(crate) boot: [u8; 16],
    pub(crate) mount: Option<u64>,
}

impl PendingRecords {
    fn and(self, other: Self) -> Self {
        let newer = match self.last < other.last {
            true => other,
            false => self,
        };
        Self {
            first: self.first.min(other.first),
            ..newer
        }
    }
}

/// The records found of a file in a lane.
pub(crate) enum LaneFinding {
    /// No record of it.
    Nothing,
    /// These.
    Records(PendingRecords),
    /// A process has the lane.
    InUse,
}

/// The lanes of a pool that runs have, or left.
pub(crate) fn lanes(pool: &Pool) -> impl Iterator<Item = LaneStatus> {
    let all = pool.lanes().into_iter();
    all.filter(|lane| is_files(&lane.label))
}

/// Opens a pool at a path that a mark or a table says, to look at it: as [`open_with`], wherever it
/// lies.
///
/// # Errors
/// In words.
pub(crate) fn open(path: &Path) -> Result<Pool, String> {
    let opened = open_with(&PoolOptions::new().emulated(true), path);
    opened.map_err(|unopened| unopened.why)
}

/// A pool that was not opened.
#[derive(Debug)]
pub struct UnopenedPool {
    /// In words.
    pub why: String,
    /// True if there is no pool at that path, whatever else may be; false if one may be, which
    /// cannot be read now.
    pub is_gone: bool,
}

/// Opens a pool at a path that was found somewhere, perhaps another user's words. What can be no
/// pool is not opened: of many a device (a watchdog, a tape) that alone does something, and for the
/// other end of a FIFO it waits.
///
/// # Errors
/// Why not.
pub fn open_with(options: &PoolOptions, path: &Path) -> Result<Pool, UnopenedPool> {
    let unopened = |is_gone, why: &dyn std::fmt::Display| UnopenedPool {
        why: format!("{}: {why}", path.display()),
        is_gone,
    };
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let seen = rustix::fs::open(path, flags, Mode::empty())
        .map_err(|e| unopened(matches!(e, Errno::NOENT | Errno::NOTDIR), &e))?;
    let stat = rustix::fs::fstat(&seen).map_err(|e| unopened(false, &e))?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    let may_be_one = match kind {
        FileType::RegularFile | FileType::BlockDevice => true,
        FileType::CharacterDevice => is_memory(stat.st_rdev),
        _ => false,
    };
    if !may_be_one {
        // What a device is cannot be told without /sys.
        let is_gone = kind != FileType::CharacterDevice;
        return Err(unopened(is_gone, &"it is no pool"));
    }
    let mut access = File::options();
    let file = access
        .read(true)
        .write(true)
        .open(sys::link_of(seen.as_fd()));
    let opened = options.open_file(path, file.map_err(|e| unopened(false, &e))?);
    opened.map_err(|e| UnopenedPool {
        why: e.to_string(),
        is_gone: false,
    })
}

/// True if a character device is persistent memory.
fn is_memory(device: Dev) -> bool {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let subsystem = std::fs::read_link(format!("/sys/dev/char/{major}:{minor}/subsystem"));
    subsystem.is_ok_and(|subsystem| subsystem.ends_with("dax"))
}

/// Looks for records of the file in a lane.
///
/// # Errors
/// In words: it is damaged, or cannot be read.
pub(crate) fn in_lane(pool: &Pool, lane: u32, identity: &[u8]) -> Result<LaneFinding, String> {
    let mut found = FileRecords::default();
    let check = look_again(|| {
        pool.look_into_lane(lane, |record| {
            found.add(record.header.kind, record.payload, identity);
        })
    });
    match check {
        LaneCheck::InUse => Ok(LaneFinding::InUse),
        LaneCheck::Damaged(e) => Err(e.to_string()),
        LaneCheck::Whole { .. } => match (found.wrong, found.waiting) {
            (Some(why), _) => Err(format!("{}: {why}", pool.path().display())),
            (None, Some(waiting)) => Ok(LaneFinding::Records(waiting)),
            (None, None) => Ok(LaneFinding::Nothing),
        },
    }
}

/// Looks into a lane, and again if a process has it: perhaps one that only looks, too. No record is
/// found before that.
fn look_again(mut look: impl FnMut() -> LaneCheck) -> LaneCheck {
    for _ in 1..LOOKS {
        match look() {
            LaneCheck::InUse => thread::sleep(LOOK_AGAIN),
            check => return check,
        }
    }
    look()
}

/// The marks by which a lane names a file: the boot, and the mount if it is known.
type BootMount = ([u8; 16], Option<u64>);

/// A lane's records of one file.
#[derive(Default)]
struct FileRecords {
    /// By number, if it is this file.
    numbers: HashMap<u32, Option<BootMount>>,
    waiting: Option<PendingRecords>,
    /// The fault of a record.
    wrong: Option<String>,
}

impl FileRecords {
    fn add(&mut self, kind: u16, payload: &[u8], identity: &[u8]) {
        let (head, change) = match record::decode(kind, payload) {
            Ok(decoded) => decoded,
            Err(why) => {
                self.wrong = Some(why);
                return;
            }
        };
        if let record::FileChange::File {
            boot,
            identity: whose,
            ..
        } = change
        {
            let mount = (head.at != 0).then_some(head.at);
            let is_it = whose == identity;
            self.numbers
                .insert(head.file, is_it.then_some((boot, mount)));
        }
        if let Some(Some((boot, mount))) = self.numbers.get(&head.file) {
            let time = Duration::from_nanos(head.time);
            let this = PendingRecords {
                first: time,
                last: time,
                boot: *boot,
                mount: *mount,
            };
            self.waiting = Some(self.waiting.map_or(this, |before| before.and(this)));
        }
    }
}

/// The files that the lanes of a pool name which no process has, by identity: their paths. Of a
/// damaged lane those before the damage: a recovery that discards it brings these records home.
pub(crate) fn files(pool: &Pool) -> HashMap<Vec<u8>, Vec<PathBuf>> {
    let mut files: HashMap<_, Vec<_>> = HashMap::new();
    for lane in lanes(pool) {
        look_again(|| {
            pool.look_into_damaged_lane(lane.lane, |record| {
                if let Ok((_, record::FileChange::File { identity, path, .. })) =
                    record::decode(record.header.kind, record.payload)
                {
                    let paths = files.entry(identity.to_owned()).or_default();
                    paths.push(path.to_owned());
                }
            })
        });
    }
    files
}

/// The directories of the files that the lanes of a pool name which no process has.
pub fn directories(pool: &Pool) -> BTreeSet<PathBuf> {
    let paths = files(pool).into_values().flatten();
    let parents = paths.filter_map(|path| Some(path.parent()?.to_owned()));
    parents.filter(|it| it.is_absolute()).collect()
}

/// False if nothing of a dead run's lane can come to a file any more: it was given back, or its
/// pool was made anew.
pub(crate) fn may_wait(place: &LanePlace) -> bool {
    let Ok(pool) = open(&place.path) else {
        return true;
    };
    if pool.uuid() != place.pool {
        // It may have been moved: who comes across the table's files waits until a recovery tells
        // its records from what came later.
        return true;
    }
    let lane = lanes(&pool).find(|lane| lane.owner == place.owner);
    lane.is_some_and(|lane| {
        let check = pool.check_lane(lane.lane);
        !matches!(check, LaneCheck::Whole { records: 0, .. })
    })
}

/// The remains of a dead run's lane.
pub(crate) enum LaneRemains {
    /// Nothing; or its pool is not there any more.
    Nothing,
    /// So many records.
    Records(u64),
    /// That cannot be told.
    Unknown,
}

/// The remains of a dead run's lane, for its user: unlike [`may_wait`], nothing waits in a pool
/// that was removed.
pub(crate) fn left(place: &LanePlace) -> LaneRemains {
    let pool = match open_with(&PoolOptions::new().emulated(true), &place.path) {
        Ok(pool) if pool.uuid() == place.pool => pool,
        Ok(_) => return LaneRemains::Nothing,
        Err(unopened) if unopened.is_gone => return LaneRemains::Nothing,
        Err(_) => return LaneRemains::Unknown,
    };
    let Some(lane) = lanes(&pool).find(|lane| lane.owner == place.owner) else {
        return LaneRemains::Nothing;
    };
    match pool.check_lane(lane.lane) {
        // A process that has it recovers it.
        LaneCheck::InUse | LaneCheck::Whole { records: 0, .. } => LaneRemains::Nothing,
        LaneCheck::Whole { records, .. } => LaneRemains::Records(records),
        LaneCheck::Damaged(_) => LaneRemains::Unknown,
    }
}

/// Time of the last record that waits in a pool for any file; none if none does.
pub fn last_record(pool: &Pool) -> Option<Duration> {
    let mut last = None;
    for lane in lanes(pool) {
        let _ = pool.look_into_lane(lane.lane, |record| {
            if let Ok((head, _)) = record::decode(record.header.kind, record.payload) {
                last = last.max(Some(Duration::from_nanos(head.time)));
            }
        });
    }
    last
}
