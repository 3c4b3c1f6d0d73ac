//! A unit as `forebay disable` finds it: its drop-in, and the pools and directories that have to be
//! looked into.
//!
//! What is not known for sure is refused: a file at the drop-in's place that cannot be read or is
//! somebody else's, and a unit whose own files start the program under forebay.

use super::{
    command::{options_of, runs_forebay},
    drop_in::UnitDropIn,
    name::UnitName,
    search::{FoundUnit, UnfoundUnit, UnitFile, UnitRoot},
};
use crate::failure::Failure;
use forebay_files::marks;
use forebay_pool::PoolOptions;
use std::{collections::BTreeSet, fs, io, path::PathBuf};

/// The unit and drop-in to be undone.
pub struct EnabledUnit {
    pub name: UnitName,
    pub drop_in: Option<UnitFile>,
    /// The directories of its files, as this system has them.
    pub data: Vec<PathBuf>,
    /// The pools that the drop-in names, as this system has them.
    pub pools: Vec<PathBuf>,
}

impl EnabledUnit {
    /// Finds it; `more` are directories that the user names.
    ///
    /// # Errors
    /// The unit's files or the drop-in cannot be read; the unit starts its program under forebay by
    /// another line than the drop-in's; it was not enabled, and no directory is named.
    pub fn of(typed: &str, more: &[PathBuf], root: &UnitRoot) -> Result<Self, Failure> {
        if let Some(relative) = more.iter().find(|it| it.is_relative()) {
            return Err(Failure::Usage(format!(
                "--data {}: give the whole path of the directory",
                relative.display()
            )));
        }
        let typed = UnitName::parse(typed)?;
        let name = match root.find(&typed) {
            Ok(unit) => {
                check_command(&unit)?;
                unit.name
            }
            // The package may be gone, and the drop-in be left.
            Err(UnfoundUnit::Gone(_)) => typed,
            Err(UnfoundUnit::Unclear(failure)) => return Err(failure),
        };
        let drop_in = own_drop_in(&name, root)?;
        let (mut pools, mut data) = (BTreeSet::new(), Vec::new());
        if let Some(file) = &drop_in {
            let named = pools_in(file, &name)?;
            pools.extend(named.iter().map(|it| root.at(it)));
            data.extend(UnitDropIn::data_in(file).iter().map(|it| root.at(it)));
        }
        data.extend(more.iter().map(|it| root.at(it)));
        if drop_in.is_none() && data.is_empty() {
            return Err(Failure::Failed(format!(
                "{0} was not enabled: there is no {1} of forebay enable. To prove all the same that nothing is left: forebay disable {0} --data DIR, with the directory of its files",
                name.stem(),
                UnitDropIn::path(&name, root).display()
            )));
        }
        Ok(Self {
            name,
            drop_in,
            data,
            pools: pools.into_iter().collect(),
        })
    }

    /// Adds the directories of files that the pools' logs name: the unit's directories in the
    /// drop-in may not be all.
    pub fn add_logged_directories(&mut self, root: &UnitRoot) {
        for pool in &self.pools {
            // One that cannot be opened the proof finds.
            let Ok(pool) = marks::open_with(&PoolOptions::new(), pool) else {
                continue;
            };
            for directory in marks::directories(&pool) {
                let here = root.at(directory);
                if here.is_dir() && !self.data.iter().any(|known| here.starts_with(known)) {
                    self.data.push(here);
                }
            }
        }
    }
}

/// Refuses a unit that runs under forebay by what others wrote.
fn check_command(unit: &FoundUnit) -> Result<(), Failure> {
    let settings = unit.settings_without(UnitDropIn::is_one);
    if !settings
        .list("ExecStart")
        .iter()
        .any(|line| runs_forebay(line))
    {
        return Ok(());
    }
    let says = |file: &&UnitFile| runs_forebay(&file.text) && !UnitDropIn::is_one(file);
    let files: Vec<String> = (unit.files.iter().filter(says))
        .map(|file| file.path.display().to_string())
        .collect();
    Err(Failure::Failed(format!(
        "{0}: its ExecStart in {1} starts it under forebay run. forebay enable did not write that, and this does not take it away. By hand: systemctl stop {0}; take \
         forebay run out of that line; systemctl daemon-reload; forebay disable {0} --data DIR, which brings home the records that are left and proves that none is; then \
         start it. Nothing was changed",
        unit.name.stem(),
        files.join(", ")
    )))
}

/// The drop-in, if there is one.
fn own_drop_in(name: &UnitName, root: &UnitRoot) -> Result<Option<UnitFile>, Failure> {
    let path = UnitDropIn::path(name, root);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Failure::io("reading", path.display())(error)),
    };
    let file = UnitFile { path, text };
    match UnitDropIn::is_one(&file) {
        true => Ok(Some(file)),
        false => Err(Failure::Failed(format!(
            "{0}: {1} was not written by forebay enable, or its first line was changed. Look at its ExecStart; rename it, systemctl daemon-reload, and repeat this",
            name.stem(),
            file.path.display()
        ))),
    }
}

/// The pools of the drop-in's comment and of its command, which an administrator may have changed.
fn pools_in(file: &UnitFile, name: &UnitName) -> Result<Vec<PathBuf>, Failure> {
    let mut pools: Vec<PathBuf> = UnitDropIn::pool_in(file).into_iter().collect();
    let mut settings = super::settings::UnitSettings::default();
    settings.add(&file.path, &file.text);
    for line in settings.list("ExecStart") {
        for pool in options_of(line, "--pool") {
            let expanded = name.expand(&pool).map(PathBuf::from);
            pools.extend(expanded.filter(|it| it.is_absolute()));
        }
    }
    match pools.is_empty() {
        false => Ok(pools),
        true => Err(Failure::Failed(format!(
            "{} names no pool, neither in a line \"# pool\" nor in its ExecStart, so the place of acknowledged writes is not known. Put the line there, and repeat this",
            file.path.display()
        ))),
    }
}
