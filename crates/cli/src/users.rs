//! Users of the system, by name or number: a pool's owner, now or to be.

use nix::unistd::{Gid, Uid, User};
use std::{fmt, fs, io, path::Path};

/// The reason that a user is not known.
#[derive(Debug)]
pub enum UserError {
    /// There is none of this name or number.
    Unknown(String),
    /// The list of users cannot be read.
    Unreadable {
        /// The list.
        list: String,
        /// The system's error.
        source: io::Error,
    },
}

impl fmt::Display for UserError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(text) => {
                write!(f, "there is no user {text}; getent passwd lists users")
            }
            Self::Unreadable { list, source } => write!(f, "reading {list}: {source}"),
        }
    }
}

/// A user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemUser {
    /// Its name, or its number where it has none.
    pub name: String,
    /// Its number.
    pub uid: u32,
    /// That of its group.
    pub gid: u32,
}

impl SystemUser {
    /// The user of this name, or number, of this system.
    ///
    /// # Errors
    /// [`UserError::Unknown`].
    pub fn named(text: &str) -> Result<Self, UserError> {
        let by_name = User::from_name(text).ok().flatten();
        let found = match (by_name, text.parse()) {
            (Some(user), _) => Some(user),
            (None, Ok(uid)) => return Ok(Self::numbered(uid)),
            (None, Err(_)) => None,
        };
        found.map(Self::of).ok_or_else(|| unknown(text))
    }

    /// The user of this number of this system. One that has no name has the group of its number.
    pub fn numbered(uid: u32) -> Self {
        match User::from_uid(Uid::from_raw(uid)) {
            Ok(Some(user)) => Self::of(user),
            _ => Self {
                name: uid.to_string(),
                uid,
                gid: uid,
            },
        }
    }

    fn of(user: User) -> Self {
        Self {
            uid: user.uid.as_raw(),
            gid: Gid::as_raw(user.gid),
            name: user.name,
        }
    }

    /// The one of another system, whose `/etc/passwd` this is.
    ///
    /// # Errors
    /// [`UserError`].
    pub fn listed(
        passwd: &Path,
        is_it: impl Fn(&Self) -> bool,
        text: &str,
    ) -> Result<Self, UserError> {
        let lines = fs::read_to_string(passwd).map_err(|source| UserError::Unreadable {
            list: passwd.display().to_string(),
            source,
        })?;
        let user = |line: &str| {
            let mut fields = line.split(':');
            let (name, _password) = (fields.next()?, fields.next()?);
            let [uid, gid] = [fields.next()?.parse().ok()?, fields.next()?.parse().ok()?];
            Some(Self {
                name: name.to_owned(),
                uid,
                gid,
            })
        };
        let mut users = lines.lines().filter_map(user);
        users.find(is_it).ok_or_else(|| unknown(text))
    }
}

fn unknown(text: &str) -> UserError {
    UserError::Unknown(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_name_and_by_number() {
        let root = SystemUser::named("root").unwrap();
        assert_eq!((root.uid, root.gid), (0, 0));
        assert_eq!(SystemUser::named("0").unwrap(), root);
        assert_eq!(SystemUser::numbered(4_000_000).name, "4000000");
        assert!(matches!(
            SystemUser::named("no such"),
            Err(UserError::Unknown(_))
        ));
    }

    #[test]
    fn a_user_of_another_system_is_read_from_its_list() {
        let dir = tempfile::tempdir().unwrap();
        let passwd = dir.path().join("passwd");
        fs::write(&passwd, "root:x:0:0::/:\nredis:x:102:105::/:\nbad\n").unwrap();
        let found = SystemUser::listed(&passwd, |it| it.name == "redis", "redis").unwrap();
        assert_eq!((found.uid, found.gid), (102, 105));
        assert!(SystemUser::listed(&passwd, |it| it.uid == 7, "7").is_err());
    }
}
