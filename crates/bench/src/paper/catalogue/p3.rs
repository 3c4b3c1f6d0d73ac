//! P3: what RocksDB's write-ahead log costs by the device under it.

use super::{cell, p5::CALIBRATED, times};
use crate::paper::{
    Drawn::{Bars, LogBars},
    Experiment, Measurement, Panel,
    claims::Claim,
    write_ahead::Mix,
};

const SETUP: &str = "Xeon E5-2660 v2, 64 GB, CentOS 7.3; SSD Crucial MX200, NVMe Intel DC P3700, NVRAM Microsemi NV1600 (battery-backed DRAM); MyRocks, \
                        LinkBench with 10 million ids (3.5 GB), TPC-C with 200 warehouses (7 GB), 10 clients";
const METHOD: &str = "MyRocks (MariaDB) with its data on the emulated SSD sata-ssd. Its write-ahead log lies there, on nvme, on nvram, there under forebay \
                         run, or there is none. 1 and 10 clients; each commit synced, and not synced, since the paper does not say which it measured.";
/// The paper's connections; it does not say whether it synced.
const SYNCED: &str = "10 clients, synced";

pub(super) const SETUP_TABLE: Experiment = Experiment {
    id: "p3-devices",
    paper: "P3",
    title: "Setup table: random writes of the devices",
    method: "fio, random writes of 4 KiB, one job, on each emulated device.",
    setup: SETUP,
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

pub(super) const LINKBENCH: Experiment = Experiment {
    id: "p3-linkbench",
    paper: "P3",
    title: "LinkBench by the device under the write-ahead log",
    method: METHOD,
    setup: SETUP,
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

pub(super) const TPCC: Experiment = Experiment {
    id: "p3-tpcc",
    paper: "P3",
    title: "TPC-C by the device under the write-ahead log",
    method: METHOD,
    setup: SETUP,
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
