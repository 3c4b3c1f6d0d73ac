//! Each figure of a status is the one that its name, and the words around it, say; and a status is
//! whole, whichever process writes it.
#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use std::{fs, thread};

/// Counts of which no two are the same.
fn stats() -> CacheStats {
    CacheStats {
        hits: 900,
        misses: 100,
        bypassed: 61,
        read_ahead: 62,
        enqueued: 41,
        admitted: 42,
        second_chances: 43,
        page_bytes: 800,
        flash_bytes: 1000,
        groups: 44,
        flash_syncs: 51,
        checkpoints: 45,
        home_pages: 52,
        home_bytes: 46,
        home_batches: 53,
        home_syncs: 55,
        dropped_versions: 54,
        around_pages: 71,
        flash_errors: 72,
        damaged: 73,
        slots: 5000,
        slots_used: 300,
        groups_unsynced: 47,
        pages: 200,
        dirty_pages: 120,
        lost_pages: 74,
    }
}

/// As long before each of two moments as these windows say.
fn windows() -> Vec<RecentWindow> {
    let then = |hits, misses| CacheStats {
        hits,
        misses,
        ..CacheStats::default()
    };
    let now = then(900, 100);
    vec![
        RecentWindow::of(10, &now, &then(899, 97)),
        RecentWindow::of(600, &now, &then(810, 70)),
    ]
}

fn status() -> CacheStatus {
    CacheStatus {
        flash: "/fast/cache".to_owned(),
        ..CacheStatus::of(&stats(), windows())
    }
}

#[test]
fn each_count_has_its_own_name_in_json() {
    let said = serde_json::to_value(status()).unwrap();
    for (name, count) in [
        ("pid", u64::from(std::process::id())),
        ("slots", 5000),
        ("slots_used", 300),
        ("pages", 200),
        ("dirty_pages", 120),
        ("lost_pages", 74),
        ("hits", 900),
        ("misses", 100),
        ("recent_hits", 1),
        ("recent_misses", 3),
        ("bypassed", 61),
        ("read_ahead", 62),
        ("enqueued", 41),
        ("admitted", 42),
        ("second_chances", 43),
        ("page_bytes", 800),
        ("flash_bytes", 1000),
        ("flash_syncs", 51),
        ("home_pages", 52),
        ("home_batches", 53),
        ("home_syncs", 55),
        ("dropped_versions", 54),
        ("around_pages", 71),
        ("flash_errors", 72),
        ("damaged", 73),
    ] {
        assert_eq!(said[name], count, "{name}");
    }
}

#[test]
fn a_window_has_what_happened_between_its_two_moments() {
    let then = CacheStats {
        hits: 1,
        misses: 2,
        page_bytes: 3,
        flash_bytes: 4,
        home_bytes: 5,
        ..CacheStats::default()
    };
    let window = RecentWindow {
        seconds: 60,
        hits: 899,
        misses: 98,
        page_bytes: 797,
        flash_bytes: 996,
        home_bytes: 41,
    };
    assert_eq!(RecentWindow::of(60, &stats(), &then), window);
}

#[test]
fn each_figure_is_where_the_line_names_it() {
    let settings = Settings {
        policy: Some(WritePolicy::Through),
        contents: Some(AdmissionPolicy::All),
        low: Some(80),
        high: Some(85),
        home_bytes_per_second: Some(7000),
        flash_bytes_per_second: Some(0),
    };
    let status = CacheStatus {
        settings,
        around_pages: 0,
        damaged: 0,
        lost_pages: 0,
        ..status()
    };
    assert_eq!(
        status.lines(),
        [
            "flash cache /fast/cache: 200 pages, of them 120 newer than in the files; 300 of its 5000 slots used, 1.50 versions a page",
            "flash cache: reads that found their page 90.0 % (25.0 % in the last 10 seconds, 75.0 % in the last 10 minutes); 61 pages of scans passed by, 62 of them read \
             ahead; pages that came in: 41 written, 42 read; 43 second chances",
            "flash cache: 1.25 bytes written to flash a byte of pages; 51 syncs of flash; 52 pages written to the files in 53 batches, 54 superseded or clean when they left",
            "flash cache: policy through, contents all, pages leave from 85 % down to 80 % of the slots; 7000 bytes a second at most towards the files, no limit towards flash",
        ]
    );
}

#[test]
fn a_status_says_that_read_pages_stay_out_if_they_would_come_in() {
    let says = |contents| {
        let settings = Settings {
            contents: Some(contents),
            ..Settings::default()
        };
        let status = CacheStatus {
            settings,
            written_only: true,
            ..CacheStatus::default()
        };
        let mut lines = status.lines().into_iter();
        lines.any(|line| line.contains("only read do not come in"))
    };
    assert!(says(AdmissionPolicy::All) && !says(AdmissionPolicy::Dirty));
}

#[test]
fn what_is_not_so_as_a_rule_is_said_in_lines_of_its_own() {
    let status = CacheStatus {
        settings: Settings {
            policy: Some(WritePolicy::Adaptive),
            ..Settings::default()
        },
        resizing: Some(ResizeProgress {
            bytes: 81,
            done: 82,
            of: 83,
        }),
        trouble: Some("it is worn out".to_owned()),
        ..status()
    };
    assert_eq!(
        status.lines()[3..],
        [
            "flash cache: 71 pages went to the files without having been on flash",
            "flash cache: flash takes no less than the files: pages go straight to the files, and those on flash leave it",
            "flash cache: it is being given 81 bytes; 82 of 83 pages whose slots go are in the files",
            "flash cache: it is worn out. Pages go straight to the files",
            "flash cache: 73 reads found a page damaged, or not at all; of 74 pages the newest version is lost",
        ]
    );
}

#[test]
fn a_cache_without_reads_and_pages_has_no_ratios() {
    let lines = CacheStatus::default().lines();
    assert!(lines[0].ends_with(", – versions a page"), "{}", lines[0]);
    let reads = "flash cache: reads that found their page –; ";
    assert!(lines[1].starts_with(reads), "{}", lines[1]);
    let bytes = "flash cache: – bytes written to flash a byte of pages; ";
    assert!(lines[2].starts_with(bytes), "{}", lines[2]);
}

#[test]
fn a_status_written_by_two_threads_is_whole_whenever_it_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f.status");
    CacheStatus::default().write(&path).unwrap();
    let status = |pages| CacheStatus {
        pages,
        flash: "f".repeat(pages as usize % 1000),
        ..CacheStatus::default()
    };
    thread::scope(|scope| {
        let writes = [0, 1].map(|first| {
            let pages = (first..2000).step_by(2);
            scope.spawn(|| pages.into_iter().try_for_each(|at| status(at).write(&path)))
        });
        while writes.iter().any(|thread| !thread.is_finished()) {
            CacheStatus::read(&path).unwrap();
        }
        for thread in writes {
            thread.join().unwrap().unwrap();
        }
    });
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_status_is_of_its_run_alone_and_current_for_ten_seconds() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f.status");
    let [run, before] = [Uuid::new_v4(), Uuid::new_v4()];
    assert_eq!(CacheStatus::of_run(&path, run), None);
    let said = CacheStatus { run, ..status() };
    said.write(&path).unwrap();
    assert_eq!(CacheStatus::of_run(&path, run), Some(said.clone()));
    assert_eq!(CacheStatus::of_run(&path, before), None);
    assert!(said.is_current());
    let of_long_ago = CacheStatus {
        said_at: BootTime::default(),
        ..said.clone()
    };
    // Whose number is another PID namespace's.
    let of_elsewhere = CacheStatus {
        pid: u32::MAX,
        ..said.clone()
    };
    // Of another boot, as any moment may be that is still to come.
    let of_another_boot = CacheStatus {
        said_at: serde_json::from_value(u64::MAX.into()).unwrap(),
        ..said
    };
    assert!(of_elsewhere.is_current());
    assert!(!of_long_ago.is_current() && !of_another_boot.is_current());
}

#[test]
fn a_status_that_is_found_while_it_is_written_is_read_again() {
    let said = status();
    let text = serde_json::to_vec(&said).unwrap();
    for part in [0, 1, text.len() - 1] {
        let mut found = [&text[..part], &text].into_iter();
        let read = whole(|| Ok(serde_json::from_slice(found.next().unwrap())?));
        assert_eq!(read.unwrap(), said, "{part}");
    }
    let mut reads = 0;
    let gone = whole(|| {
        reads += 1;
        Err(io::ErrorKind::NotFound.into())
    });
    assert!(gone.is_err() && reads == 1);
}

#[test]
fn no_status_is_written_by_a_link_that_another_user_made() {
    let dir = tempfile::tempdir().unwrap();
    let (path, other) = (dir.path().join("f.status"), dir.path().join("other"));
    std::fs::write(&other, "kept").unwrap();
    for link in ["f.status", "f.status.new"] {
        std::os::unix::fs::symlink(&other, dir.path().join(link)).unwrap();
    }
    CacheStatus::default().write(&path).unwrap();
    assert_eq!(std::fs::read_to_string(&other).unwrap(), "kept");
    assert_eq!(CacheStatus::read(&path).unwrap(), CacheStatus::default());
}

#[test]
fn a_status_of_trouble_takes_no_more_room_than_one_without() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f.status");
    let mut status = CacheStatus::default();
    status.write(&path).unwrap();
    let bytes = fs::metadata(&path).unwrap().len();
    status.trouble = Some("No space left on device".repeat(20));
    status.write(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), bytes);
    assert_eq!(CacheStatus::read(&path).unwrap().trouble, status.trouble);
}
