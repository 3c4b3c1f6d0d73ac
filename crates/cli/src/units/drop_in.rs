//! The drop-in that `forebay enable` writes: `UNIT.d/zz-forebay.conf` among the administrator's
//! units. Its name comes after `override.conf`, which `systemctl edit` writes: the last one counts.
//!
//! Its first lines say that it is ours and what `forebay disable` has to look into: the pool, and
//! the directories of the unit's files. A file of that name without them is somebody else's, and is
//! left alone.

use super::{
    command::ExecLine,
    name::{UnitName, escape_path},
    search::{FoundUnit, UnitFile, UnitRoot},
};
use crate::{failure::Failure, metrics::MetricsAddress};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Its name.
pub const FILE: &str = "zz-forebay.conf";
/// The first words of one of ours.
const OURS: &str = "# Written by forebay enable";
/// Bytes of it that name the pool, and a directory.
const POOL: &str = "# pool ";
const DATA: &str = "# data ";
/// The first words of a recovery's drop-in.
const GOES_WITH: &str = "# Goes with the unit";

/// The contents of a drop-in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitDropIn {
    /// The pool, as the unit sees it.
    pub pool: PathBuf,
    /// The directories of its files, as the unit sees them.
    pub data: Vec<PathBuf>,
}

/// The file name of the program that a drop-in of ours wraps.
pub fn program_of(text: &str) -> Option<&str> {
    let mut lines = text.lines();
    let command = lines.find_map(|line| line.strip_prefix("ExecStart=")?.split_once(" -- "));
    command?.1.split_whitespace().next()?.rsplit('/').next()
}

/// The parts of a drop-in's text.
pub struct DropInText<'a> {
    pub name: &'a UnitName,
    pub of: &'a UnitDropIn,
    /// `forebay`, as the unit sees it.
    pub forebay: &'a Path,
    pub profile: &'a str,
    /// The agent takes the library's place.
    pub is_notify: bool,
    /// The address that serves figures, if one does.
    pub metrics: Option<MetricsAddress>,
    pub exec: &'a ExecLine,
    /// Lines of `[Service]`, in their order, the last word being theirs.
    pub lines: &'a [String],
}

impl UnitDropIn {
    /// The path of the one of a unit.
    pub fn path(name: &UnitName, root: &UnitRoot) -> PathBuf {
        root.own().join(format!("{}.d", name.full())).join(FILE)
    }

    /// True if a file is one of ours.
    pub fn is_one(file: &UnitFile) -> bool {
        file.path.file_name().is_some_and(|name| name == FILE) && file.text.starts_with(OURS)
    }

    /// The one of a unit, if it has one.
    pub fn of(unit: &FoundUnit) -> Option<Self> {
        let file = unit.files.iter().find(|file| Self::is_one(file))?;
        Some(Self {
            pool: Self::pool_in(file)?,
            data: Self::data_in(file),
        })
    }

    /// The pool that a file's comment names.
    pub fn pool_in(file: &UnitFile) -> Option<PathBuf> {
        named(file, POOL).pop()
    }

    /// The directories that a file's comments name.
    pub fn data_in(file: &UnitFile) -> Vec<PathBuf> {
        named(file, DATA)
    }

    /// Refuses a unit whose command somebody else's drop-in sets.
    ///
    /// # Errors
    /// [`Failure::Failed`], which names it.
    pub fn check_others(unit: &FoundUnit) -> Result<(), Failure> {
        for file in unit.files.iter().skip(1).filter(|file| !Self::is_one(file)) {
            let mut settings = super::settings::UnitSettings::default();
            settings.add(&file.path, &file.text);
            let shown = file.path.display();
            if !settings.files_with("ExecStart").is_empty() {
                return Err(Failure::Failed(format!(
                    "{}: {shown} sets ExecStart as well, and one of the two would have no effect. Move its settings into a unit of your own in /etc/systemd/system, or wrap \
                     the command there by hand",
                    unit.name.stem()
                )));
            }
            if file.path.file_name().is_some_and(|name| name == FILE) {
                return Err(Failure::Failed(format!(
                    "{}: {shown} was not written by forebay enable. Rename it, and repeat this",
                    unit.name.stem()
                )));
            }
        }
        Ok(())
    }
}

fn named(file: &UnitFile, what: &str) -> Vec<PathBuf> {
    let lines = file.text.lines();
    let lines = lines.filter_map(|line| line.strip_prefix(what));
    lines.map(|path| PathBuf::from(path.trim())).collect()
}

/// All drop-ins of a system that `forebay enable` wrote.
pub fn all(root: &UnitRoot) -> impl Iterator<Item = UnitFile> {
    let directories = fs::read_dir(root.own()).into_iter().flatten().flatten();
    let files = directories.map(|entry| {
        let path = entry.path().join(FILE);
        let text = fs::read_to_string(&path).unwrap_or_default();
        UnitFile { path, text }
    });
    files.filter(UnitDropIn::is_one)
}

/// A drop-in of this system that names a pool, if there is one.
pub fn naming(pool: &Path) -> Option<PathBuf> {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let pool = real(pool);
    let root = UnitRoot::of(None).ok()?;
    let named = |file: &UnitFile| UnitDropIn::pool_in(file).map(|named| real(&named));
    let found = all(&root).find(|file| named(file).as_ref() == Some(&pool));
    found.map(|file| file.path)
}

/// True if the run of a drop-in serves figures at the address.
pub fn has_metrics(text: &str, address: MetricsAddress) -> bool {
    text.contains(&metrics_option(address))
}

/// As words of its command, with a space before and behind.
fn metrics_option(address: MetricsAddress) -> String {
    format!(" --metrics {} ", address.socket())
}

/// Refuses a path that a line of a unit could not have as it is.
///
/// # Errors
/// [`Failure::Usage`].
pub fn check_plain(path: &Path) -> Result<(), Failure> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@,=~".contains(c);
    let text = path
        .to_str()
        .filter(|text| text.chars().all(is_plain) && text.starts_with('/'));
    match text {
        Some(_) => Ok(()),
        None => Err(Failure::Usage(format!(
            "{}: a unit needs a whole path of letters, digits and / . _ - + : @ , = ~",
            path.display()
        ))),
    }
}

/// The unit that brings pools' records to the files of a directory.
pub fn recovery_of(directory: &Path) -> String {
    format!("forebay-recover@{}.service", escape_path(directory))
}

/// The drop-in of a directory's recovery, by which it waits for the pool's file system too: one
/// that is mounted with `nofail` may come after `local-fs.target`.
pub fn recovery_drop_in(
    name: &UnitName,
    directory: &Path,
    pool: &Path,
    root: &UnitRoot,
) -> UnitFile {
    let place = root.own().join(format!("{}.d", recovery_of(directory)));
    let text = format!(
        "{GOES_WITH} {}, which forebay enable and disable change: its pool may be mounted later than local-fs.target (nofail).\n\
         [Unit]\nRequiresMountsFor={}\n",
        name.stem(),
        pool.display()
    );
    UnitFile {
        path: place.join(recovery_file(name)),
        text,
    }
}

/// All drop-ins of recoveries that go with a unit, whatever directories it had when they were
/// written.
pub fn recovery_drop_ins(name: &UnitName, root: &UnitRoot) -> Vec<PathBuf> {
    let entries = fs::read_dir(root.own()).into_iter().flatten().flatten();
    let places = entries.filter(|entry| {
        let place = entry.file_name();
        let place = place.to_string_lossy();
        place.starts_with("forebay-recover@") && place.ends_with(".service.d")
    });
    let files = places.map(|entry| entry.path().join(recovery_file(name)));
    let is_ours = |path: &PathBuf| {
        fs::read_to_string(path).is_ok_and(|text| {
            let rest = text.strip_prefix(GOES_WITH);
            rest.is_some_and(|it| it.starts_with(&format!(" {},", name.stem())))
        })
    };
    let mut files: Vec<PathBuf> = files.filter(is_ours).collect();
    files.sort();
    files
}

fn recovery_file(name: &UnitName) -> String {
    format!("zz-forebay-{}.conf", name.plain())
}

/// The directory in which the unit's run leaves a note of itself.
pub fn run_directory(name: &UnitName) -> String {
    format!("forebay-{}", name.plain())
}

impl DropInText<'_> {
    /// The drop-in.
    pub fn render(&self) -> String {
        let stem = self.name.stem();
        let data = self.of.data.iter();
        let noted: String = data
            .clone()
            .map(|it| format!("{DATA}{}\n", it.display()))
            .collect();
        let recoveries: Vec<String> = data.clone().map(|it| recovery_of(it)).collect();
        let recoveries = recoveries.join(" ").replace('%', "%%");
        let mounts: Vec<String> = data.map(|it| it.display().to_string()).collect();
        let pool = self.of.pool.display();
        let run_directory = run_directory(self.name);
        let mut text = format!(
            "{OURS} {stem}. To take it away: forebay disable {stem}\n{POOL}{pool}\n{noted}\n\
             [Unit]\nRequiresMountsFor={pool} {}\n\
             # Acknowledged writes come to the files before anything else reads or changes them.\n\
             Requires={recoveries}\nAfter={recoveries}\n\n\
             [Service]\nExecStart=\nExecStart={}\n\
             # SIGTERM to forebay only: it passes it on, waits for the server, and drains.\nKillMode=mixed\n\
             RuntimeDirectory={run_directory}\nEnvironment=FOREBAY_RUN_DIR=/run/{run_directory}\n",
            mounts.join(" "),
            self.command()
        );
        for line in self.lines {
            text.push_str(line);
            text.push('\n');
        }
        text
    }

    /// The wrapped command.
    fn command(&self) -> String {
        let ExecLine {
            prefixes,
            starter,
            words,
            ..
        } = self.exec;
        let mut command = format!(
            "{prefixes}{starter}{} run --pool {} --profile {}",
            self.forebay.display(),
            self.of.pool.display(),
            self.profile
        );
        if self.is_notify {
            command.push_str(" --front-end notify");
        }
        let metrics = self.metrics.map(metrics_option);
        format!("{command}{}-- {words}", metrics.as_deref().unwrap_or(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(files: &[(&str, &str)]) -> FoundUnit {
        let files = files.iter().map(|(path, text)| UnitFile {
            path: PathBuf::from(path),
            text: (*text).to_owned(),
        });
        FoundUnit {
            name: UnitName::parse("db").unwrap(),
            files: files.collect(),
        }
    }

    #[test]
    fn what_was_written_is_read_again() {
        let of = UnitDropIn {
            pool: PathBuf::from("/p/db.pool"),
            data: vec![PathBuf::from("/var/lib/a-b"), PathBuf::from("/z")],
        };
        let exec = ExecLine {
            prefixes: "-".to_owned(),
            starter: String::new(),
            program: "/usr/bin/db".to_owned(),
            words: "/usr/bin/db --x \"%i\"".to_owned(),
        };
        let text = DropInText {
            name: &UnitName::parse("db").unwrap(),
            of: &of,
            forebay: Path::new("/usr/bin/forebay"),
            profile: "redis",
            is_notify: false,
            metrics: None,
            exec: &exec,
            lines: &["NotifyAccess=all".to_owned()],
        };
        let text = text.render();
        assert!(text.contains("\nExecStart=\nExecStart=-/usr/bin/forebay run --pool /p/db.pool --profile redis -- /usr/bin/db --x \"%i\"\n"), "{text}");
        assert!(
            text.contains(
                "After=forebay-recover@var-lib-a\\x2db.service forebay-recover@z.service\n"
            ),
            "{text}"
        );
        let unit = unit(&[
            ("/lib/db.service", ""),
            ("/etc/db.service.d/zz-forebay.conf", &text),
        ]);
        assert_eq!(UnitDropIn::of(&unit), Some(of));
        assert_eq!(program_of(&text), Some("db"));
        UnitDropIn::check_others(&unit).unwrap();
    }

    #[test]
    fn a_command_that_somebody_else_sets_is_left_alone() {
        for (path, text, word) in [
            (
                "/etc/db.service.d/override.conf",
                "[Service]\nExecStart=\n",
                "override.conf",
            ),
            (
                "/etc/db.service.d/zz-forebay.conf",
                "[Service]\nUser=x\n",
                "not written by forebay",
            ),
        ] {
            let unit = unit(&[("/lib/db.service", ""), (path, text)]);
            let Err(Failure::Failed(message)) = UnitDropIn::check_others(&unit) else {
                panic!("{path} is taken");
            };
            assert!(message.contains(word), "{message}");
            assert_eq!(UnitDropIn::of(&unit), None);
        }
        let unit = unit(&[
            ("/lib/db.service", ""),
            ("/etc/o.conf", "[Service]\nUser=x\n"),
        ]);
        UnitDropIn::check_others(&unit).unwrap();
    }

    #[test]
    fn a_path_that_a_unit_would_read_otherwise_is_refused() {
        for path in ["/a b", "/a%i", "/$x", "relative", "/a\"", "/a\\b", "/a\nb"] {
            assert!(check_plain(Path::new(path)).is_err(), "{path}");
        }
        check_plain(Path::new("/mnt/pmem0/db-1.pool")).unwrap();
    }

    #[test]
    fn recoveries_of_a_unit_are_found_whatever_its_directories_were() {
        let dir = tempfile::tempdir().unwrap();
        let root = UnitRoot::of(Some(dir.path())).unwrap();
        let write = |unit: &str, data: &str| {
            let name = UnitName::parse(unit).unwrap();
            let file = recovery_drop_in(&name, Path::new(data), Path::new("/p"), &root);
            crate::units::search::write_file(&file.path, &file.text).unwrap();
            file.path
        };
        let mut expected = vec![write("db", "/a"), write("db", "/b/c")];
        write("other", "/a");
        let strange = root.own().join("forebay-recover@z.service.d");
        fs::create_dir_all(&strange).unwrap();
        fs::write(strange.join("zz-forebay-db.conf"), "[Unit]\n").unwrap();
        expected.sort();
        let name = UnitName::parse("db").unwrap();
        assert_eq!(recovery_drop_ins(&name, &root), expected);
    }
}
