//! Every experiment, with the papers' figures as the papers state them ([`PAPERS`]).
//!
//! P2 (flash as an extended cache of MySQL) has no experiment yet.

use super::{
    Drawn::{Bars, Lines, LogBars},
    Experiment, Measurement, Panel,
    claims::{
        ALL as EVERY, Cell, Claim,
        Form::{Percent, Times},
        Given,
        Ours::{Below, Ratio, Spread, Value},
        Wanted::{Less, More},
    },
    command::Bench,
    write_ahead::Mix,
};

/// A paper.
#[derive(Clone, Copy, Debug)]
pub struct Paper {
    /// `P1` to `P5`.
    pub id: &'static str,
    /// What it is about, and who wrote it.
    pub title: &'static str,
}

/// The papers.
pub const PAPERS: [Paper; 5] = [
    Paper {
        id: "P1",
        title: "WiscKey with a buffer in NVDIMM-N (Song, Lee, Lee; KIPS 2022)",
    },
    Paper {
        id: "P2",
        title: "FaCE in MySQL: flash as an extended cache (Kang, Lee, Moon; VLDB 2012, and its port to MySQL)",
    },
    Paper {
        id: "P3",
        title: "The overhead of RocksDB's write-ahead log (Sung, Lee, Park)",
    },
    Paper {
        id: "P4",
        title: "PB-Redis: a persistent log buffer (Kim, Choi, Sung, Lee, Park; KIISE 2018)",
    },
    Paper {
        id: "P5",
        title: "LevelDB on a Gen-Z memory device (Kang et al.; 2020)",
    },
];

const P1_SETUP: &str = "Xeon Silver 4216, 32 GB DRAM, Samsung 970 Pro 1 TB, HPE 16 GB NVDIMM-N, Ubuntu 20.04; 8 GB of 8-byte keys and 4 KB \
                        values loaded, then 262,144 Sets of 4 KB under random keys";
const P4_SETUP: &str = "i7-6700K, 64 GB, 8 GB of NVM emulated in DRAM, a 7,200-rpm disk";
const P5_SETUP: &str = "Threadripper 1950X, 32 GB, Linux 5.0.21, Ext4-DAX on an FPGA prototype of Gen-Z memory, one queue of depth 1";

const fn cell(panel: &'static str, series: &'static str, x: &'static str) -> Cell {
    Cell { panel, series, x }
}

/// A claim of the usual kind; what differs is changed with the functions below.
const fn times(
    what: &'static str,
    paper: f64,
    over: Cell,
    under: Cell,
    because: &'static str,
) -> Claim {
    Claim {
        what,
        paper: Given::at(paper),
        form: Times,
        ours: Ratio(over, under),
        wanted: More,
        above: because,
        below: because,
        headline: false,
        peers: &[],
    }
}

const fn share(what: &'static str, paper: f64, of: Cell, because: &'static str) -> Claim {
    Claim {
        what,
        paper: Given::at(paper),
        form: Percent,
        ours: Value(of),
        wanted: Less,
        above: because,
        below: because,
        headline: false,
        peers: &[],
    }
}

impl Claim {
    const fn less(mut self) -> Self {
        self.wanted = Less;
        self
    }

    /// Another reason where ours is below the paper's.
    const fn if_below(mut self, because: &'static str) -> Self {
        self.below = because;
        self
    }

    const fn between(mut self, low: f64, high: f64) -> Self {
        self.paper = Given { low, high };
        self
    }

    const fn headline(mut self, peers: &'static [(&'static str, &'static str)]) -> Self {
        self.headline = true;
        self.peers = peers;
        self
    }
}

const K4: &str = "4 KiB";

const SYNC_BOUND: &str = "How much a Put gains by not being synced is the device's matter: here a synced 4 KiB write takes {fsync_us} µs, and \
                          sequential writes reach {seq_mb_s} MB/s; the paper's SSD is another one.";

const P1_FIG5: Experiment = Experiment {
    id: "p1-fig5",
    paper: "P1",
    title: "Fig. 5: speed of the four variants",
    method: "The embedded store in its four variants, one thread, Puts of new random keys; buffers of 8 MiB. RocksDB by db_bench beside it, loaded \
             with as much. Variants take turns, round after round.",
    setup: P1_SETUP,
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

const P1_PEERS: Experiment = Experiment {
    id: "p1-peers",
    paper: "P1",
    title: "Other stores in the place of fig. 5",
    method: "The same Puts into an empty store, ours and others: RocksDB by db_bench, also with its values in blob files, LevelDB and LMDB by small programs \
             linked to Debian's libraries, fjall (values apart from keys) and redb by one in Rust. One thread each, synced at each Put and not. They \
             take turns, round after round.",
    setup: P1_SETUP,
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

const P1_FIG6: Experiment = Experiment {
    id: "p1-fig6",
    paper: "P1",
    title: "Fig. 6: run time by size of a buffer",
    method: "The same Puts with single and double buffers of 1 to 64 MiB; the paper ends at 8.",
    setup: P1_SETUP,
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

const P1_FIG7: Experiment = Experiment {
    id: "p1-fig7",
    paper: "P1",
    title: "Fig. 7: fsync's share of core time",
    method: "Samples of this process with kernel stacks by Linux's perf while the Puts run, those inside fsync or fdatasync over all; and processor \
             time accounted by the threads themselves around fdatasync, which needs no permission.",
    setup: P1_SETUP,
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

const P1_FIG8: Experiment = Experiment {
    id: "p1-fig8",
    paper: "P1",
    title: "Fig. 8: device write latency per KiB",
    method: "Time that the device's write requests took, waiting in its queue included, over KiB written, from /proc/diskstats around the Puts of \
             fig. 5.",
    setup: P1_SETUP,
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

const DISK_BOUND: &str = "The paper's disk needs some milliseconds for each sync; here it takes {fsync_us} µs, so that always is that much faster. \
                          Server, client and supervisor share {processors} processors, which bounds all that does not wait for the disk.";
const SHARED_CPU: &str = "PB-Redis changes the server, ours does not: each write to the append-only file still goes to the kernel, and is copied to the pool \
                          besides. The server's own work on {processors} processors bounds both.";

const FAST_PATH: &str = "A write costs one copy to the pool and a fence beside what it costs everysec, and a sync nothing: on {processors} processors that is small \
                         beside the server's own work for a request.";

const P4_FIG6: Experiment = Experiment {
    id: "p4-fig6",
    paper: "P4",
    title: "Fig. 6: SETs by size of the value and policy",
    method: "redis-benchmark's SETs, 50 connections, against Debian's redis-server with appendfsync everysec and always, always with libeatmydata, always \
             with all files in memory (nvm), and always under forebay run; each round on a fresh server. Valkey as a peer.",
    setup: P4_SETUP,
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

const P4_FIG7: Experiment = Experiment {
    id: "p4-fig7",
    paper: "P4",
    title: "Fig. 7: loss after a crash",
    method: "Distinct keys are SET one after the other, each acknowledged; the server is killed with SIGKILL and its append-only file put back to \
             what was really synced; then it is started again and every key looked for.",
    setup: P4_SETUP,
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

const P4_FIG8: Experiment = Experiment {
    id: "p4-fig8",
    paper: "P4",
    title: "Fig. 8: DRAM and NVM in use by number of pairs",
    method: "Pairs of 32 bytes (16 of key, 16 of value) are SET; after each step resident memory and NVM are read.",
    setup: P4_SETUP,
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

const P4_FIG9: Experiment = Experiment {
    id: "p4-fig9",
    paper: "P4",
    title: "Fig. 9: mixes of SETs and GETs",
    method: "A client of ours in memtier's place (Debian has no package of it): 50 connections, one request in flight on each, keys chosen at random; SET:GET \
             1:10 (memtier's default), 1:1 and 10:1, with the server's automatic rewrites on. Ratios are those of 1:1.",
    setup: P4_SETUP,
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

const P4_FIG10: Experiment = Experiment {
    id: "p4-fig10",
    paper: "P4",
    title: "Fig. 10: slower memories",
    method: "redis-benchmark's SETs under forebay run with --media-profile: the pool's accesses wait as long as the memory takes beyond DRAM.",
    setup: P4_SETUP,
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

const P4_REWRITE: Experiment = Experiment {
    id: "p4-rewrite",
    paper: "P4",
    title: "The open problem: 8 KiB values while the append-only file is rewritten",
    method: "redis-benchmark's SETs of 8 KiB, alone and while BGREWRITEAOF is sent again and again, with pools of 16 MiB, 256 MiB and 1 GiB.",
    setup: P4_SETUP,
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

const P3_SETUP: &str = "Xeon E5-2660 v2, 64 GB, CentOS 7.3; SSD Crucial MX200, NVMe Intel DC P3700, NVRAM Microsemi NV1600 (battery-backed DRAM); MyRocks, \
                        LinkBench with 10 million ids (3.5 GB), TPC-C with 200 warehouses (7 GB), 10 clients";
const P3_METHOD: &str = "MyRocks (MariaDB) with its data on the emulated SSD sata-ssd. Its write-ahead log lies there, on nvme, on nvram, there under forebay \
                         run, or there is none. 1 and 10 clients; each commit synced, and not synced, since the paper does not say which it measured.";
/// The paper's connections; it does not say whether it synced.
const SYNCED: &str = "10 clients, synced";

const P3_SETUP_TABLE: Experiment = Experiment {
    id: "p3-devices",
    paper: "P3",
    title: "Setup table: random writes of the devices",
    method: "fio, random writes of 4 KiB, one job, on each emulated device.",
    setup: P3_SETUP,
    panels: &[Panel {
        id: "random_writes",
        title: "Random writes of 4 KiB",
        unit: "KiB/s",
        x: "",
        drawn: Bars,
    }],
    claims: &[
        device_over_ssd(
            "NVMe over SSD, random writes of 4 KiB",
            174_440.0 / 86_459.0,
            "nvme",
        )
        .headline(&[]),
        device_over_ssd(
            "NVRAM over SSD, random writes of 4 KiB",
            189_395.0 / 86_459.0,
            "nvram",
        ),
    ],
    measurement: Measurement::RandomWrites,
    seconds: [5, 50, 300],
};

const fn device_over_ssd(what: &'static str, paper: f64, device: &'static str) -> Claim {
    times(
        what,
        paper,
        cell("random_writes", device, "4 KiB"),
        cell("random_writes", "sata-ssd", "4 KiB"),
        CALIBRATED,
    )
}

/// What a device, or Forebay, leaves of the speed without a log.
const fn left(
    what: &'static str,
    paper: f64,
    panel: &'static str,
    log: &'static str,
    x: &'static str,
) -> Claim {
    times(
        what,
        paper,
        cell(panel, log, x),
        cell(panel, "off", x),
        LOG_COST,
    )
}

const LOG_COST: &str = "What a log costs depends on how much else a request costs: here server, client and supervisor share {processors} processors, and \
                        the data fits in memory. The paper does not say whether commits were synced.";

const P3_LINKBENCH: Experiment = Experiment {
    id: "p3-linkbench",
    paper: "P3",
    title: "LinkBench by the device under the write-ahead log",
    method: P3_METHOD,
    setup: P3_SETUP,
    panels: &[
        Panel {
            id: "linkbench",
            title: "LinkBench",
            unit: "requests/s",
            x: "clients",
            drawn: LogBars,
        },
        Panel {
            id: "linkbench_p99",
            title: "99 of 100 requests take at most, 10 clients, synced",
            unit: "µs",
            x: "request",
            drawn: LogBars,
        },
    ],
    claims: &[
        left(
            "log on the SSD over no log, LinkBench",
            6455.0 / 18_977.0,
            "linkbench",
            "sata-ssd",
            SYNCED,
        ),
        left(
            "log on NVMe over no log, LinkBench",
            15_580.0 / 18_977.0,
            "linkbench",
            "nvme",
            SYNCED,
        ),
        left(
            "log on NVRAM over no log, LinkBench",
            17_174.0 / 18_977.0,
            "linkbench",
            "nvram",
            SYNCED,
        ),
        left(
            "Forebay over no log, LinkBench (the paper's NVRAM beside)",
            17_174.0 / 18_977.0,
            "linkbench",
            "forebay",
            SYNCED,
        )
        .headline(&[]),
    ],
    measurement: Measurement::WriteAhead(Mix::LinkBench),
    seconds: [25, 900, 2700],
};

const P3_TPCC: Experiment = Experiment {
    id: "p3-tpcc",
    paper: "P3",
    title: "TPC-C by the device under the write-ahead log",
    method: P3_METHOD,
    setup: P3_SETUP,
    panels: &[
        Panel {
            id: "tpcc",
            title: "TPC-C",
            unit: "transactions/s",
            x: "clients",
            drawn: LogBars,
        },
        Panel {
            id: "tpcc_p99",
            title: "99 of 100 transactions take at most, 10 clients, synced",
            unit: "µs",
            x: "transaction",
            drawn: LogBars,
        },
    ],
    claims: &[
        left(
            "log on the SSD over no log, TPC-C",
            9270.0 / 13_977.0,
            "tpcc",
            "sata-ssd",
            SYNCED,
        ),
        left(
            "log on NVMe over no log, TPC-C",
            11_100.0 / 13_977.0,
            "tpcc",
            "nvme",
            SYNCED,
        ),
        left(
            "log on NVRAM over no log, TPC-C",
            13_490.0 / 13_977.0,
            "tpcc",
            "nvram",
            SYNCED,
        ),
        left(
            "Forebay over no log, TPC-C (the paper's NVRAM beside)",
            13_490.0 / 13_977.0,
            "tpcc",
            "forebay",
            SYNCED,
        )
        .headline(&[]),
    ],
    measurement: Measurement::WriteAhead(Mix::Tpcc),
    seconds: [40, 1000, 3000],
};

const P5_DEVICE: Experiment = Experiment {
    id: "p5-fig3-4",
    paper: "P5",
    title: "Fig. 3 and 4: the device alone",
    method: "forebay bench device: a process under forebay run --device reads and writes 4 KiB and 1 MiB, sequentially and at random; what it measures beside \
             what the profile says.",
    setup: P5_SETUP,
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

const CALIBRATED: &str = "The emulated device waits as long as the profile says beyond what the access takes anyway; within 10 % is the aim.";

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

const P5_FAM: Experiment = Experiment {
    id: "p5-latency",
    paper: "P5",
    title: "Latency by pair size and cache policy",
    method: "forebay bench fam: 10,000 pairs of 16 B to 16 KiB, for the embedded store resident on the emulated memory, and for LevelDB with its directory on \
             it.",
    setup: P5_SETUP,
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

/// All of them, in the order in which they are run and shown.
pub const ALL: &[Experiment] = &[
    P1_FIG5,
    P1_PEERS,
    P1_FIG6,
    P1_FIG7,
    P1_FIG8,
    P3_SETUP_TABLE,
    P3_LINKBENCH,
    P3_TPCC,
    P4_FIG6,
    P4_FIG7,
    P4_FIG8,
    P4_FIG9,
    P4_FIG10,
    P4_REWRITE,
    P5_DEVICE,
    P5_FAM,
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_experiment_has_an_id_of_its_own_and_a_paper() {
        let ids: BTreeSet<_> = ALL.iter().map(|experiment| experiment.id).collect();
        assert_eq!(ids.len(), ALL.len());
        for experiment in ALL {
            assert!(
                PAPERS.iter().any(|paper| paper.id == experiment.paper),
                "{}",
                experiment.id
            );
            assert!(
                experiment.id.starts_with(&experiment.paper.to_lowercase()),
                "{}",
                experiment.id
            );
            assert!(
                experiment.claims.iter().any(|claim| claim.headline),
                "{}",
                experiment.id
            );
        }
    }

    #[test]
    fn claims_are_about_panels_that_their_experiment_has() {
        for experiment in ALL {
            for claim in experiment.claims {
                let panels = match claim.ours {
                    Ratio(over, under) | Below(over, under) => vec![over.panel, under.panel],
                    Value(cell) => vec![cell.panel],
                    Spread(panel, ..) => vec![panel],
                };
                for panel in panels {
                    assert!(
                        experiment.panels.iter().any(|mine| mine.id == panel),
                        "{}: {panel}",
                        experiment.id
                    );
                }
            }
        }
    }
}
