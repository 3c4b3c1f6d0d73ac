//! A command's failure: its message and its exit status.

use crate::users::{SystemUser, UserError};
use forebay_files::{FilesError, policy::PolicyError};
use forebay_pool::{PoolError, PoolErrorKind};
use forebay_store::StoreError;
use std::{fmt, fs, io, os::unix::fs::MetadataExt, path::Path};

/// The reason that a command did not succeed.
#[derive(Debug)]
pub enum Failure {
    /// The command line asks for something that cannot be. Status 2.
    Usage(String),
    /// It did not work. The message says what to do. Status 1.
    Failed(String),
    /// The program to be run could not be: its message, and the status that shells give for it
    /// (126, 127).
    NotRun(u8, String),
    /// The report on standard output says it all, if it was read. Status 1.
    Reported,
    /// The program that was run ended with this status, and this one does too.
    Passed(u8),
    /// The reader of standard output has closed it. Not a failure: status 0.
    OutputClosed,
}

impl Failure {
    /// For `map_err`: an I/O error while `doing` something to `what`.
    pub fn io(doing: &str, what: impl std::fmt::Display) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Failed(format!("{doing} {what}: {error}"))
    }

    /// An error on standard output.
    pub fn output(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::OutputClosed,
            _ => Self::Failed(format!("writing to standard output: {error}")),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Usage(why) | Self::Failed(why) | Self::NotRun(_, why) => why,
            Self::Reported | Self::Passed(_) | Self::OutputClosed => "it ended",
        })
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Failed(match error {
            StoreError::PoolNeeded { durability } => format!(
                "the variant {durability} keeps acknowledged writes in a pool, and none was given; give one (--pool), or choose the variant fsync"
            ),
            StoreError::Damaged { .. } => {
                format!("{error}: `forebay store verify`")
            }
            error => of_options(&error.to_string()),
        })
    }
}

/// A library's message with the options of commands alone: "(PoolOptions::on_disk, --disk)" names
/// both.
fn of_options(message: &str) -> String {
    let mut parts = message.split("PoolOptions::");
    let mut said = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let option = part
            .split_once(", ")
            .filter(|(_, rest)| rest.starts_with("--") || rest.starts_with('`'));
        match option {
            Some((_, rest)) => said.push_str(rest),
            None => said.extend(["PoolOptions::", part]),
        }
    }
    said
}

impl From<UserError> for Failure {
    fn from(error: UserError) -> Self {
        match error {
            UserError::Unknown(_) => Self::Usage(error.to_string()),
            UserError::Unreadable { .. } => Self::Failed(error.to_string()),
        }
    }
}

impl From<PoolError> for Failure {
    fn from(error: PoolError) -> Self {
        let remedy = match &error.kind {
            PoolErrorKind::Io { source, .. }
                if source.kind() == io::ErrorKind::PermissionDenied =>
            {
                who_may(&error.path)
            }
            _ => String::new(),
        };
        Self::Failed(of_options(&format!("{error}{remedy}")))
    }
}

/// The remedy for a pool that this user may not open.
fn who_may(pool: &Path) -> String {
    let this = SystemUser::numbered(rustix::process::geteuid().as_raw()).name;
    let shown = pool.display();
    match fs::metadata(pool) {
        Ok(found) if found.uid() != rustix::process::geteuid().as_raw() => {
            let owner = SystemUser::numbered(found.uid()).name;
            format!(
                ". It belongs to {owner}, and this is {this}. Run this as {owner} (runuser -u {owner} -- forebay …); or, if it is to be {this}'s: chown {this} {shown}"
            )
        }
        Ok(_) => format!(". It is {this}'s own, and closed: chmod u+rw {shown}"),
        Err(_) => format!(
            ". A directory above it is closed to {this}, or it is not there; namei -l {shown} says which"
        ),
    }
}

impl From<FilesError> for Failure {
    fn from(error: FilesError) -> Self {
        Self::Failed(of_options(&error.to_string()))
    }
}

impl From<PolicyError> for Failure {
    fn from(error: PolicyError) -> Self {
        match error {
            PolicyError::Unreadable { .. } => Self::Failed(error.to_string()),
            error => Self::Usage(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::of_options;

    #[test]
    fn a_librarys_message_names_a_commands_options_alone() {
        let both = "on a disk (PoolOptions::on_disk, --disk), or emulated (PoolOptions::emulated, --emulated; slow)";
        let alone = "on a disk (--disk), or emulated (--emulated; slow)";
        assert_eq!(of_options(both), alone);
        let other = "PoolOptions::on_disk makes it, and more";
        assert_eq!(of_options(other), other);
        assert_eq!(of_options("nothing of the kind"), "nothing of the kind");
    }
}
