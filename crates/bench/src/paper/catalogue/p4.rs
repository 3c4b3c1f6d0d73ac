//! P4: PB-Redis.

use super::{cell, share, times};
use crate::paper::{
    Drawn::{Bars, Lines, LogBars},
    Experiment, Measurement, Panel,
    claims::{ALL as EVERY, Claim},
};

const SETUP: &str = "i7-6700K, 64 GB, 8 GB of NVM emulated in DRAM, a 7,200-rpm disk";
const DISK_BOUND: &str = "The paper's disk needs some milliseconds for each sync; here it takes {fsync_us} µs, so that always is that much faster. \
                          Server, client and supervisor share {processors} processors, which bounds all that does not wait for the disk.";
const SHARED_CPU: &str = "PB-Redis changes the server, ours does not: each write to the append-only file still goes to the kernel, and is copied to the pool \
                          besides. The server's own work on {processors} processors bounds both.";

const FAST_PATH: &str = "A write costs one copy to the pool and a fence beside what it costs everysec, and a sync nothing: on {processors} processors that is small \
                         beside the server's own work for a request.";

pub(super) const FIG6: Experiment = Experiment {
    id: "p4-fig6",
    paper: "P4",
    title: "Fig. 6: SETs by size of the value and policy",
    method: "redis-benchmark's SETs, 50 connections, against Debian's redis-server with appendfsync everysec and always, always with libeatmydata, always \
             with all files in memory (nvm), and always under forebay run; each round on a fresh server. Valkey as a peer.",
    setup: SETUP,
    panels: &[Panel {
        id: "sets",
        title: "SETs by size of the value",
        unit: "SETs/s",
        x: "value",
        drawn: LogBars,
    }],
    claims: &[
        times(
            "over always, mean of the sizes",
            175.0,
            cell("sets", "forebay", EVERY),
            cell("sets", "always", EVERY),
            DISK_BOUND,
        )
        .headline(&[("always with libeatmydata", "eatmydata"), ("all pairs in NVM", "nvm"), ("Valkey, everysec", "valkey everysec")]),
        times(
            "everysec over ours, mean of the sizes",
            1.31,
            cell("sets", "everysec", EVERY),
            cell("sets", "forebay", EVERY),
            SHARED_CPU,
        )
        .less()
        .if_below(FAST_PATH)
        .headline(&[]),
        times(
            "all pairs in NVM over ours, mean of the sizes",
            1.4,
            cell("sets", "nvm", EVERY),
            cell("sets", "forebay", EVERY),
            "PMDK-Redis itself is not measured: what stands in for it pays for an append-only file, which PMDK-Redis does not have.",
        )
        .less(),
        times(
            "Valkey: ours over always, mean of the sizes",
            175.0,
            cell("sets", "valkey forebay", EVERY),
            cell("sets", "valkey always", EVERY),
            DISK_BOUND,
        ),
    ],
    measurement: Measurement::Policies,
    seconds: [25, 120, 700],
};

pub(super) const FIG7: Experiment = Experiment {
    id: "p4-fig7",
    paper: "P4",
    title: "Fig. 7: loss after a crash",
    method: "Distinct keys are SET one after the other, each acknowledged; the server is killed with SIGKILL and its append-only file put back to \
             what was really synced; then it is started again and every key looked for.",
    setup: SETUP,
    panels: &[Panel {
        id: "lost",
        title: "Acknowledged keys that are gone",
        unit: "% of keys",
        x: "keys",
        drawn: Bars,
    }],
    claims: &[
        lost("everysec", "everysec").between(0.0, 20.0),
        lost("always", "always"),
        lost("all pairs in NVM", "nvm"),
        lost("ours (PB-Redis)", "forebay").headline(&[]),
    ],
    measurement: Measurement::Loss,
    seconds: [8, 60, 150],
};

const fn lost(what: &'static str, series: &'static str) -> Claim {
    share(
        what,
        0.0,
        cell("lost", series, EVERY),
        "A policy loses what it acknowledged after its last sync began. How large a share of the keys that is depends on how long they take in all; \
         nothing that the kernel writes back by itself is counted as saved here.",
    )
}

pub(super) const FIG8: Experiment = Experiment {
    id: "p4-fig8",
    paper: "P4",
    title: "Fig. 8: DRAM and NVM in use by number of pairs",
    method: "Pairs of 32 bytes (16 of key, 16 of value) are SET; after each step resident memory and NVM are read.",
    setup: SETUP,
    panels: &[
        Panel {
            id: "nvm",
            title: "NVM in use",
            unit: "MiB",
            x: "pairs",
            drawn: Lines,
        },
        Panel {
            id: "dram",
            title: "DRAM in use",
            unit: "MiB",
            x: "pairs",
            drawn: Lines,
        },
    ],
    claims: &[
        times(
            "NVM of ours over all pairs in NVM, 2 million pairs",
            0.06,
            cell("nvm", "forebay", "2 M"),
            cell("nvm", "nvm", "2 M"),
            "Ours is a fixed share of the pool (two buffers of 8 MiB), whatever is stored; what stands in for PMDK-Redis holds each pair as a command in \
             an append-only file, without PMDK's overhead of allocation.",
        )
        .less()
        .headline(&[]),
        times(
            "NVM of ours at 2 million pairs over 0.1 million",
            1.0,
            cell("nvm", "forebay", "2 M"),
            cell("nvm", "forebay", "0.1 M"),
            "The buffers' size does not depend on the data.",
        )
        .less(),
        times(
            "DRAM of ours over everysec, 2 million pairs",
            1.0,
            cell("dram", "forebay", "2 M"),
            cell("dram", "everysec", "2 M"),
            "The server holds the same table in both; the rest is the supervisor's memory and the allocator's chance.",
        )
        .less(),
    ],
    measurement: Measurement::Memory,
    seconds: [5, 40, 40],
};

pub(super) const FIG9: Experiment = Experiment {
    id: "p4-fig9",
    paper: "P4",
    title: "Fig. 9: mixes of SETs and GETs",
    method: "A client of ours in memtier's place (Debian has no package of it): 50 connections, one request in flight on each, keys chosen at random; SET:GET \
             1:10 (memtier's default), 1:1 and 10:1, with the server's automatic rewrites on. Ratios are those of 1:1.",
    setup: SETUP,
    panels: &[
        Panel {
            id: "mix-1-10",
            title: "SET:GET 1:10",
            unit: "requests/s",
            x: "value",
            drawn: LogBars,
        },
        Panel {
            id: "mix-1-1",
            title: "SET:GET 1:1",
            unit: "requests/s",
            x: "value",
            drawn: LogBars,
        },
        Panel {
            id: "mix-10-1",
            title: "SET:GET 10:1",
            unit: "requests/s",
            x: "value",
            drawn: LogBars,
        },
    ],
    claims: &[
        times(
            "over always, mean of the sizes",
            34.0,
            cell("mix-1-1", "forebay", EVERY),
            cell("mix-1-1", "always", EVERY),
            DISK_BOUND,
        )
        .headline(&[("all pairs in NVM", "nvm")]),
        times(
            "everysec over ours, mean of the sizes",
            1.54,
            cell("mix-1-1", "everysec", EVERY),
            cell("mix-1-1", "forebay", EVERY),
            SHARED_CPU,
        ).if_below(FAST_PATH)
        .less(),
        times(
            "everysec over ours at 8 KiB",
            3.77,
            cell("mix-1-1", "everysec", "8 KiB"),
            cell("mix-1-1", "forebay", "8 KiB"),
            REWRITES_COST,
        )
        .if_below(REWRITES)
        .less()
        .headline(&[]),
        times(
            "all pairs in NVM over ours at 8 KiB",
            12.86,
            cell("mix-1-1", "nvm", "8 KiB"),
            cell("mix-1-1", "forebay", "8 KiB"),
            "What stands in for PMDK-Redis rewrites its append-only file too, which PMDK-Redis need not.",
        )
        .less(),
    ],
    measurement: Measurement::Mixes,
    seconds: [20, 100, 600],
};

const REWRITES_COST: &str = "Fork, rewriting child, server, client and supervisor share {processors} processors, and the bytes of a rewrite go through the pool too.";

const REWRITES: &str = "PB-Redis does not log to NVM while the append-only file is rewritten; under forebay the new file is absorbed like the old one, so that \
                        a rewrite costs what it costs everysec.";

pub(super) const FIG10: Experiment = Experiment {
    id: "p4-fig10",
    paper: "P4",
    title: "Fig. 10: slower memories",
    method: "redis-benchmark's SETs under forebay run with --media-profile: the pool's accesses wait as long as the memory takes beyond DRAM.",
    setup: SETUP,
    panels: &[Panel {
        id: "sets",
        title: "SETs by the pool's memory",
        unit: "SETs/s",
        x: "value",
        drawn: Bars,
    }],
    claims: &[
        slower("DRAM over PCM (50/500 ns), mean of the sizes", 1.52, "pcm").headline(&[]),
        slower(
            "DRAM over 3D XPoint, memory-mapped (100/100 ns)",
            1.14,
            "xpoint-mm",
        ),
        slower(
            "DRAM over 3D XPoint, storage-mapped (200/200 ns)",
            1.31,
            "xpoint-sm",
        ),
    ],
    measurement: Measurement::Latency,
    seconds: [15, 60, 250],
};

const fn slower(what: &'static str, paper: f64, memory: &'static str) -> Claim {
    times(
        what,
        paper,
        cell("sets", "dram", EVERY),
        cell("sets", memory, EVERY),
        "Server, client, supervisor and the waiting share {processors} processors: what an append waits, nobody else can use.",
    )
    .less()
    .if_below(
        "PB-Redis waits at each of its accesses to the list in NVM; ours writes a record in one or two stretches, so that a SET pays the latency \
         once or twice, and never reads.",
    )
}

pub(super) const REWRITE: Experiment = Experiment {
    id: "p4-rewrite",
    paper: "P4",
    title: "The open problem: 8 KiB values while the append-only file is rewritten",
    method: "redis-benchmark's SETs of 8 KiB, alone and while BGREWRITEAOF is sent again and again, with pools of 16 MiB, 256 MiB and 1 GiB.",
    setup: SETUP,
    panels: &[
        Panel {
            id: "sets",
            title: "SETs of 8 KiB",
            unit: "SETs/s",
            x: "",
            drawn: LogBars,
        },
        Panel {
            id: "p99",
            title: "99 of 100 SETs take at most",
            unit: "µs",
            x: "",
            drawn: LogBars,
        },
    ],
    claims: &[
        rewriting("everysec over ours, pool of 256 MiB", "forebay 256 MiB").headline(&[]),
        rewriting("everysec over ours, pool of 16 MiB", "forebay 16 MiB"),
        rewriting("everysec over ours, pool of 1 GiB", "forebay 1 GiB"),
        times(
            "everysec over ours, pool of 256 MiB, alone",
            1.31,
            cell("sets", "everysec", "alone"),
            cell("sets", "forebay 256 MiB", "alone"),
            SHARED_CPU,
        )
        .if_below(FAST_PATH)
        .less(),
        times(
            "p99 of ours over everysec's, pool of 256 MiB, during rewrites",
            1.0,
            cell("p99", "forebay 256 MiB", "during rewrites"),
            cell("p99", "everysec", "during rewrites"),
            "The paper gives no latencies; it leaves a log that does not stall during the rewrite to future work. 1 is the goal: no worse than \
             everysec. Fork, rewriting child, server and supervisor share {processors} processors.",
        )
        .less(),
    ],
    measurement: Measurement::Rewrite,
    seconds: [30, 180, 1200],
};

const fn rewriting(what: &'static str, series: &'static str) -> Claim {
    times(
        what,
        3.77,
        cell("sets", "everysec", "during rewrites"),
        cell("sets", series, "during rewrites"),
        REWRITES_COST,
    )
    .if_below(REWRITES)
    .less()
}
