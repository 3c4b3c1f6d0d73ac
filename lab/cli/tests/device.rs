//! `forebay-lab device`: what an emulated device really costs, beside its profile.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::Sandbox;
use std::fs;

/// 2 ms a request.
const SLOW: &str =
    "read = { random_us = 2000, mb_s = 1000 }\nwrite = { random_us = 2000, mb_s = 1000 }\n";

#[test]
fn the_benchmark_shows_each_kind_of_request_beside_the_profile() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.file("device.toml"), SLOW).unwrap();
    let ran = sandbox.run("device --quick --json --profile device.toml --dir .");
    if ran.stderr.contains("fio is not installed") {
        assert!(std::env::var_os("CI").is_none(), "{}", ran.stderr);
        println!("skipped: {}", ran.stderr.trim());
        return;
    }
    let report = ran.ok().json();
    assert_eq!(report["bench"], "device");
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 8);
    for row in rows {
        let us = |name: &str| row[name].as_f64().unwrap();
        // Not faster than the device, whatever the machine does; how much slower is its business
        // here.
        assert!(us("measured_us") >= us("profile_us") * 0.999, "{row}");
        assert!(us("profile_us") >= 2000.0, "{row}");
    }
    sandbox
        .run("device --profile floppy")
        .fails(2, &["floppy", "nvme"]);
}
