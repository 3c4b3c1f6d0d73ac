//! Results of the experiments of P2 to P5 at toy size: every series at every x of their panels.

use crate::rows::{assert_complete, assert_on, figures, figures_on};
use serde_json::Value;

const SIZES: [&str; 5] = ["32 B", "128 B", "512 B", "2 KiB", "8 KiB"];

pub fn p2_is_complete(get: impl Fn(&str) -> Value) {
    let result = get("p2-tpcc");
    let on_ssd = |panel: &str, series: &[&str], xs: &[&str]| {
        assert_on(&result, "sata-ssd", panel, series, xs);
    };
    let on_the_array = ["original", "FaCE dirty", "FaCE dirty, redo in the pool"];
    on_ssd("raid", &on_the_array, &["16 clients"]);
    on_ssd("p99", &on_the_array, &["data on the array"]);
    on_ssd("ssd", &["FaCE all, adaptive"], &["16 clients"]);
    assert_complete(
        &result,
        "here",
        &["original without doublewrite"],
        &["16 clients"],
    );
    on_ssd("sizes", &["FaCE dirty"], &["20 %"]);
    let restarts = [
        "original",
        "original, shut down in order",
        "FaCE dirty, warm",
        "FaCE dirty, cold",
    ];
    assert_on(
        &get("p2-restart"),
        "sata-ssd",
        "restart",
        &restarts,
        &["serves"],
    );
    let pages = ["page found", "page that comes in"];
    on_ssd("cost", &["the device"], &pages);
    // At toy size noise may hide what the cache takes.
    let cost = figures_on(&result, "sata-ssd", "cost");
    let of_the_cache = cost.iter().filter(|(series, ..)| series == "the cache");
    assert_eq!(of_the_cache.count(), pages.len(), "{cost:?}");
    let notes = result["notes"].to_string();
    assert!(
        notes.contains("the queue turned") && notes.contains("TPC-C's checks"),
        "{notes}"
    );
    let loads = get("p2-loads");
    let transactions = ["oltp_write_only", "oltp_read_only"];
    let both = ["original", "FaCE dirty, adaptive"];
    assert_on(&loads, "sata-ssd", "loads", &both, &transactions);
    assert_on(&loads, "sata-ssd", "loads_p99", &both, &transactions);
    assert_on(&loads, "sata-ssd", "scan", &both, &["all rows"]);
    assert_on(&loads, "sata-ssd", "over", &both[1..], &transactions);
}

pub fn p3_is_complete(get: impl Fn(&str) -> Value) {
    let devices = ["sata-ssd", "nvme", "nvram"];
    assert_complete(&get("p3-devices"), "random_writes", &devices, &["4 KiB"]);
    let logs = [
        "sata-ssd",
        "nvme",
        "nvram",
        "forebay",
        "forebay, pool on this disk",
        "libeatmydata",
        "off",
    ];
    for (id, panel, request) in [
        ("p3-linkbench", "linkbench", "getlinklist"),
        ("p3-tpcc", "tpcc", "new_order"),
    ] {
        let synced = ["10 clients, synced"];
        assert_on(&get(id), "sata-ssd", panel, &logs, &synced);
        let latencies = format!("{panel}_p99");
        assert_on(&get(id), "sata-ssd", &latencies, &logs, &[request]);
        let times = format!("{panel}_cpu");
        let part = "10 clients, synced: server";
        assert_on(&get(id), "sata-ssd", &times, &logs, &[part]);
    }
}

pub fn p4_is_complete(get: impl Fn(&str) -> Value) {
    let policies = ["everysec", "always", "nvm", "forebay"];
    assert_complete(&get("p4-fig6"), "sets", &policies, &SIZES);
    assert_on(&get("p4-fig6"), "hdd-7200", "sets", &policies, &SIZES);
    let lost = figures(&get("p4-fig7"), "lost");
    for mode in ["always", "nvm", "forebay"] {
        let lost: Vec<_> = lost.iter().filter(|(series, ..)| series == mode).collect();
        assert!(matches!(lost.as_slice(), [(.., 0.0)]), "{mode}: {lost:?}");
    }
    // All keys were written before its first second was over, so that it has lost them: a loss that
    // cannot be seen would prove nothing.
    let everysec = lost.iter().find(|(series, ..)| series == "everysec");
    assert!(
        everysec.is_none_or(|(.., percent)| *percent > 0.0),
        "{lost:?}"
    );
    let memory = get("p4-fig8");
    assert_complete(
        &memory,
        "dram",
        &["everysec", "nvm", "forebay"],
        &["0.001 M", "0.002 M"],
    );
    let nvm = figures(&memory, "nvm");
    let ours: Vec<f64> = nvm
        .iter()
        .filter(|(series, ..)| series == "forebay")
        .map(|(.., mib)| *mib)
        .collect();
    assert_eq!(
        ours,
        [16.0, 16.0],
        "two buffers of 8 MiB, whatever is stored"
    );
    for panel in ["mix-1-10", "mix-1-1", "mix-10-1"] {
        assert_complete(&get("p4-fig9"), panel, &policies, &["32 B", "8 KiB"]);
    }
    let memories = ["dram", "pcm", "xpoint-mm", "xpoint-sm"];
    assert_complete(
        &get("p4-fig10"),
        "sets",
        &memories,
        &["32 B", "512 B", "8 KiB"],
    );
    for panel in ["sets", "p99"] {
        let modes = [
            "everysec",
            "always",
            "forebay 16 MiB",
            "forebay 256 MiB",
            "forebay 1 GiB",
        ];
        assert_complete(
            &get("p4-rewrite"),
            panel,
            &modes,
            &["alone", "during rewrites"],
        );
    }
}

pub fn p5_is_complete(get: impl Fn(&str) -> Value) {
    let profiles = [
        "hdd-7200",
        "sata-ssd",
        "sata-ssd-steady",
        "nvme",
        "nvram",
        "gen-z-uc",
        "gen-z-wt",
        "gen-z-wc",
    ];
    let accesses = [
        "read 4 KiB, random",
        "write 4 KiB, sequential",
        "read 1 MiB, sequential",
        "write 1 MiB, random",
    ];
    for panel in ["time", "deviation"] {
        assert_complete(&get("p5-fig3-4"), panel, &profiles, &accesses);
    }
    let stores = [
        "forebay uc",
        "forebay wt",
        "forebay wc",
        "leveldb uc",
        "leveldb wt",
        "leveldb wc",
    ];
    for panel in [
        "sequential_put",
        "random_put",
        "random_put_sync",
        "sequential_get",
        "random_get",
    ] {
        assert_complete(
            &get("p5-latency"),
            panel,
            &stores,
            &["16 B", "1 KiB", "16 KiB"],
        );
    }
}
