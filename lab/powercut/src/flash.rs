//! Special steps of a workload whose page files are behind a flash cache, on a disk of its own:
//! those between a cut and the server that the client gets, the cache's work until a cut, and the
//! moments.

use crate::cut_moments::{Moment, TORN, Then};
use serde::{Deserialize, Serialize};

/// What comes between a cut and the server that the client gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Nothing: the cache is warm, and ages over several cuts.
    Warm,
    /// `forebay flash flush`, and `innochecksum` of what was synced before the cut: no server has
    /// mended anything yet.
    Flush,
    /// A server on the warm cache, every table checked, a clean end, `forebay flash flush`, and
    /// `innochecksum` of all files.
    Look,
}

impl Route {
    /// One of them, as `draw` has it: half of the caches go on.
    pub fn drawn(draw: u64) -> Self {
        [Self::Warm, Self::Warm, Self::Flush, Self::Look][(draw % 4) as usize]
    }

    /// As the guest's command line says it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Warm => "warm",
            Self::Flush => "flush",
            Self::Look => "look",
        }
    }
}

/// What the cache did since the server was started, as it said within the last second. Pages, but
/// for the batches.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Slots of the cache, and those in use.
    pub slots: u64,
    /// See `slots`.
    pub slots_used: u64,
    /// That came in.
    pub enqueued: u64,
    /// That went to their files.
    pub home_pages: u64,
    /// In which they went.
    pub home_batches: u64,
    /// That were kept for another turn.
    pub second_chances: u64,
}

impl Counts {
    /// The last ones on a console: the guest prints the cache's status every second.
    pub fn last(console: &str) -> Option<Self> {
        let told = |line: &str| serde_json::from_str(line.split_once("LAB flash ")?.1).ok();
        console.lines().rev().find_map(told)
    }

    /// Adds another cycle's.
    pub fn add(&mut self, other: &Self) {
        self.slots = self.slots.max(other.slots);
        self.slots_used = self.slots_used.max(other.slots_used);
        self.enqueued += other.enqueued;
        self.home_pages += other.home_pages;
        self.home_batches += other.home_batches;
        self.second_chances += other.second_chances;
    }
}

/// While the server gives the cache another size, and the client has been writing for some time: it
/// is asked for a larger and a smaller one in turn.
const fn live(name: &'static str, failpoint: &'static str) -> Moment {
    Moment::new(name, failpoint, (2, 5), Then::Cut).behind("flash:drop-recorded")
}

/// While `forebay flash resize` does, before the server.
const fn offline(name: &'static str, failpoint: &'static str) -> Moment {
    Moment::new(name, failpoint, (1, 1), Then::Twice)
}

/// Of the workload `mariadb-flash`. Those that are rare have to come early, or they would not come
/// before the lab loses patience.
///
/// Promise (lab): MariaDB behind a flash cache with `innodb_doublewrite=0` has after a power cut
/// everything acknowledged, and `innochecksum` finds no torn page after `forebay flash flush`.
pub const MARIADB_FLASH: &[Moment] = &[
    Moment::new(
        "home batch, written and not synced",
        "flash:home-written",
        (1, 6),
        Then::Cut,
    ),
    Moment::new(
        "sync of a group, before the sync",
        "flash:written",
        (1, 30),
        Then::Cut,
    ),
    Moment::new(
        "recovery, map restored and nothing written",
        "flash:recovered",
        (1, 1),
        Then::Twice,
    ),
    Moment::new(
        "tombstone, recorded and the file not shorter",
        "flash:tombstone-recorded",
        (1, 2),
        Then::Cut,
    ),
    live("live resize, flash lengthened", "flash:lengthened"),
    Moment::new(
        "around flash, home written and not recorded",
        "flash:around-written",
        (2, 30),
        Then::Cut,
    ),
    live(
        "live resize, its checkpoints synced and the header old",
        "flash:resize-checkpoints",
    ),
    offline(
        "resize before the server, its checkpoints synced and the header old",
        "flash:resize-checkpoints",
    ),
    Moment::new(
        "metadata, before its first record",
        "flash:synced",
        (1, 30),
        Then::Cut,
    ),
    Moment::new(
        "second chance, at the rear",
        "flash:second-chance",
        (1, 40),
        Then::Cut,
    ),
    Moment::new(
        "drop of a file, logged and not done",
        "flash:drop-recorded",
        (1, 2),
        Then::Cut,
    ),
    live(
        "live resize, one header synced and the lane not released",
        "flash:resize-header",
    ),
    live("live resize, done and not said", "flash:resized"),
    offline(
        "resize before the server, one header synced and the lane not released",
        "flash:resize-header",
    ),
    Moment::new(
        "tombstone, before its record",
        "flash:tombstone",
        (1, 2),
        Then::Cut,
    ),
    Moment::new(
        "flush, a batch written and not recorded as clean",
        "flash:flushed",
        (1, 3),
        Then::TwiceFlushing,
    ),
    Moment::new(
        "home batch, synced and its slots not free",
        "flash:home-synced",
        (1, 6),
        Then::Cut,
    ),
    Moment::new(
        "enqueue, a page in the open group",
        "flash:enqueued",
        (1, 600),
        Then::Cut,
    ),
    Moment::new(
        "recovery, its checkpoint written and not synced",
        "flash:checkpoint-written",
        (1, 1),
        Then::Twice,
    ),
    Moment::new(
        "around flash, clean versions void and no copies kept",
        "flash:around-voided",
        (2, 30),
        Then::Cut,
    ),
    Moment::new(
        "group full, before its write",
        "flash:full",
        (1, 6),
        Then::Cut,
    ),
    Moment::new("home batch, slots free", "flash:front", (1, 6), Then::GoOn),
    TORN,
    Moment::new(
        "flush, home written and not synced",
        "flash:home-written",
        (1, 3),
        Then::TwiceFlushing,
    ),
    Moment::new(
        "metadata recorded, a group done",
        "flash:recorded",
        (1, 30),
        Then::GoOn,
    ),
    Moment::new(
        "home batch, before its write",
        "flash:home",
        (1, 6),
        Then::Cut,
    ),
    Moment::new(
        "drop of a file, before its record",
        "flash:drop",
        (1, 2),
        Then::Cut,
    ),
    Moment::new(
        "around flash, copies kept and home not written",
        "flash:around-protected",
        (2, 30),
        Then::Cut,
    ),
    Moment::new(
        "guard, being lifted by flush",
        "pages:lifting",
        (1, 2),
        Then::TwiceFlushing,
    ),
    Moment::new(
        "group of a sync, before its write",
        "flash:write",
        (1, 30),
        Then::Cut,
    ),
    Moment::new(
        "recovery, its checkpoint synced and the lane not released",
        "flash:checkpoint-synced",
        (1, 1),
        Then::Twice,
    ),
    Moment::new(
        "guard, lifted and its file still there",
        "pages:lifted",
        (1, 1),
        Then::TwiceFlushing,
    ),
    Moment::new(
        "checkpoint, written and not synced",
        "flash:checkpoint-written",
        (2, 2),
        Then::Cut,
    ),
    offline(
        "resize before the server, flash lengthened",
        "flash:lengthened",
    ),
    offline("resize before the server, done", "flash:resized"),
    Moment::new(
        "home batches, their thread stopped",
        "flash:home",
        (1, 6),
        Then::Stall,
    ),
    Moment::new(
        "guard, being laid",
        "pages:laying",
        (1, 2),
        Then::CutAfterFlush,
    ),
];

/// With metadata before the flash: what it says is in a slot is not there yet.
pub const METADATA_FIRST: &[Moment] = &[Moment::new(
    "metadata durable, flash not written",
    "flash:write",
    (2, 30),
    Then::Cut,
)];

/// With a home that is not synced before its pages' slots are free.
pub const NO_HOME_SYNC: &[Moment] = &[Moment::new(
    "slots free, home not synced",
    "flash:front",
    (2, 8),
    Then::Cut,
)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_status_on_a_console_counts() {
        let console = "LAB flash {\"enqueued\":1}\nLAB flash {\"slots\":500,\"slots_used\":70,\"enqueued\":900,\
                       \"home_pages\":400,\"home_batches\":8,\"second_chances\":5,\"hits\":3}\nLAB failpoint x\nLAB flash {\"slo";
        let counts = Counts::last(console).unwrap();
        assert_eq!((counts.enqueued, counts.second_chances), (900, 5));
        assert!(Counts::last("nothing").is_none());
    }
}
