//! `--device` of programs that load no library: an emulated block device.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::Sandbox;
use std::fs;

/// 2 ms a request.
const SLOW: &str =
    "read = { random_us = 2000, mb_s = 1000 }\nwrite = { random_us = 2000, mb_s = 1000 }\n";

/// Of the error of a machine that cannot have one.
const LACKS: [&str; 3] = [
    "etcd is not installed",
    "an emulated block device needs",
    "unshare failed",
];

#[test]
fn a_go_server_waits_for_an_emulated_disk() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.file("device.toml"), SLOW).unwrap();
    let line = "etcd --quick --json --clients 1 --modes plain --device device.toml --dir .";
    let ran = sandbox.run(line);
    if let Some(lacking) = LACKS.iter().find(|lacking| ran.stderr.contains(**lacking)) {
        println!("skipped: {lacking}");
        return;
    }
    let report = ran.ok().json();
    let p50_us = report["rows"][0]["p50_us"].as_f64().unwrap();
    assert!(p50_us >= 2000.0, "{p50_us} µs");
    sandbox
        .run("etcd --quick --modes plain --device floppy")
        .fails(2, &["floppy", "nvme"]);
}
