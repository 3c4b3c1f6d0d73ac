//! The search for a unit's files, in the directories that systemd looks into, below a root
//! (systemd.unit(5)).
//!
//! Where systemd runs, it says itself which files it has read; otherwise they are looked for as it
//! would. The unit's own file comes first, then its drop-ins by name, of one name the first found.

use super::{
    name::UnitName,
    settings::UnitSettings,
    systemd::{self, ShownUnit},
};
use crate::failure::Failure;
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

/// Directories of units, the first before the others.
const PLACES: [&str; 7] = [
    "etc/systemd/system",
    "run/systemd/system",
    "run/systemd/generator",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
    "run/systemd/generator.late",
];
/// The administrator's directory.
const OWN: &str = "etc/systemd/system";
/// The directory of units that systemd makes of init scripts.
const OF_SCRIPTS: &str = "generator.late";
/// Links that are followed at most.
const LINKS_MAX: usize = 40;

/// A file of a unit.
#[derive(Clone, Debug)]
pub struct UnitFile {
    /// Its path on this system.
    pub path: PathBuf,
    /// Its text.
    pub text: String,
}

/// A unit as it was found.
#[derive(Debug)]
pub struct FoundUnit {
    /// Its own name, whatever alias the user typed.
    pub name: UnitName,
    /// Its file, and after it its drop-ins in the order in which they are read.
    pub files: Vec<UnitFile>,
}

impl FoundUnit {
    /// The settings of all its files but those that `is_left_out`.
    pub fn settings_without(&self, is_left_out: impl Fn(&UnitFile) -> bool) -> UnitSettings {
        let mut settings = UnitSettings::default();
        for file in self.files.iter().filter(|file| !is_left_out(file)) {
            settings.add(&file.path, &file.text);
        }
        settings
    }
}

/// The reason that there are no files of a unit.
#[derive(Debug)]
pub enum UnfoundUnit {
    /// There is no such unit that could be started from files of its own.
    Gone(Failure),
    /// The files cannot be told.
    Unclear(Failure),
}

impl From<UnfoundUnit> for Failure {
    fn from(unfound: UnfoundUnit) -> Self {
        match unfound {
            UnfoundUnit::Gone(failure) | UnfoundUnit::Unclear(failure) => failure,
        }
    }
}

impl From<Failure> for UnfoundUnit {
    fn from(failure: Failure) -> Self {
        Self::Unclear(failure)
    }
}

/// The system whose units are meant.
#[derive(Clone, Debug)]
pub struct UnitRoot {
    root: PathBuf,
    is_live: bool,
}

impl UnitRoot {
    /// The one below `root`; without, this one.
    pub fn of(root: Option<&Path>) -> Result<Self, Failure> {
        let Some(root) = root else {
            return Ok(Self {
                root: PathBuf::from("/"),
                is_live: systemd::is_running(),
            });
        };
        let root =
            (root.canonicalize()).map_err(Failure::io("looking at --root", root.display()))?;
        Ok(Self {
            is_live: root == Path::new("/") && systemd::is_running(),
            root,
        })
    }

    /// True if systemd runs there.
    pub fn is_live(&self) -> bool {
        self.is_live
    }

    /// True if it is this system.
    pub fn is_this(&self) -> bool {
        self.root == Path::new("/")
    }

    /// A path of that system, as this one has it.
    pub fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// A path of this system, as that one has it; none if it is not in there.
    pub fn inside(&self, path: &Path) -> Option<PathBuf> {
        let below = path.strip_prefix(&self.root).ok()?;
        Some(Path::new("/").join(below))
    }

    /// The administrator's directory of units.
    pub fn own(&self) -> PathBuf {
        self.at(OWN)
    }

    fn places(&self) -> impl Iterator<Item = PathBuf> {
        PLACES.iter().map(|place| self.at(place))
    }

    /// The text of a unit of this name, if there is one that is not masked.
    pub fn plain_file(&self, name: &str) -> Option<UnitFile> {
        let path = self
            .places()
            .map(|at| at.join(name))
            .find(|it| it.exists())?;
        let text = fs::read_to_string(&path).ok()?;
        (!text.is_empty()).then_some(UnitFile { path, text })
    }

    /// Finds a unit and reads its files.
    ///
    /// # Errors
    /// There is none; it is masked; it is made of an init script; a file cannot be read.
    pub fn find(&self, typed: &UnitName) -> Result<FoundUnit, UnfoundUnit> {
        let (name, paths) = match self.is_live {
            true => self.ask(typed)?,
            false => self.look(typed)?,
        };
        if paths.first().is_some_and(|it| is_below(it, OF_SCRIPTS)) {
            return Err(UnfoundUnit::Gone(Failure::Failed(format!(
                "{}: systemd makes this unit of an init script, which forebay cannot wrap. Write a unit for the program, or start it by hand under forebay run",
                name.stem()
            ))));
        }
        let read = |path: PathBuf| match fs::read_to_string(&path) {
            Ok(text) => Ok(UnitFile { path, text }),
            Err(error) => Err(Failure::io("reading", path.display())(error)),
        };
        let files: Result<Vec<_>, _> = paths.into_iter().map(read).collect();
        Ok(FoundUnit {
            name,
            files: files?,
        })
    }

    /// Asks systemd.
    fn ask(&self, typed: &UnitName) -> Result<(UnitName, Vec<PathBuf>), UnfoundUnit> {
        let shown = ShownUnit::of(typed)?;
        match &*shown.load_state {
            "masked" => return Err(masked(typed)),
            "not-found" => return Err(self.unknown(typed)),
            "loaded" => {}
            state => {
                let why = format!(
                    "{}: systemd has not loaded it ({state}); systemctl status {0} says why",
                    typed.stem()
                );
                return Err(UnfoundUnit::Unclear(Failure::Failed(why)));
            }
        }
        if shown.is_stale {
            let why = format!(
                "{}: its files were changed since systemd read them, so its command is not the one that systemd has read. First: systemctl daemon-reload",
                typed.stem()
            );
            return Err(UnfoundUnit::Unclear(Failure::Failed(why)));
        }
        let name = UnitName::parse(&shown.id)?;
        Ok((name, shown.files))
    }

    /// Looks into its directories.
    fn look(&self, typed: &UnitName) -> Result<(UnitName, Vec<PathBuf>), UnfoundUnit> {
        let mut name = typed.clone();
        for _ in 0..LINKS_MAX {
            let found = self.fragment(&name).ok_or_else(|| self.unknown(typed))?;
            let leads_to = self.resolved(&found);
            if leads_to == self.at("dev/null") || is_empty(&leads_to) {
                return Err(masked(typed));
            }
            let called = leads_to.file_name().and_then(|it| it.to_str());
            let is_template = name.template().is_some_and(|(it, _)| Some(&*it) == called);
            match called.filter(|it| *it != name.full() && !is_template && it.ends_with(".service"))
            {
                // An alias: the unit's own name is that of the file that it leads to.
                Some(called) if !called.contains("@.") => name = UnitName::parse(called)?,
                _ => {
                    let mut paths = vec![leads_to];
                    paths.extend(self.drop_ins(&name));
                    return Ok((name, paths));
                }
            }
        }
        Err(self.unknown(typed))
    }

    fn fragment(&self, name: &UnitName) -> Option<PathBuf> {
        let template = name.template().map(|(template, _)| template);
        let names = [Some(name.full().to_owned()), template];
        let mut names = names.into_iter().flatten();
        names.find_map(|name| {
            let mut paths = self.places().map(|place| place.join(&name));
            paths.find(|path| fs::symlink_metadata(path).is_ok())
        })
    }

    /// The target of a path of this system within the root.
    fn resolved(&self, path: &Path) -> PathBuf {
        self.followed(&self.inside(path).unwrap_or_else(|| path.to_owned()))
    }

    /// The target of a path of that system, as this one has it: links are followed as they are
    /// there.
    pub fn followed(&self, path: &Path) -> PathBuf {
        let parts = |path: &Path| -> Vec<PathBuf> {
            let parts = path.components().rev();
            parts.map(|it| PathBuf::from(it.as_os_str())).collect()
        };
        let mut real = PathBuf::from("/");
        let mut left = parts(path);
        let mut links = 0;
        while let Some(part) = left.pop() {
            if part == Path::new(".") {
                continue;
            }
            if part == Path::new("..") {
                real.pop();
                continue;
            }
            // An absolute one begins anew.
            real.push(part);
            if links < LINKS_MAX
                && let Ok(to) = fs::read_link(self.at(&real))
            {
                links += 1;
                real.pop();
                left.extend(parts(&to));
            }
        }
        self.at(real)
    }

    fn drop_ins(&self, name: &UnitName) -> Vec<PathBuf> {
        let mut found: BTreeMap<std::ffi::OsString, PathBuf> = BTreeMap::new();
        for directory in directories(name) {
            for place in self.places() {
                let entries = fs::read_dir(place.join(&directory)).into_iter().flatten();
                for path in entries.flatten().map(|entry| entry.path()) {
                    let is_one = path.extension().is_some_and(|kind| kind == "conf");
                    if let Some(name) = path.file_name().filter(|_| is_one) {
                        found.entry(name.to_owned()).or_insert(path);
                    }
                }
            }
        }
        let is_masked = |path: &PathBuf| self.resolved(path) == self.at("dev/null");
        found.into_values().filter(|it| !is_masked(it)).collect()
    }

    fn unknown(&self, typed: &UnitName) -> UnfoundUnit {
        let places: Vec<String> = self.places().map(|it| it.display().to_string()).collect();
        let looked = match self.is_live {
            true => "systemd knows no such unit".to_owned(),
            false => format!("there is no such unit in {}", places.join(", ")),
        };
        UnfoundUnit::Gone(Failure::Failed(format!(
            "{}: {looked}. Is the database's package installed? systemctl list-unit-files --type=service lists units",
            typed.stem()
        )))
    }
}

/// The names of the directories of a unit's drop-ins, its own first.
fn directories(name: &UnitName) -> Vec<String> {
    let mut directories = vec![format!("{}.d", name.full())];
    directories.extend(name.template().map(|(template, _)| format!("{template}.d")));
    let mut prefix = name.prefix();
    while let Some((before, _)) = prefix.trim_end_matches('-').rsplit_once('-') {
        directories.push(format!("{before}-.service.d"));
        prefix = before;
    }
    directories.push("service.d".to_owned());
    directories
}

fn is_empty(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|it| it.is_file() && it.len() == 0)
}

fn is_below(path: &Path, directory: &str) -> bool {
    path.components().any(|part| part.as_os_str() == directory)
}

fn masked(name: &UnitName) -> UnfoundUnit {
    UnfoundUnit::Gone(Failure::Failed(format!(
        "{}: it is masked, so it cannot be started. If that is not meant to be: systemctl unmask {0}",
        name.stem()
    )))
}

/// Writes a file whole or not at all, durably, readable for all; makes its directory.
pub fn write_file(path: &Path, text: &str) -> Result<(), Failure> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    let failed = |error: io::Error| {
        let remedy = match error.kind() {
            io::ErrorKind::PermissionDenied => ". Run this as root",
            _ => "",
        };
        Failure::Failed(format!("writing {}: {error}{remedy}", path.display()))
    };
    fs::create_dir_all(directory).map_err(failed)?;
    let write = || -> io::Result<()> {
        use std::{io::Write, os::unix::fs::PermissionsExt};
        let mut file = tempfile::Builder::new()
            .prefix(".forebay-")
            .permissions(fs::Permissions::from_mode(0o644))
            .tempfile_in(directory)?;
        file.write_all(text.as_bytes())?;
        file.as_file().sync_all()?;
        file.persist(path).map_err(|error| error.error)?;
        fs::File::open(directory)?.sync_all()
    };
    write().map_err(failed)
}

/// Removes a file, durably, and its directory if nothing else is in it.
pub fn remove_file(path: &Path) -> Result<(), Failure> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(Failure::io("removing", path.display())(error));
        }
        _ => {}
    }
    fs::File::open(directory)
        .and_then(|open| open.sync_all())
        .map_err(Failure::io("syncing", directory.display()))?;
    if directory.extension().is_some_and(|kind| kind == "d") {
        drop(fs::remove_dir(directory));
    }
    Ok(())
}
