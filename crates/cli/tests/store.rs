//! `forebay store`: put, get, delete, scan, stats, gc, compact, verify, backup.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::Sandbox;
use forebay_pool::{Pool, PoolOptions};
use forebay_store::{Durability, KEY_BYTES_MAX, ScanRange, Store, StoreOptions};
use std::{
    fs,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    thread,
};

#[test]
fn a_value_is_there_in_the_next_process_with_and_without_a_pool() {
    let sandbox = Sandbox::new();
    sandbox.pool();
    let on_disk = "pool create q --disk --size 4MiB --segment-size 64KiB";
    sandbox.run(on_disk).ok();
    for store in [
        "--dir a",
        "--dir b --durability nosync",
        "--dir c --pool p",
        "--dir d --pool p --durability single",
        "--dir e --pool p --durability buffers=4 --resident",
        "--dir f --pool q",
        "--dir g --pool q --durability single",
    ] {
        sandbox
            .run(&format!("store put {store} greeting hello"))
            .ok();
        for _ in 0..3 {
            assert_eq!(
                sandbox
                    .run(&format!("store get {store} greeting"))
                    .ok()
                    .text(),
                "hello",
                "{store}"
            );
        }
        sandbox
            .run(&format!("store put {store} greeting farewell"))
            .ok();
        assert_eq!(
            sandbox
                .run(&format!("store get {store} greeting"))
                .ok()
                .text(),
            "farewell"
        );
        sandbox
            .run(&format!("store delete {store} greeting absent"))
            .ok();
        sandbox
            .run(&format!("store get {store} greeting"))
            .fails(1, &["no key \"greeting\""]);
    }
}

#[test]
fn a_closed_store_changes_between_durabilities_and_pools() {
    let sandbox = Sandbox::new();
    sandbox.pool();
    sandbox.run("store put --dir s a 1").ok();
    sandbox.run("store put --dir s --pool p b 2").ok();
    sandbox
        .run("store put --dir s --durability nosync c 3")
        .ok();
    sandbox
        .run("store put --dir s --pool p --durability buffers=3 d 4")
        .ok();
    assert_eq!(
        sandbox.run("store scan --dir s").ok().text(),
        "a\t1\nb\t2\nc\t3\nd\t4\n"
    );
}

#[test]
fn values_from_arguments_files_and_standard_input_are_exact() {
    let sandbox = Sandbox::new();
    let binary: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    fs::write(sandbox.file("input"), &binary).unwrap();
    sandbox.run("store put --dir s file --file input").ok();
    sandbox.feed("store put --dir s stdin -", &binary).ok();
    for key in ["file", "stdin"] {
        assert_eq!(
            sandbox.run(&format!("store get --dir s {key}")).ok().stdout,
            binary
        );
    }
    sandbox.run("store put --dir s --hex 00ff CAFE").ok();
    assert_eq!(
        sandbox.run("store get --dir s --base64 AP8=").ok().stdout,
        [0xCA, 0xFE]
    );
    let json = sandbox.json("store get --dir s --hex 00ff --json");
    assert_eq!(
        json,
        serde_json::json!({"key_base64": "AP8=", "value_base64": "yv4="})
    );
    sandbox.run("store put --dir s dash -1").ok();
    assert_eq!(sandbox.run("store get --dir s dash").ok().text(), "-1");
}

#[test]
fn a_value_larger_than_half_a_segment_is_stored_as_well() {
    let sandbox = Sandbox::new();
    sandbox.pool();
    let large: Vec<u8> = (0..=250).cycle().take(3 << 20).collect();
    sandbox
        .feed("store put --dir s --pool p large -", &large)
        .ok();
    assert_eq!(
        sandbox.run("store get --dir s --pool p large").ok().stdout,
        large
    );
}

#[test]
fn a_scan_keeps_to_its_bounds_direction_and_limit() {
    let sandbox = Sandbox::new();
    let lines: String = ["a1", "a2", "b1", "b2", "c"]
        .iter()
        .map(|k| format!("{k}\t{k}!\n"))
        .collect();
    sandbox
        .feed("store import --dir s --format tsv", lines.as_bytes())
        .ok();
    let keys = |arguments: &str| {
        let text = sandbox
            .run(&format!("store scan --dir s --keys-only {arguments}"))
            .ok()
            .text();
        text.lines().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(keys(""), "a1 a2 b1 b2 c");
    assert_eq!(keys("--prefix b"), "b1 b2");
    assert_eq!(keys("--from a2 --to b2"), "a2 b1");
    assert_eq!(keys("--reverse --limit 2"), "c b2");
    assert_eq!(keys("--from x"), "");
    assert_eq!(keys("--from b --to a"), "");
    let json = sandbox
        .run("store scan --dir s --prefix c --json")
        .ok()
        .text();
    assert_eq!(json, "{\"key\":\"c\",\"value\":\"c!\"}\n");
}

#[test]
fn a_listing_escapes_bytes_that_are_not_utf8_or_break_lines() {
    let sandbox = Sandbox::new();
    sandbox.run("store put --dir s --hex 090aff 5c").ok();
    assert_eq!(
        sandbox.run("store scan --dir s").ok().text(),
        "\\t\\n\\xff\t\\\\\n"
    );
    assert_eq!(
        sandbox.run("store scan --dir s --hex").ok().text(),
        "090aff\t5c\n"
    );
    assert_eq!(
        sandbox.run("store scan --dir s --base64").ok().text(),
        "CQr/\tXA==\n"
    );
    let json = sandbox.run("store scan --dir s --json").ok().text();
    assert_eq!(json, "{\"key_base64\":\"CQr/\",\"value\":\"\\\\\"}\n");
}

#[test]
fn stats_gc_and_verify_report() {
    let sandbox = Sandbox::new();
    sandbox.run("store put --dir s a 1").ok();
    sandbox.run("store put --dir s b 2").ok();
    let stats = sandbox.json("store stats --dir s --json");
    assert_eq!(stats["durability"], "fsync");
    assert!(stats["value_log_files"].as_u64().is_some(), "{stats}");
    assert!(
        sandbox
            .run("store stats --dir s")
            .ok()
            .text()
            .contains("value log:")
    );
    let (row, put) = ("a-row-like-all-others-".repeat(50), "store put --dir s row");
    sandbox
        .run(&format!("{put} --compression zstd=9 {row}"))
        .ok();
    let text = sandbox.run("store stats --dir s").ok().text();
    assert!(text.contains(" times smaller; 1 of 3 values"), "{text}");
    let sample = &sandbox.json("store stats --dir s --json")["value_sample"];
    assert_eq!(sample["raw_bytes"], row.len() + 2);
    assert!(sample["stored_bytes"].as_u64() < Some(100), "{sample}");
    assert_eq!(sandbox.run("store get --dir s row").ok().text(), row);
    sandbox
        .run("store put --dir s b --compression zstd-dict=9 3")
        .ok();
    let text = sandbox.run("store stats --dir s").ok().text();
    assert!(text.contains("dictionaries:"), "{text}");
    let gc = sandbox.json("store gc --dir s --json");
    assert!(gc["files"].as_u64().is_some(), "{gc}");
    assert!(
        sandbox
            .run("store gc --dir s")
            .ok()
            .text()
            .contains("collected")
    );
    let compacted = sandbox.json("store compact --dir s --json");
    assert_eq!(compacted["interrupted"], false, "{compacted}");
    assert!(compacted["bytes_after"].as_u64() > Some(0), "{compacted}");
    let compacted = sandbox.run("store compact --dir s").ok().text();
    assert!(compacted.contains("compacted: "), "{compacted}");
    let verify = sandbox.json("store verify --dir s --json");
    assert_eq!(
        (&verify["keys"], &verify["problems"]),
        (&3.into(), &serde_json::json!([]))
    );
    assert!(
        sandbox
            .run("store verify --dir s")
            .ok()
            .text()
            .contains("no damage")
    );
}

#[test]
fn a_store_that_is_not_there_is_made_by_writing_only() {
    let sandbox = Sandbox::new();
    for command in [
        "get --dir s k",
        "delete --dir s k",
        "scan --dir s",
        "stats --dir s",
        "gc --dir s",
        "compact --dir s",
        "verify --dir s",
        "export --dir s",
    ] {
        sandbox
            .run(&format!("store {command}"))
            .fails(1, &["holds no store"]);
        assert!(!sandbox.file("s").exists(), "{command}");
    }
    fs::create_dir(sandbox.file("other")).unwrap();
    fs::write(sandbox.file("other/notes"), "mine").unwrap();
    sandbox
        .run("store get --dir other k")
        .fails(1, &["holds no store"]);
    fs::write(sandbox.file("file"), "mine").unwrap();
    sandbox.run("store put --dir file k v").fails(1, &["file"]);
    assert_eq!(fs::read(sandbox.file("file")).unwrap(), b"mine");
}

#[test]
fn a_wrong_command_line_is_status_2_and_changes_nothing() {
    let sandbox = Sandbox::new();
    for (line, words) in [
        ("store put --dir s k", &["VALUE"][..]),
        ("store put k v", &["--dir"]),
        ("store put --dir s k v --file f", &["cannot be used"]),
        ("store put --dir s --hex 0g 00", &["not hexadecimal"]),
        ("store put --dir s --base64 a* AA==", &["not Base64"]),
        (
            "store put --dir s --durability triple k v",
            &["unknown durability", "double"],
        ),
        (
            "store put --dir s --durability buffers=65 k v",
            &["1 to 64"],
        ),
        (
            "store scan --dir s --prefix a --from b",
            &["cannot be used"],
        ),
        ("store put --dir s --resident k v", &["--pool"]),
        ("store frobnicate", &["unrecognized"]),
    ] {
        sandbox.run(line).fails(2, words);
        assert!(!sandbox.file("s").exists(), "{line}");
    }
    sandbox
        .run("store put --dir s --durability double k v")
        .fails(1, &["a pool", "--pool"]);
}

#[test]
fn keys_out_of_bounds_are_refused() {
    let sandbox = Sandbox::new();
    let mut put = sandbox.command("store put --dir s");
    let ran = common::Ran::of(put.args(["", "v"]).output().unwrap());
    ran.fails(1, &["a key of 0 bytes", "1 to "]);
    let mut put = sandbox.command("store put --dir s");
    let ran = common::Ran::of(
        put.args(["k".repeat(KEY_BYTES_MAX + 1).as_str(), "v"])
            .output()
            .unwrap(),
    );
    ran.fails(1, &["are possible"]);
}

#[test]
fn a_backup_is_restored_by_a_copy_without_the_pool() {
    let sandbox = Sandbox::new();
    sandbox.pool();
    let lines = |from: u32, to: u32| {
        let line = |n: u32| format!("{{\"key\":\"{n:05}\",\"value\":\"{}\"}}\n", "v".repeat(300));
        (from..to).map(line).collect::<String>()
    };
    let backup = "store backup --dir s --pool p kept";
    for (number, to) in [(1, 20_000), (2, 20_010), (3, 20_020)] {
        fs::write(
            sandbox.path().join("in.jsonl"),
            lines(if number == 1 { 0 } else { 20_000 }, to),
        )
        .unwrap();
        sandbox.run("store import --dir s --pool p in.jsonl").ok();
        let report = sandbox.json(&format!("{backup} --json"));
        assert_eq!(report["backup"], format!("kept/{number:06}"));
        let [files, copied] =
            ["files", "copied_files"].map(|field| report[field].as_u64().unwrap());
        assert!(copied > 0 && (copied == files) == (number == 1), "{report}");
    }
    let said = sandbox.run(&format!("{backup} --keep 2")).ok().text();
    assert!(said.contains("were copied and checked"), "{said}");
    assert!(
        said.contains("removed kept/000001\nremoved kept/000002"),
        "{said}"
    );
    let copied = std::process::Command::new("cp")
        .arg("-r")
        .args([
            sandbox.path().join("kept/000003"),
            sandbox.path().join("restored"),
        ])
        .status();
    assert!(copied.unwrap().success());
    let verify = sandbox.json("store verify --dir restored --json");
    assert_eq!(verify["keys"], 20_020);
    // Neither a store, nor a place for another's backups.
    sandbox
        .run("store backup --dir restored s")
        .fails(1, &["is not empty", "nothing was changed"]);
    sandbox
        .run("store backup --dir nothing kept")
        .fails(1, &["holds no store"]);
}

/// A store that this process has open, for the program is another one: in memory, on a disk, or
/// without a pool.
fn owned(sandbox: &Sandbox, pool: Option<&str>) -> (Store, Option<Pool>) {
    let pool = pool.map(|name| {
        let options = PoolOptions::new()
            .size(6 << 20)
            .segment_size(1 << 20)
            .lanes(4)
            .emulated(name == "p")
            .on_disk(name == "q");
        options.create(sandbox.file(name)).unwrap()
    });
    let durability = match pool {
        Some(_) => Durability::DOUBLE,
        None => Durability::Fsync,
    };
    let options = StoreOptions::new().durability(durability);
    let options = options.memtable_size(256 << 10).file_size(4 << 20);
    let store = options.open(sandbox.file("s"), pool.as_ref());
    (store.unwrap(), pool)
}

/// Promise (store): Commands that read a store do so beside the process that has it open; what they
/// say without the option names it.
#[test]
fn reading_commands_read_beside_the_process_that_has_it() {
    for pool in [Some("p"), Some("q"), None] {
        let sandbox = Sandbox::on_disk();
        let (store, _pool) = owned(&sandbox, pool);
        let given = pool.map_or(String::new(), |name| format!(" --pool {name}"));
        let emulated = match pool {
            Some("p") => " --emulated",
            _ => "",
        };
        for round in ["blue", "red"] {
            store.put("boat", round).unwrap();
            store.put("large", &vec![b'v'; 2 << 20]).unwrap();
            // The pool is found by the store, or given.
            for with in ["", &format!("{given}{emulated}")] {
                let get = format!("store get --dir s{with} boat");
                sandbox
                    .run(&get)
                    .fails(1, &["in use by another process", "--read-only"]);
                let said = sandbox.run(&format!("{get} --read-only")).ok().text();
                assert_eq!(said, round);
            }
        }
        let large = sandbox.run("store get --dir s large --read-only").ok();
        assert_eq!(large.stdout, vec![b'v'; 2 << 20]);
        let said = sandbox.run("store scan --dir s --read-only --prefix b");
        assert_eq!(said.ok().text(), "boat\tred\n");
        let said = sandbox.run("store export --dir s --read-only --format tsv");
        assert!(said.ok().text().starts_with("boat\tred\nlarge\tvvv"));
        let stats = sandbox.json("store stats --dir s --read-only --json");
        assert!(stats["log_tail"].as_u64().unwrap() > 0, "{stats}");
        sandbox
            .run("store get --dir s boat --read-only --salvage")
            .fails(2, &["--read-only"]);
        store.put("boat", "green").unwrap();
        store.close().unwrap();
        // Beside nobody.
        let said = sandbox.run("store get --dir s boat --read-only").ok();
        assert_eq!(said.text(), "green");
    }
}

/// Promise (store): `forebay store backup` beside a process that writes the store is verified, and
/// has everything that was durable when it began.
#[test]
fn a_backup_beside_a_writing_process_has_what_was_durable() {
    const KEYS: u64 = 50;
    let number = |value: &[u8]| u64::from_be_bytes(value[..8].try_into().unwrap());
    for pool in [Some("p"), Some("q"), None] {
        let sandbox = Sandbox::on_disk();
        let (store, _pool) = owned(&sandbox, pool);
        let (acknowledged, over) = (AtomicU64::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                for n in 1u64.. {
                    if over.load(SeqCst) {
                        break;
                    }
                    let bytes = if n % 97 == 0 { 600_000 } else { n % 3000 };
                    let value = [&n.to_be_bytes()[..], &vec![7; bytes as usize]].concat();
                    store.put(&(n % KEYS).to_be_bytes(), &value).unwrap();
                    acknowledged.store(n, SeqCst);
                }
            });
            for round in 1..4 {
                while acknowledged.load(SeqCst) < round * 200 {
                    thread::yield_now();
                }
                let before = acknowledged.load(SeqCst);
                let ran = sandbox.run("store backup --dir s kept --keep 2 --json");
                // Whatever is found, the writer ends.
                over.store(ran.code != Some(0), SeqCst);
                let report = ran.ok().json();
                assert_eq!(report["beside_owner"], true);
                assert_eq!(
                    report["removed"].as_array().unwrap().len(),
                    usize::from(round > 2)
                );
                let restored = sandbox.file("restored");
                let copied = std::process::Command::new("cp")
                    .arg("-r")
                    .args([&sandbox.file(report["backup"].as_str().unwrap()), &restored])
                    .status();
                assert!(copied.unwrap().success());
                let verified = sandbox.json("store verify --dir restored --json");
                assert_eq!(verified["problems"].as_array().unwrap().len(), 0);
                let copy = StoreOptions::new().durability(Durability::Fsync);
                let copy = copy.open(&restored, None).unwrap();
                let pairs = copy.scan(ScanRange::all()).unwrap();
                let mut found: Vec<u64> = pairs.map(|pair| number(&pair.unwrap().1)).collect();
                found.sort_unstable();
                let last = *found.last().unwrap();
                over.store(last < before, SeqCst);
                assert!(last >= before, "{last} of {before} acknowledged");
                let expected: Vec<u64> = (last - KEYS + 1..=last).collect();
                over.store(found != expected, SeqCst);
                assert_eq!(found, expected, "no beginning of what was written");
                drop(copy);
                fs::remove_dir_all(restored).unwrap();
            }
            over.store(true, SeqCst);
        });
        let left = store.verify().unwrap();
        assert_eq!(left.problems, Vec::<String>::new());
    }
}
