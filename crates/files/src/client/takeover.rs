//! Without a supervisor, and without a member that could settle the lane: a process that is about
//! to write past it brings it to its files. docs/files-membership.md, "Taking over".
//!
//! 1. The lock of the lane's recovery keeps all others waiting, also an administrator's recovery.
//! 2. The lane is claimed. That is refused as long as a member lives, who settles it at its next
//!    call.
//! 3. Its files are synced, and the lane is given back, as a recovery does it
//!    ([`replay::take_over`]). Nothing is written to a file that another process may write to
//!    meanwhile: the kernel says by a lease that none has it open, and has who opens it wait.
//! 4. The table says that it is settled: to every process of the run, at once.
//!
//! A process that dies of it at any moment leaves the lane to the next one, which begins anew: the
//! lock is the kernel's.

use super::{call_depth, config::ClientConfig};
use crate::{
    absorbed::TableView,
    lane_place::LanePlace,
    replay::{self, LaneOutcome},
    sys::{self, Frame},
};
use forebay_pool::{LaneStatus, Pool, PoolOptions};
use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};
use std::{fs::File, sync::atomic::AtomicBool, thread};

/// The outcome of a takeover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TakenOver {
    /// Nothing that the lane has is needed any more.
    Settled,
    /// Another process is about it.
    ByAnother,
    /// A member lives, or this process may not.
    NotNow,
    /// The lane's records stay in it, for a recovery.
    Refused,
}

/// Takes the lane over, if the table says which it is and this process may, as the pool's owner.
///
/// Not above another call of the client, and not between `vfork` and `exec`.
pub(super) fn take_over(config: &ClientConfig, table: &TableView) -> TakenOver {
    let Some(place) = table.lane.place() else {
        return TakenOver::NotNow;
    };
    // A handler that jumped out of this would leave the allocator as it is just then; and the
    // helper gets none.
    let _masked = sys::mask();
    let work = || {
        let frame = Frame::new();
        let _inside = call_depth::begin(&frame);
        // What is opened and closed here the program does not see, and none of its locks ends with
        // it.
        sys::own_descriptors()?;
        Ok::<_, Errno>(settle(config, table, &place))
    };
    thread::scope(|scope| {
        let helper = thread::Builder::new().name("forebay".into());
        let helper = helper.spawn_scoped(scope, work);
        let done = helper.ok().and_then(|helper| helper.join().ok());
        // One that may have no thread, or no descriptors of its own, is as one without rights.
        done.and_then(Result::ok).unwrap_or(TakenOver::NotNow)
    })
}

fn settle(config: &ClientConfig, table: &TableView, place: &LanePlace) -> TakenOver {
    let Some(pool) = open(place) else {
        return TakenOver::NotNow;
    };
    let settled = || {
        config.note_settled(table);
        TakenOver::Settled
    };
    let lane = match find(&pool, place) {
        LanePresence::Yes(lane) => lane,
        LanePresence::GivenBack => return settled(),
        LanePresence::Unknown => return TakenOver::NotNow,
    };
    let _alone = match pool.lock_recovery(lane.lane) {
        Ok(Some(lock)) => lock,
        Ok(None) => return TakenOver::ByAnother,
        Err(_) => return TakenOver::NotNow,
    };
    match find(&pool, place) {
        LanePresence::GivenBack => return settled(),
        LanePresence::Yes(lane) if !lane.in_use => {}
        LanePresence::Yes(_) | LanePresence::Unknown => return TakenOver::NotNow,
    }
    forebay_pool::failpoint!("takeover:begun");
    let done = replay::take_over(&pool, place.owner);
    let is_there = !matches!(find(&pool, place), LanePresence::GivenBack);
    match done {
        Ok(report) if report.outcome != LaneOutcome::Refused && !is_there => {
            config.note_settled(table);
            forebay_pool::failpoint!("takeover:settled");
            say_settled();
            TakenOver::Settled
        }
        Ok(report) => {
            let mut refused = report.files.into_iter().filter_map(|file| file.refused);
            say_refused(&refused.next().unwrap_or_default());
            TakenOver::Refused
        }
        Err(error) => {
            say_refused(&error.to_string());
            TakenOver::Refused
        }
    }
}

/// The presence of the run's lane in the pool.
enum LanePresence {
    Yes(LaneStatus),
    /// It was given back, which a lane is only when nothing is left in it.
    GivenBack,
    /// The entry of some lane cannot be read: it may be this one's.
    Unknown,
}

fn find(pool: &Pool, place: &LanePlace) -> LanePresence {
    let lanes = pool.lanes();
    let is_damaged = lanes.iter().any(|lane| lane.damage.is_some());
    match lanes.into_iter().find(|lane| lane.owner == place.owner) {
        Some(lane) => LanePresence::Yes(lane),
        None if is_damaged => LanePresence::Unknown,
        None => LanePresence::GivenBack,
    }
}

/// The run's pool, if it is where it was.
fn open(place: &LanePlace) -> Option<Pool> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let file = rustix::fs::open(&place.path, flags, Mode::empty()).ok()?;
    let pool = PoolOptions::new().open_file(&place.path, File::from(file));
    pool.ok().filter(|pool| pool.uuid() == place.pool)
}

fn say_settled() {
    static SAID: AtomicBool = AtomicBool::new(false);
    sys::complain_once(
        &SAID,
        "the supervisor (forebay run) is gone, and so is every process that absorbed files: all writes are on the disk, nothing is absorbed any more, and every sync is a \
         real one. Restart the program under forebay run when convenient",
    );
}

fn say_refused(why: &str) {
    static SAID: AtomicBool = AtomicBool::new(false);
    sys::complain_once(
        &SAID,
        &format!(
            "the supervisor (forebay run) is gone, and its records stay in the pool: {why}. Stop the program, and let forebay recover decide"
        ),
    );
}
