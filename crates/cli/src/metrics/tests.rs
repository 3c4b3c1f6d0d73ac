use super::*;
use serde_json::json;
use std::collections::BTreeSet;

/// A run with two patterns and a lane, as its supervisor says it.
fn run() -> SupervisorStatus {
    let durations = json!({"sum_seconds": 0.5, "counts": [3, 0, 1]});
    let pattern = |pattern: &str, bytes: u64| json!({"pattern": pattern, "files": 1, "failing_files": 0, "writes": 7, "bytes": bytes, "syncs": 5});
    let status = json!({
        "pid": 42, "program": "a \"quoted\"\nname", "front_end": "library",
        "front_end_reason": "", "child_agents": [], "pool": "/pmem/p",
        "medium": "", "survives": "survives a power cut", "persistence": "power_cut",
        "patterns": ["*.aof"], "outside_writer": "waits", "uptime_seconds": 2.5,
        "processes": [{"pid": 43, "program": "x", "ended": false}, {"pid": 44, "program": "x", "ended": true}],
        "files": [], "plain": [], "run_dir": "/run/forebay", "degraded": ["it is"],
        "lane": {
            "bytes": 16 << 20, "drained": 0, "drain_lag_bytes": 4096, "segments_waiting": 0,
            "real_syncs": 3, "real_sync_seconds": 0.25, "order_syncs": 1, "waits": 2, "left": null,
            "lag_seconds": 1.5,
            "durations": {"commit": durations, "drain": durations, "wait": durations, "retire": durations},
            "absorbed": [pattern("*.aof", 100), pattern("*-wal", 0)],
        },
    });
    serde_json::from_value(status).unwrap()
}

fn snapshot() -> MetricsSnapshot {
    MetricsSnapshot {
        runs: vec![run()],
        flash: vec![(42, CacheStatus::default())],
        found: Some(FoundRuns::default()),
        ..MetricsSnapshot::default()
    }
}

#[test]
fn figures_are_told_in_both_formats() {
    let labels = r#"program="a \"quoted\"\nname",pid="42""#;
    for (format, lines) in [
        (
            MetricsFormat::OpenMetrics,
            vec![
                "# TYPE forebay_absorbed_bytes counter".to_owned(),
                "# UNIT forebay_absorbed_bytes bytes".to_owned(),
                "# TYPE forebay_run info".to_owned(),
                "# EOF".to_owned(),
            ],
        ),
        (
            MetricsFormat::Prometheus,
            vec![
                "# TYPE forebay_absorbed_bytes_total counter".to_owned(),
                "# TYPE forebay_run_info gauge".to_owned(),
                "forebay_runs 0".to_owned(),
            ],
        ),
    ] {
        let text = snapshot().text(format).unwrap();
        let has = |line: &str| assert!(text.lines().any(|it| it == line), "{line}\n{text}");
        lines.iter().for_each(|line| has(line));
        has(&format!(
            r#"forebay_absorbed_bytes_total{{{labels},pattern="*.aof"}} 100"#
        ));
        has(&format!(
            r#"forebay_run_info{{{labels},pool="/pmem/p",persistence="power_cut",front_end="library"}} 1"#
        ));
        has(&format!("forebay_degraded{{{labels}}} 1"));
        has(&format!("forebay_processes{{{labels}}} 1"));
        has(&format!("forebay_lag_seconds{{{labels}}} 1.5"));
        has(&format!("forebay_commit_seconds_sum{{{labels}}} 0.5"));
        has(&format!("forebay_commit_seconds_count{{{labels}}} 4"));
        assert!(text.ends_with('\n'));
    }
}

#[test]
fn histogram_begins_at_a_microsecond_and_has_no_end() {
    let mut status = run();
    let lane = status.lane.as_mut().unwrap();
    lane.durations.commit.counts = vec![0; forebay_files::DURATION_BOUNDS + 1];
    lane.durations.commit.counts[0] = 3;
    *lane.durations.commit.counts.last_mut().unwrap() = 1;
    let snapshot = MetricsSnapshot {
        runs: vec![status],
        ..MetricsSnapshot::default()
    };
    let text = snapshot.text(MetricsFormat::OpenMetrics).unwrap();
    let buckets = text.lines().filter_map(|line| {
        let line = line.strip_prefix("forebay_commit_seconds_bucket")?;
        let (_, bound) = line.split_once("le=\"")?;
        Some((bound.split_once('"')?.0, line.rsplit_once(' ')?.1))
    });
    let buckets: Vec<(&str, &str)> = buckets.collect();
    assert_eq!(buckets.first(), Some(&("0.000001", "3")));
    assert_eq!(buckets.last(), Some(&("+Inf", "4")));
    let bounds = buckets
        .iter()
        .map(|(bound, _)| bound.parse::<f64>().unwrap());
    let bounds: Vec<f64> = bounds.collect();
    assert!(bounds.is_sorted_by(|one, next| one < next), "{bounds:?}");
}

#[test]
fn runs_that_say_anything_spoil_no_others_figures() {
    let mut forged = run();
    forged.uptime_seconds = 99.5;
    let lane = forged.lane.as_mut().unwrap();
    lane.durations.drain.counts = vec![u64::MAX; 100];
    let mut other = forged.clone();
    other.pid = 77;
    let snapshot = MetricsSnapshot {
        runs: vec![run(), forged, other],
        ..MetricsSnapshot::default()
    };
    let text = snapshot.text(MetricsFormat::Prometheus).unwrap();
    let series = text.lines().filter(|line| !line.starts_with('#'));
    let series: Vec<&str> = series
        .map(|line| line.rsplit_once(' ').unwrap().0)
        .collect();
    let different: BTreeSet<&str> = series.iter().copied().collect();
    assert_eq!(series.len(), different.len(), "{text}");
    assert!(text.contains(r#"pid="42"} 2.5"#) && text.contains(r#"pid="77"} 99.5"#));
    let buckets = series.iter().filter(|line| {
        line.starts_with("forebay_drain_seconds_bucket") && line.contains(r#"pid="77""#)
    });
    assert_eq!(buckets.count(), forebay_files::DURATION_BOUNDS + 1);
}

/// Promise: as `figures_are_scraped_and_stay_few`.
#[test]
fn files_of_a_pattern_are_one_figure() {
    let mut status = run();
    let file = json!({"path": "/d/a.aof", "writes": 1, "bytes": 1, "syncs": 1, "retired": false, "error": null});
    status.files = (0..1000)
        .map(|_| serde_json::from_value(file.clone()).unwrap())
        .collect();
    let snapshot = MetricsSnapshot {
        runs: vec![status],
        ..MetricsSnapshot::default()
    };
    let text = snapshot.text(MetricsFormat::Prometheus).unwrap();
    assert!(
        text.lines().count() < 400 && !text.contains("a.aof"),
        "{text}"
    );
}

#[test]
fn no_figures_are_told_of_what_is_not_there() {
    let text = MetricsSnapshot::default()
        .text(MetricsFormat::OpenMetrics)
        .unwrap();
    assert_eq!(text, "# EOF\n");
}

#[test]
fn documentation_lists_each_family_and_no_other() {
    let page = include_str!("../../../../docs/monitoring.md");
    let rows = page.lines().filter_map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [name, kind, labels, what] = cells.as_slice() else {
            return None;
        };
        let name = name.strip_prefix("`forebay_")?.strip_suffix('`')?;
        Some([&format!("forebay_{name}"), *kind, *labels, *what].map(str::to_owned))
    });
    let documented: BTreeSet<[String; 4]> = rows.collect();
    let all: BTreeSet<[String; 4]> = all_families().into_iter().collect();
    let row = |cells: &[String; 4]| {
        let [name, kind, labels, what] = cells;
        format!("| `{name}` | {kind} | {labels} | {what} |\n")
    };
    let missing: String = all.difference(&documented).map(row).collect();
    let too_many: String = documented.difference(&all).map(row).collect();
    assert_eq!((missing.as_str(), too_many.as_str()), ("", ""), "{missing}");
}

#[test]
fn alerts_and_dashboard_ask_for_figures_there_are() {
    let all: BTreeSet<String> = all_families().into_iter().map(|[name, ..]| name).collect();
    for text in [
        include_str!("../../../../contrib/monitoring/alerts.yml"),
        include_str!("../../../../contrib/monitoring/alerts_test.yml"),
        include_str!("../../../../contrib/monitoring/dashboard.json"),
    ] {
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let words = text.split(|c| !is_of_name(c));
        let names: Vec<&str> = words.filter(|word| word.starts_with("forebay_")).collect();
        assert!(names.len() > 3, "{names:?}");
        for name in names {
            let family = name.strip_suffix("_bucket").unwrap_or(name);
            assert!(all.contains(family), "{name}");
        }
    }
}

#[test]
fn each_alert_has_a_case_in_which_it_fires() {
    let alerts = include_str!("../../../../contrib/monitoring/alerts.yml");
    let cases = include_str!("../../../../contrib/monitoring/alerts_test.yml");
    let cases = cases.split("alertname: ").skip(1);
    let firing = cases.filter(|case| case.contains("exp_labels"));
    let firing: BTreeSet<&str> = firing.filter_map(|case| case.lines().next()).collect();
    let names = alerts.split("- alert: ").skip(1);
    let names: BTreeSet<&str> = names.filter_map(|alert| alert.lines().next()).collect();
    assert_eq!(names, firing);
}

#[test]
fn text_file_is_replaced_in_one_step_for_any_reader() {
    use std::{fs, os::unix::fs::PermissionsExt};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("forebay.prom");
    let file = TextFile::parse(path.to_str().unwrap()).unwrap();
    fs::write(&path, "old").unwrap();
    let old = fs::File::open(&path).unwrap();
    file.write(&snapshot()).unwrap();
    assert_eq!(std::io::read_to_string(old).unwrap(), "old");
    assert!(
        fs::read_to_string(&path)
            .unwrap()
            .contains("forebay_degraded")
    );
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o644);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    assert!(TextFile::parse("forebay.txt").is_err());
}
