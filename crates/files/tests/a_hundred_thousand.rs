//! A hundred thousand logs of one run.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;
use common::many_logs;

const COUNT: usize = 100_000;

#[test]
#[ignore = "takes minutes, and 201,024 descriptors: make test-many-files"]
fn hundred_thousand_open_logs_have_all_after_a_kill() {
    match many_logs::most(COUNT) {
        COUNT => many_logs::have_all_after_a_kill(COUNT),
        most => println!("skipped: descriptors for {most} logs may be open here (ulimit -Hn)"),
    }
}
