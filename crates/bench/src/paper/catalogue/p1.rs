//! P1: WiscKey with a buffer in NVDIMM-N.

use super::{cell, share, times};
use crate::paper::{
    Drawn::{Bars, Lines, LogBars},
    Experiment, Measurement, Panel,
    claims::{Claim, Form::Percent, Given, Ours::Spread, Wanted::Less},
};

const SETUP: &str = "Xeon Silver 4216, 32 GB DRAM, Samsung 970 Pro 1 TB, HPE 16 GB NVDIMM-N, Ubuntu 20.04; 8 GB of 8-byte keys and 4 KB \
                        values loaded, then 262,144 Sets of 4 KB under random keys";
const K4: &str = "4 KiB";

const SYNC_BOUND: &str = "How much a Put gains by not being synced is the device's matter: here a synced 4 KiB write takes {fsync_us} µs, and \
                          sequential writes reach {seq_mb_s} MB/s; the paper's SSD is another one.";

pub(super) const FIG5: Experiment = Experiment {
    id: "p1-fig5",
    paper: "P1",
    title: "Fig. 5: speed of the four variants",
    method: "The embedded store in its four variants, one thread, Puts of new random keys; buffers of 8 MiB. RocksDB by db_bench beside it, loaded \
             with as much. Variants take turns, round after round.",
    setup: SETUP,
    panels: &[Panel {
        id: "puts",
        title: "Puts of 4 KiB, the drain to disk included",
        unit: "Puts/s",
        x: "value",
        drawn: LogBars,
    }],
    claims: &[
        times(
            "double buffer over a sync at each Put",
            9.78,
            cell("puts", "double", K4),
            cell("puts", "fsync", K4),
            SYNC_BOUND,
        )
        .headline(&[
            ("RocksDB, synced", "rocksdb sync"),
            ("RocksDB, not synced", "rocksdb nosync"),
            ("RocksDB, no log", "rocksdb disable_wal"),
        ]),
        times(
            "single buffer over a sync at each Put",
            5.60,
            cell("puts", "single", K4),
            cell("puts", "fsync", K4),
            "Our single buffer writes the segment to the disk while it is being filled, so that little is left to wait for when it is full; the \
             paper's begins then.",
        ).if_below(SYNC_BOUND),
        times(
            "no sync at all (unsafe) over a sync at each Put",
            5.89,
            cell("puts", "nosync", K4),
            cell("puts", "fsync", K4),
            SYNC_BOUND,
        ),
        times(
            "double buffer over no sync at all",
            1.66,
            cell("puts", "double", K4),
            cell("puts", "nosync", K4),
            "Without a sync each Put is still a system call into the page cache, whose pages are written back in smaller requests; the buffers are \
             written past it, megabytes at a time.",
        ).if_below("What fits into the page cache is not waited for without syncs: with few Puts the buffers gain little over it.")
        .headline(&[]),
    ],
    measurement: Measurement::Puts,
    seconds: [10, 80, 1500],
};

pub(super) const PEERS: Experiment = Experiment {
    id: "p1-peers",
    paper: "P1",
    title: "Other stores in the place of fig. 5",
    method: "The same Puts into an empty store, ours and others: RocksDB by db_bench, also with its values in blob files, LevelDB and LMDB by small programs \
             linked to Debian's libraries, fjall (values apart from keys) and redb by one in Rust. One thread each, synced at each Put and not. They \
             take turns, round after round.",
    setup: SETUP,
    panels: &[Panel {
        id: "puts",
        title: "Puts of 4 KiB into an empty store, the drain to disk included",
        unit: "Puts/s",
        x: "value",
        drawn: LogBars,
    }],
    claims: &[times(
        "double buffer over a sync at each Put, in an empty store",
        9.78,
        cell("puts", "double", K4),
        cell("puts", "fsync", K4),
        SYNC_BOUND,
    )
    .headline(&[
        ("RocksDB, synced", "rocksdb sync"),
        ("with blob files", "rocksdb_blob sync"),
        ("LevelDB, synced", "leveldb sync"),
        ("LMDB, synced", "lmdb sync"),
        ("fjall, synced", "fjall sync"),
        ("redb, synced", "redb sync"),
    ])],
    measurement: Measurement::Peers,
    seconds: [20, 120, 420],
};

pub(super) const FIG6: Experiment = Experiment {
    id: "p1-fig6",
    paper: "P1",
    title: "Fig. 6: run time by size of a buffer",
    method: "The same Puts with single and double buffers of 1 to 64 MiB; the paper ends at 8.",
    setup: SETUP,
    panels: &[Panel {
        id: "time",
        title: "Run time of all Puts",
        unit: "s",
        x: "bytes of one buffer",
        drawn: Lines,
    }],
    claims: &[Claim {
        what: "double buffer: slowest over fastest from 1 to 8 MiB",
        paper: Given::at(6.0),
        form: Percent,
        ours: Spread("time", "double", &["1 MiB", "2 MiB", "4 MiB", "8 MiB"]),
        wanted: Less,
        above: "A buffer is written with one sync, which costs the device idle time ({fsync_us} µs for a small one): the faster the device's \
                  sequential writes ({seq_mb_s} MB/s here), the larger a buffer has to be to hide it.",
        below: "The drain keeps up with one thread of Puts at each of these sizes.",
        headline: true,
        peers: &[],
    }],
    measurement: Measurement::Buffers,
    seconds: [15, 60, 1200],
};

pub(super) const FIG7: Experiment = Experiment {
    id: "p1-fig7",
    paper: "P1",
    title: "Fig. 7: fsync's share of core time",
    method: "Samples of this process with kernel stacks by Linux's perf while the Puts run, those inside fsync or fdatasync over all; and processor \
             time accounted by the threads themselves around fdatasync, which needs no permission.",
    setup: SETUP,
    panels: &[
        Panel {
            id: "perf",
            title: "Share by perf",
            unit: "% of samples",
            x: "value",
            drawn: Bars,
        },
        Panel {
            id: "share",
            title: "Share by accounted time",
            unit: "% of processor time",
            x: "value",
            drawn: Bars,
        },
    ],
    claims: &[
        share(
            "a sync at each Put, by perf",
            37.38,
            cell("perf", "fsync", K4),
            SHARE_BOUND,
        )
        .if_below(SHARE_BELOW),
        share(
            "single buffer, by perf",
            2.69,
            cell("perf", "single", K4),
            SHARE_BOUND,
        )
        .if_below(SHARE_BELOW),
        share(
            "double buffer, by perf",
            0.1,
            cell("perf", "double", K4),
            SHARE_BOUND,
        )
        .if_below(SHARE_BELOW),
        share(
            "a sync at each Put, accounted",
            37.38,
            cell("share", "fsync", K4),
            SHARE_BOUND,
        )
        .if_below(SHARE_BELOW),
        share(
            "single buffer, accounted",
            2.69,
            cell("share", "single", K4),
            SHARE_BOUND,
        )
        .if_below(SHARE_BELOW),
        share(
            "double buffer, accounted",
            0.1,
            cell("share", "double", K4),
            SHARE_BOUND,
        )
        .if_below(SHARE_BELOW)
        .headline(&[]),
    ],
    measurement: Measurement::Puts,
    seconds: [10, 80, 1500],
};

const SHARE_BOUND: &str = "The share is of the processor time of the whole process: the less a Put itself costs, the larger is that of the same syncs.";

const SHARE_BELOW: &str = "What a sync costs in processor time, not in waiting, depends on the file system and the driver, which are others here.";

pub(super) const FIG8: Experiment = Experiment {
    id: "p1-fig8",
    paper: "P1",
    title: "Fig. 8: device write latency per KiB",
    method: "Time that the device's write requests took, waiting in its queue included, over KiB written, from /proc/diskstats around the Puts of \
             fig. 5.",
    setup: SETUP,
    panels: &[Panel {
        id: "latency",
        title: "Device write latency",
        unit: "µs/KiB",
        x: "value",
        drawn: LogBars,
    }],
    claims: &[
        times(
            "double buffer over a sync at each Put",
            1.0,
            cell("latency", "double", K4),
            cell("latency", "fsync", K4),
            "The paper shows that buffers lower the latency, as large requests cost less a KiB than small ones. Several of ours are in flight at a \
             time, and each is charged the time that it waits for the others.",
        )
        .less()
        .between(0.0, 1.0)
        .headline(&[]),
        times(
            "no sync at all over a sync at each Put",
            1.0,
            cell("latency", "nosync", K4),
            cell("latency", "fsync", K4),
            "The paper shows that requests pile up in the queue without syncs. How far depends on how much the kernel lets pile up, and on how \
             long the run is.",
        )
        .between(1.0, f64::INFINITY),
    ],
    measurement: Measurement::Puts,
    seconds: [10, 80, 1500],
};
