//! `--help` fits a screen: a line for each option, and examples. What else there is to say is on
//! the manual pages (`forebay man`), from the same source.

use clap::{Arg, ArgAction, Command};

/// `command` with `--help` as `-h`, and so all commands below it.
pub fn short(command: Command) -> Command {
    let names: Vec<String> = (command.get_subcommands())
        .map(|below| below.get_name().to_owned())
        .collect();
    let command = (names.iter()).fold(command, |command, name| command.mut_subcommand(name, short));
    let after = (command.get_after_help().or(command.get_after_long_help())).cloned();
    let help = Arg::new("help")
        .short('h')
        .long("help")
        .action(ArgAction::HelpShort)
        .help("Print help; forebay man COMMAND says more");
    let command = command.disable_help_flag(true).arg(help);
    match after {
        Some(after) => command.after_help(after),
        None => command,
    }
}
