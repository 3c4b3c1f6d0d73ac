//! `forebay completions`: completion scripts for shells.

use crate::{failure::Failure, output::Output};
use clap::{Args, Command};
use clap_complete::Shell;

/// Print the completion script of a shell
#[derive(Args)]
#[command(after_long_help = "Examples:\n  \
    forebay completions bash > /etc/bash_completion.d/forebay\n  \
    forebay completions zsh > ~/.zfunc/_forebay\n  \
    forebay completions fish > ~/.config/fish/completions/forebay.fish")]
pub struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    /// Of `command`, which is the whole one.
    ///
    /// # Errors
    /// Standard output cannot be written to.
    pub fn run(self, mut command: Command) -> Result<(), Failure> {
        let mut script = Vec::new();
        let name = command.get_name().to_owned();
        clap_complete::generate(self.shell, &mut command, name, &mut script);
        let mut output = Output::new();
        output.bytes(&script)?;
        output.finish()
    }
}
