//! `forebay enable`.

use super::{
    drop_in::run_directory,
    plan::{EnablePlan, PlanWish},
    search::UnitRoot,
    systemd,
};
use crate::{failure::Failure, metrics::MetricsAddress, output, run::FrontEnd, size};
use clap::Args;
use forebay_files::{
    policy::patterns_in_short,
    supervisor::{self, FoundRuns},
};
use serde::Serialize;
use std::{
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

/// A restarted unit's run is waited for this long.
const RUN_WAIT: Duration = Duration::from_secs(20);
const AGAIN: Duration = Duration::from_millis(50);
/// And has to answer for so long: a server may end at once.
const RUN_STANDS: Duration = Duration::from_millis(500);

/// Run a systemd unit's database under forebay from now on
#[derive(Args)]
#[command(
    long_about = "Has a database's own systemd unit start its program under forebay run: writes a drop-in, /etc/systemd/system/UNIT.d/zz-forebay.conf, and makes a pool. \
                  The distribution's unit is not changed. Records that an earlier run left in a pool come to their files before the unit begins. \
                  Known are redis-server, valkey-server, mariadb, postgresql@VERSION-CLUSTER, and etcd (by an agent, which is experimental); others need --profile and --data.\n\n\
                  The files are shown, and the durability that they bring. They are written, and the unit is restarted, after asking, or with --yes; until then nothing is changed. \
                  A unit that cannot be wrapped (several ExecStart lines, a prefix that changes the user, somebody else's drop-in with an ExecStart, a masked unit) is refused, and nothing is changed. \
                  Where systemd does not run, only --root writes them, for the next boot of that system, and the commands are said.",
    after_long_help = "Examples:\n  \
        forebay enable redis-server\n  \
        forebay enable postgresql@15-main --dry-run\n  \
        forebay enable mariadb --pool /fast/mariadb.pool --yes\n  \
        forebay enable postgresql@15-main --yes --no-restart\n  \
        forebay enable my-db --profile rocksdb --data /var/lib/my-db\n\n\
        Exit status: 0 it is enabled; 1 it is not, or the restart failed; 2 the command line is wrong."
)]
pub struct EnableUnit {
    /// The unit
    unit: String,
    /// The pool: a path, or the name of one where forebay doctor finds that it is best [default:
    /// the unit's name]
    #[arg(long, value_name = "NAME|PATH")]
    pool: Option<String>,
    /// Bytes of a pool that is made [default: 128MiB on a disk, 64MiB on persistent memory]
    #[arg(long, value_name = "SIZE", value_parser = size::parse_positive)]
    size: Option<u64>,
    /// Measure this directory, too, as a place for the pool; may be given several times
    #[arg(long, value_name = "DIR")]
    beside: Vec<PathBuf>,
    /// The directory of the unit's files, if it is not known; may be given several times
    #[arg(long, value_name = "DIR")]
    data: Vec<PathBuf>,
    /// The profile, if the program's name does not say it
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// The front end that sees the program's calls, as of forebay run
    #[arg(long, value_name = "HOW", value_enum, default_value_t)]
    front_end: FrontEnd,
    /// Have the run serve figures for Prometheus, as of forebay run: a port, or an address
    ///
    /// It is the unit's own: two units need two ports. A later forebay enable without this takes it
    /// away again.
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<MetricsAddress>,
    /// The system whose units are meant, if not the one that runs here: an image's directory, or /
    /// in a chroot
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Show the plan; measuring writes a file beside the data, and removes it
    #[arg(long)]
    dry_run: bool,
    /// Write the files and restart the unit without asking
    #[arg(long, conflicts_with = "dry_run")]
    yes: bool,
    /// Write the files, and leave the restart, with which it takes effect, to you
    #[arg(long, conflicts_with = "dry_run")]
    no_restart: bool,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct EnableReport {
    unit: String,
    profile: String,
    absorbs: Vec<String>,
    user: String,
    data: Vec<PathBuf>,
    pool: PathBuf,
    /// In a sentence.
    pool_is: String,
    /// The losses that acknowledged writes survive, in a sentence.
    survives: String,
    /// The same as a word, as `forebay status` has it.
    persistence: &'static str,
    files: Vec<EnabledFile>,
    notes: Vec<String>,
    /// The files are written.
    is_enabled: bool,
    /// The unit runs so.
    is_restarted: bool,
    /// Commands that are left to the user.
    next: Vec<String>,
}

#[derive(Serialize)]
struct EnabledFile {
    #[serde(serialize_with = "forebay_files::readable")]
    path: PathBuf,
    text: String,
}

impl EnableUnit {
    pub fn run(self) -> Result<(), Failure> {
        let root = UnitRoot::of(self.root.as_deref())?;
        if self.root.is_none() && !root.is_live() {
            return Err(no_systemd());
        }
        if root.is_this() && !self.dry_run && !rustix::process::geteuid().is_root() {
            return Err(Failure::Failed(
                "run this as root: it writes to /etc/systemd/system, and makes a pool for the unit's user; --dry-run shows the plan"
                    .to_owned(),
            ));
        }
        let plan = EnablePlan::make(
            &PlanWish {
                unit: &self.unit,
                pool: self.pool.as_deref(),
                size: self.size,
                beside: &self.beside,
                data: &self.data,
                profile: self.profile.as_deref(),
                front_end: self.front_end,
                metrics: self.metrics,
            },
            &root,
        )?;
        let mut report = EnableReport::of(&plan);
        if self.dry_run {
            report.next.push(format!("forebay enable {}", self.unit));
            return output::report(self.json, &report, EnableReport::human);
        }
        if root.is_live() {
            self.ask(&plan, &report)?;
        }
        let persistence = plan.pool.make(&plan.owner, &root)?;
        report.survives = persistence.to_string();
        report.persistence = persistence.name();
        plan.write(&root)?;
        report.is_enabled = true;
        let stem = plan.name.stem();
        let by_hand = format!("systemctl restart {stem}");
        if !root.is_live() {
            report.next = vec!["systemctl daemon-reload".to_owned(), by_hand];
            return output::report(self.json, &report, EnableReport::human);
        }
        if self.no_restart {
            // What starts it meanwhile, its own Restart= too, starts it under forebay.
            reload(&plan)?;
            report.next.push(by_hand);
            return match self.json {
                true => output::report(true, &report, EnableReport::human),
                false => output::print(&format!(
                    "{stem} was not restarted, and runs under forebay from its next start on.{}",
                    report.what_is_next()
                )),
            };
        }
        restart(&plan, &root)?;
        report.is_restarted = true;
        match self.json {
            true => output::report(true, &report, EnableReport::human),
            false => output::print(&format!(
                "{stem} runs under forebay. {}\n",
                report.sentences()[0]
            )),
        }
    }

    /// Shows what is about to be done, and asks. Nothing is changed before the answer.
    fn ask(&self, plan: &EnablePlan, report: &EnableReport) -> Result<(), Failure> {
        let stem = plan.name.stem();
        if !self.json {
            output::print(&report.human())?;
        }
        let (what, question) = match self.no_restart {
            true => (
                "written",
                format!("Write this, and leave {stem} running as it is?"),
            ),
            false => ("restarted", format!("Write this, and restart {stem} now?")),
        };
        match self.yes || systemd::asks(&question) {
            true => Ok(()),
            false => Err(Failure::Failed(format!(
                "{stem} is not {what} without asking: forebay enable {stem} --yes, with the options as they are. Nothing was changed"
            ))),
        }
    }
}

/// Of a system without systemd: what there is to do.
fn no_systemd() -> Failure {
    Failure::Failed(
        "systemd does not run here (/run/systemd/system is missing), so no unit can be restarted, and nothing was changed. In an image or a chroot: --root / writes the files for its next boot. Without systemd start the program by hand: forebay run --pool POOL -- PROGRAM (docs/operations.md)"
            .to_owned(),
    )
}

/// Has systemd read what was written.
fn reload(plan: &EnablePlan) -> Result<(), Failure> {
    let written: Vec<String> = (plan.files.iter())
        .map(|file| file.path.display().to_string())
        .collect();
    systemd::tell(&["daemon-reload"]).map_err(|failure| {
        Failure::Failed(format!(
            "{failure}, so systemd has not read the written files ({}); {stem} was not restarted, and runs as before. Once systemctl daemon-reload succeeds: systemctl \
             restart {stem} to go on, or forebay disable {stem} to go back",
            written.join(", "),
            stem = plan.name.stem()
        ))
    })
}

/// Restarts the unit, and waits until its run answers.
fn restart(plan: &EnablePlan, root: &UnitRoot) -> Result<(), Failure> {
    let stem = plan.name.stem();
    let log = match &plan.log {
        Some(log) => format!("journalctl -u {stem} and {}", log.display()),
        None => format!("journalctl -u {stem}"),
    };
    let way_back = format!("{log} say why. To go back: forebay disable {stem} --yes");
    reload(plan)?;
    systemd::tell(&["restart", "--", plan.name.full()]).map_err(|failure| {
        Failure::Failed(format!(
            "{stem} did not start under forebay ({failure}): {way_back}"
        ))
    })?;
    let run_dir = root.at("/run").join(run_directory(&plan.name));
    let began = Instant::now();
    let mut since = None;
    while began.elapsed() < RUN_WAIT {
        let found = supervisor::status_of_running(&run_dir);
        // One that is there and does not answer from here may have a network of its own.
        let is_there = |found: &FoundRuns| {
            found.statuses.iter().any(|it| it.run_dir == run_dir) || !found.silent.is_empty()
        };
        since = (found.is_ok_and(|it| is_there(&it)) && systemd::is_active(&plan.name))
            .then(|| since.unwrap_or_else(Instant::now));
        if since.is_some_and(|since| since.elapsed() >= RUN_STANDS) {
            return Ok(());
        }
        thread::sleep(AGAIN);
    }
    Err(Failure::Failed(format!(
        "{stem} was restarted, and no run of forebay answers for it in {} ({} s): {way_back}",
        run_dir.display(),
        RUN_WAIT.as_secs()
    )))
}

impl EnableReport {
    fn of(plan: &EnablePlan) -> Self {
        let files = plan.files.iter().map(|file| EnabledFile {
            path: file.path.clone(),
            text: file.text.clone(),
        });
        Self {
            unit: plan.name.full().to_owned(),
            profile: plan.policy.profile.clone(),
            absorbs: plan.policy.patterns.clone(),
            user: plan.owner.name.clone(),
            data: plan.data.clone(),
            pool: plan.pool.path.clone(),
            pool_is: plan.pool.sentence(),
            survives: plan.pool.persistence.to_string(),
            persistence: plan.pool.persistence.name(),
            files: files.collect(),
            notes: plan.notes.clone(),
            is_enabled: false,
            is_restarted: false,
            next: Vec::new(),
        }
    }

    fn human(&self) -> String {
        let data: Vec<String> = self
            .data
            .iter()
            .map(|it| it.display().to_string())
            .collect();
        let mut text = output::fields(&[
            ("unit", format!("{}, as {}", self.unit, self.user)),
            (
                "absorbed",
                format!(
                    "{} (profile {})",
                    patterns_in_short(&self.absorbs),
                    self.profile
                ),
            ),
            ("in", data.join(", ")),
            ("pool", self.pool_is.clone()),
        ]);
        for file in &self.files {
            let done = if self.is_enabled {
                "written"
            } else {
                "to be written"
            };
            text.push_str(&format!(
                "\n--- {} ({done})\n{}",
                file.path.display(),
                file.text
            ));
        }
        text.push_str("---\n\nWhat you have then\n");
        for sentence in self.sentences() {
            text.push_str(&format!("- {sentence}\n"));
        }
        text + &self.what_is_next()
    }

    fn sentences(&self) -> Vec<String> {
        let stem = self.unit.trim_end_matches(".service");
        let own = [
            format!(
                "A write that the server has synced is in the pool when its sync returns, which {}. The server's files are synced behind",
                self.survives
            ),
            format!(
                "After a crash {stem} starts when that came to its files, and does not start if it cannot: forebay recover --for {} says why",
                self.data[0].display()
            ),
            format!(
                "To look at it: forebay status --all. To take it away: forebay disable {stem}; a start of the program by hand, without either, lacks the pool's records"
            ),
        ];
        own.into_iter().chain(self.notes.iter().cloned()).collect()
    }

    fn what_is_next(&self) -> String {
        match self.next.is_empty() {
            true => String::new(),
            false => format!("\nNext: {}\n", self.next.join(" && ")),
        }
    }
}
