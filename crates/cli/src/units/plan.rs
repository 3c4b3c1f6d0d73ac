//! The plan of `forebay enable`: the pool, the files, and notes for the user.
//!
//! Making a plan changes nothing, but that a measurement writes a file to the data's directory and
//! removes it.

use super::{
    checks::{check_data, check_program, check_reachable, installed},
    distribution_defaults::{UnitProgram, profile_of_unit},
    drop_in::{self, DropInText, UnitDropIn, has_metrics, recovery_drop_in, recovery_drop_ins},
    name::UnitName,
    parsed_unit::UnderstoodUnit,
    pool_place::{PlannedPool, PoolWish},
    sandbox::{self, SandboxNeeds},
    search::{FoundUnit, UnitFile, UnitRoot, remove_file, write_file},
};
use crate::{
    failure::Failure,
    metrics::{MetricsAddress, MetricsListener},
    run::FrontEnd,
    users::SystemUser,
};
use forebay_files::{
    policy::{self, AbsorbPolicy, PolicyConfig, PolicyRequest},
    supervisor::RunFrontEnd,
};
use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};

/// The unit of recoveries, as the examples have it.
const RECOVERY: &str = include_str!("../../../../examples/systemd/forebay-recover@.service");
/// Its name, and the program's path in it.
pub const RECOVERY_FILE: &str = "forebay-recover@.service";
const RECOVERY_PROGRAM: &str = "/usr/bin/forebay";

/// The user's wishes.
pub struct PlanWish<'a> {
    pub unit: &'a str,
    /// A name, or a path.
    pub pool: Option<&'a str>,
    /// Bytes of a pool that is made.
    pub size: Option<u64>,
    /// Places to be measured.
    pub beside: &'a [PathBuf],
    pub data: &'a [PathBuf],
    pub profile: Option<&'a str>,
    pub front_end: FrontEnd,
    pub metrics: Option<MetricsAddress>,
}

/// A unit that can be wrapped, and how.
pub struct EnablePlan {
    pub name: UnitName,
    pub policy: AbsorbPolicy,
    pub owner: SystemUser,
    pub data: Vec<PathBuf>,
    pub pool: PlannedPool,
    /// The files to be written, the unit's drop-in last.
    pub files: Vec<UnitFile>,
    pub notes: Vec<String>,
    /// The file that has the server's output, if that is not the journal.
    pub log: Option<PathBuf>,
}

impl EnablePlan {
    /// Makes it.
    ///
    /// # Errors
    /// The unit cannot be wrapped, or the pool not be used: in a sentence.
    pub fn make(wish: &PlanWish<'_>, root: &UnitRoot) -> Result<Self, Failure> {
        let unit = root.find(&UnitName::parse(wish.unit)?)?;
        let understood = UnderstoodUnit::of(&unit, root)?;
        let name = &unit.name;
        let policy = policy_of(wish, &understood, name)?;
        let owner = understood.owner(name, root)?;
        check_metrics(wish.metrics, &owner)?;
        check_port(wish.metrics, &unit, root)?;
        let program = UnitProgram {
            name,
            exec: &understood.exec,
            settings: &understood.settings,
            root,
        };
        let data = data_of(wish, &understood, &program, &policy.profile)?;
        check_data(name, &data, &owner, root)?;
        let front_end = check_program(&understood.exec, wish.front_end, root)?;
        let is_notify = front_end.front_end == RunFrontEnd::Agent;
        let [forebay, library] = installed(&owner, root)?;
        let pool = choose_pool(wish, &policy, &data[0], name, &owner, root)?;
        let of = UnitDropIn {
            pool: pool.path.clone(),
            data: data.clone(),
        };
        check_same_pool(&unit, &of)?;
        let answer = sandbox::answer(
            &understood.settings,
            &SandboxNeeds {
                unit: name.stem(),
                pool: &pool.path,
                is_device: pool.is_device,
                programs: [&forebay, &library],
                metrics: wish.metrics,
            },
        )?;
        let lines = understood.lines(&owner).into_iter().chain(answer.lines);
        let text = DropInText {
            name,
            of: &of,
            forebay: &forebay,
            profile: &policy.profile,
            is_notify,
            metrics: wish.metrics,
            exec: &understood.exec,
            lines: &lines.collect::<Vec<_>>(),
        }
        .render();
        let path = UnitDropIn::path(name, root);
        let mut files: Vec<UnitFile> = recovery_unit(&forebay, root)?.into_iter().collect();
        let waits = data.iter();
        files.extend(waits.map(|it| recovery_drop_in(name, it, &pool.path, root)));
        files.push(UnitFile { path, text });
        let mut notes = program.advice(&policy.profile);
        notes.extend(is_notify.then(|| agent_note(name, &front_end.reason)));
        notes.extend(own_disk_note(&pool, &policy, &data[0], root));
        notes.extend(answer.notes);
        notes.extend(understood.notes());
        Ok(Self {
            notes,
            log: understood.cluster.map(|it| it.log),
            name: unit.name,
            policy,
            owner,
            data,
            pool,
            files,
        })
    }

    /// Writes the files. What recoveries of directories that the unit had before waited for goes.
    ///
    /// # Errors
    /// [`Failure::Failed`]: a file could not be written or removed; those before it are.
    pub fn write(&self, root: &UnitRoot) -> Result<(), Failure> {
        let is_kept = |path: &PathBuf| self.files.iter().any(|file| file.path == *path);
        for path in recovery_drop_ins(&self.name, root) {
            if !is_kept(&path) {
                remove_file(&path)?;
            }
        }
        (self.files.iter()).try_for_each(|file| write_file(&file.path, &file.text))
    }
}

/// The policy for files to absorb: by the profile that the user names, or that the unit or its
/// program says.
fn policy_of(
    wish: &PlanWish<'_>,
    unit: &UnderstoodUnit,
    name: &UnitName,
) -> Result<AbsorbPolicy, Failure> {
    let policy = policy::choose(PolicyRequest {
        programs: &[OsStr::new(unit.exec.program_name())],
        profile: wish.profile.or_else(|| profile_of_unit(name)),
        config: &PolicyConfig::default(),
        absorb: &[],
    })?;
    if policy.profile == policy::ANY && wish.profile.is_none() {
        return Err(Failure::Usage(format!(
            "{}: no profile is for the program {}, so its logs are not known. Name one with --profile; --profile any takes files with the name of a known database's log",
            name.stem(),
            unit.exec.program_name()
        )));
    }
    Ok(policy)
}

/// Refuses an address that the unit's run would not get, or that nobody would know: its program
/// would not start.
fn check_metrics(address: Option<MetricsAddress>, owner: &SystemUser) -> Result<(), Failure> {
    /// Below it are root's.
    const FIRST_PORT: u16 = 1024;
    let why = match address.map(|address| address.socket().port()) {
        Some(0) => {
            "a unit's figures need a port that is always the same, and 0 is any free one".to_owned()
        }
        Some(port @ 1..FIRST_PORT) if owner.uid != 0 => format!(
            "ports below {FIRST_PORT} are for root, and the unit runs as {}: it would not start with {port}",
            owner.name
        ),
        _ => return Ok(()),
    };
    Err(Failure::Usage(format!(
        "{why}. Give --metrics another one, as 9469"
    )))
}

/// Refuses an address that another unit's run has, or, where the unit is about to be restarted, any
/// program but the unit's own run.
fn check_port(
    address: Option<MetricsAddress>,
    unit: &FoundUnit,
    root: &UnitRoot,
) -> Result<(), Failure> {
    let Some(address) = address else {
        return Ok(());
    };
    let own = UnitDropIn::path(&unit.name, root);
    let has_it = |file: &UnitFile| has_metrics(&file.text, address);
    if let Some(other) = drop_in::all(root).find(|file| file.path != own && has_it(file)) {
        return Err(Failure::Failed(format!(
            "{} has --metrics {} for its unit already: two units need two ports. Nothing was changed",
            other.path.display(),
            address.socket()
        )));
    }
    let is_own = unit
        .files
        .iter()
        .any(|file| file.path == own && has_it(file));
    if !root.is_live() || is_own {
        return Ok(());
    }
    let bound = MetricsListener::bind(address);
    bound
        .map(drop)
        .map_err(|failure| Failure::Failed(format!("{failure}, nor changed")))
}

/// The unit's pool, in a place that its user can reach.
fn choose_pool(
    wish: &PlanWish<'_>,
    policy: &AbsorbPolicy,
    data: &Path,
    name: &UnitName,
    owner: &SystemUser,
    root: &UnitRoot,
) -> Result<PlannedPool, Failure> {
    let pool_wish = PoolWish {
        named: wish.pool,
        size: wish.size,
        beside: wish.beside,
        usual_name: name.plain(),
        needs_another_disk: needs_another_disk(policy),
    };
    let pool = PlannedPool::choose(&pool_wish, &root.at(data), owner, root)?;
    let mut places = pool.path.ancestors().skip(1);
    if let Some(place) = places.find(|it| root.at(it).exists()) {
        check_reachable(place, owner, root)?;
    }
    Ok(pool)
}

/// True if all that is absorbed stays plain on the disk of the pool.
fn needs_another_disk(policy: &AbsorbPolicy) -> bool {
    let mut patterns = policy.patterns.iter();
    patterns.all(|pattern| policy.preallocated.contains(pattern))
}

/// The note on a program that the library does not serve: the trust that it deserves.
fn agent_note(name: &UnitName, reason: &str) -> String {
    format!(
        "EXPERIMENTAL: the calls of {} are seen by an agent (--front-end notify: {reason}). docs/notify.md lists the writes that it can lose",
        name.stem()
    )
}

/// The note on files that stay plain with a pool on the disk of the data.
fn own_disk_note(
    pool: &PlannedPool,
    policy: &AbsorbPolicy,
    data: &Path,
    root: &UnitRoot,
) -> Option<String> {
    if policy.preallocated.is_empty() || !root.is_this() || !pool.shares_disk(data) {
        return None;
    }
    let plain = policy::patterns_in_short(&policy.preallocated);
    Some(match needs_another_disk(policy) {
        true => format!(
            "NOTHING IS ABSORBED with a pool on the data's own disk, and status says so: {plain} have their size before they are written, and their own syncs are as fast. Take a pool on another disk, or on persistent memory"
        ),
        false => format!(
            "The pool lies on the data's own disk, where {plain} stay plain: they have their size before they are written, and their own syncs are as fast"
        ),
    })
}

/// The directories of the unit's files: those that the user names, or the one that is known.
fn data_of(
    wish: &PlanWish<'_>,
    unit: &UnderstoodUnit,
    program: &UnitProgram<'_>,
    profile: &str,
) -> Result<Vec<PathBuf>, Failure> {
    if !wish.data.is_empty() {
        return Ok(wish.data.to_vec());
    }
    let fail = |why: &str| {
        Failure::Usage(format!(
            "{}: the directory of its files is not known{why}. Name it with --data DIR",
            program.name.stem()
        ))
    };
    let known = match &unit.cluster {
        Some(cluster) => Some(cluster.data.clone()),
        None => (program.data(profile)).map_err(|why| fail(&format!(": {why}")))?,
    };
    let known = known.ok_or_else(|| fail(" from the unit"))?;
    Ok(vec![known])
}

/// Refuses another pool than the one that the unit has already.
fn check_same_pool(unit: &FoundUnit, wanted: &UnitDropIn) -> Result<(), Failure> {
    match UnitDropIn::of(unit) {
        Some(standing) if standing.pool != wanted.pool => Err(Failure::Failed(format!(
            "{0} is enabled with the pool {1}, which may hold acknowledged writes of it. To give it another: forebay disable {0}, then enable it anew",
            unit.name.stem(),
            standing.pool.display()
        ))),
        _ => Ok(()),
    }
}

/// The unit of recoveries, unless there is one.
fn recovery_unit(forebay: &Path, root: &UnitRoot) -> Result<Option<UnitFile>, Failure> {
    match root.plain_file(RECOVERY_FILE) {
        Some(file) if file.text.contains("recover --for %f") => Ok(None),
        Some(file) => Err(Failure::Failed(format!(
            "{} does not call forebay recover --for %f. Rename it, and repeat this",
            file.path.display()
        ))),
        None => Ok(Some(UnitFile {
            path: root.own().join(RECOVERY_FILE),
            text: RECOVERY.replace(RECOVERY_PROGRAM, &forebay.display().to_string()),
        })),
    }
}

/// True if a unit of recoveries is one that `enable` wrote.
pub fn is_own_recovery_unit(text: &str) -> bool {
    let split = RECOVERY.split_once(RECOVERY_PROGRAM);
    split.is_some_and(|(before, after)| text.starts_with(before) && text.ends_with(after))
}
