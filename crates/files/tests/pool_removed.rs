//! A pool whose file is removed while a run uses it: a power cut would take it along, so nothing is
//! left in it.
#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "common/mod.rs"]
mod common;

use common::*;
use std::{fs, io::Read, process::Stdio, thread, time::Duration};

const RDWR: i32 = libc::O_RDWR | libc::O_CREAT;
/// The supervisor looks once a second.
const NOTICED: Duration = Duration::from_secs(3);

/// Promise (disks): Forebay brings everything to the files within a second or two when a pool's
/// file is removed in use, and makes every sync a real one.
#[test]
fn files_have_everything_and_real_syncs_once_a_pool_is_removed() {
    for lab in [Lab::new(), Lab::on_disk()] {
        let mut run = lab.run_with(|command| {
            command.stderr(Stdio::piped());
        });
        let path = lab.data("a.log");
        run.open("a", &path, RDWR);
        run.calls(["write a 1 3000", "sync a"]);
        // Another in its place is not it.
        fs::rename(lab.pool(), lab.home.path().join("kept")).unwrap();
        fs::copy(lab.home.path().join("kept"), lab.pool()).unwrap();
        fs::rename(lab.pool(), lab.home.path().join("kept")).unwrap();
        thread::sleep(NOTICED);
        assert_eq!(fs::read(lab.synced(&path)).unwrap(), content(1, 3000));
        for _ in 0..20 {
            run.calls(["write a 2 3000", "sync a"]);
        }
        run.open("b", &lab.data("b.log"), RDWR);
        run.calls(["write b 3 100", "sync b"]);
        let mut said = String::new();
        let mut stderr = run.supervisor.stderr.take().unwrap();
        run.end();
        stderr.read_to_string(&mut said).unwrap();
        assert_eq!(
            said.matches("was removed while it is used").count(),
            1,
            "{said}"
        );
        assert!(fs::read(lab.data("b.log")).unwrap() == content(3, 100));
        assert_eq!(fs::metadata(&path).unwrap().len(), 63_000);
    }
}

#[test]
fn a_pool_that_is_only_called_otherwise_is_used_on() {
    let lab = Lab::new();
    let (mut run, path) = lab.run_with_log(RDWR);
    let elsewhere = lab.home.path().join("elsewhere");
    fs::rename(lab.pool(), &elsewhere).unwrap();
    thread::sleep(NOTICED);
    run.calls(["write a 1 3000", "sync a"]);
    run.kill_both();
    lab.power_cut();
    fs::rename(&elsewhere, lab.pool()).unwrap();
    lab.recover(Some("00000000-0000-0000-0000-00000000b007"), &[]);
    holds(&path, &[(1, 3000)]);
}
