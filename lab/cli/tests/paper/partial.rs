//! A run that cannot give everything: an unknown experiment, programs that are not installed, an
//! interruption.

use crate::{
    common::{FOREBAY, Ran, Sandbox},
    rows::{HERE, results},
};
use forebay_bench::{paper::catalogue, processes::Process};
use rustix::process::Signal;
use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

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
    let list = sandbox.json("paper --list --json");
    assert_eq!(list.as_array().unwrap().len(), catalogue::ALL.len());
    sandbox
        .run("report .")
        .fails(2, &["no results", "forebay-lab paper --quick"]);
}

#[test]
fn what_is_not_installed_becomes_rows_that_say_so() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.file("results")).unwrap();
    let parts = sandbox.file("results/p4-fig6.parts.jsonl");
    fs::write(&parts, "").unwrap();
    let mut bench = sandbox.command(
        "paper --toy p1-fig5 p1-fig7 p4-fig6 p4-fig7 p4-rewrite --out results --dir scratch",
    );
    Ran::of(bench.env("PATH", "/nowhere").output().unwrap()).ok();
    // What an interrupted run has measured is of use once that is installed.
    assert!(parts.exists());
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
fn an_interrupted_run_leaves_whole_results_and_is_resumed() {
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
