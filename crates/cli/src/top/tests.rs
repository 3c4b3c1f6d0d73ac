//! The screen, without a terminal: its lines after looks and keys.

use super::{
    history::RunPresence,
    paint::ScreenPaint,
    rows::RunHealth,
    run_poll::{RunLook, RunPlace},
    state::{KeyAction, TopState},
};
use crate::run::RunningFlash;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use forebay_files::supervisor::{FoundRuns, OrphanedRun, RunScope, SupervisorStatus};
use ratatui::{buffer::Buffer, layout::Rect};
use serde_json::json;
use std::time::Duration;

fn status(pid: u32, seconds: f64, syncs: u64) -> SupervisorStatus {
    let none = json!({"sum_seconds": 0.0, "counts": []});
    let commits = json!({"sum_seconds": 0.0, "counts": [0, 0, syncs]});
    let status = json!({
        "pid": pid, "program": "redis-server", "front_end": "library", "front_end_reason": "",
        "child_agents": [], "pool": "/mnt/pmem/redis.pool", "medium": "",
        "survives": "survives a power cut", "persistence": "power_cut",
        "patterns": [], "outside_writer": "waits",
        "uptime_seconds": seconds, "plain": [], "run_dir": "/run", "degraded": [],
        "processes": [{"pid": pid + 1, "program": "redis-server", "ended": false}],
        "files": [{"path": "/data/appendonly.aof.1.incr.aof", "writes": syncs,
            "bytes": syncs * 1000, "syncs": syncs, "retired": false, "error": null}],
        "lane": {
            "bytes": 4 << 20, "drained": 0, "drain_lag_bytes": 1 << 20, "segments_waiting": 1,
            "real_syncs": 0, "real_sync_seconds": 0.0, "order_syncs": 0, "waits": 0,
            "left": null, "lag_seconds": 0.4,
            "durations": {"commit": commits, "drain": none, "wait": none, "retire": none},
            "absorbed": [{"pattern": "*.aof", "files": 1, "failing_files": 0, "writes": syncs,
                "bytes": syncs * 1000, "syncs": syncs}],
        },
    });
    serde_json::from_value(status).unwrap()
}

fn look(found: FoundRuns) -> RunLook {
    RunLook {
        found: Ok(found),
        flash: RunningFlash::default(),
    }
}

fn runs(statuses: &[SupervisorStatus]) -> RunLook {
    look(FoundRuns {
        statuses: statuses.to_vec(),
        ..FoundRuns::default()
    })
}

fn screen() -> TopState {
    let place = RunPlace {
        dir: "/run/forebay".into(),
        whose: RunScope::User,
    };
    let paint = ScreenPaint {
        is_utf8: false,
        is_coloured: false,
    };
    TopState::new(place, Duration::from_secs(1), paint)
}

fn press(state: &mut TopState, key: KeyCode) -> KeyAction {
    state.press(KeyEvent::new(key, KeyModifiers::NONE))
}

fn shown(state: &TopState, width: u16, height: u16) -> String {
    let area = Rect::new(0, 0, width, height);
    let mut buffer = Buffer::empty(area);
    state.draw(area, &mut buffer);
    let cells = buffer.content.chunks(usize::from(width));
    let lines = cells.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>());
    lines
        .map(|line| line.trim_end().to_owned() + "\n")
        .collect()
}

#[test]
fn one_run_is_shown_with_its_files_and_two_are_a_list() {
    let mut one = screen();
    one.add(runs(&[status(100, 10.0, 1_000)]));
    one.add(runs(&[status(100, 12.0, 1_400)]));
    let text = shown(&one, 80, 24);
    for words in [
        "running 12s",
        "/data/appendonly.aof.1",
        "syncs saved/s",
        "max 200",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    // Its rate, in the line of the list and in that of its file; one bar of a curve.
    assert_eq!(text.matches(" 200 ").count(), 3, "{text}");
    assert_eq!(text.matches('@').count(), 2, "{text}");
    let mut two = screen();
    two.add(runs(&[status(100, 10.0, 1_000), status(200, 10.0, 7)]));
    let text = shown(&two, 80, 24);
    assert!(text.starts_with("forebay top  2 runs of "), "{text}");
    press(&mut two, KeyCode::Down);
    press(&mut two, KeyCode::Enter);
    assert!(shown(&two, 80, 24).contains("(forebay 100)"));
    press(&mut two, KeyCode::Esc);
    press(&mut two, KeyCode::End);
    press(&mut two, KeyCode::Enter);
    assert!(shown(&two, 80, 24).contains("(forebay 200)"));
}

#[test]
fn run_is_followed_from_its_start_to_its_end() {
    let mut state = screen();
    let other = || status(200, 10.0, 7);
    state.add(runs(&[status(100, 10.0, 1_000), other()]));
    let presence = |state: &TopState| {
        let run = state.history.runs.iter().find(|run| run.status.pid == 100);
        run.map(|run| run.presence)
    };
    state.add(look(FoundRuns {
        statuses: vec![other()],
        silent: vec![100, 300],
        ..FoundRuns::default()
    }));
    assert_eq!(presence(&state), Some(RunPresence::Silent));
    assert_eq!(state.history.silent, [300]);
    // What it did while it was silent is of that time.
    state.add(runs(&[status(100, 20.0, 2_000), other()]));
    let rates = state.history.runs[0].rates.clone().unwrap();
    assert_eq!(rates.saved_syncs_per_second, 100.0);
    // Another one has its number.
    state.add(runs(&[status(100, 1.0, 5), other()]));
    assert_eq!(state.history.runs[0].rates, None);
    assert!(state.history.runs[0].series.syncs.is_empty());
    state.add(runs(&[other()]));
    assert!(matches!(presence(&state), Some(RunPresence::Ended(_))));
    let rows = state.rows();
    let ended = rows.iter().find(|row| row.pid == Some(100)).unwrap();
    assert_eq!(ended.health, RunHealth::Ended);
    // Its program goes on: then it is no run that has ended.
    let mut found = FoundRuns {
        statuses: vec![other()],
        ..FoundRuns::default()
    };
    found.orphaned.push(OrphanedRun {
        pool: None,
        processes: vec![(101, "redis-server".to_owned())],
    });
    state.add(look(found));
    assert_eq!(presence(&state), None);
    assert_eq!(state.rows()[0].health.word(), "ORPHANED");
}

#[test]
fn reason_is_below_the_list_and_a_failure_leaves_it_there() {
    let mut state = screen();
    let mut unwell = status(100, 10.0, 1_000);
    unwell.degraded = vec!["nothing is absorbed: a.log stays plain".to_owned()];
    state.add(runs(&[unwell, status(200, 10.0, 7)]));
    let text = shown(&state, 80, 24);
    assert!(text.contains("1 not well"), "{text}");
    assert!(
        text.contains("redis-server 100: nothing is absorbed: a.log stays plain"),
        "{text}"
    );
    state.add(RunLook {
        found: Err("reading /run/forebay: it is gone".to_owned()),
        flash: RunningFlash::default(),
    });
    let text = shown(&state, 80, 24);
    assert!(
        text.contains("it is gone") && text.contains(" 200 "),
        "{text}"
    );
}

#[test]
fn screens_are_sane_whatever_their_size() {
    let mut state = screen();
    state.add(runs(&[status(100, 10.0, 1_000)]));
    for is_list in [false, true] {
        if is_list {
            press(&mut state, KeyCode::Esc);
        }
        for (width, height) in [(1, 1), (10, 3), (40, 10), (80, 24), (300, 80)] {
            let text = shown(&state, width, height);
            assert!(text.is_ascii(), "{text}");
            let is_named = width < 40 || text.contains("redis-");
            assert!(is_named, "{width} x {height}: {text}");
        }
    }
}

#[test]
fn keys_choose_intervals_and_help_fits_a_small_screen() {
    let mut state = screen();
    state.add(runs(&[]));
    let text = shown(&state, 80, 24);
    assert!(text.contains("nothing runs under forebay"), "{text}");
    let interval = |ms| KeyAction::Interval(Duration::from_millis(ms));
    assert_eq!(press(&mut state, KeyCode::Char('+')), interval(2_000));
    assert_eq!(press(&mut state, KeyCode::Char('-')), interval(1_000));
    for _ in 0..5 {
        press(&mut state, KeyCode::Char('-'));
    }
    assert_eq!(press(&mut state, KeyCode::Char('-')), interval(200));
    press(&mut state, KeyCode::Char('?'));
    let help = shown(&state, 80, 24);
    assert!(help.trim_end().ends_with("Any key goes back."), "{help}");
    press(&mut state, KeyCode::Char('s'));
    assert!(!shown(&state, 80, 24).contains("Any key goes back."));
    assert_eq!(press(&mut state, KeyCode::Char('q')), KeyAction::Quit);
}
