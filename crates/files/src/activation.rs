//! Passes a service manager's variables on to the program. systemd names the process that it starts
//! by its number: for its sockets (`LISTEN_PID`), and for its watchdog (`WATCHDOG_PID`). Under
//! `forebay run` that process is the supervisor, and the program is meant.

use std::{collections::BTreeMap, ffi::OsString};

/// The variables that name the process.
pub const NAMING: [&str; 2] = ["LISTEN_PID", "WATCHDOG_PID"];
/// Their value on the way to the program, whose number is not known before it is started.
pub const PROGRAM: &str = "the program of forebay run";
/// The same process by another number, which need not be given.
const BESIDE: &str = "LISTEN_PIDFDID";

/// Changes the environment of a program that the process `own` starts: variables that name that
/// process name the program.
pub fn hand_over(environment: &mut BTreeMap<OsString, OsString>, own: u32) {
    let own = OsString::from(own.to_string());
    for name in NAMING {
        if let Some(value) = environment.get_mut(&OsString::from(name))
            && *value == own
        {
            *value = PROGRAM.into();
            environment.remove(&OsString::from(BESIDE));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_names_the_supervisor_comes_to_name_the_program() {
        let pairs = |pairs: &[(&str, &str)]| -> BTreeMap<OsString, OsString> {
            let owned = pairs
                .iter()
                .map(|(name, value)| (name.into(), value.into()));
            owned.collect()
        };
        let mut given = pairs(&[
            ("LISTEN_PID", "77"),
            ("LISTEN_PIDFDID", "5"),
            ("LISTEN_FDS", "2"),
        ]);
        hand_over(&mut given, 77);
        assert_eq!(
            given,
            pairs(&[("LISTEN_PID", PROGRAM), ("LISTEN_FDS", "2")])
        );
        // Of a process above, which started the supervisor by a shell.
        let others = pairs(&[
            ("LISTEN_PID", "7"),
            ("WATCHDOG_PID", "770"),
            ("OTHER", "77"),
        ]);
        let mut given = others.clone();
        hand_over(&mut given, 77);
        assert_eq!(given, others);
    }
}
