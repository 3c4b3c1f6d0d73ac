//! Moments at which the power is cut: passages in Forebay's code that announce themselves. `lists`
//! has those of each workload.

mod lists;
pub mod takeover;

use forebay_random::Rng;
pub use lists::*;

/// A moment that a failpoint announces on the guest's console.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// In words.
    pub name: &'static str,
    /// The failpoint: a name that `forebay_pool::failpoint!` has.
    pub failpoint: &'static str,
    /// It is one of these times that the failpoint is passed, the first and the last.
    pub times: (u64, u64),
    pub then: Then,
    /// Processes die before: at failpoints, and the first and the last time of each in a process.
    pub deaths: &'static [Death],
    /// Passes of the failpoint count once a process has passed this one.
    pub after: Option<&'static str>,
}

/// A failpoint at which each process dies that passes it so often, one of these times.
pub type Death = (&'static str, (u64, u64));

/// What happens between the announcement and the cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The thread that announced it stands still, the others go on for some tenths of a second at
    /// most.
    Cut,
    /// The same, until nothing is acknowledged any more.
    Stall,
    /// The thread goes on, for some tenths of a second at most.
    GoOn,
    /// The machine is booted again with the same failpoint, and cut there once more: the recovery
    /// is cut twice in a row.
    Twice,
    /// The same, and what is cut is `forebay flash flush`.
    TwiceFlushing,
    /// As `Cut`, in a boot in which `forebay flash flush` comes before the server.
    CutAfterFlush,
}

impl Moment {
    pub const fn new(
        name: &'static str,
        failpoint: &'static str,
        times: (u64, u64),
        then: Then,
    ) -> Self {
        Self {
            name,
            failpoint,
            times,
            then,
            deaths: &[],
            after: None,
        }
    }

    /// The same, once processes have died.
    const fn once_dead(self, deaths: &'static [Death]) -> Self {
        Self { deaths, ..self }
    }

    /// The same, in the process that has passed this failpoint.
    pub const fn behind(self, failpoint: &'static str) -> Self {
        Self {
            after: Some(failpoint),
            ..self
        }
    }

    /// What Forebay is told: the deaths, as `random` draws them, and the failpoint, which is
    /// announced when it is passed for this time.
    pub fn armed(&self, time: u64, random: &mut Rng) -> String {
        let mut armed = String::new();
        for (failpoint, times) in self.deaths {
            armed += &format!("{failpoint}={}:die,", drawn(*times, random));
        }
        let go_on = if self.then == Then::GoOn { ":go" } else { "" };
        armed += &format!("{}={time}{go_on}", self.failpoint);
        if let Some(after) = self.after {
            armed += &format!("@{after}");
        }
        armed
    }
}

/// One of these times, the first and the last among them.
pub fn drawn((first, last): (u64, u64), random: &mut Rng) -> u64 {
    first + random.below(last + 1 - first)
}

/// Promise (lab): A record that a power cut tore is not taken for one, whatever its header says.
pub const TORN: Moment = Moment::new("an append, torn", "pool:append-torn", (1, 400), Then::Cut);
/// Promise (lab): A segment leaves the pool only when its bytes are on the disk.
const RELEASE: Moment = Moment::new(
    "segment released, lane entry not written",
    "pool:release-entry",
    (1, 12),
    Then::Cut,
);
const RELEASED: Moment = Moment::new(
    "lane entry written, slot not free",
    "pool:release-free",
    (1, 12),
    Then::Cut,
);
const RESERVED: Moment = Moment::new(
    "an append, its place reserved and not claimed",
    "shared:reserved",
    (1, 400),
    Then::Cut,
);
const WRITTEN: Moment = Moment::new(
    "an append, written and not published",
    "shared:written",
    (1, 400),
    Then::Cut,
);
const TURN: Moment = Moment::new(
    "a segment left, its rest not void",
    "shared:turned",
    (1, 12),
    Then::Cut,
);
const TURNED: Moment = Moment::new(
    "a segment left, the next one not published",
    "shared:turn-half",
    (1, 12),
    Then::Cut,
);
const SEAL: Moment = Moment::new(
    "segment sealed, next one not open",
    "pool:sealed",
    (1, 12),
    Then::Cut,
);
const DRAIN: Moment = Moment::new(
    "drain, before the sync",
    "files:drain-sync",
    (1, 12),
    Then::Cut,
);
const DRAINED: Moment = Moment::new(
    "drain, synced and not said",
    "files:drain-synced",
    (1, 12),
    Then::Cut,
);
const FULL: Moment = Moment::new("pool full", "files:drain-sync", (1, 12), Then::Stall);
const REGISTER: Moment = Moment::new(
    "registration, before the syncs",
    "files:register",
    (2, 4),
    Then::Cut,
);
const REGISTERED: Moment = Moment::new(
    "registration, synced and not said",
    "files:registered",
    (2, 4),
    Then::GoOn,
);
/// Promise (lab): A recovery may be cut, and the next one cut as well.
const REPLAY: Moment = Moment::new(
    "recovery, between two writes",
    "files:replay",
    (1, 12),
    Then::Twice,
);
const REPLAYED: Moment = Moment::new(
    "recovery, files synced and lane not given back",
    "files:replayed",
    (1, 1),
    Then::Twice,
);
const RENAME: Moment = Moment::new(
    "rename, logged and not done",
    "files:rename",
    (1, 3),
    Then::Cut,
);
const RENAMED: Moment = Moment::new("rename, done", "files:renamed", (1, 3), Then::Cut);
const UNLINK: Moment = Moment::new(
    "unlink, logged and not done",
    "files:unlink",
    (1, 3),
    Then::Cut,
);
