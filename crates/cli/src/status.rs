//! `forebay status`.

use crate::{
    failure::Failure,
    output::{self, Output},
    run,
};
use clap::Args;
use forebay_files::supervisor::{self, Status as Running};
use forebay_pages::Status as Flash;
use std::{path::Path, thread, time::Duration};

/// Say what runs under forebay, and what was absorbed
#[derive(Args)]
#[command(
    long_about = "Lists everything that runs under forebay run for this user: the pool and what it survives, lanes and how full they are, \
                  files with absorbed bytes and syncs, how far the disk is behind, and errors; and flash caches (as JSON: forebay flash status --json). Exit status 1 if there are errors.",
    after_long_help = "Examples:\n  forebay status\n  forebay status --watch\n  forebay status --json"
)]
pub struct Status {
    /// Again every second, until interrupted
    #[arg(long)]
    watch: bool,
    /// Report as JSON; with --watch, a line each time
    #[arg(long)]
    json: bool,
}

impl Status {
    pub fn run(self) -> Result<(), Failure> {
        const AGAIN: Duration = Duration::from_secs(1);
        let dir = run::run_dir()?;
        if !self.watch {
            let running = supervisor::status_of_running(&dir)?;
            let flash = run::running_flash(&dir);
            // JSON has nothing of flash caches, and no verdict on them.
            let is_well =
                running.iter().all(run::is_well) && (self.json || flash.iter().all(Flash::is_well));
            return output::verdict(self.json, &running, is_well, |running| {
                human(running, &flash)
            });
        }
        loop {
            self.show(&dir)?;
            thread::sleep(AGAIN);
        }
    }

    /// One look of `--watch`.
    fn show(&self, dir: &Path) -> Result<(), Failure> {
        // To the upper left corner, and everything away.
        const CLEAR: &str = "\x1b[H\x1b[2J";
        let running = supervisor::status_of_running(dir)?;
        let mut output = Output::new();
        if self.json {
            output.json(&running)?;
        } else {
            output.text(CLEAR)?;
            output.text(&human(&running, &run::running_flash(dir)))?;
        }
        output.finish()
    }
}

fn human(running: &[Running], flash: &[Flash]) -> String {
    if running.is_empty() && flash.is_empty() {
        return "nothing runs under forebay (for this user)\n".to_owned();
    }
    let mut parts: Vec<String> = running.iter().map(run::running).collect();
    parts.extend(flash.iter().map(|status| status.lines().join("\n") + "\n"));
    parts.join("\n")
}
