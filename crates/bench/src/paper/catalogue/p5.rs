//! P5: LevelDB on fabric-attached memory.

use super::{cell, times};
use crate::paper::{
    Drawn::{Bars, LogBars},
    Experiment, Measurement, Panel,
    claims::{
        ALL as EVERY, Claim,
        Form::{Percent, Times},
        Given,
        Ours::{Below, Value},
        Wanted::{Less, More},
    },
    command::Bench,
};

const SETUP: &str = "Threadripper 1950X, 32 GB, Linux 5.0.21, Ext4-DAX on an FPGA prototype of Gen-Z memory, one queue of depth 1";

pub(super) const DEVICE: Experiment = Experiment {
    id: "p5-fig3-4",
    paper: "P5",
    title: "Fig. 3 and 4: the device alone",
    method: "forebay bench device: a process under forebay run --device reads and writes 4 KiB and 1 MiB, sequentially and at random; what it measures beside \
             what the profile says.",
    setup: SETUP,
    panels: &[
        Panel {
            id: "time",
            title: "Time of one access",
            unit: "µs",
            x: "access",
            drawn: LogBars,
        },
        Panel {
            id: "deviation",
            title: "Measured over the profile's figure",
            unit: "×",
            x: "access",
            drawn: Bars,
        },
    ],
    claims: &[
        calibrated(
            "emulated Gen-Z memory, uncached: measured over its profile",
            "gen-z-uc",
        )
        .headline(&[]),
        calibrated(
            "emulated Gen-Z memory, write-combining: measured over its profile",
            "gen-z-wc",
        ),
        times(
            "Gen-Z memory: read over write of 4 KiB",
            1.4,
            cell("time", "gen-z-uc", "read 4 KiB, random"),
            cell("time", "gen-z-uc", "write 4 KiB, random"),
            CALIBRATED,
        )
        .less(),
        times(
            "Gen-Z memory: read over write of 1 MiB",
            1.86,
            cell("time", "gen-z-uc", "read 1 MiB, random"),
            cell("time", "gen-z-uc", "write 1 MiB, random"),
            CALIBRATED,
        )
        .less(),
        times(
            "Gen-Z memory: sequential over random reads of 4 KiB",
            1.0,
            cell("time", "gen-z-uc", "read 4 KiB, sequential"),
            cell("time", "gen-z-uc", "read 4 KiB, random"),
            CALIBRATED,
        )
        .less(),
    ],
    measurement: Measurement::Command(Bench::Device),
    seconds: [10, 60, 120],
};

pub(super) const CALIBRATED: &str = "The emulated device waits as long as the profile says beyond what the access takes anyway; within 10 % is the aim.";

const fn calibrated(what: &'static str, profile: &'static str) -> Claim {
    Claim {
        what,
        paper: Given {
            low: 0.9,
            high: 1.1,
        },
        form: Times,
        ours: Value(cell("deviation", profile, EVERY)),
        wanted: Less,
        above: CALIBRATED,
        below: "Below what the profile says there is an access that was not charged in full.",
        headline: false,
        peers: &[],
    }
}

pub(super) const FAM: Experiment = Experiment {
    id: "p5-latency",
    paper: "P5",
    title: "Latency by pair size and cache policy",
    method: "forebay bench fam: 10,000 pairs of 16 B to 16 KiB, for the embedded store resident on the emulated memory, and for LevelDB with its directory on \
             it.",
    setup: SETUP,
    panels: &[
        fam("sequential_put", "Sequential put"),
        fam("random_put", "Random put"),
        fam("random_put_sync", "Random put with sync"),
        fam("sequential_get", "Sequential get"),
        fam("random_get", "Random get"),
    ],
    claims: &[
        below(
            "store: random put, WC below UC",
            "random_put",
            ["forebay wc", "forebay uc"],
            11.0,
            47.0,
        )
        .headline(&[]),
        below(
            "store: random get, WT below UC",
            "random_get",
            ["forebay wt", "forebay uc"],
            31.0,
            99.0,
        )
        .headline(&[]),
        below(
            "LevelDB: sequential put, WC below UC",
            "sequential_put",
            ["leveldb wc", "leveldb uc"],
            11.0,
            47.0,
        ),
        below(
            "LevelDB: random put, WC below UC",
            "random_put",
            ["leveldb wc", "leveldb uc"],
            11.0,
            47.0,
        )
        .headline(&[]),
        below(
            "LevelDB: random put with sync, WC below UC",
            "random_put_sync",
            ["leveldb wc", "leveldb uc"],
            11.0,
            47.0,
        ),
        times(
            "LevelDB: random put with sync of 64 bytes, WC over UC",
            1.04,
            cell("random_put_sync", "leveldb wc", "64 B"),
            cell("random_put_sync", "leveldb uc", "64 B"),
            FITTED,
        )
        .between(1.04, 1.13)
        .less(),
        times(
            "LevelDB: random put of 64 bytes, WT over UC",
            1.0,
            cell("random_put", "leveldb wt", "64 B"),
            cell("random_put", "leveldb uc", "64 B"),
            FITTED,
        )
        .between(1.0, f64::INFINITY)
        .less(),
        times(
            "LevelDB: random put of 16 KiB, WT over UC",
            1.0,
            cell("random_put", "leveldb wt", "16 KiB"),
            cell("random_put", "leveldb uc", "16 KiB"),
            FITTED,
        )
        .less(),
        below(
            "LevelDB: sequential get, WT below UC",
            "sequential_get",
            ["leveldb wt", "leveldb uc"],
            31.0,
            99.0,
        ),
        below(
            "LevelDB: random get, WT below UC",
            "random_get",
            ["leveldb wt", "leveldb uc"],
            31.0,
            99.0,
        )
        .headline(&[]),
    ],
    measurement: Measurement::Command(Bench::Fam),
    seconds: [20, 120, 600],
};

const FITTED: &str = "What WT adds to a small write, and what it takes to empty WC's buffer at a sync, are assumptions of the profiles.";

const fn fam(id: &'static str, title: &'static str) -> Panel {
    Panel {
        id,
        title,
        unit: "µs an operation",
        x: "pair",
        drawn: LogBars,
    }
}

const fn below(
    what: &'static str,
    panel: &'static str,
    [lower, upper]: [&'static str; 2],
    low: f64,
    high: f64,
) -> Claim {
    Claim {
        what,
        paper: Given { low, high },
        form: Percent,
        ours: Below(cell(panel, lower, EVERY), cell(panel, upper, EVERY)),
        wanted: More,
        above: "The paper's device is an FPGA behind the processor's caches; here each access waits by the profile, and nothing \
                  that the policy saves costs anything.",
        below: "The paper's device is an FPGA behind the processor's caches; here each access waits by the profile. Software's own time, which no policy changes, is a part of every operation, and makes reductions smaller.",
        headline: false,
        peers: &[],
    }
}
