//! etcd under `forebay run`: a Go program, whose log's segments are preallocated and come by
//! renames.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    Sandbox,
    cut::put_back,
    databases::{PATIENCE, ProcessGroup, boot_anew, small_pool},
    have,
};
use std::{
    fs::{self, File},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Two ports that were free a moment ago.
fn ports() -> [u16; 2] {
    [(), ()].map(|()| {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        socket.local_addr().unwrap().port()
    })
}

struct Etcd {
    run: ProcessGroup,
    client: u16,
}

fn start(sandbox: &Sandbox, pool: &std::path::Path, boot: usize) -> Etcd {
    let [client, peer] = ports();
    let url = |port: u16| format!("http://127.0.0.1:{port}");
    let mut environment = Vec::new();
    boot_anew(&mut environment, boot);
    let mut command = sandbox.command("run --absorb-preallocated --explain --pool");
    command
        .arg(pool)
        .args(["--", "etcd", "--data-dir", "data", "--name", "one"])
        .args([
            "--listen-client-urls",
            &url(client),
            "--advertise-client-urls",
            &url(client),
        ])
        .args([
            "--listen-peer-urls",
            &url(peer),
            "--initial-advertise-peer-urls",
            &url(peer),
        ])
        .args(["--initial-cluster", &format!("one={}", url(peer))])
        .env("FOREBAY_RUN_DIR", sandbox.file("run"))
        .env("FOREBAY_TEST_SYNCED", sandbox.file("synced"))
        .envs(environment)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(sandbox.file("errors")).unwrap());
    let run = ProcessGroup::start(&mut command);
    let etcd = Etcd { run, client };
    let begun = Instant::now();
    while etcd.ctl(&["endpoint", "health"]).is_none() {
        let errors = || fs::read_to_string(sandbox.file("errors")).unwrap();
        assert!(begun.elapsed() < PATIENCE, "{}", errors());
        thread::sleep(Duration::from_millis(50));
    }
    etcd
}

impl Etcd {
    /// What `etcdctl` says, if it succeeds.
    fn ctl(&self, words: &[&str]) -> Option<String> {
        let output = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &format!("http://127.0.0.1:{}", self.client)])
            .args(words)
            .output()
            .unwrap();
        output
            .status
            .success()
            .then(|| String::from_utf8(output.stdout).unwrap())
    }

    fn value(&self, key: usize) -> Option<String> {
        self.ctl(&["get", "--print-value-only", &format!("key{key}")])
    }

    fn put(&self, key: usize) {
        let (key, value) = (format!("key{key}"), format!("value{key}"));
        assert_eq!(self.ctl(&["put", &key, &value]).unwrap().trim(), "OK");
    }

    fn cut(mut self) {
        self.run.kill();
        thread::sleep(Duration::from_millis(100));
    }
}

/// The segment of etcd's log that it writes to.
fn newest_segment(logs: &Path) -> PathBuf {
    let names = fs::read_dir(logs)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let of_log = |path: &PathBuf| path.extension().is_some_and(|it| it == "wal");
    names.filter(of_log).max().unwrap()
}

/// Promise (programs): What etcd acknowledged is there after a power cut that took the page cache.
#[test]
fn etcd_has_what_it_acknowledged_after_a_power_cut() {
    if !have("etcd") || !have("etcdctl") {
        return;
    }
    let (sandbox, pool) = (Sandbox::new(), small_pool());
    let mut has_lost = false;
    for boot in 0..4 {
        let etcd = start(&sandbox, pool.path(), boot);
        for key in 0..boot * 20 {
            assert_eq!(etcd.value(key).unwrap().trim(), format!("value{key}"));
        }
        for key in boot * 20..(boot + 1) * 20 {
            etcd.put(key);
        }
        etcd.cut();
        let log = newest_segment(&sandbox.file("data/member/wal"));
        let written = fs::read(&log).unwrap();
        put_back(&sandbox.file("synced"));
        has_lost |= fs::read(&log).unwrap() != written;
        let errors = fs::read_to_string(sandbox.file("errors")).unwrap();
        assert!(errors.contains("profile etcd"), "{errors}");
        assert!(!errors.contains("runs plainly"), "{errors}");
    }
    // What this test is about: without a recovery the log lacks something.
    assert!(has_lost, "the cuts took nothing");
}
