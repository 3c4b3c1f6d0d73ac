//! `forebay run --metrics`, `--textfile`, and what stands in `contrib/monitoring`: read by
//! Prometheus and promtool themselves.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{FOREBAY, Ran, Sandbox, databases::PATIENCE, have};
use forebay_bench::processes::{Process, find_program};
use serde_json::{Value, json};
use std::{
    fs,
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, ChildStderr, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Writes to two logs of one pattern, 200 times each, and gives one of them another name; then it
/// is there until `end` is.
const PROGRAM: &str = r#"
import os, time
for name in ("a.log", "b.log"):
    fd = os.open(name, os.O_WRONLY | os.O_CREAT, 0o600)
    for _ in range(200):
        os.write(fd, b"x" * 100)
        os.fdatasync(fd)
os.rename("a.log", "c.old")
open("ready", "w").close()
begun = time.monotonic()
while not os.path.exists("end") and time.monotonic() < begun + 120:
    time.sleep(0.02)
"#;

/// A run of that program, and where its figures are.
struct MeteredRun {
    sandbox: Sandbox,
    child: Child,
    stderr: BufReader<ChildStderr>,
    address: SocketAddr,
}

impl MeteredRun {
    fn begin() -> Self {
        let sandbox = Sandbox::new();
        sandbox.pool();
        let options = "run --pool p --absorb *.log --absorb *.none --metrics 0 -- python3 -c";
        let mut command = sandbox.command(options);
        command
            .arg(PROGRAM)
            .env("FOREBAY_RUN_DIR", sandbox.file("run"))
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        let address = loop {
            let mut line = String::new();
            assert_ne!(stderr.read_line(&mut line).unwrap(), 0, "{said}");
            if let Some((_, url)) = line.split_once("figures for Prometheus are at http://") {
                break url.trim().trim_end_matches("/metrics").parse().unwrap();
            }
            said.push_str(&line);
        };
        let run = Self {
            sandbox,
            child,
            stderr,
            address,
        };
        until("ready", || run.sandbox.file("ready").exists());
        run
    }

    /// What is served to who asks for nothing in particular.
    fn figures(&self) -> String {
        // Figures are a second old at most.
        thread::sleep(Duration::from_millis(1100));
        let served = get(self.address, "/metrics");
        let (head, body) = served.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
        body.to_owned()
    }

    fn end(mut self) {
        fs::write(self.sandbox.file("end"), "").unwrap();
        let mut said = String::new();
        self.stderr.read_to_string(&mut said).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {said}");
        // Another test's run may have the port by now, but not this one.
        let answered = ask(self.address, "/metrics").unwrap_or_default();
        let its = format!("pid=\"{}\"", self.child.id());
        assert!(!answered.contains(&its), "{answered}");
    }
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "never {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

fn get(address: SocketAddr, path: &str) -> String {
    ask(address, path).unwrap()
}

fn ask(address: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// The figure of the first line that begins with `name` and has `label`.
fn figure(text: &str, name: &str, label: &str) -> f64 {
    let is_it = |line: &&str| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with(['{', ' '])) && line.contains(label)
    };
    let line = text.lines().find(is_it);
    let value = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
    value.unwrap_or_else(|| panic!("no {name} with {label}: {text}"))
}

/// `promtool check metrics` finds nothing to say.
fn check_metrics(text: &str) {
    let mut promtool = Command::new(find_program("promtool").unwrap())
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = promtool.stdin.take().unwrap();
    stdin.write_all(text.as_bytes()).unwrap();
    drop(stdin);
    let said = promtool.wait_with_output().unwrap();
    let words = [said.stdout, said.stderr].concat();
    let words = String::from_utf8_lossy(&words);
    assert!(said.status.success() && words.is_empty(), "{words}\n{text}");
}

/// Promise (programs): Figures of a run are served by the conventions of Prometheus, by pattern
/// and not by file.
#[test]
fn figures_are_scraped_and_stay_few() {
    let run = MeteredRun::begin();
    let text = run.figures();
    let of = |name: &str| figure(&text, name, r#"pattern="*.log""#);
    assert_eq!(of("forebay_absorbed_writes_total"), 400.0);
    assert_eq!(of("forebay_absorbed_bytes_total"), 40_000.0);
    // A sync that finds its file in another state is asked for anew.
    assert!(of("forebay_absorbed_syncs_total") >= 400.0);
    let none = r#"pattern="*.none""#;
    assert_eq!(figure(&text, "forebay_absorbed_writes_total", none), 0.0);
    for (name, value) in [("forebay_degraded", 0.0), ("forebay_processes", 1.0)] {
        assert_eq!(figure(&text, name, "python3"), value);
    }
    assert!(figure(&text, "forebay_commit_seconds_count", "") >= 400.0 / 64.0 - 2.0);
    assert!(figure(&text, "forebay_lag_seconds", "") < 60.0);
    assert!(!text.contains("b.log") && !text.contains("c.old"), "{text}");
    if have("promtool") {
        check_metrics(&text);
    }
    // All is on the disk after a while.
    until("drained", || {
        figure(&run.figures(), "forebay_lag_bytes", "") == 0.0
    });
    let text = run.figures();
    assert_eq!(figure(&text, "forebay_lag_seconds", ""), 0.0);
    assert!(figure(&text, "forebay_drain_seconds_count", "") >= 1.0);
    run.end();
}

/// Prometheus with the configuration in `dir`, and where it listens. If another has the port by
/// then, it ends, and gets another one.
fn prometheus_in(dir: &Path) -> (Process, SocketAddr) {
    for _ in 0..5 {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let mut command = Command::new(find_program("prometheus").unwrap());
        command
            .args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"])
            .arg(format!("--web.listen-address={address}"))
            .current_dir(dir)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut prometheus = Process::spawn(&mut command).unwrap();
        let begun = Instant::now();
        while prometheus.child().try_wait().unwrap().is_none() {
            let said = ask(address, "/-/ready").unwrap_or_default();
            if said.contains("Prometheus Server is Ready") {
                return (prometheus, address);
            }
            assert!(begun.elapsed() < PATIENCE, "Prometheus is not ready");
            thread::sleep(Duration::from_millis(50));
        }
    }
    panic!("Prometheus ends at each start");
}

#[test]
fn prometheus_scrapes_a_run_and_loads_its_rules() {
    if !have("prometheus") || !have("promtool") {
        return;
    }
    let run = MeteredRun::begin();
    let dir = tempfile::tempdir().unwrap();
    let rules = monitoring("alerts.yml");
    let config = format!(
        "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: ['{}']\nscrape_configs: [{{job_name: forebay, static_configs: [{{targets: ['{}']}}]}}]\n",
        rules.display(),
        run.address
    );
    fs::write(dir.path().join("prometheus.yml"), config).unwrap();
    let (_prometheus, address) = prometheus_in(dir.path());
    let asked = |query: &str| match TcpStream::connect(address) {
        Ok(_) => get(address, &format!("/api/v1/query?query={query}")),
        Err(_) => String::new(),
    };
    let has = |query: &str, value: &str| asked(query).contains(&format!(",\"{value}\"]"));
    until("scraped", || has("up", "1"));
    until("counted", || {
        has("sum(forebay_absorbed_writes_total)", "400")
    });
    let metadata = get(address, "/api/v1/metadata?metric=forebay_lag_bytes");
    assert!(
        metadata.contains("gauge") && metadata.contains("not yet on the disk"),
        "{metadata}"
    );
    let loaded = get(address, "/api/v1/rules");
    assert!(loaded.contains("ForebayDegraded"), "{loaded}");
    until("evaluated", || {
        !get(address, "/api/v1/rules").contains("\"health\":\"unknown\"")
    });
    assert!(!get(address, "/api/v1/rules").contains("\"health\":\"err\""));
    run.end();
}

fn monitoring(name: &str) -> std::path::PathBuf {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/monitoring");
    dir.canonicalize().unwrap().join(name)
}

#[test]
fn shipped_rules_are_right_for_promtool() {
    if !have("promtool") {
        return;
    }
    for words in [
        ["check", "rules", "alerts.yml"],
        ["test", "rules", "alerts_test.yml"],
        ["check", "config", "prometheus.yml"],
    ] {
        let mut promtool = Command::new(find_program("promtool").unwrap());
        promtool.args(words).current_dir(monitoring(""));
        Ran::of(promtool.output().unwrap()).ok();
    }
}

/// The queries of a dashboard's panels.
fn queries_of(part: &Value) -> Vec<&str> {
    match part {
        Value::Object(fields) => (fields.iter())
            .flat_map(|(name, value)| match value {
                Value::String(query) if name == "expr" => vec![query.as_str()],
                value => queries_of(value),
            })
            .collect(),
        Value::Array(parts) => parts.iter().flat_map(queries_of).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn shipped_dashboard_asks_in_prometheus_own_language() {
    if !have("promtool") {
        return;
    }
    let text = fs::read_to_string(monitoring("dashboard.json")).unwrap();
    // What Grafana puts in the place of its variables.
    let text = text
        .replace("$program", ".*")
        .replace("$__rate_interval", "1m");
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let queries = queries_of(&dashboard);
    assert!(queries.len() > 20, "{queries:?}");
    let dir = tempfile::tempdir().unwrap();
    let checked = |queries: &[&str]| {
        let named = queries.iter().enumerate();
        let rules: Vec<Value> = named
            .map(
                |(number, query)| json!({"record": format!("panel:query:{number}"), "expr": query}),
            )
            .collect();
        // YAML has all of JSON.
        let rules = json!({"groups": [{"name": "dashboard", "rules": rules}]});
        fs::write(dir.path().join("rules.yml"), rules.to_string()).unwrap();
        let mut promtool = Command::new(find_program("promtool").unwrap());
        promtool.args(["check", "rules", "rules.yml"]);
        Ran::of(promtool.current_dir(dir.path()).output().unwrap())
    };
    let said = checked(&queries).ok().text();
    assert!(
        said.contains(&format!("{} rules found", queries.len())),
        "{said}"
    );
    checked(&["sum(rate(forebay_waits_total[1m])"]).fails(1, &["unclosed left parenthesis"]);
}

/// Promise (programs): A run whose address for figures is in use fails with what to do, before
/// its program starts or its pool is looked at.
#[test]
fn port_in_use_fails_before_anything_is_changed() {
    let sandbox = Sandbox::new();
    sandbox.pool();
    let before = sandbox.contents("");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    for place in [address.to_string(), address.port().to_string()] {
        let line = format!("run --pool p --metrics {place} -- touch made");
        let said = sandbox.run(&line);
        said.fails(1, &["Another program has the port", "Nothing was started"]);
    }
    assert_eq!(sandbox.contents(""), before);
    let said = sandbox.run("run --pool p --metrics example.org:1 -- touch made");
    said.fails(2, &["write a port"]);
    assert!(!sandbox.file("made").exists());
}

/// Promise (programs): Scrapers that never read do not hold up a run, nor its end.
#[test]
fn stuck_scrapers_hold_up_no_run() {
    let run = MeteredRun::begin();
    let stuck: Vec<TcpStream> = (0..30)
        .map(|_| TcpStream::connect(run.address).unwrap())
        .collect();
    let mut status = run.sandbox.command("status");
    status.env("FOREBAY_RUN_DIR", run.sandbox.file("run"));
    let said = Ran::of(status.output().unwrap()).ok().text();
    assert!(said.contains("b.log"), "{said}");
    run.end();
    drop(stuck);
}

#[test]
fn text_file_has_the_runs_and_stores_there_are() {
    let run = MeteredRun::begin();
    let file = run.sandbox.file("runs.prom");
    let mut command = Command::new(FOREBAY);
    command
        .args(["status", "--textfile"])
        .arg(&file)
        .env("FOREBAY_RUN_DIR", run.sandbox.file("run"));
    assert_eq!(Ran::of(command.output().unwrap()).ok().text(), "");
    let text = fs::read_to_string(&file).unwrap();
    assert_eq!(figure(&text, "forebay_runs", ""), 1.0);
    let written = figure(&text, "forebay_absorbed_writes_total", "*.log");
    assert_eq!(written, 400.0);
    run.end();
    let sandbox = Sandbox::new();
    sandbox.run("store put --dir s greeting hello").ok();
    sandbox.run("store stats --dir s --textfile s.prom").ok();
    let of_store = fs::read_to_string(sandbox.file("s.prom")).unwrap();
    assert!(
        figure(
            &of_store,
            "forebay_store_logged_bytes_total",
            r#"store="s""#
        ) > 0.0
    );
    sandbox.run("status --textfile s.txt").fails(2, &[".prom"]);
    sandbox
        .run("status --textfile none/s.prom")
        .fails(1, &["none/s.prom"]);
    if have("promtool") {
        [text, of_store].iter().for_each(|text| check_metrics(text));
    }
}
