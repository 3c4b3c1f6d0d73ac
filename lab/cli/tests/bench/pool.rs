//! The pool's benchmark: appends beside the floor that memory sets, by threads and by processes,
//! and on a slower device.

use crate::{common::Sandbox, is_figure};

#[test]
fn the_pool_is_measured_beside_its_floor() {
    let sandbox = Sandbox::new();
    let report = sandbox.json("pool --quick --json");
    assert_eq!(report["bench"], "pool");
    assert!(
        report["survives"]
            .as_str()
            .unwrap()
            .contains("process crash only")
    );
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 20);
    for row in rows {
        for field in [
            "bytes",
            "threads",
            "append_ns",
            "of_one_thread",
            "append_p999_us",
            "floor_ns",
            "ratio",
        ] {
            assert!(is_figure(&row[field]), "{field} in {row}");
        }
    }
    let table = sandbox
        .run("pool --quick --sizes 64 --threads 1")
        .ok()
        .text();
    assert!(table.contains("append/floor"), "{table}");
    let report = sandbox.json("pool --quick --sizes 100,4k --threads 1 --processes 1,3 --json");
    let rows = report["rows"].as_array().unwrap();
    // Of each size a thread, three threads of one process, one process, three processes.
    assert_eq!(rows.len(), 8);
    for row in rows.iter().filter(|row| !row["processes"].is_null()) {
        let (threads, processes) = (row["threads"].as_u64(), row["processes"].as_u64());
        assert!(matches!(
            (threads, processes),
            (Some(1 | 3), Some(1)) | (Some(1), Some(3))
        ));
        for field in ["append_ns", "of_one_thread", "floor_ns", "ratio"] {
            assert!(is_figure(&row[field]), "{field} in {row}");
        }
    }
    // Its lanes and processes are gone: no note says otherwise.
    let notes = report["notes"].as_array().unwrap();
    assert_eq!(notes.len(), 1, "{notes:?}");
}

#[test]
fn a_slowed_pool_is_slower_than_the_devices_latency() {
    let sandbox = Sandbox::new();
    let report = sandbox.json("pool --quick --json --sizes 64 --threads 1 --profile pcm");
    assert!(
        report["rows"][0]["append_ns"].as_f64().unwrap() > 450.0,
        "{report}"
    );
    sandbox
        .run("pool --profile tape")
        .fails(2, &["no such device", "nvdimm-n"]);
}
