//! Beyond one machine: examples/redis-cluster, examples/postgres-standby, examples/mariadb-galera
//! and examples/etcd-cluster, run as a user would, with SIGKILL of their nodes.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{FOREBAY, Ran, have, root_can, skip};
use forebay_bench::{mariadb, postgres, processes::find_program, redis::server::Kind};
use std::{ffi::OsStr, net::TcpListener, ops::Range, path::Path, process::Command};

/// The first of ports of loopback that are free, of each `range` its own: those behind it by
/// `offsets`.
fn free_ports(range: Range<u16>, offsets: &[u16]) -> u16 {
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    // Below those that the kernel gives out by itself.
    range
        .step_by(100)
        .cycle()
        .skip(std::process::id() as usize % 1000)
        .take(1000)
        .find(|port| offsets.iter().all(|offset| is_free(port + offset)))
        .expect("no free ports")
}

#[test]
fn a_cluster_of_six_nodes_loses_nothing_when_nodes_are_killed() {
    let (Ok(server), Some(client)) = (Kind::Redis.program(), find_program("redis-cli")) else {
        skip("redis-server or redis-cli is not installed: scripts/setup.sh test");
        return;
    };
    let programs = [&server, &client].map(|program| program.parent().unwrap().to_owned());
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(programs.into_iter().chain(std::env::split_paths(&path)));
    // The nodes, and where they talk to each other.
    let nodes: Vec<u16> = (0..6).chain(10_000..10_006).collect();
    let (path, port) = (
        path.unwrap(),
        free_ports(20_000..22_500, &nodes).to_string(),
    );
    let environment: [(&str, &OsStr); 3] = [
        ("PATH", &path),
        ("PORT", port.as_ref()),
        ("KEYS", "1000".as_ref()),
    ];
    run_example("redis-cluster/run.sh", &environment, 5);
}

#[test]
fn a_standby_takes_over_and_back_and_loses_nothing_acknowledged() {
    if let Some(lacking) = postgres::server::lacking() {
        skip(&lacking);
        return;
    }
    run_example("postgres-standby/run.sh", &[("ROWS", "500".as_ref())], 5);
}

#[test]
fn a_galera_cluster_loses_nothing_when_one_then_all_nodes_die() {
    let programs = ["mariadbd", "mariadb-install-db", "rsync", "ss"];
    let lacking = programs
        .iter()
        .find_map(|name| mariadb::server::program(name).err());
    let unpacked = Path::new(FOREBAY)
        .ancestors()
        .map(|dir| dir.join("peers/galera"));
    let mut roots = unpacked.chain(["/".into()]);
    let galera = roots.find(|root| root.join("usr/lib/galera/libgalera_smm.so").exists());
    if lacking.is_some() || galera.is_none() {
        let lacking = lacking.unwrap_or("Galera is not installed: scripts/setup.sh test".into());
        skip(&lacking);
        return;
    }
    let nodes: Vec<u16> = (0..3)
        .flat_map(|node| [1, 2, 4].map(|of| 10 * node + of))
        .collect();
    let port = free_ports(23_000..30_000, &nodes).to_string();
    let environment: [(&str, &OsStr); 2] = [("PORT", port.as_ref()), ("ROWS", "300".as_ref())];
    run_example("mariadb-galera/run.sh", &environment, 5);
}

#[test]
fn an_etcd_cluster_agrees_after_its_members_are_killed() {
    if !have("etcd") || !have("etcdctl") {
        return;
    }
    let port = free_ports(30_100..31_000, &[0, 1, 2, 3, 4, 5]).to_string();
    let environment: [(&str, &OsStr); 2] = [("PORT", port.as_ref()), ("KEYS", "300".as_ref())];
    let said = run_example("etcd-cluster/run.sh", &environment, 4);
    assert_eq!(said.matches("The members agree.").count(), 3, "{said}");
}

/// The environment of `etcd-cluster/machine.sh`, as far as it can be run here. Tests run at the
/// same time: each has ports of its own.
fn machine(ports: Range<u16>) -> Option<[(&'static str, String); 2]> {
    let port = free_ports(ports, &[0, 1, 2, 3, 4, 5]).to_string();
    (have("etcd") && have("etcdctl") && root_can("cut file systems off"))
        .then(|| [("PORT", port), ("KEYS", "2000".to_owned())])
}

/// The numbers of the last entries that it says the members' logs have.
fn last_entries(said: &str) -> Vec<u64> {
    let lines = said
        .lines()
        .filter(|line| line.starts_with("last entry in"));
    let numbers = lines.filter_map(|line| line.split(": ").nth(1)?.split(',').next()?.parse().ok());
    numbers.collect()
}

/// Promise (programs): A member of an etcd cluster that loses its machine's page cache has, once it
/// is recovered, each entry that it acknowledged to the others.
#[test]
fn an_etcd_member_has_its_entries_after_it_lost_its_cache() {
    let Some(environment) = machine(31_000..31_800) else {
        return;
    };
    let environment = environment
        .each_ref()
        .map(|(name, value)| (*name, value.as_ref()));
    let Some(ran) = run_script("etcd-cluster/machine.sh", &environment) else {
        return;
    };
    let said = ran.ok().text();
    assert!(said.contains("The members agree."), "{said}");
    assert_eq!(said.matches("missing            0").count(), 4, "{said}");
    let [of_other, on_disk, recovered] = last_entries(&said)[..] else {
        panic!("{said}");
    };
    // The leader may have one that the other has not acknowledged yet.
    assert!(on_disk < recovered && recovered + 1 >= of_other, "{said}");
}

/// The control: what the one had acknowledged is not there without its pool.
#[test]
fn an_etcd_member_without_its_pool_loses_entries() {
    let Some(environment) = machine(31_800..32_700) else {
        return;
    };
    let environment = environment
        .each_ref()
        .map(|(name, value)| (*name, value.as_ref()));
    let environment = [&environment[..], &[("RECOVER", "no".as_ref())]].concat();
    if let Some(ran) = run_script("etcd-cluster/machine.sh", &environment) {
        ran.fails(1, &["acknowledged writes are missing"]);
    }
}

/// Runs an example's script, which finds nothing missing in so many checks.
fn run_example(script: &str, environment: &[(&str, &OsStr)], checks: usize) -> String {
    let ran = run_script(script, environment);
    let said = ran.expect("cannot be run").ok().text();
    assert!(
        said.contains("Nothing that was acknowledged is missing."),
        "{said}"
    );
    assert_eq!(
        said.matches("missing            0").count(),
        checks,
        "{said}"
    );
    said
}

/// Runs a script among the examples; none if it says that there is no file system for it here.
fn run_script(script: &str, environment: &[(&str, &OsStr)]) -> Option<Ran> {
    // Of the shell and of programs it is none.
    const CANNOT: i32 = 77;
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    // It ends its servers when it is told to end.
    let ran = Command::new("timeout")
        .args(["--kill-after=20", "1200", "bash"])
        .arg(examples.join(script))
        .envs(environment.iter().copied())
        .env("FOREBAY", FOREBAY)
        .output()
        .unwrap();
    let ran = Ran::of(ran);
    if ran.code == Some(CANNOT) {
        skip(&ran.stderr);
        return None;
    }
    Some(ran)
}
