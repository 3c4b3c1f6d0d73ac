//! A recovery tells the pool, before and after, what it does to the files: where the pool's disk
//! does not take that, nothing is written, and nothing is forgotten.

use crate::{
    APPEND, OTHER_BOOT,
    common::{Lab, holds},
    modified, set_modified,
};
use rustix::fs::{CWD, FileType, Mode};
use serde_json::Value;
use std::{
    fs,
    path::PathBuf,
    process::{Child, Stdio},
    thread,
};

/// A recovery whose syncs wait until they are told how they end; then they end so at once.
struct Held {
    recovery: Child,
    syncs: PathBuf,
    disk_fault: PathBuf,
}

impl Held {
    fn start(lab: &Lab) -> Self {
        let (syncs, disk_fault) = (lab.fault_file(), lab.faults().join("disk-write"));
        rustix::fs::mknodat(CWD, &syncs, FileType::Fifo, Mode::RWXU, 0).unwrap();
        let mut command = lab.recover_command(&[]);
        command
            .env("FOREBAY_TEST_BOOT_ID", OTHER_BOOT)
            .env("FOREBAY_TEST_POOL_SURVIVED", "1")
            .env("FOREBAY_TEST_FAULTS", lab.faults())
            .stdout(Stdio::piped());
        Self {
            recovery: command.spawn().unwrap(),
            syncs,
            disk_fault,
        }
    }

    /// The first sync has come. From then on the pool's disk fails, and the syncs end as they are
    /// told: the reports.
    fn end(self, how: &'static str) -> Vec<Value> {
        let Self {
            recovery,
            syncs,
            disk_fault,
        } = self;
        let answering = thread::spawn({
            let syncs = syncs.clone();
            move || {
                // Opening it waits for the one that reads.
                let mut first = fs::File::options().write(true).open(&syncs).unwrap();
                fs::write(&disk_fault, "5").unwrap();
                fs::rename(&syncs, syncs.with_extension("first")).unwrap();
                fs::write(&syncs, how).unwrap();
                std::io::Write::write_all(&mut first, how.as_bytes()).unwrap();
            }
        });
        let output = recovery.wait_with_output().unwrap();
        answering.join().unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

/// A lane on a disk of files of which a power cut took the last one's content.
fn last_lost<const FILES: usize>(lab: &Lab, names: [&str; FILES]) -> [PathBuf; FILES] {
    let mut run = lab.run();
    let paths = names.map(|name| lab.data(&format!("{name}.log")));
    for (name, path) in names.iter().zip(&paths) {
        run.open(name, path, APPEND);
        run.call(format!("write {name} 1 3000")).unwrap();
        run.call(format!("sync {name}")).unwrap();
    }
    run.kill_both();
    let last = &paths[FILES - 1];
    let then = modified(last);
    fs::write(last, "").unwrap();
    set_modified(last, then);
    paths
}

/// Promise (recovery): A recovery writes nothing where the pool's disk does not take the note that
/// a replay begins.
#[test]
fn where_the_pool_cannot_be_told_nothing_is_written() {
    let lab = Lab::on_disk();
    let [_, b] = last_lost(&lab, ["a", "b"]);
    // The first file needs a sync only, before the second one is to be written.
    let reports = Held::start(&lab).end("none");
    assert_eq!(reports[0]["outcome"], "refused", "{reports:?}");
    let why = reports[0]["files"][1]["refused"].as_str().unwrap();
    assert!(why.contains("the pool cannot be told"), "{why}");
    assert_eq!(fs::read(&b).unwrap(), b"");
    lab.recover_to("replayed", Some(OTHER_BOOT), &[]);
    holds(&b, &[(1, 3000)]);
}

/// Promise (recovery): A file says itself that its sync failed where the pool's disk does not take
/// that note.
#[test]
fn a_recoverys_failed_sync_is_known_though_no_pool_was_told() {
    let lab = Lab::on_disk();
    let [a] = last_lost(&lab, ["a"]);
    let reports = Held::start(&lab).end("5");
    assert_eq!(reports[0]["outcome"], "refused", "{reports:?}");
    // The file has it all, by the page cache. Only written again it comes to the disk, which cannot
    // be done while another process has it open.
    holds(&a, &[(1, 3000)]);
    let other = fs::File::open(&a).unwrap();
    let reports = lab.recover_to("refused", Some(OTHER_BOOT), &[]);
    let why = reports[0]["files"][0]["refused"].as_str().unwrap();
    assert!(why.contains("a sync of"), "{why}");
    drop(other);
    lab.recover_to("synced", Some(OTHER_BOOT), &[]);
    assert_eq!(lab.lanes(), 0);
}

/// Promise (recovery): A recovery with `--discard` gives up the records that it refuses, and none
/// whose write or sync failed.
#[test]
fn unsynced_records_are_not_given_up_with_the_refused_ones() {
    let lab = Lab::on_disk();
    let [a, b] = last_lost(&lab, ["a", "b"]);
    fs::remove_file(a).unwrap();
    lab.inject(libc::EIO, 1);
    let reports = lab.recover_with(Some(OTHER_BOOT), &["--discard"], |command| {
        command.env("FOREBAY_TEST_FAULTS", lab.faults());
    });
    assert_eq!(reports[0]["outcome"], "refused", "{reports:?}");
    assert_eq!(lab.lanes(), 1);
    let reports = lab.recover_to("discarded", Some(OTHER_BOOT), &["--discard"]);
    assert!(reports[0]["files"][1]["refused"].is_null(), "{reports:?}");
    holds(&b, &[(1, 3000)]);
    assert_eq!(lab.lanes(), 0);
}
