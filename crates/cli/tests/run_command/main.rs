//! `forebay run` as a command: what it refuses, what it passes through, what it leaves behind.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod background;
#[path = "../common/mod.rs"]
mod common;
mod neighbours;
mod overwriting;
mod pools;
mod profiles;
mod program;
mod recovery;
mod signals;

use common::{Ran, Sandbox, databases::PATIENCE};
use forebay_bench::processes::Process;
use std::{
    fs::{self, File},
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

impl Sandbox {
    /// Runs `forebay run` with a pool, these options, and `sh -c script`.
    fn script(&self, options: &str, script: &str) -> Ran {
        self.pool_once();
        let mut command = self.command(&format!("run --pool p {options} -- sh -c"));
        Ran::of(
            command
                .arg(script)
                .env("FOREBAY_RUN_DIR", self.file("run"))
                .output()
                .unwrap(),
        )
    }

    /// Runs `python3 -c script` with `*.log` absorbed into `pool`.
    fn python(&self, pool: &Path, script: &str) -> Ran {
        let mut command = self.command("run --absorb *.log --pool");
        command.arg(pool).args(["--", "python3", "-c", script]);
        Ran::of(command.output().unwrap())
    }

    /// Recovers `pool` as if the machine had been started anew.
    fn recover_in_another_boot(&self, pool: &Path) -> serde_json::Value {
        let mut command = self.command("recover --json --pool");
        command
            .arg(pool)
            .env(
                "FOREBAY_TEST_BOOT_ID",
                "00000000-0000-4000-8000-000000000001",
            )
            .env("FOREBAY_TEST_POOL_SURVIVED", "1");
        Ran::of(command.output().unwrap()).ok().json()
    }

    /// Starts a command; what it says is in the file `said`.
    fn start(&self, command: &mut Command, said: &str) -> Process {
        let said = File::create(self.file(said)).unwrap();
        command
            .env("FOREBAY_RUN_DIR", self.file("run"))
            .stdout(said.try_clone().unwrap())
            .stderr(said);
        Process::spawn(command).unwrap()
    }

    /// Waits until a process has said these words.
    #[track_caller]
    fn hear(&self, process: &mut Process, said: &str, words: &str) {
        let until = Instant::now() + PATIENCE;
        loop {
            let is_over = process.ended().is_some() || Instant::now() >= until;
            let all = fs::read_to_string(self.file(said)).unwrap();
            if all.contains(words) {
                return;
            }
            assert!(!is_over, "{words:?} is not in: {all}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// A process ends with this status.
    #[track_caller]
    fn ends(&self, mut process: Process, said: &str, code: i32) {
        let status = process.wait(PATIENCE);
        let all = fs::read_to_string(self.file(said)).unwrap();
        assert_eq!(status.unwrap().code(), Some(code), "{all}");
    }

    fn pool_once(&self) {
        if !self.file("p").exists() {
            self.pool();
        }
    }
}
