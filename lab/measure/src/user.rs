//! The user that a server runs as which refuses to run as root.

use crate::{MeasureError, processes::output, server::said_by};
use std::{
    ffi::OsString,
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Command,
};

/// A user without privileges, and without a use for us in the files of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    name: String,
    uid: u32,
    gid: u32,
}

/// The users in question, the likeliest first.
const NAMES: [&str; 2] = ["postgres", "nobody"];

impl User {
    /// The one that a server is to run as, if we are root; none otherwise.
    ///
    /// # Errors
    /// [`MeasureError::Config`] if there is none.
    pub fn unprivileged() -> Result<Option<Self>, MeasureError> {
        if !rustix::process::geteuid().is_root() {
            return Ok(None);
        }
        let accounts = Path::new("/etc/passwd");
        let listed = fs::read_to_string(accounts).map_err(MeasureError::io("reading", accounts))?;
        let found = NAMES.iter().find_map(|name| Self::listed(&listed, name));
        found.map(Some).ok_or_else(|| {
            let names = NAMES.join(" nor ");
            MeasureError::Config(format!(
                "the server does not run as root, and there is neither a user {names}"
            ))
        })
    }

    fn listed(accounts: &str, name: &str) -> Option<Self> {
        let mut fields = accounts
            .lines()
            .map(|line| line.split(':'))
            .find_map(|mut fields| (fields.next()? == name).then_some(fields))?;
        let _password = fields.next();
        Some(Self {
            name: name.to_owned(),
            uid: fields.next()?.parse().ok()?,
            gid: fields.next()?.parse().ok()?,
        })
    }

    /// What stands before a command that is to run as this user, and becomes it.
    #[must_use]
    pub fn words(&self) -> [OsString; 4] {
        [
            "setpriv".into(),
            format!("--reuid={}", self.uid).into(),
            format!("--regid={}", self.gid).into(),
            "--clear-groups".into(),
        ]
    }

    /// Gives this user the directory `path` and all that is in it.
    ///
    /// # Errors
    /// I/O errors.
    pub fn give(&self, path: &Path) -> Result<(), MeasureError> {
        let mut command = Command::new("chown");
        let owner = format!("{}:{}", self.uid, self.gid);
        command
            .args(["--recursive", "--no-dereference", &owner, "--"])
            .arg(path);
        said_by("chown", output(&mut command)?).map(drop)
    }

    /// Lets others pass through the directory `path`, which is ours, to what is theirs in it.
    ///
    /// # Errors
    /// I/O errors.
    pub fn let_in(&self, path: &Path) -> Result<(), MeasureError> {
        fs::set_permissions(path, Permissions::from_mode(0o711))
            .map_err(MeasureError::io("opening to others", path))
    }

    /// Whether this user gets at a file that it is to use.
    ///
    /// # Errors
    /// [`MeasureError::Config`] if it does not.
    pub fn check_reaches(&self, path: &Path) -> Result<(), MeasureError> {
        let [setpriv, words @ ..] = self.words();
        let mut command = Command::new(setpriv);
        command.args(words).args(["test", "-r"]).arg(path);
        match output(&mut command)?.status.success() {
            true => Ok(()),
            false => Err(MeasureError::Config(format!(
                "the server does not run as root, and the user {} cannot read {}: have it lie where others may read (chmod o+rx its directories)",
                self.name,
                path.display()
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_known_by_its_whole_name() {
        let accounts = "nobody2:x:7:8::/:/bin/sh\nnobody:x:65534:65533:nobody:/nonexistent:/bin/sh\nbroken:x\n";
        let nobody = User::listed(accounts, "nobody").unwrap();
        assert_eq!((nobody.uid, nobody.gid), (65534, 65533));
        assert_eq!(User::listed(accounts, "root"), None);
        assert_eq!(User::listed(accounts, "broken"), None);
    }

    #[test]
    fn a_command_becomes_the_user_and_no_other() {
        let Some(user) = User::unprivileged().unwrap() else {
            println!("skipped: not root");
            return;
        };
        let [first, rest @ ..] = user.words();
        let mut command = Command::new(first);
        command
            .args(rest)
            .args(["sh", "-c", "id -u; id -g; id -G; echo $$"]);
        let child = command
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let pid = child.id();
        let said = said_by("sh", child.wait_with_output().unwrap()).unwrap();
        let own = format!("{}\n{}\n{}\n{pid}\n", user.uid, user.gid, user.gid);
        assert_eq!(said, own);
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "x").unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o700)).unwrap();
        assert!(user.check_reaches(&file).is_err());
        user.let_in(dir.path()).unwrap();
        user.check_reaches(&file).unwrap();
        user.give(&file).unwrap();
        use std::os::unix::fs::MetadataExt;
        assert_eq!(fs::metadata(&file).unwrap().uid(), user.uid);
    }
}
