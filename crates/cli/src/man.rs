//! `forebay man`: manual pages, from the same source as `--help`.
//!
//! On a terminal a page is rendered by man(1), or where there is none as long help. Elsewhere it is
//! printed as it is, for those who install it.

use crate::{
    failure::Failure,
    output::{self, Output},
};
use clap::{Args, Command};
use nix::sys::signal::{SigSet, Signal};
use std::{
    fs,
    io::{self, IsTerminal, Write},
    path::PathBuf,
    process::{self, Stdio},
};

/// Show a manual page, or write all pages to a directory
#[derive(Args)]
#[command(after_long_help = "Examples:\n  \
    forebay man run\n  \
    forebay man run >forebay-run.1\n  \
    forebay man --dir /usr/local/share/man/man1")]
pub struct Man {
    /// Write a page for the command and each subcommand here
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// The command whose page is shown [default: the whole]
    #[arg(value_name = "COMMAND", conflicts_with = "dir")]
    of: Vec<String>,
}

impl Man {
    /// Of `command`, which is the whole one.
    ///
    /// # Errors
    /// It has no command of that name; standard output, or the directory, cannot be written to.
    pub fn run(self, command: Command) -> Result<(), Failure> {
        let Some(dir) = self.dir else {
            let command = self.find(command)?;
            let mut page = Vec::new();
            clap_mangen::Man::new(command.clone())
                .render(&mut page)
                .map_err(Failure::io("rendering", "the manual page"))?;
            if io::stdout().is_terminal() {
                return show(&page, command);
            }
            let mut output = Output::new();
            output.bytes(&page)?;
            return output.finish();
        };
        fs::create_dir_all(&dir).map_err(Failure::io("creating", dir.display()))?;
        clap_mangen::generate_to(command, &dir)
            .map_err(Failure::io("writing manual pages to", dir.display()))
    }

    /// The command that is asked for, with its whole name.
    fn find(&self, command: Command) -> Result<Command, Failure> {
        let mut found = command;
        found.build();
        for name in &self.of {
            let Some(below) = found.find_subcommand(name) else {
                return Err(Failure::Usage(format!(
                    "{} has no command {name}; its --help lists those that it has",
                    found.get_name()
                )));
            };
            found = below.clone();
        }
        Ok(found)
    }
}

/// Shows a page on the terminal.
fn show(page: &[u8], mut command: Command) -> Result<(), Failure> {
    let man = (process::Command::new("man").args(["-l", "-"]))
        .stdin(Stdio::piped())
        .spawn();
    let Ok(mut man) = man else {
        return output::print(&command.render_long_help().to_string());
    };
    // The pager may take these, and goes on: as system(3) does, this process outlives it.
    let keys: SigSet = [Signal::SIGINT, Signal::SIGQUIT].into_iter().collect();
    keys.thread_block()
        .map_err(io::Error::from)
        .map_err(Failure::io("blocking", "signals"))?;
    if let Some(mut input) = man.stdin.take() {
        // One that ends early has said why.
        let _ = input.write_all(page);
    }
    let status = man.wait().map_err(Failure::io("running", "man"))?;
    match status.success() {
        true => Ok(()),
        false => output::print(&command.render_long_help().to_string()),
    }
}
