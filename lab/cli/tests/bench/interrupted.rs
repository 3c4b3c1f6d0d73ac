//! A benchmark that is told to end takes its servers, pools and directories with it.

use crate::common::Sandbox;
use forebay_bench::processes::Process;
use rustix::process::Signal;
use std::{
    fs,
    io::{BufRead, BufReader},
    process::Stdio,
    time::{Duration, Instant},
};

/// Processes whose command lines have `text`.
fn processes_with(text: &str) -> Vec<String> {
    let lines = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| {
            let line = fs::read(entry.path().join("cmdline")).ok()?;
            Some(String::from_utf8_lossy(&line).replace('\0', " "))
        });
    lines.filter(|line| line.contains(text)).collect()
}

#[test]
fn a_benchmark_that_is_interrupted_leaves_no_server_and_no_file() {
    let sandbox = Sandbox::on_disk();
    fs::create_dir(sandbox.file("pools")).unwrap();
    let here = sandbox.path().to_str().unwrap();
    let line = format!(
        "mariadb --quick --modes forebay --clients 2 --rounds 1000 --dir {here} --pool-disk {here}/pools"
    );
    let mut bench = Process::spawn(sandbox.command(&line).stderr(Stdio::piped())).unwrap();
    let mut said = BufReader::new(bench.child().stderr.take().unwrap()).lines();
    let mut last = String::new();
    while !last.contains("forebay_disk") {
        match said.next() {
            Some(next) => last = next.unwrap(),
            None if last.contains("not installed") => {
                assert!(std::env::var_os("CI").is_none(), "{last}");
                println!("skipped: {last}");
                return;
            }
            None => panic!("it ended: {last}"),
        }
    }
    let until = Instant::now() + Duration::from_secs(60);
    while !processes_with(here)
        .iter()
        .any(|line| line.contains("mariadbd"))
    {
        assert!(Instant::now() < until, "no server was started");
        std::thread::sleep(Duration::from_millis(10));
    }
    bench.handle().signal(Signal::INT);
    let status = bench.wait(Duration::from_secs(60)).unwrap();
    assert_eq!(status.code(), Some(130));
    assert_eq!(processes_with(here), [""; 0]);
    let left: Vec<_> = fs::read_dir(sandbox.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    let pools = sandbox.file("pools");
    assert_eq!(fs::read_dir(pools).unwrap().count(), 0);
}
