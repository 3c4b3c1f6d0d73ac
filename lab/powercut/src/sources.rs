//! Sources that the programs are of: cycles of the same ones add up.

use std::{
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

/// Where there is no repository. What has this name need not be of the same sources.
const UNKNOWN: &str = "unknown";

/// The revision of the repository that this was built in; with changes besides, `+` and what tells
/// them from others.
pub fn revision() -> String {
    revision_of(Path::new(env!("CARGO_MANIFEST_DIR")))
}

/// True if all that has this name is of the same sources.
pub fn is_known(revision: &str) -> bool {
    revision != UNKNOWN
}

fn revision_of(directory: &Path) -> String {
    let git = |words: &[&str], input: &[u8]| said(directory, words, input);
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).trim().to_owned();
    let revision = git(&["rev-parse", "--short=8", "HEAD"], &[]).map(text);
    // Whatever shows a user differences otherwise is left out.
    let changes = ["diff", "--no-ext-diff", "--no-color", "--binary", "HEAD"];
    let (Some(revision), Some(changes)) = (revision, git(&changes, &[])) else {
        return UNKNOWN.to_owned();
    };
    if changes.is_empty() {
        return revision;
    }
    match git(&["hash-object", "--stdin"], &changes).map(text) {
        Some(hash) => format!("{revision}+{}", hash.get(..8).unwrap_or(&hash)),
        None => UNKNOWN.to_owned(),
    }
}

/// What git prints, given `input`. None if it fails.
fn said(directory: &Path, words: &[&str], input: &[u8]) -> Option<Vec<u8>> {
    let mut git = Command::new("git")
        .arg("-C")
        .arg(directory)
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    // It prints nothing before it has read all of it. Who reads nothing may be gone.
    if let Some(mut stdin) = git.stdin.take() {
        let _ = stdin.write_all(input);
    }
    let done = git.wait_with_output().ok()?;
    done.status.success().then_some(done.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn changes_that_are_not_committed_tell_sources_apart() {
        if Command::new("git").arg("--version").output().is_err() {
            eprintln!("skipped: git is not installed");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        assert!(!is_known(&revision_of(dir.path())));
        let git = |words: &[&str]| {
            let user = ["-c", "user.name=lab", "-c", "user.email=lab@localhost"];
            let words = [&user, words].concat();
            said(dir.path(), &words, &[]).unwrap();
        };
        let write = |text: &str| fs::write(dir.path().join("code"), text).unwrap();
        git(&["init", "--quiet"]);
        write("first\n");
        git(&["add", "code"]);
        git(&["commit", "--quiet", "--no-gpg-sign", "--message=first"]);
        let clean = revision_of(dir.path());
        assert!(is_known(&clean) && !clean.contains('+'), "{clean}");
        let changed = |text: &str| {
            write(text);
            revision_of(dir.path())
        };
        let (one, other) = (changed("one\n"), changed("other\n"));
        assert!(one.starts_with(&format!("{clean}+")), "{one}");
        assert_ne!(one, other);
        assert_eq!(one, changed("one\n"));
        assert_eq!(clean, changed("first\n"));
    }
}
