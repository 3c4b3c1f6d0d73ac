//! Every experiment at toy size, and what is made of the results: a report, a second run that
//! measures what is missing, a refusal of a damaged one.

use crate::{
    common::Sandbox,
    complete::{p2_is_complete, p3_is_complete, p4_is_complete, p5_is_complete},
    rows::{assert_complete, assert_on, figures, results},
};
use forebay_bench::paper::{Experiment, catalogue};
use serde_json::Value;
use std::{cmp::Reverse, fs, thread};

/// Takes minutes, boots virtual machines, and needs programs that other tests do without.
const IN_MACHINES: &str = "p2-bcache";

fn all() -> Vec<&'static Experiment> {
    let all = catalogue::ALL.iter();
    all.filter(|it| it.id != IN_MACHINES).collect()
}

/// The command that measures, or resumes, these.
fn line(resume: &str, of: &[&Experiment]) -> String {
    let ids: Vec<&str> = of.iter().map(|it| it.id.as_str()).collect();
    let options = "--out results --dir scratch";
    format!("paper --toy {resume} {options} {}", ids.join(" "))
}

/// All of them in three runs that take about as long each. They wait most of the time, and how fast
/// they are does not matter here.
fn in_three_runs() -> [Vec<&'static Experiment>; 3] {
    let mut runs = [const { Vec::new() }; 3];
    let mut longest_first = all();
    longest_first.sort_by_key(|it| Reverse(it.seconds[0]));
    let takes = |run: &Vec<&Experiment>| run.iter().map(|it| it.seconds[0]).sum::<u32>();
    for experiment in longest_first {
        let shortest = runs.iter_mut().min_by_key(|run| takes(run)).unwrap();
        shortest.push(experiment);
    }
    runs
}

/// Measures them all.
fn measure(sandbox: &Sandbox) {
    let measured = |of: Vec<&'static Experiment>| {
        let ran = sandbox.run(&line("--json", &of)).ok();
        let said = &ran.stderr;
        assert!(
            said.contains("left in all") && said.contains("MiB of disk"),
            "{said}"
        );
        assert_eq!(ran.json().as_array().unwrap().len(), of.len());
    };
    thread::scope(|scope| {
        for run in in_three_runs() {
            scope.spawn(|| measured(run));
        }
    });
}

/// All experiments once, since it takes a while; then everything that needs results.
#[test]
fn every_experiment_gives_all_rows_at_toy_size_and_a_report() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.file("scratch")).unwrap();
    measure(&sandbox);
    assert_eq!(
        fs::read_dir(sandbox.file("scratch")).unwrap().count(),
        0,
        "nothing is left behind"
    );

    let get = |id: &str| results(&sandbox, "results", id);
    for experiment in all() {
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
    let ran = sandbox.run(&line("--resume --json", &all())).ok();
    assert_eq!(ran.json(), serde_json::json!(["results/p5-latency.json"]));
    let said = format!("{} experiments are in results already", all().len() - 1);
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
    sandbox.run(&line("--resume", &all())).fails(2, &words);
}
