//! `forebay-lab demo`: every variant, and nothing acknowledged is missing after a kill.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::Sandbox;
use std::fs;

#[test]
fn the_demo_runs_every_variant_kills_it_and_finds_everything() {
    let sandbox = Sandbox::new();
    let report = sandbox.json("demo --seconds 0.3 --dir . --json");
    assert_eq!(report["variants"].as_array().unwrap().len(), 4);
    let killed = &report["killed"];
    assert!(killed["acknowledged"].as_u64().unwrap() > 0, "{killed}");
    assert_eq!(killed["acknowledged"], killed["recovered"]);
    let redis = &report["redis"];
    if redis.is_null() {
        println!("skipped: {}", report["redis_missing"]);
    } else {
        let killed = &redis["killed"];
        assert!(killed["acknowledged"].as_u64().unwrap() > 0, "{killed}");
        assert_eq!(killed["acknowledged"], killed["recovered"]);
    }
    assert_eq!(
        fs::read_dir(sandbox.path()).unwrap().count(),
        0,
        "nothing is left behind"
    );
}
