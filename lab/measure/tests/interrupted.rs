//! A benchmark that is told to end while it starts processes leaves none of them.
#![allow(clippy::unwrap_used, reason = "tests")]

use forebay_measure::processes::{Handle, Process, kill_all};
use std::{
    env, fs,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

/// Says to this program that it is the one to be interrupted, and the word by which its processes
/// are known.
const MARK: &str = "FOREBAY_TEST_INTERRUPTED";

/// Numbers of the processes one of whose arguments is `word`.
fn processes_with(word: &str) -> Vec<i32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let found = entries.filter_map(|entry| {
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let mut arguments = line.split(|&byte| byte == 0);
        arguments.find(|argument| *argument == word.as_bytes())?;
        entry.file_name().to_str()?.parse().ok()
    });
    found.collect()
}

/// Starts wrappers, and they their programs, on four threads until `after` has passed, and ends as
/// a handler of a signal does.
fn start_until(word: &str, after: Duration) -> ! {
    for _ in 0..4 {
        let word = word.to_owned();
        thread::spawn(move || {
            let wrapper = "sh -c 'sleep 60; :' \"$0\" & sh -c 'sleep 60; :' \"$0\"";
            loop {
                let wrapper = Process::spawn(Command::new("sh").args(["-c", wrapper, &word]));
                std::mem::forget(wrapper.unwrap());
                thread::sleep(Duration::from_millis(1));
            }
        });
    }
    thread::sleep(after);
    kill_all();
    std::process::exit(0);
}

#[test]
fn a_process_being_started_ends_with_an_interrupted_benchmark() {
    if let Ok(word) = env::var(MARK) {
        let micros: u64 = word.rsplit('-').next().unwrap().parse().unwrap();
        start_until(&word, Duration::from_micros(micros));
    }
    let test = "a_process_being_started_ends_with_an_interrupted_benchmark";
    for round in 0..40 {
        let word = format!("forebay-{}-{}", std::process::id(), 1000 + 733 * round);
        let own = env::current_exe().unwrap();
        let mut interrupted = Command::new(own);
        interrupted.args(["--exact", test]).env(MARK, &word);
        // No pipes: what is left would keep them open.
        let status = interrupted.stdout(Stdio::null()).status().unwrap();
        let left = processes_with(&word);
        for &pid in &left {
            drop(Handle::of(pid));
        }
        assert!(status.success());
        assert_eq!(left, [0; 0], "{word}");
    }
}
