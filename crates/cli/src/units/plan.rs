//! What `forebay enable` is about to do: the pool, the files, and what the user should know.
//!
//! Making a plan changes nothing, but that a measurement writes a file to the data's directory and
//! removes it.

use super::{
    command::ExecLine,
    drop_in::{DropInText, UnitDropIn, check_plain},
    known::{UnitProgram, profile_of_unit},
    name::UnitName,
    pool_place::{PlannedPool, PoolWish},
    postgres::{self, DebianCluster},
    sandbox::{self, SandboxNeeds},
    search::{FoundUnit, UnitFile, UnitRoot},
    settings::UnitSettings,
};
use crate::{
    failure::Failure,
    recover::behind_flash,
    run::{FrontEnd, PreloadLibrary, RunProgram},
    users::SystemUser,
};
use forebay_files::policy::{self, AbsorbPolicy, PolicyConfig, PolicyRequest};
use std::{
    env,
    ffi::OsStr,
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

/// The unit of recoveries, as the examples have it.
const RECOVERY: &str = include_str!("../../../../examples/systemd/forebay-recover@.service");
/// Its name, and the program's path in it.
pub const RECOVERY_FILE: &str = "forebay-recover@.service";
const RECOVERY_PROGRAM: &str = "/usr/local/bin/forebay";
/// Where packages put the program and the library.
const PACKAGED: [&str; 2] = ["/usr/bin/forebay", "/usr/lib/forebay/libforebay.so"];

/// The profile of programs in Go.
const IN_GO: &str = "etcd";

/// What the user wants.
pub struct PlanWish<'a> {
    pub unit: &'a str,
    pub pool: PoolWish<'a>,
    pub data: &'a [PathBuf],
    pub profile: Option<&'a str>,
    pub front_end: FrontEnd,
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
}

/// A unit, as far as it is understood.
struct UnderstoodUnit {
    exec: ExecLine,
    settings: UnitSettings,
    cluster: Option<DebianCluster>,
}

impl UnderstoodUnit {
    fn of(unit: &FoundUnit, root: &UnitRoot) -> Result<Self, Failure> {
        UnitDropIn::check_others(unit)?;
        let settings = unit.settings_without(UnitDropIn::is_one);
        let exec = ExecLine::of(unit, &settings)?;
        let cluster = match exec.program_name() == postgres::CALLS {
            true => Some(DebianCluster::of(&unit.name, root)?),
            false => None,
        };
        let exec = cluster
            .as_ref()
            .map_or(exec, |cluster| cluster.exec.clone());
        Ok(Self {
            exec,
            settings,
            cluster,
        })
    }

    /// The user whom the server runs as.
    fn owner(&self, name: &UnitName, root: &UnitRoot) -> Result<SystemUser, Failure> {
        let passwd = root.at("/etc/passwd");
        if let Some(cluster) = &self.cluster {
            let uid = cluster.owner;
            return match root.is_this() {
                true => Ok(SystemUser::numbered(uid)),
                false => SystemUser::listed(&passwd, |it| it.uid == uid, &uid.to_string()),
            };
        }
        let user = self.settings.value("User").unwrap_or("root");
        let user = name.expand(user).ok_or_else(|| {
            Failure::Failed(format!(
                "{}: which user User={user} is cannot be told",
                name.stem()
            ))
        })?;
        match root.is_this() {
            true => SystemUser::named(&user),
            false => SystemUser::listed(
                &passwd,
                |it| it.name == user || it.uid.to_string() == user,
                &user,
            ),
        }
    }

    /// Lines of `[Service]` that are no answer to a sandbox.
    fn lines(&self, owner: &SystemUser) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(cluster) = &self.cluster {
            lines.push(format!("User={}", owner.name));
            lines.extend(cluster.lines.iter().cloned());
        } else if self.settings.value("Type") == Some("forking") {
            lines.push("# Forebay stays while the server is in the background.".to_owned());
            lines.push("Type=exec".to_owned());
        }
        if ["TimeoutStopSec", "TimeoutSec"]
            .iter()
            .all(|key| self.settings.value(key).is_none())
        {
            lines.push("# The files are synced before the end.".to_owned());
            lines.push("TimeoutStopSec=300".to_owned());
        }
        lines
    }

    fn notes(&self) -> Vec<String> {
        let is_forking = self.settings.value("Type") == Some("forking") && self.cluster.is_none();
        let note = "The unit counts as started as soon as forebay runs, not when the server is ready (it is Type=exec instead of forking): units that are ordered after it may come too early";
        is_forking.then(|| note.to_owned()).into_iter().collect()
    }
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
        let profile = wish.profile.or_else(|| profile_of_unit(name));
        let policy = policy::choose(PolicyRequest {
            programs: &[OsStr::new(understood.exec.program_name())],
            profile,
            config: &PolicyConfig::default(),
            absorb: &[],
        })?;
        let owner = understood.owner(name, root)?;
        let program = UnitProgram {
            name,
            exec: &understood.exec,
            settings: &understood.settings,
            root,
        };
        let data = data_of(wish, &understood, &program, &policy.profile)?;
        check_data(name, &data, &owner, root)?;
        check_program(&understood.exec, &policy, wish.front_end, root)?;
        let [forebay, library] = installed(&owner, root)?;
        let pool = PlannedPool::choose(&wish.pool, &root.at(&data[0]), &owner, root)?;
        let of = UnitDropIn {
            pool: pool.path.clone(),
            data: data.clone(),
        };
        check_same_pool(&unit, &of)?;
        let place = pool.path.ancestors().skip(1);
        if let Some(place) = place.into_iter().find(|it| root.at(it).exists()) {
            check_reachable(place, &owner, root)?;
        }
        let answer = sandbox::answer(
            &understood.settings,
            &SandboxNeeds {
                unit: name.stem(),
                pool: &pool.path,
                is_device: pool.is_device,
                programs: [&forebay, &library],
            },
        )?;
        let lines = understood.lines(&owner).into_iter().chain(answer.lines);
        let text = DropInText {
            name,
            of: &of,
            forebay: &forebay,
            profile: &policy.profile,
            is_notify: wish.front_end == FrontEnd::Notify,
            exec: &understood.exec,
            lines: &lines.collect::<Vec<_>>(),
        }
        .render();
        let path = UnitDropIn::path(name, root);
        let mut files: Vec<UnitFile> = recovery_unit(&forebay, root)?.into_iter().collect();
        files.push(UnitFile { path, text });
        let notes = answer.notes.into_iter().chain(understood.notes());
        Ok(Self {
            notes: program
                .advice(&policy.profile)
                .into_iter()
                .chain(notes)
                .collect(),
            name: unit.name,
            policy,
            owner,
            data,
            pool,
            files,
        })
    }
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
    let known = unit.cluster.as_ref().map(|cluster| cluster.data.clone());
    let known = known.or_else(|| program.data(profile)).ok_or_else(|| {
        Failure::Usage(format!(
            "{}: which directory has its files cannot be told from the unit. Name it with --data DIR",
            program.name.stem()
        ))
    })?;
    Ok(vec![known])
}

/// Refuses directories that are not there, whose files are another user's than the unit's, or that
/// stand behind a flash cache.
fn check_data(
    name: &UnitName,
    data: &[PathBuf],
    owner: &SystemUser,
    root: &UnitRoot,
) -> Result<(), Failure> {
    for directory in data {
        check_plain(directory)?;
        let (here, shown) = (root.at(directory), directory.display());
        let fail = |why: String| {
            Err(Failure::Failed(format!(
                "{}: the directory of its files, {shown}, {why}",
                name.stem()
            )))
        };
        let found = match fs::metadata(&here) {
            Ok(found) if found.is_dir() => found,
            Ok(_) => return fail("is no directory. Name it with --data DIR".to_owned()),
            Err(error) => {
                return fail(format!(
                    "cannot be looked at: {error}. Name it with --data DIR"
                ));
            }
        };
        if owner.uid == 0 && found.uid() != 0 {
            let whose = SystemUser::numbered(found.uid()).name;
            return fail(format!(
                "belongs to {whose}, and the unit starts its program as root, which changes its user by itself: its logs would stay plain. Set User={whose} in a drop-in (systemctl edit {}), if it starts so",
                name.stem()
            ));
        }
        if let Some((guarded, _)) = behind_flash::below(&here)?.into_iter().next() {
            return fail(format!(
                "has files behind a flash cache ({}), and needs a unit with forebay run --flash: docs/operations.md has it",
                guarded.display()
            ));
        }
    }
    Ok(())
}

/// Refuses a program that is not there, or that forebay cannot serve.
fn check_program(
    exec: &ExecLine,
    policy: &AbsorbPolicy,
    front_end: FrontEnd,
    root: &UnitRoot,
) -> Result<(), Failure> {
    if policy.profile == IN_GO && front_end == FrontEnd::Preload {
        return Err(Failure::Failed(format!(
            "{} is a Go program, which the library absorbs nothing of. --front-end notify does, and is experimental: do not trust data to it yet",
            exec.program
        )));
    }
    let here = root.at(&exec.program);
    let asked =
        RunProgram::find(&[here.into_os_string()]).and_then(|it| it.check(front_end, false));
    asked.map_err(|failure| match failure {
        Failure::NotRun(_, why) => Failure::Failed(why),
        other => other,
    })
}

/// `forebay` and its library, as the unit sees them, which its user can reach.
fn installed(owner: &SystemUser, root: &UnitRoot) -> Result<[PathBuf; 2], Failure> {
    let found = programs(root)?;
    for path in &found {
        check_plain(path)?;
        check_reachable(path, owner, root)?;
    }
    Ok(found)
}

fn programs(root: &UnitRoot) -> Result<[PathBuf; 2], Failure> {
    if !root.is_this() {
        let packaged = PACKAGED.map(PathBuf::from);
        return match packaged.iter().all(|path| root.at(path).is_file()) {
            true => Ok(packaged),
            false => Err(Failure::Failed(format!(
                "{} and {} are not there: install Forebay's package in it first",
                root.at(PACKAGED[0]).display(),
                root.at(PACKAGED[1]).display()
            ))),
        };
    }
    let program = env::current_exe().map_err(Failure::io("finding", "this program"))?;
    Ok([program, PreloadLibrary::default().find()?])
}

/// Refuses a file that the unit's user cannot read.
fn check_reachable(path: &Path, owner: &SystemUser, root: &UnitRoot) -> Result<(), Failure> {
    if owner.uid == 0 {
        return Ok(());
    }
    for part in path.ancestors() {
        let here = root.at(part);
        let found = fs::metadata(&here).map_err(Failure::io("looking at", here.display()))?;
        let needed = if found.is_dir() { 0o1 } else { 0o4 };
        let mode = found.permissions().mode();
        let is_open = match (found.uid() == owner.uid, found.gid() == owner.gid) {
            (true, _) => mode >> 6,
            (_, true) => mode >> 3,
            _ => mode,
        };
        if is_open & needed == 0 {
            return Err(Failure::Failed(format!(
                "{} is closed to the unit's user {} by {}. Forebay and the pool must lie where that user may reach them (docs/install.md)",
                path.display(),
                owner.name,
                part.display()
            )));
        }
    }
    Ok(())
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
