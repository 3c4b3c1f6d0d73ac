//! Moments at which others take over what a dead process had: processes of the database die on
//! their way, or the supervisor, or both, and the power is cut while the others are about it.
//!
//! A process that dies in an append has its file's lock, and the kernel has what it wrote. Each one
//! that comes in its place dies as well: after the same number of appends.
//!
//! Promise (lab): A process that dies in an append or in a segment's rotation costs nothing that
//! others were acknowledged, whenever the power goes while it is buried.
//! Promise (lab): A supervisor that dies while its processes go on costs nothing acknowledged after
//! a power cut.

use super::{Moment, Then};

/// Those of a database whose processes die after so many appends: one of these times, the first and
/// the last.
macro_rules! takeover {
    ($times:expr) => {
        &[
            Moment::new(
                "takeover: a dead member's lines found, none void",
                "bury:found",
                (1, 1),
                Then::Cut,
            )
            .once_dead(&[("shared:reserved", $times)]),
            Moment::new(
                "takeover: a dead member's lines void, not published",
                "bury:voided",
                (1, 1),
                Then::Cut,
            )
            .once_dead(&[("shared:written", $times)]),
            Moment::new(
                "takeover: a dead member's file locked, its write unlogged",
                "files:bury-locked",
                (1, 1),
                Then::Cut,
            )
            .once_dead(&[("files:unlogged", $times)]),
            Moment::new(
                "orphans: the lane closed, no file synced",
                "orphan:closed",
                (1, 1),
                Then::Cut,
            )
            .once_dead(&[("files:drain-sync", (1, 4))]),
            Moment::new(
                "takeover: a segment left by a dead member, its rest void",
                "bury:voided",
                (1, 1),
                Then::Cut,
            )
            .once_dead(&[("shared:turned", (1, 1))]),
            Moment::new(
                "rotation, a member dead in the segment: the next one's header written",
                "prepare:header",
                (1, 1),
                Then::Cut,
            )
            .once_dead(&[("shared:claimed", $times)])
            .behind("bury:found"),
            Moment::new(
                "takeover: a dead member never void, until nothing goes on",
                "bury:found",
                (1, 1),
                Then::Stall,
            )
            .once_dead(&[("shared:reserved", $times)]),
            Moment::new(
                "takeover: a dead member's lines published",
                "bury:gone",
                (1, 1),
                Then::GoOn,
            )
            .once_dead(&[("shared:claimed", $times)]),
            Moment::new(
                "takeover: a dead member's file synced, its lock not free",
                "files:bury-synced",
                (1, 1),
                Then::Cut,
            )
            .once_dead(&[("shared:written", $times)]),
            Moment::new(
                "orphans of a supervisor dead in a rotation: files synced, the lane not settled",
                "orphan:synced",
                (1, 1),
                Then::Cut,
            )
            .once_dead(&[("prepare:header", (2, 4))]),
            Moment::new(
                "rotation, a member dead in the segment: ended by the supervisor",
                "seal:turned",
                (1, 1),
                Then::Cut,
            )
            .once_dead(&[("shared:reserved", $times)])
            .behind("bury:found"),
            Moment::new(
                "takeover: a dead member's record torn, not void",
                "bury:found",
                (1, 1),
                Then::Cut,
            )
            .once_dead(&[("pool:append-torn", $times)]),
            Moment::new(
                "takeover: a dead member's file noted as written, not synced",
                "files:bury-logged",
                (1, 1),
                Then::Cut,
            )
            .once_dead(&[("files:unlogged", $times)]),
            Moment::new(
                "rotation, a member dead in it: its next segment not published",
                "bury:gone",
                (1, 1),
                Then::Cut,
            )
            .once_dead(&[("shared:turn-half", (1, 1))]),
            Moment::new(
                "orphans: the lane settled, every sync a real one",
                "orphan:settled",
                (1, 1),
                Then::GoOn,
            )
            .once_dead(&[("files:drain-synced", (1, 4))]),
            Moment::new(
                "rotation, a member dead in the segment: released, the entry not written",
                "pool:release-entry",
                (1, 1),
                Then::Cut,
            )
            .once_dead(&[("shared:reserved", $times)])
            .behind("bury:found"),
        ]
    };
}

pub const POSTGRES: &[Moment] = takeover!((8, 60));
/// It is one process, which writes while it starts.
pub const MARIADB: &[Moment] = takeover!((40, 160));
pub const SQLITE_PROCESSES: &[Moment] = takeover!((10, 120));

/// The supervisor dies as well, when it finds what a dead member had reserved, and others of its
/// members go on. Of a database whose processes all end with one of them no member is left:
/// [`ALL_DEAD`].
pub const BOTH_DEAD: [Moment; 3] = [
    Moment::new(
        "orphans: dead in the supervisor's hands, none of it void",
        "orphan:sync",
        (1, 1),
        Then::Cut,
    )
    .once_dead(&[("shared:reserved", (10, 120)), ("bury:found", (1, 1))]),
    Moment::new(
        "orphans: dead in the supervisor's hands, void, not published",
        "orphan:settled",
        (1, 1),
        Then::Cut,
    )
    .once_dead(&[("shared:written", (10, 120)), ("bury:voided", (1, 1))]),
    Moment::new(
        "rotation, a member dead in it: the supervisor dead, files not synced",
        "orphan:sync",
        (1, 1),
        Then::Cut,
    )
    .once_dead(&[("shared:turned", (1, 1)), ("bury:found", (1, 1))]),
];

/// Members and supervisor are dead: a process that was none takes the lane over, before it writes.
/// Not once the supervisor has made a record void (`bury:voided`): the guest's kernel, older than
/// Linux 6.8, does not number mounts, and a recovery is asked where the file is newer than what is
/// left in the lane.
pub const ALL_DEAD: [Moment; 4] = [
    Moment::new(
        "all dead: a process that was no member has the lane, no file synced",
        "takeover:begun",
        (1, 1),
        Then::Cut,
    )
    .once_dead(&[("shared:reserved", (8, 60)), ("bury:found", (1, 1))]),
    Moment::new(
        "all dead: the lane settled by a process that was no member",
        "takeover:settled",
        (1, 1),
        Then::GoOn,
    )
    .once_dead(&[("files:unlogged", (8, 60)), ("files:bury-locked", (1, 1))]),
    Moment::new(
        "all dead: files synced, the lane not given back",
        "files:replayed",
        (1, 1),
        Then::Cut,
    )
    .once_dead(&[("shared:reserved", (8, 60)), ("bury:found", (1, 1))])
    .behind("takeover:begun"),
    Moment::new(
        "all dead in a rotation: the lane settled, until nothing goes on",
        "takeover:settled",
        (1, 1),
        Then::Stall,
    )
    .once_dead(&[("shared:turned", (1, 1)), ("bury:found", (1, 1))]),
];
