//! Users of the system, by name or number: whose a pool is to be, or is.

use crate::failure::Failure;
use nix::unistd::{Gid, Uid, User};
use std::{fs, path::Path};

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
    /// [`Failure::Usage`] if there is none.
    pub fn named(text: &str) -> Result<Self, Failure> {
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
    /// It cannot be read; [`Failure::Usage`] if there is no such user.
    pub fn listed(
        passwd: &Path,
        is_it: impl Fn(&Self) -> bool,
        text: &str,
    ) -> Result<Self, Failure> {
        let lines = fs::read_to_string(passwd).map_err(Failure::io("reading", passwd.display()))?;
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

fn unknown(text: &str) -> Failure {
    Failure::Usage(format!(
        "there is no user {text}; getent passwd lists users"
    ))
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
            Err(Failure::Usage(_))
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
