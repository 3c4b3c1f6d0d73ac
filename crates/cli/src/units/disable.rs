//! `forebay disable`: a unit's database without forebay again, and the proof that nothing of it is
//! left in a pool or a flash cache.
//!
//! (1) The unit is stopped. (2) What pools hold comes to the files. (3) The proof. (4) The drop-in
//! goes, and systemd reads its units again. (5) The proof once more: whoever started the unit
//! meanwhile is found, and the drop-in is put back. (6) The unit starts plainly, if it ran. Until
//! (4) the unit starts under forebay as before, whatever happens.

use super::{
    drop_in::{UnitDropIn, program_of},
    name::UnitName,
    plan::{RECOVERY_FILE, is_own_recovery_unit},
    proof::{DrainProof, prove},
    search::{FoundUnit, UnitFile, UnitRoot, remove_file, write_file},
    systemd,
};
use crate::{failure::Failure, output, recover::for_directories, run, standard_error::complain};
use clap::Args;
use forebay_files::replay::{self, RecoverOptions};
use forebay_pool::PoolOptions;
use serde::Serialize;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Run a unit's database without forebay again, with a proof that nothing is left
#[derive(Args)]
#[command(
    long_about = "Undoes forebay enable: stops the unit after asking (or with --yes), brings what pools hold to the files, takes the drop-in away, and starts the unit plainly if it ran. \
                  Says which pools were looked into, that none holds a record of the unit's files, and that no flash cache has newer pages. Only then the exit status is 0. \
                  If that cannot be shown, the drop-in stays, and what stands in the way is said. The pool stays: forebay pool remove takes it away.\n\n\
                  Repeated, or with --data where there is no drop-in, it only proves.",
    after_long_help = "Examples:\n  \
        forebay disable redis-server\n  \
        forebay disable redis-server --yes --json\n\n\
        Exit status: 0 nothing is left, and the unit starts plainly; 1 something is left, or it could not be done; 2 the command line is wrong."
)]
pub struct DisableUnit {
    /// The unit
    unit: String,
    /// A directory of the unit's files, beside those that the drop-in names; may be given several
    /// times
    #[arg(long, value_name = "DIR")]
    data: Vec<PathBuf>,
    /// The drop-in's pool is gone for good. ACKNOWLEDGED WRITES MAY BE MISSING
    #[arg(long)]
    pool_is_lost: bool,
    /// The system whose units are meant, if not this one
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Stop the unit, and start it again, without asking
    #[arg(long)]
    yes: bool,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct DisableReport {
    unit: String,
    /// The files that were taken away.
    removed: Vec<PathBuf>,
    /// Nothing is left.
    is_proven: bool,
    proof: DrainProof,
    /// The unit runs again.
    is_started: bool,
    /// Commands that are left to the user.
    next: Vec<String>,
}

/// What is to be undone.
struct EnabledUnit {
    name: UnitName,
    drop_in: Option<(UnitFile, UnitDropIn)>,
    /// The directories, and the pool, as this system has them.
    data: Vec<PathBuf>,
    pool: Option<PathBuf>,
}

impl EnabledUnit {
    fn of(wish: &DisableUnit, root: &UnitRoot) -> Result<Self, Failure> {
        let name = UnitName::parse(&wish.unit)?;
        // The package may be gone, and the drop-in be left.
        let alias = root.find(&name).map(|unit| unit.name);
        let name = alias.unwrap_or(name);
        let path = UnitDropIn::path(&name, root);
        let file = fs::read_to_string(&path)
            .ok()
            .map(|text| UnitFile { path, text });
        let drop_in = file.and_then(|file| {
            let files = vec![file.clone()];
            let name = name.clone();
            Some((file, UnitDropIn::of(&FoundUnit { name, files })?))
        });
        if let Some(relative) = wish.data.iter().find(|it| it.is_relative()) {
            return Err(Failure::Usage(format!(
                "--data {}: give the whole path of the directory",
                relative.display()
            )));
        }
        let of = drop_in.as_ref().map(|(_, of)| of);
        let named = of.map(|of| of.data.clone()).unwrap_or_default();
        let data = named
            .iter()
            .chain(&wish.data)
            .map(|it| root.at(it))
            .collect();
        let pool = of.map(|of| root.at(&of.pool));
        Ok(Self {
            name,
            drop_in,
            data,
            pool,
        })
    }
}

impl DisableUnit {
    pub fn run(self) -> Result<(), Failure> {
        let root = UnitRoot::of(self.root.as_deref())?;
        let unit = EnabledUnit::of(&self, &root)?;
        if unit.data.is_empty() {
            return Err(Failure::Failed(format!(
                "{0} was not enabled: there is no {1} of forebay enable. To prove all the same that nothing is left: forebay disable {0} --data DIR, with the directory of its files",
                unit.name.stem(),
                UnitDropIn::path(&unit.name, &root).display()
            )));
        }
        let was_active = self.stop(&unit, &root)?;
        self.bring_home(&unit, &root)?;
        let lost = self.pool_is_lost;
        let text = unit.drop_in.as_ref().map(|(file, _)| &*file.text);
        let program = text.and_then(program_of);
        let prove = || prove(&unit.data, unit.pool.as_deref(), program, lost, &root);
        let mut report = DisableReport {
            unit: unit.name.full().to_owned(),
            removed: Vec::new(),
            is_proven: false,
            proof: prove()?,
            is_started: false,
            next: Vec::new(),
        };
        if report.proof.holds() {
            report.removed = take_away(&unit, &root)?;
            report.proof = prove()?;
            match report.proof.holds() {
                true => report.removed.extend(tidy(&root)?),
                false => {
                    put_back(&unit, &root)?;
                    report.removed.clear();
                }
            }
        }
        report.is_proven = report.proof.holds();
        self.start(&unit, &root, was_active, &mut report)?;
        output::verdict(self.json, &report, report.is_proven, DisableReport::human)
    }

    /// True if the unit ran.
    fn stop(&self, unit: &EnabledUnit, root: &UnitRoot) -> Result<bool, Failure> {
        if !root.is_live() || !systemd::is_active(&unit.name) {
            return Ok(false);
        }
        let stem = unit.name.stem();
        if !self.yes
            && !systemd::asks(&format!(
                "Stop {stem} now, and start it again without forebay?"
            ))
        {
            return Err(Failure::Failed(format!(
                "{stem} runs, and is not stopped without asking: forebay disable {stem} --yes. Nothing was changed"
            )));
        }
        systemd::tell(&["stop", "--", unit.name.full()])?;
        match systemd::is_active(&unit.name) {
            true => Err(Failure::Failed(format!(
                "{stem} was stopped, and runs again: who starts it? systemctl status {stem}. Nothing was changed"
            ))),
            false => Ok(true),
        }
    }

    /// Brings what pools hold to the files. What cannot be brought there, the proof finds.
    fn bring_home(&self, unit: &EnabledUnit, root: &UnitRoot) -> Result<(), Failure> {
        // Pools that marks name are of this system only.
        if root.is_this() {
            for left in for_directories::bring_home(&unit.data, self.pool_is_lost)?.left {
                complain!("{left}");
            }
        }
        let Some(path) = unit.pool.as_deref().filter(|path| path.exists()) else {
            return Ok(());
        };
        let pool = PoolOptions::new().open(path)?;
        for line in run::lanes(&replay::recover(&pool, &RecoverOptions::default())?) {
            complain!("{line}");
        }
        Ok(())
    }

    fn start(
        &self,
        unit: &EnabledUnit,
        root: &UnitRoot,
        was_active: bool,
        report: &mut DisableReport,
    ) -> Result<(), Failure> {
        let stem = unit.name.stem();
        let is_removed = !report.removed.is_empty();
        if was_active {
            // With the drop-in, if that stays: then it is as it was.
            systemd::tell(&["start", "--", unit.name.full()])?;
            report.is_started = true;
        } else if is_removed {
            if !root.is_live() {
                report.next.push("systemctl daemon-reload".to_owned());
            }
            report.next.push(format!("systemctl start {stem}"));
        }
        Ok(())
    }
}

/// Takes the drop-in away; systemd reads its units again.
fn take_away(unit: &EnabledUnit, root: &UnitRoot) -> Result<Vec<PathBuf>, Failure> {
    let Some((file, _)) = &unit.drop_in else {
        return Ok(Vec::new());
    };
    remove_file(&file.path)?;
    if root.is_live() {
        systemd::tell(&["daemon-reload"])?;
    }
    Ok(vec![file.path.clone()])
}

/// Takes the unit of recoveries away, if `enable` wrote it and no unit asks for it any more.
fn tidy(root: &UnitRoot) -> Result<Option<PathBuf>, Failure> {
    let recovery = root.own().join(RECOVERY_FILE);
    let is_ours = fs::read_to_string(&recovery).is_ok_and(|text| is_own_recovery_unit(&text));
    if !is_ours || is_needed(root) {
        return Ok(None);
    }
    remove_file(&recovery)?;
    Ok(Some(recovery))
}

/// True if another unit of the administrator's asks for recoveries.
fn is_needed(root: &UnitRoot) -> bool {
    let entries = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
    let mut files = entries(&root.own()).flat_map(|entry| match entry.path() {
        path if path.is_dir() => entries(&path).map(|it| it.path()).collect(),
        path => vec![path],
    });
    files.any(|path| {
        let is_itself = path.file_name().is_some_and(|name| name == RECOVERY_FILE);
        // What cannot be read may.
        !is_itself
            && path.is_file()
            && fs::read_to_string(&path).map_or(true, |text| text.contains("forebay-recover@"))
    })
}

fn put_back(unit: &EnabledUnit, root: &UnitRoot) -> Result<(), Failure> {
    let Some((file, _)) = &unit.drop_in else {
        return Ok(());
    };
    write_file(&file.path, &file.text)?;
    match root.is_live() {
        true => systemd::tell(&["daemon-reload"]),
        false => Ok(()),
    }
}

impl DisableReport {
    fn human(&self) -> String {
        let mut text = self.proof.human();
        for path in &self.removed {
            text.push_str(&format!("removed {}\n", path.display()));
        }
        let stem = self.unit.trim_end_matches(".service");
        match (self.is_proven, self.is_started) {
            (true, true) => text.push_str(&format!("{stem} runs without forebay\n")),
            (true, false) => {}
            (false, _) => text.push_str(&format!("{stem} stays under forebay. End what uses the pool, follow what is said above, and repeat this\n")),
        }
        if !self.next.is_empty() {
            text.push_str(&format!("Next: {}\n", self.next.join(" && ")));
        }
        text
    }
}
