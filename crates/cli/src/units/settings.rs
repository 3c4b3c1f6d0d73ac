//! A unit's settings, from its file and its drop-ins, in the order in which systemd reads them
//! (systemd.syntax(7)).
//!
//! An empty assignment takes back what came before it. Nothing is interpreted here but lines.

use std::path::{Path, PathBuf};

/// One assignment.
#[derive(Clone, Debug, PartialEq, Eq)]
struct UnitAssignment {
    section: String,
    key: String,
    value: String,
    file: PathBuf,
}

/// All assignments of a unit.
#[derive(Clone, Debug, Default)]
pub struct UnitSettings(Vec<UnitAssignment>);

impl UnitSettings {
    /// Adds those of a file, which says `text`.
    pub fn add(&mut self, file: &Path, text: &str) {
        let mut section = String::new();
        for line in joined(text) {
            let line = line.trim();
            if let Some(name) = line.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
                name.clone_into(&mut section);
            } else if let Some((key, value)) = line.split_once('=') {
                self.0.push(UnitAssignment {
                    section: section.clone(),
                    key: key.trim().to_owned(),
                    value: value.trim().to_owned(),
                    file: file.to_owned(),
                });
            }
        }
    }

    fn all(&self, key: &str) -> Vec<&UnitAssignment> {
        let is_ours = |it: &&UnitAssignment| it.section == "Service" && it.key == key;
        let all: Vec<_> = self.0.iter().filter(is_ours).collect();
        let begins = all.iter().rposition(|it| it.value.is_empty());
        all[begins.map_or(0, |at| at + 1)..].to_vec()
    }

    /// The values of a setting of `[Service]` that is a list.
    pub fn list(&self, key: &str) -> Vec<&str> {
        self.all(key).iter().map(|it| it.value.as_str()).collect()
    }

    /// The words of all these values.
    pub fn words(&self, key: &str) -> Vec<&str> {
        let values = self.list(key).into_iter();
        values.flat_map(str::split_whitespace).collect()
    }

    /// The value of a setting of `[Service]` that has one.
    pub fn value(&self, key: &str) -> Option<&str> {
        self.all(key).last().map(|it| it.value.as_str())
    }

    /// True if a setting says yes.
    pub fn is_on(&self, key: &str) -> bool {
        let value = self.value(key).map(str::to_ascii_lowercase);
        value.is_some_and(|it| ["yes", "true", "on", "1", "y", "t"].contains(&&*it))
    }

    /// The files that say something of a setting, even that it is empty.
    pub fn files_with(&self, key: &str) -> Vec<&Path> {
        let is_ours = |it: &&UnitAssignment| it.section == "Service" && it.key == key;
        let mut files: Vec<&Path> = self.0.iter().filter(is_ours).map(|it| &*it.file).collect();
        files.dedup();
        files
    }

    /// True if it is a service at all.
    pub fn is_service(&self) -> bool {
        self.0.iter().any(|it| it.section == "Service")
    }
}

/// The lines of a file, without comments, those that go on joined by a space.
fn joined(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut begun: Option<String> = None;
    for line in text.lines() {
        if line.trim_start().starts_with(['#', ';']) {
            continue;
        }
        let whole = match begun.take() {
            Some(before) => before + line,
            None => line.to_owned(),
        };
        match whole.strip_suffix('\\') {
            Some(before) => begun = Some(format!("{before} ")),
            None => lines.push(whole),
        }
    }
    lines.extend(begun);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(texts: &[&str]) -> UnitSettings {
        let mut settings = UnitSettings::default();
        for (at, text) in texts.iter().enumerate() {
            settings.add(Path::new(&at.to_string()), text);
        }
        settings
    }

    #[test]
    fn lines_that_go_on_are_joined_without_their_comments() {
        let it = settings(&["[Service]\n# c\nExecStart=/bin/sh -c \"a; \\\n# between\n b\"\n;x\n"]);
        assert_eq!(it.list("ExecStart"), ["/bin/sh -c \"a;   b\""]);
    }

    #[test]
    fn an_empty_assignment_takes_back_what_came_before() {
        let it = settings(&[
            "[Service]\nExecStart=/a\nType=notify\n[Unit]\nExecStart=/z\n",
            "[Service]\nExecStart=\nExecStart = /b\n",
        ]);
        assert_eq!(it.list("ExecStart"), ["/b"]);
        assert_eq!(it.value("Type"), Some("notify"));
        assert_eq!(it.files_with("ExecStart").len(), 2);
    }

    #[test]
    fn words_of_several_lines_are_one_list() {
        let it =
            settings(&["[Service]\nReadWritePaths=-/a /b\nReadWritePaths=/c\nPrivateTmp=TRUE\n"]);
        assert_eq!(it.words("ReadWritePaths"), ["-/a", "/b", "/c"]);
        assert!(it.is_on("PrivateTmp") && !it.is_on("PrivateUsers"));
    }
}
