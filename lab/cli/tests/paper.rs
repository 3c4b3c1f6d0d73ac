//! `forebay-lab paper` and `forebay-lab report`: every experiment at toy size gives all of its rows, whatever is installed. Not how fast.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{FOREBAY, Ran, Sandbox};
use forebay_bench::{paper::catalogue, processes::Process};
use rustix::process::Signal;
use serde_json::Value;
use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

fn results(sandbox: &Sandbox, dir: &str, id: &str) -> Value {
    let path = sandbox.file(dir).join(format!("{id}.json"));
    let bytes = fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_slice(&bytes).unwrap()
}

/// What experiments call the disk that they run on.
const HERE: &str = "this disk";

/// The figures of a panel on this disk, by series and x.
fn figures(result: &Value, panel: &str) -> Vec<(String, String, f64)> {
    figures_on(result, HERE, panel)
}

/// The figures of a panel at a place, by series and x. Every row of the result is a figure with its span, or says why not.
fn figures_on(result: &Value, place: &str, panel: &str) -> Vec<(String, String, f64)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let rows = result["rows"].as_array().unwrap();
    for row in rows {
        match row["value"].as_f64() {
            Some(value) => {
                let (min, max) = (row["min"].as_f64().unwrap(), row["max"].as_f64().unwrap());
                assert!(
                    value.is_finite() && 0.0 <= min && min <= value && value <= max,
                    "{row}"
                );
            }
            None => assert!(row["missing"].as_str().unwrap().len() > 10, "{row}"),
        }
    }
    rows.iter()
        .filter(|row| row["panel"] == panel && row["place"] == place)
        .filter_map(|row| {
            Some((
                text(&row["series"]),
                text(&row["x"]),
                row["value"].as_f64()?,
            ))
        })
        .collect()
}

/// Every series at every x has a figure above zero on this disk.
#[track_caller]
fn assert_complete(result: &Value, panel: &str, series: &[&str], xs: &[&str]) {
    assert_on(result, HERE, panel, series, xs);
}

/// Every series at every x has a figure above zero at `place`.
#[track_caller]
fn assert_on(result: &Value, place: &str, panel: &str, series: &[&str], xs: &[&str]) {
    let figures = figures_on(result, place, panel);
    for (series, x) in series
        .iter()
        .flat_map(|series| xs.iter().map(move |x| (series, x)))
    {
        let figure = figures.iter().find(|(s, at, _)| s == series && at == x);
        assert!(
            figure.is_some_and(|(.., value)| *value > 0.0),
            "{panel}, {series} at {x} on {place}: {figures:?}"
        );
    }
}

const SIZES: [&str; 5] = ["32 B", "128 B", "512 B", "2 KiB", "8 KiB"];

/// All experiments in one run, since it takes a while; then everything that needs results.
#[test]
fn every_experiment_gives_all_its_rows_at_toy_size_and_a_report_is_made_of_them() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.file("scratch")).unwrap();
    let ran = sandbox
        .run("paper --toy --out results --dir scratch --json")
        .ok();
    assert!(
        ran.stderr.contains("left in all") && ran.stderr.contains("MiB of disk"),
        "{}",
        ran.stderr
    );
    assert_eq!(ran.json().as_array().unwrap().len(), catalogue::ALL.len());
    assert_eq!(
        fs::read_dir(sandbox.file("scratch")).unwrap().count(),
        0,
        "nothing is left behind"
    );

    let get = |id: &str| results(&sandbox, "results", id);
    for experiment in catalogue::ALL.iter() {
        let result = get(&experiment.id);
        assert_eq!(result["size"], "toy");
        assert_eq!(
            result["command"],
            format!("forebay-lab paper --toy {}", experiment.id)
        );
        assert!(result["machine"]["processors"].as_u64().unwrap() > 0);
        for panel in &experiment.panels {
            let rows = result["rows"].as_array().unwrap();
            assert!(
                rows.iter().any(|row| row["panel"] == panel.id.as_str()),
                "{} has no {}",
                experiment.id,
                panel.id
            );
        }
    }
    let variants = ["fsync", "nosync", "single", "double"];
    assert_complete(&get("p1-fig5"), "puts", &variants, &["4 KiB"]);
    assert_on(&get("p1-fig5"), "sata-ssd", "puts", &variants, &["4 KiB"]);
    // Of the peers what is not installed is a row too.
    let peers = get("p1-peers");
    assert_complete(&peers, "puts", &["fsync", "double"], &["4 KiB"]);
    for peer in ["rocksdb", "leveldb", "lmdb", "fjall", "redb"] {
        let rows = peers["rows"].as_array().unwrap();
        let of_it = |row: &&Value| row["series"].as_str().unwrap().starts_with(peer);
        assert!(rows.iter().any(|row| of_it(&row)), "{peer}");
    }
    let buffers = [
        "1 MiB", "2 MiB", "4 MiB", "8 MiB", "16 MiB", "32 MiB", "64 MiB",
    ];
    assert_complete(&get("p1-fig6"), "time", &["single", "double"], &buffers);
    let shares = figures(&get("p1-fig7"), "share");
    assert_eq!(shares.len(), variants.len());
    assert!(
        shares.iter().all(|(.., percent)| *percent <= 100.0),
        "{shares:?}"
    );
    if forebay_bench::redis::server::Kind::Redis.program().is_err() {
        assert!(
            std::env::var_os("CI").is_none(),
            "redis-server is not installed"
        );
        println!("skipped: P4's figures: redis-server is not installed");
    } else {
        p4_is_complete(get);
    }
    p2_is_complete(get);
    p3_is_complete(get);
    p5_is_complete(get);
    a_report_has_it_all(&sandbox);
    a_second_run_measures_what_is_missing(&sandbox);
    a_damaged_result_is_refused(&sandbox);
}

fn p5_is_complete(get: impl Fn(&str) -> Value) {
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

fn p2_is_complete(get: impl Fn(&str) -> Value) {
    let result = get("p2-tpcc");
    let on_ssd = |panel: &str, series: &[&str], xs: &[&str]| {
        assert_on(&result, "sata-ssd", panel, series, xs);
    };
    let on_the_array = ["original", "FaCE dirty", "FaCE dirty, redo in the pool"];
    on_ssd("raid", &on_the_array, &["16 clients"]);
    on_ssd("p99", &on_the_array, &["data on the array"]);
    on_ssd("ssd", &["FaCE all"], &["16 clients"]);
    assert_complete(
        &result,
        "here",
        &["original without doublewrite"],
        &["16 clients"],
    );
    on_ssd("sizes", &["FaCE dirty"], &["20 %"]);
    let restarts = ["original", "FaCE dirty, warm", "FaCE dirty, cold"];
    on_ssd("restart", &restarts, &["serves"]);
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
    let both = ["original", "FaCE dirty"];
    assert_on(&loads, "sata-ssd", "loads", &both, &transactions);
    assert_on(&loads, "sata-ssd", "loads_p99", &both, &transactions);
    assert_on(&loads, "sata-ssd", "scan", &both, &["all rows"]);
    assert_on(&loads, "sata-ssd", "over", &both[1..], &transactions);
}

fn p3_is_complete(get: impl Fn(&str) -> Value) {
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

fn p4_is_complete(get: impl Fn(&str) -> Value) {
    let policies = ["everysec", "always", "nvm", "forebay"];
    assert_complete(&get("p4-fig6"), "sets", &policies, &SIZES);
    assert_on(&get("p4-fig6"), "hdd-7200", "sets", &policies, &SIZES);
    let lost = figures(&get("p4-fig7"), "lost");
    for mode in ["always", "nvm", "forebay"] {
        let lost: Vec<_> = lost.iter().filter(|(series, ..)| series == mode).collect();
        assert!(matches!(lost.as_slice(), [(.., 0.0)]), "{mode}: {lost:?}");
    }
    // All keys were written before its first second was over, so that it has lost them: a loss that cannot be seen would prove nothing.
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

fn a_report_has_it_all(sandbox: &Sandbox) {
    sandbox
        .run("report results --html report.html --markdown report.md")
        .ok();
    let html = fs::read_to_string(sandbox.file("report.html")).unwrap();
    let markdown = fs::read_to_string(sandbox.file("report.md")).unwrap();
    for experiment in catalogue::ALL.iter() {
        assert!(
            html.contains(&format!("id=\"{}\"", experiment.id)),
            "{}",
            experiment.id
        );
        let heading = format!("## {}, {}", experiment.paper, experiment.title);
        assert!(markdown.contains(&heading), "{heading}");
    }
    for page in [&html, &markdown] {
        assert!(
            page.contains("9.78×") && page.contains("175×"),
            "the papers' figures"
        );
        assert!(page.contains("Toy size"), "a warning");
        for wrong in ["NaN", "inf", "{fsync_us}", "{processors}"] {
            let found = page.split_whitespace().find(|word| {
                word.trim_matches(|c: char| !c.is_alphanumeric() && c != '{' && c != '}') == wrong
            });
            assert_eq!(found, None, "{wrong} in the page");
        }
    }
    assert!(html.matches("<svg").count() >= 3 && html.contains("class=\"grid\""));
    for outside in ["http://", "https://", "<script", "<link", "src="] {
        assert!(
            !html.contains(outside),
            "the page is not self-contained: {outside}"
        );
    }
    let printed = sandbox.run("report results").ok().text();
    assert_eq!(printed, markdown);
}

fn a_second_run_measures_what_is_missing(sandbox: &Sandbox) {
    let before = fs::read(sandbox.file("results/p1-fig5.json")).unwrap();
    fs::remove_file(sandbox.file("results/p5-latency.json")).unwrap();
    let ran = sandbox
        .run("paper --toy --resume --out results --dir scratch --json")
        .ok();
    assert_eq!(ran.json(), serde_json::json!(["results/p5-latency.json"]));
    let said = format!(
        "{} experiments are in results already",
        catalogue::ALL.len() - 1
    );
    assert!(ran.stderr.contains(&said), "{}", ran.stderr);
    assert_eq!(
        fs::read(sandbox.file("results/p1-fig5.json")).unwrap(),
        before
    );
}

fn a_damaged_result_is_refused(sandbox: &Sandbox) {
    sandbox.edit("results/p4-fig6.json", |bytes| bytes.truncate(100));
    let words = ["p4-fig6.json", "not a result of this version"];
    sandbox.run("report results").fails(2, &words);
    sandbox
        .run("paper --toy --resume --out results --dir scratch")
        .fails(2, &words);
}

#[test]
fn an_unknown_experiment_is_refused_before_anything_is_done() {
    let sandbox = Sandbox::new();
    sandbox
        .run("paper --toy p1-fig5 p1-fig99 --out results")
        .fails(2, &["no experiment p1-fig99", "p4-rewrite", "--list"]);
    assert!(!sandbox.file("results").exists());
    let list = sandbox.run("paper --list").ok().text();
    for experiment in catalogue::ALL.iter() {
        assert!(list.contains(&experiment.id), "{list}");
    }
    let list = sandbox.run("paper --list --json").ok().json();
    assert_eq!(list.as_array().unwrap().len(), catalogue::ALL.len());
    sandbox
        .run("report .")
        .fails(2, &["no results", "forebay-lab paper --quick"]);
}

#[test]
fn what_is_not_installed_becomes_rows_that_say_so() {
    let sandbox = Sandbox::new();
    let mut bench = sandbox.command(
        "paper --toy p1-fig5 p1-fig7 p4-fig6 p4-fig7 p4-rewrite --out results --dir scratch",
    );
    Ran::of(bench.env("PATH", "/nowhere").output().unwrap()).ok();
    let missing = |id: &str, panel: &str| -> Vec<String> {
        let result = results(&sandbox, "results", id);
        let rows = result["rows"].as_array().unwrap().iter();
        rows.filter(|row| row["panel"] == panel && row["place"] == HERE)
            .filter_map(|row| Some(row["missing"].as_str()?.to_owned()))
            .collect()
    };
    assert_eq!(
        missing("p1-fig5", "puts"),
        ["not installed: apt-get install rocksdb-tools"]
    );
    let perf = missing("p1-fig7", "perf");
    assert!(
        perf.iter()
            .all(|why| why.contains("apt-get install linux-perf; its substitute is"))
            && perf.len() == 4,
        "{perf:?}"
    );
    let notes = results(&sandbox, "results", "p1-fig7")["notes"].to_string();
    assert!(notes.contains("substitute"), "{notes}");
    for (id, panel) in [
        ("p4-fig6", "sets"),
        ("p4-fig7", "lost"),
        ("p4-rewrite", "p99"),
    ] {
        let why = missing(id, panel);
        assert!(
            !why.is_empty() && why.iter().all(|why| why.contains("apt-get install redis")),
            "{id}: {why:?}"
        );
    }
    let page = sandbox.run("report results").ok().text();
    assert!(
        page.contains("apt-get install redis") && page.contains("not measured"),
        "{page}"
    );
}

#[test]
fn an_interrupted_run_leaves_whole_results_and_nothing_else_and_is_resumed() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.file("scratch")).unwrap();
    let line = "paper --toy p1-fig6 p1-fig5 --out results --dir scratch";
    let mut run = Process::spawn(
        Command::new(FOREBAY)
            .args(line.split_whitespace())
            .current_dir(sandbox.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null()),
    )
    .unwrap();
    // The first step is done, the second is not.
    let first = sandbox.file("results/p1-fig5.json");
    let until = Instant::now() + Duration::from_secs(600);
    while !first.exists() {
        assert!(
            Instant::now() < until && run.ended().is_none(),
            "the first result did not come"
        );
        thread::sleep(Duration::from_millis(1));
    }
    run.handle().signal(Signal::INT);
    let status = run.wait(Duration::from_secs(60)).unwrap();
    assert_eq!(status.code(), Some(130));
    let names = |dir: &Path| {
        let mut names: Vec<_> = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        names
    };
    assert_eq!(names(&sandbox.file("results")), ["p1-fig5.json"]);
    assert!(names(&sandbox.file("scratch")).is_empty());
    let result = fs::read(&first).unwrap();
    let ran = sandbox.run(&format!("{line} --resume --json")).ok();
    assert_eq!(ran.json(), serde_json::json!(["results/p1-fig6.json"]));
    assert_eq!(fs::read(&first).unwrap(), result);
}
