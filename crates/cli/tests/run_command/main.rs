//! `forebay run` as a command: what it refuses, what it passes through, what it leaves behind.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod background;
#[path = "../common/mod.rs"]
mod common;
mod overwriting;
mod pools;
mod profiles;
mod program;
mod recovery;
mod signals;

use common::{Ran, Sandbox};
use std::path::Path;

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

    fn pool_once(&self) {
        if !self.file("p").exists() {
            self.pool();
        }
    }
}
