//! Beyond one machine: examples/redis-cluster and examples/postgres-standby, run as a user would, with SIGKILL of their nodes.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{FOREBAY, Ran};
use forebay_bench::{postgres, processes::find_program, redis::server::Kind};
use std::{ffi::OsStr, net::TcpListener, path::Path, process::Command};

/// The first of six ports of loopback that are free, and so are the six 10,000 above, where the nodes talk to each other.
fn free_ports() -> u16 {
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let nodes = 0..6;
    // Below those that the kernel gives out by itself.
    (20_000..32_000)
        .step_by(10)
        .skip(std::process::id() as usize % 1000)
        .find(|port| {
            nodes
                .clone()
                .all(|node| is_free(port + node) && is_free(port + node + 10_000))
        })
        .expect("no free ports")
}

#[test]
fn a_cluster_of_six_nodes_loses_nothing_when_its_nodes_are_killed() {
    let (Ok(server), Some(client)) = (Kind::Redis.program(), find_program("redis-cli")) else {
        assert!(
            std::env::var_os("CI").is_none(),
            "redis-server or redis-cli is not installed: scripts/setup.sh test"
        );
        println!("skipped: redis-server or redis-cli is not installed");
        return;
    };
    let programs = [&server, &client].map(|program| program.parent().unwrap().to_owned());
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(programs.into_iter().chain(std::env::split_paths(&path)));
    let (path, port) = (path.unwrap(), free_ports().to_string());
    let environment: [(&str, &OsStr); 3] = [
        ("PATH", &path),
        ("PORT", port.as_ref()),
        ("KEYS", "1000".as_ref()),
    ];
    let said = run_example("redis-cluster", &environment);
    assert_eq!(said.matches("missing            0").count(), 5, "{said}");
}

#[test]
fn a_standby_takes_over_and_back_and_nothing_acknowledged_is_missing() {
    if let Some(lacking) = postgres::server::lacking() {
        assert!(std::env::var_os("CI").is_none(), "{lacking}");
        println!("skipped: {lacking}");
        return;
    }
    let said = run_example("postgres-standby", &[("ROWS", "500".as_ref())]);
    assert_eq!(said.matches("missing            0").count(), 5, "{said}");
}

/// Runs an example's script, which finds nothing missing: what it says.
fn run_example(name: &str, environment: &[(&str, &OsStr)]) -> String {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    // It ends its servers when it is told to end.
    let ran = Command::new("timeout")
        .args(["--kill-after=20", "240", "bash"])
        .arg(examples.join(name).join("run.sh"))
        .envs(environment.iter().copied())
        .env("FOREBAY", FOREBAY)
        .output()
        .unwrap();
    let said = Ran::of(ran).ok().text();
    assert!(
        said.contains("Nothing that was acknowledged is missing."),
        "{said}"
    );
    said
}
