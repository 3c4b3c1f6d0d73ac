//! `forebay store import` and `export`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::Sandbox;
use std::{fmt::Write, fs, process::Stdio};

fn jsonl(pairs: u32) -> String {
    (0..pairs).fold(String::new(), |mut text, i| {
        writeln!(text, "{{\"key\":\"key {i:05}\",\"value\":\"value {i}\"}}").unwrap();
        text
    })
}

#[test]
fn what_is_exported_can_be_imported_and_is_the_same() {
    let sandbox = Sandbox::new();
    sandbox.pool();
    for (name, hex) in [("00", "ff"), ("0a", "0909"), ("61", "")] {
        let mut put = sandbox.command("store put --dir s --pool p --hex");
        common::Ran::of(put.args([name, hex]).output().unwrap()).ok();
    }
    sandbox
        .feed("store import --dir s --pool p -", jsonl(3000).as_bytes())
        .ok();
    for (file, flags) in [
        ("a.jsonl", ""),
        ("a.tsv", ""),
        ("b.tsv", "--base64"),
        ("c.tsv", "--hex"),
    ] {
        sandbox
            .run(&format!("store export --dir s --pool p {file} {flags}"))
            .ok();
        let other = format!("--dir from-{file}");
        let report = sandbox.json(&format!("store import {other} {file} {flags} --json"));
        assert_eq!(report, serde_json::json!({"lines": 3003, "pairs": 3003}));
        assert_eq!(
            sandbox
                .run(&format!("store scan {other} --hex"))
                .ok()
                .text(),
            sandbox.run("store scan --dir s --pool p --hex").ok().text()
        );
    }
    let piped = sandbox.run("store export --dir s --pool p").ok().stdout;
    assert_eq!(piped, fs::read(sandbox.file("a.jsonl")).unwrap());
}

#[test]
fn an_import_takes_values_of_all_sizes_and_skips_empty_lines() {
    let sandbox = Sandbox::new();
    sandbox.pool();
    let large = "x".repeat(2 << 20);
    let input = format!("a\t1\n\nb\t{large}\r\n\nc\t");
    let said = sandbox
        .feed(
            "store import --dir s --pool p --format tsv",
            input.as_bytes(),
        )
        .ok()
        .text();
    assert_eq!(said, "imported 3 pairs from 5 lines\n");
    assert_eq!(
        sandbox.run("store get --dir s --pool p b").ok().text(),
        large
    );
    assert_eq!(sandbox.run("store get --dir s --pool p c").ok().text(), "");
}

#[test]
fn a_bad_line_in_a_file_leaves_everything_as_it_was() {
    let sandbox = Sandbox::new();
    let mut text = jsonl(5000);
    text.push_str("{\"key\":\"no value\"}\n");
    text.push_str(&jsonl(10));
    fs::write(sandbox.file("in.jsonl"), &text).unwrap();
    sandbox.run("store import --dir s in.jsonl").fails(
        1,
        &[
            "line 5001 of in.jsonl",
            "neither \"value\" nor",
            "nothing was imported",
        ],
    );
    assert!(!sandbox.file("s").exists());
    sandbox.run("store put --dir s a 1").ok();
    sandbox
        .run("store import --dir s in.jsonl")
        .fails(1, &["nothing was imported"]);
    assert_eq!(sandbox.run("store scan --dir s").ok().text(), "a\t1\n");
}

#[test]
fn a_bad_line_from_a_pipe_is_reported_with_what_was_imported() {
    let sandbox = Sandbox::new();
    let input = format!("{}oops\n{}", jsonl(700), jsonl(5));
    sandbox
        .feed("store import --dir s", input.as_bytes())
        .fails(
            1,
            &["line 701 of standard input", "lines 1 to 700 were imported"],
        );
    assert_eq!(
        sandbox
            .run("store scan --dir s --keys-only")
            .ok()
            .text()
            .lines()
            .count(),
        700
    );
    sandbox
        .feed("store import --dir t", b"oops\n")
        .fails(1, &["line 1 of", "nothing was imported"]);
    sandbox
        .feed("store import --dir u --check", input.as_bytes())
        .fails(1, &["line 701 of standard input", "nothing was imported"]);
    assert!(!sandbox.file("u").exists());
    sandbox
        .feed("store import --dir u --check", jsonl(7).as_bytes())
        .ok();
    assert_eq!(
        sandbox
            .run("store scan --dir u")
            .ok()
            .text()
            .lines()
            .count(),
        7
    );
}

#[test]
fn an_import_of_a_file_that_is_not_there_says_so() {
    let sandbox = Sandbox::new();
    sandbox
        .run("store import --dir s absent.jsonl")
        .fails(1, &["absent.jsonl", "No such file"]);
    assert!(!sandbox.file("s").exists());
}

#[test]
fn an_export_replaces_a_file_only_if_told_to() {
    let sandbox = Sandbox::new();
    sandbox.run("store put --dir s a 1").ok();
    fs::write(sandbox.file("out.tsv"), "mine").unwrap();
    sandbox
        .run("store export --dir s out.tsv")
        .fails(1, &["exists", "--force"]);
    assert_eq!(fs::read(sandbox.file("out.tsv")).unwrap(), b"mine");
    sandbox.run("store export --dir s out.tsv --force").ok();
    assert_eq!(fs::read(sandbox.file("out.tsv")).unwrap(), b"a\t1\n");
    sandbox
        .run("store export --dir s absent/out.tsv")
        .fails(1, &["absent/out.tsv"]);
    let names: Vec<_> = fs::read_dir(sandbox.path())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(names.len(), 2, "no temporary file is left: {names:?}");
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    let sandbox = Sandbox::new();
    sandbox
        .feed("store import --dir s", jsonl(20_000).as_bytes())
        .ok();
    for command in [
        "store export --dir s",
        "store scan --dir s",
        "man",
        "completions bash",
    ] {
        let mut child = sandbox
            .command(command)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let ran = common::Ran::of(child.wait_with_output().unwrap());
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{command}");
    }
}

#[test]
fn an_output_that_cannot_be_written_is_an_error() {
    let sandbox = Sandbox::new();
    sandbox.run("store put --dir s a 1").ok();
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let ran = sandbox
        .command("store scan --dir s")
        .stdout(full)
        .output()
        .unwrap();
    common::Ran::of(ran).fails(1, &["standard output", "No space left"]);
}
