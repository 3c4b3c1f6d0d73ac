//! Messages for the database's administrator: one line on standard error, which is the server's
//! log.

use forebay_flash::FlashError;
pub(crate) use forebay_pool::{complain, complain_repeated, say_what_ended};
use rustix::io::Errno;
use std::collections::BTreeSet;

/// Says it once, however often it happens.
pub(crate) fn complain_once(what: &str) {
    static SAID: parking_lot::Mutex<BTreeSet<String>> = parking_lot::Mutex::new(BTreeSet::new());
    if SAID.lock().insert(what.to_owned()) {
        complain(what);
    }
}

/// Says it, at most once a minute however often it happens.
pub(crate) fn complain_again(what: &str) {
    complain_repeated(what, what);
}

/// Tells the cache's error, at most once a minute for each file and cause.
pub(crate) fn complain_of(doing: &str, error: &FlashError) {
    let cause = error.cause();
    complain_repeated(&format!("{doing}{cause}"), &format!("{doing}{error}"));
}

/// The same, of a request of the program: gives the program's error.
pub(crate) fn said(error: &FlashError) -> Errno {
    complain_of("", error);
    Errno::IO
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_flash::PageName;
    use std::{io, process::Command};

    /// The errors of a server's calls in a second while two files cannot be written and a third has
    /// damaged pages.
    #[test]
    #[ignore = "run by the test below, which counts its lines"]
    fn errors_of_each_call() {
        for page in 0..5000 {
            for file in ["a.ibd", "b.ibd"] {
                let doing = "writing pages home";
                let source = io::Error::from(Errno::NOSPC);
                let file = file.to_owned();
                let error = FlashError::Home {
                    file,
                    doing,
                    source,
                };
                assert_eq!(said(&error), Errno::IO);
                complain_of("pages stay in the flash cache: ", &error);
            }
            let file = "c.ibd".to_owned();
            let page = PageName { file, page };
            assert_eq!(said(&FlashError::DamagedPage { page }), Errno::IO);
        }
    }

    #[test]
    fn an_error_of_each_call_is_a_line_for_each_file_and_cause() {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let name = "complain::tests::errors_of_each_call";
        command.args(["--exact", name, "--ignored", "--nocapture"]);
        let ran = command.output().unwrap();
        assert!(ran.status.success(), "{ran:?}");
        let said = String::from_utf8_lossy(&ran.stderr);
        let lines = said.lines().filter(|line| line.starts_with("forebay: "));
        let lines: Vec<&str> = lines.collect();
        // Slow machines reach the second minute.
        assert!((5..=10).contains(&lines.len()), "{} lines", lines.len());
        for file in [
            "a.ibd: writing pages home",
            "b.ibd: writing",
            "page 0 of c.ibd",
        ] {
            assert!(lines.iter().any(|line| line.contains(file)), "{lines:?}");
        }
    }
}
