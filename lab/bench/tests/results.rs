//! Results of experiments as files: whole, read again, and refused where they are damaged or
//! another's.
#![allow(clippy::unwrap_used, reason = "tests")]

use forebay_bench::{
    paper::{FORMAT, Machine, Outcome, Size},
    report::Row,
};
use serde_json::json;
use std::fs;

fn outcome() -> Outcome {
    let cell = json!({"panel": "puts", "place": "this disk", "series": "double", "x": "4 KiB"});
    let figures = json!({"value": 2.0, "min": 1.0, "max": 3.0, "rounds": [3.0, 1.0, 2.0]});
    let missing = json!({"place": "sata-ssd", "value": null, "missing": "no such device"});
    Outcome {
        format: FORMAT,
        experiment: "p1-fig5".to_owned(),
        size: Size::Toy,
        command: "forebay-lab paper --toy p1-fig5".to_owned(),
        version: "0".to_owned(),
        machine: Machine::this(),
        device: None,
        started_unix_s: 1,
        seconds: 2.0,
        rows: vec![
            Row::of(cell.clone()).with(figures),
            Row::of(cell).with(missing),
        ],
        notes: Vec::new(),
    }
}

#[test]
fn what_was_saved_is_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let outcome = outcome();
    assert_eq!(Outcome::load(dir.path(), "p1-fig5").unwrap(), None);
    outcome.save(dir.path()).unwrap();
    assert_eq!(Outcome::load(dir.path(), "p1-fig5").unwrap(), Some(outcome));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_damaged_or_foreign_file_is_refused_with_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let foreign = serde_json::to_string(&outcome()).unwrap();
    let foreign = foreign.replace("p1-fig5", "p1-fig6");
    for text in ["{\"format\":", "{}", &foreign] {
        fs::write(dir.path().join("p1-fig5.json"), text).unwrap();
        let error = Outcome::load(dir.path(), "p1-fig5").unwrap_err();
        assert!(error.to_string().contains("p1-fig5.json"), "{error}");
    }
}
