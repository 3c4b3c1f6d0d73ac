//! Files by the thousand: absorbed at a time, and one after the other.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;
use common::{Lab, content, many_logs};
use std::fs;

const APPEND: i32 = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND;
const OTHER_BOOT: &str = "00000000-0000-0000-0000-00000000b007";
/// Logs that are open at a time.
const OPEN: usize = 5000;
/// Files that are made one after the other.
const SHORT_LIVED: usize = 2000;
/// The supervisor may have so many open: with that it takes 256 numbers, and no more.
const FEW_DESCRIPTORS: u64 = 1024;

/// Promise (files): Thousands of logs are absorbed at a time, and have all that was acknowledged
/// after a kill and a power cut.
#[test]
fn thousands_of_open_logs_have_all_after_a_kill() {
    let count = many_logs::most(OPEN);
    println!("{count} logs");
    many_logs::have_all_after_a_kill(count);
}

/// Promise (files): A log beside files that are made, written, closed and removed by the thousand
/// keeps all that is acknowledged, and each of them is absorbed.
#[test]
fn thousands_of_short_lived_files_take_no_number_for_long() {
    let lab = Lab::new();
    let mut run = lab.run();
    let kept = lab.data("kept.log");
    run.open("kept", &kept, APPEND);
    run.limit_descriptors(FEW_DESCRIPTORS);
    let mut expected = Vec::new();
    for n in 0..SHORT_LIVED {
        let path = lab.data(&format!("{}.log", n % 3));
        assert_eq!(run.open_only("a", &path, APPEND), 1, "{n}");
        run.calls(["write a 1 100", "close a"]);
        run.call(format!("unlink {}", path.display())).unwrap();
        if n % 100 == 0 {
            run.call(format!("write kept {} 100", n / 100)).unwrap();
            run.call("sync kept").unwrap();
            expected.extend(content((n / 100) as u64, 100));
        }
    }
    run.kill_both();
    lab.power_cut();
    lab.recover(Some(OTHER_BOOT), &[]);
    assert_eq!(fs::read(&kept).unwrap(), expected);
}
