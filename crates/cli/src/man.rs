//! `forebay man`: manual pages, from the same source as `--help`.

use crate::{failure::Failure, output::Output};
use clap::{Args, Command};
use std::{fs, path::PathBuf};

/// Print a manual page, or write all pages to a directory
#[derive(Args)]
#[command(after_long_help = "Examples:\n  \
    forebay man run | man -l -\n  \
    forebay man --dir /usr/local/share/man/man1")]
pub struct Man {
    /// Write a page for the command and each subcommand here
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// The command whose page is printed [default: the whole]
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
            let mut page = Vec::new();
            clap_mangen::Man::new(self.find(command)?)
                .render(&mut page)
                .map_err(Failure::io("rendering", "the manual page"))?;
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
