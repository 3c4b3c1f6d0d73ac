//! Checks before a unit is wrapped: the directories of its files, its program, `forebay` and its
//! library have to exist and to belong to the right user. Refusals are sentences.

use super::{command::ExecLine, drop_in::check_plain, name::UnitName, search::UnitRoot};
use crate::{
    failure::Failure,
    recover::behind_flash,
    run::{FrontEnd, PreloadLibrary, RunProgram},
    users::SystemUser,
};
use forebay_files::supervisor::FrontEndChoice;
use std::{
    env, fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

/// Paths at which packages put the program and the library.
const PACKAGED: [&str; 2] = ["/usr/bin/forebay", "/usr/lib/forebay/libforebay.so"];

/// Refuses directories that are not there, whose files are another user's than the unit's, or that
/// stand behind a flash cache.
pub fn check_data(
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
        if owner.uid != 0 && found.uid() != owner.uid {
            let whose = SystemUser::numbered(found.uid()).name;
            return fail(format!(
                "belongs to {whose}, and the unit's user is {}: it is another database's, or the unit starts its program as another user than it says. Name the right one with --data DIR, or set User= in a drop-in (systemctl edit {})",
                owner.name,
                name.stem()
            ));
        }
        if let Some((guarded, _)) = behind_flash::below(&here)?.into_iter().next() {
            return fail(format!(
                "has files behind a flash cache ({}), and needs a unit with forebay run --flash: docs/databases/mariadb.md has it",
                guarded.display()
            ));
        }
    }
    Ok(())
}

/// Says how forebay serves the program. Refuses one that is not there, or that it cannot serve.
pub fn check_program(
    exec: &ExecLine,
    front_end: FrontEnd,
    root: &UnitRoot,
) -> Result<FrontEndChoice, Failure> {
    let here = root.at(&exec.program);
    let chosen =
        RunProgram::find(&[here.into_os_string()]).and_then(|it| it.choose(front_end, false));
    chosen.map_err(|failure| match failure {
        Failure::NotRun(_, why) => Failure::Failed(why),
        other => other,
    })
}

/// `forebay` and its library, as the unit sees them, which its user can reach.
pub fn installed(owner: &SystemUser, root: &UnitRoot) -> Result<[PathBuf; 2], Failure> {
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
pub fn check_reachable(path: &Path, owner: &SystemUser, root: &UnitRoot) -> Result<(), Failure> {
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
