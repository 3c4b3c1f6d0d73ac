//! `forebay disable`: a unit's database without forebay again, and the proof that nothing of it is
//! left in a pool or a flash cache.
//!
//! (1) The unit is stopped. (2) What pools hold comes to the files. (3) The proof. (4) The drop-in
//! goes, and systemd reads its units again. (5) The proof once more: whoever started the unit
//! meanwhile is found. (6) The unit starts plainly, if it ran. Until (4) the unit starts under
//! forebay as before, whatever happens; whatever fails in (4) and (5), the drop-in is put back, and
//! if even that fails, the unit stays stopped.
//!
//! Of another root's system only (3) to (5) are done: its paths mean other files here.

use super::{
    drain_proof::{DrainProof, ProofScope, prove},
    drop_in::{program_of, recovery_drop_ins},
    enabled_unit::EnabledUnit,
    plan::{RECOVERY_FILE, is_own_recovery_unit},
    search::{UnitRoot, remove_file, write_file},
    systemd,
};
use crate::{failure::Failure, output, recover::for_directories, run, standard_error::complain};
use clap::Args;
use forebay_files::{
    marks,
    replay::{self, RecoverOptions},
};
use forebay_pool::PoolOptions;
use serde::Serialize;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Run a unit's database without forebay again, with a proof that nothing is left
#[derive(Args)]
#[command(
    long_about = "Undoes forebay enable: stops the unit after asking (or with --yes), brings pools' records to the files, takes the drop-in away, and starts the unit \
    plainly if it ran. \
                  Names the pools that it looked into, and says that none holds a record of the unit's files and no flash cache has newer pages. Only then the exit status is 0. \
                  If that cannot be shown, the drop-in stays, and the obstacle is named. The pool stays: forebay pool remove takes it away. \
                  The proof covers the pools and directories that are named: those of the drop-in, of marks in the directories, and of files that the pools' logs name.\n\n\
                  With --data, where there is no drop-in, it does the same without one: the unit is stopped, pools' records for the directories come to their files, and \
                  the unit starts again. \
                  With --root of another system nothing is brought to files, only proven: run it in that system (chroot) otherwise.",
    after_long_help = "Examples:\n  \
        forebay disable redis-server\n  \
        forebay disable redis-server --yes --json\n\n\
        Exit status: 0 nothing is left, which is proven, and the unit starts plainly; 1 something is left, or was given up (--pool-is-lost), or it could not be done; 2 the command line is wrong."
)]
pub struct DisableUnit {
    /// The unit
    unit: String,
    /// A directory of the unit's files, beside those that the drop-in names; may be given several
    /// times
    #[arg(long, value_name = "DIR")]
    data: Vec<PathBuf>,
    /// A pool that is not there is gone for good. ACKNOWLEDGED WRITES MAY BE MISSING
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

#[derive(Default, Serialize)]
struct DisableReport {
    unit: String,
    /// The files that were taken away.
    removed: Vec<PathBuf>,
    /// Nothing is left, and nothing was given up.
    is_proven: bool,
    proof: DrainProof,
    /// The unit runs again.
    is_started: bool,
    /// Further failures, in words.
    failures: Vec<String>,
    /// Commands that are left to the user.
    next: Vec<String>,
}

/// The fate of pools' records.
#[derive(Default)]
struct BroughtHome {
    /// With --pool-is-lost, in words.
    given_up: Vec<String>,
    /// In words.
    failed: Vec<String>,
}

impl DisableUnit {
    pub fn run(self) -> Result<(), Failure> {
        let root = UnitRoot::of(self.root.as_deref())?;
        let mut unit = EnabledUnit::of(&self.unit, &self.data, &root)?;
        let was_active = self.stop(&unit, &root)?;
        unit.add_logged_directories(&root);
        let mut report = DisableReport {
            unit: unit.name.full().to_owned(),
            ..DisableReport::default()
        };
        let home = self.bring_home(&unit, &root);
        report.proof = self.prove(&unit, &home, &root);
        report.proof.left.extend(home.failed.iter().cloned());
        let mut may_start = true;
        if report.proof.holds() {
            may_start = self.take_away(&unit, &home, &root, &mut report);
        }
        let is_left = !report.proof.holds();
        if is_left && !root.is_this() {
            report.failures.push(format!(
                "with --root nothing is brought to files: its paths mean other files here. Run this in that system: chroot {} forebay disable {}",
                root.at("/").display(),
                unit.name.stem()
            ));
        }
        report.is_proven = report.proof.is_proven();
        match may_start {
            true => start(&unit, &root, was_active, &mut report),
            false => report.next.push(format!(
                "systemctl daemon-reload && systemctl start {}",
                unit.name.stem()
            )),
        }
        let is_done = report.is_proven && report.failures.is_empty();
        output::verdict(self.json, &report, is_done, DisableReport::human)
    }

    fn prove(&self, unit: &EnabledUnit, home: &BroughtHome, root: &UnitRoot) -> DrainProof {
        prove(&ProofScope {
            directories: &unit.data,
            pools: &unit.pools,
            program: unit.drop_in.as_ref().and_then(|it| program_of(&it.text)),
            is_lost: self.pool_is_lost,
            given_up: &home.given_up,
            root,
        })
    }

    /// True if the unit ran.
    fn stop(&self, unit: &EnabledUnit, root: &UnitRoot) -> Result<bool, Failure> {
        let stem = unit.name.stem();
        if !root.is_live() {
            return Ok(false);
        }
        let check_ended = || match systemd::process_of(&unit.name) {
            Some(process) => Err(Failure::Failed(format!(
                "{stem} is stopped, and its process {process} runs still (a unit with SendSIGKILL=no kills none): wait for its end, or end it, and repeat this. The drop-in stays"
            ))),
            None => Ok(()),
        };
        if !systemd::is_active(&unit.name) {
            return check_ended().map(|()| false);
        }
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
            false => check_ended().map(|()| true),
        }
    }

    /// Brings what pools hold to the files. What cannot be brought there the proof finds.
    fn bring_home(&self, unit: &EnabledUnit, root: &UnitRoot) -> BroughtHome {
        let mut home = BroughtHome::default();
        // What another system calls so are other files here.
        if !root.is_this() {
            return home;
        }
        match for_directories::bring_home(&unit.data, self.pool_is_lost) {
            Ok(found) => {
                found.left.iter().for_each(|it| complain!("{it}"));
                home.given_up = found.given_up;
            }
            // A directory that is not there the proof speaks of.
            Err(_) if unit.data.iter().any(|it| !it.exists()) => {}
            Err(failure) => home.failed.push(failure.to_string()),
        }
        for path in &unit.pools {
            // One that cannot be opened the proof speaks of.
            let Ok(pool) = marks::open_with(&PoolOptions::new(), path) else {
                continue;
            };
            match replay::recover(&pool, &RecoverOptions::default()) {
                Ok(lanes) => run::lanes(&lanes)
                    .iter()
                    .for_each(|line| complain!("{line}")),
                Err(error) => home.failed.push(error.to_string()),
            }
        }
        home
    }

    /// Takes the drop-in away, and proves once more. If anything fails, or something is left, the
    /// drop-in is put back. False if it could not be.
    fn take_away(
        &self,
        unit: &EnabledUnit,
        home: &BroughtHome,
        root: &UnitRoot,
        report: &mut DisableReport,
    ) -> bool {
        let Some(file) = &unit.drop_in else {
            report.tidied(tidy_recoveries(unit, root), root);
            return true;
        };
        let gone = remove_file(&file.path).and_then(|()| reload(root));
        report.proof = self.prove(unit, home, root);
        if let Err(failure) = gone {
            report.proof.left.push(failure.to_string());
        }
        if report.proof.holds() {
            report.removed.push(file.path.clone());
            let recoveries = tidy_recoveries(unit, root);
            let tidied = recoveries.and_then(|files| Ok([files, tidy(root)?].concat()));
            report.tidied(tidied, root);
            return true;
        }
        let back = write_file(&file.path, &file.text).and_then(|()| reload(root));
        if let Err(failure) = &back {
            report.failures.push(format!(
                "the drop-in {} could not be put back for sure, so {} IS NOT STARTED: {failure}. Mend that; the drop-in said:\n{}",
                file.path.display(),
                unit.name.stem(),
                file.text
            ));
        }
        back.is_ok()
    }
}

/// Has systemd read its units again, where it runs.
fn reload(root: &UnitRoot) -> Result<(), Failure> {
    match root.is_live() {
        true => systemd::tell(&["daemon-reload"]),
        false => Ok(()),
    }
}

/// Starts the unit if it ran: with the drop-in, if that stays, as it was.
fn start(unit: &EnabledUnit, root: &UnitRoot, was_active: bool, report: &mut DisableReport) {
    let stem = unit.name.stem();
    if was_active {
        match systemd::tell(&["start", "--", unit.name.full()]) {
            Ok(()) => report.is_started = true,
            Err(failure) => report.failures.push(format!(
                "{stem} was stopped, and does not start again: {failure}. journalctl -u {stem} says why"
            )),
        }
    } else if !report.removed.is_empty() {
        if !root.is_live() {
            report.next.push("systemctl daemon-reload".to_owned());
        }
        report.next.push(format!("systemctl start {stem}"));
    }
}

/// Takes away what has recoveries wait for the unit's pool, also of directories that it had before.
fn tidy_recoveries(unit: &EnabledUnit, root: &UnitRoot) -> Result<Vec<PathBuf>, Failure> {
    let there = recovery_drop_ins(&unit.name, root);
    there.iter().try_for_each(|path| remove_file(path))?;
    Ok(there)
}

/// Takes the unit of recoveries away, if `enable` wrote it and no unit asks for it any more.
fn tidy(root: &UnitRoot) -> Result<Vec<PathBuf>, Failure> {
    let recovery = root.own().join(RECOVERY_FILE);
    let is_ours = fs::read_to_string(&recovery).is_ok_and(|text| is_own_recovery_unit(&text));
    if !is_ours || is_needed(root) {
        return Ok(Vec::new());
    }
    remove_file(&recovery)?;
    Ok(vec![recovery])
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

impl DisableReport {
    /// Notes what was taken away besides the drop-in, and has systemd know it.
    fn tidied(&mut self, tidied: Result<Vec<PathBuf>, Failure>, root: &UnitRoot) {
        let is_known = match tidied {
            Ok(files) if files.is_empty() => Ok(()),
            Ok(files) => {
                self.removed.extend(files);
                reload(root)
            }
            Err(failure) => Err(failure),
        };
        if let Err(failure) = is_known {
            self.failures.push(failure.to_string());
        }
    }

    fn human(&self) -> String {
        let mut text = self.proof.human();
        for path in &self.removed {
            text.push_str(&format!("removed {}\n", path.display()));
        }
        text.extend(self.failures.iter().map(|it| format!("{it}\n")));
        let stem = self.unit.trim_end_matches(".service");
        match (self.proof.holds(), self.is_started) {
            (true, true) => text.push_str(&format!("{stem} was started, without forebay\n")),
            (true, false) => {}
            (false, _) => text.push_str(&format!(
                "{stem} stays under forebay. Follow the remedies above, and repeat this\n"
            )),
        }
        if !self.next.is_empty() {
            text.push_str(&format!("Next: {}\n", self.next.join(" && ")));
        }
        text
    }
}
