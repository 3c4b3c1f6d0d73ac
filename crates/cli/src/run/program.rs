//! The program to be run: its path, and the check that a library can be put before it.

use crate::{failure::Failure, standard_error::complain};
use forebay_files::{
    program::{Elf, LinkKind, SCRIPTS_MAX, gains_privileges, words},
    supervisor::{FrontEndChoice, RunFrontEnd},
};
use rustix::fs::Access;
use std::{
    env,
    ffi::{OsStr, OsString},
    fs::File,
    io,
    os::unix::{ffi::OsStrExt, fs::FileExt},
    path::{Path, PathBuf},
};

/// The first word of the command line of the agent, which is this command.
pub(super) const AGENT_COMMAND: &str = "notify-agent";

/// The front end that takes over the durability of a program's logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum FrontEnd {
    /// The library where it can be put before the program, and an agent elsewhere
    #[default]
    Auto,
    /// libforebay.so, in the program's processes
    Preload,
    /// An agent beside the program, which does its system calls on logs (seccomp)
    Notify,
}

/// A program and its arguments.
pub struct RunProgram {
    command: Vec<OsString>,
    path: PathBuf,
    /// The path's target, through all links.
    real: PathBuf,
}

impl RunProgram {
    /// Finds it as a shell does.
    pub fn find(command: &[OsString]) -> Result<Self, Failure> {
        let typed = command.first().map_or(OsStr::new(""), OsString::as_os_str);
        let path = resolve(typed, &env::var_os("PATH").unwrap_or_default())?;
        Ok(Self {
            command: command.to_owned(),
            real: path.canonicalize().unwrap_or_else(|_| path.clone()),
            path,
        })
    }

    /// As the user called it.
    pub fn typed(&self) -> &OsStr {
        &self.command[0]
    }

    /// The arguments that the user gave after it.
    pub fn arguments(&self) -> &[OsString] {
        &self.command[1..]
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its path, through all links.
    pub fn real(&self) -> &Path {
        &self.real
    }

    /// Its file name.
    pub fn name(&self) -> &OsStr {
        self.path.file_name().unwrap_or(self.typed())
    }

    /// Its file name, and that of the file it leads to.
    pub fn names(&self) -> Vec<&OsStr> {
        std::iter::once(self.name())
            .chain(self.real.file_name())
            .collect()
    }

    /// Chooses the front end that is to see its calls. With `only_library`, what is wanted beside
    /// needs the library.
    ///
    /// # Errors
    /// Why it cannot be run so, and what to do.
    pub fn choose(&self, asked: FrontEnd, only_library: bool) -> Result<FrontEndChoice, Failure> {
        if only_library && asked == FrontEnd::Notify {
            return Err(Failure::Usage(
                "a flash cache and an emulated device need the library in the program: leave out --front-end notify"
                    .to_owned(),
            ));
        }
        let judged = judge(&self.real, 0)?;
        let agent = |reason: String| FrontEndChoice {
            front_end: RunFrontEnd::Agent,
            reason,
            can_be_agent: true,
        };
        match (asked, &judged) {
            (FrontEnd::Notify, _) => return Ok(agent("--front-end notify".to_owned())),
            (FrontEnd::Auto, Some(judged)) if !only_library && judged.kind != LinkKind::Glibc => {
                return match judged.agent_or_library() {
                    Ok(()) => Ok(agent(self.reason(judged))),
                    Err(why) => {
                        judged.check()?;
                        Ok(FrontEndChoice {
                            front_end: RunFrontEnd::Library,
                            reason: format!(
                                "{}, and no agent can serve it: {why}",
                                self.reason(judged)
                            ),
                            can_be_agent: false,
                        })
                    }
                };
            }
            _ => judged.as_ref().map_or(Ok(()), JudgedProgram::check)?,
        }
        let reason = match &judged {
            _ if asked == FrontEnd::Preload => "--front-end preload".to_owned(),
            Some(judged) => self.reason(judged),
            None => format!("{} cannot be read", self.real.display()),
        };
        Ok(FrontEndChoice {
            front_end: RunFrontEnd::Library,
            reason,
            can_be_agent: !only_library,
        })
    }

    /// The kind of the program, or of its interpreter.
    fn reason(&self, judged: &JudgedProgram) -> String {
        let whose = if judged.path == self.real {
            ""
        } else {
            "its interpreter "
        };
        format!(
            "{whose}{} {}",
            judged.path.display(),
            judged.kind.in_words()
        )
    }

    /// This program below an agent, which is this command.
    ///
    /// # Errors
    /// Where this command is cannot be told.
    pub fn below_agent(&self) -> Result<Self, Failure> {
        let agent = env::current_exe().map_err(Failure::io("finding", "this program"))?;
        let words = [
            self.name().to_owned(),
            AGENT_COMMAND.into(),
            self.path.clone().into_os_string(),
        ];
        Ok(Self {
            command: words.into_iter().chain(self.command.clone()).collect(),
            real: agent.clone(),
            path: agent,
        })
    }

    /// The program of an agent: at this path, with these words.
    pub fn of_agent(path: PathBuf, command: Vec<OsString>) -> Self {
        Self {
            command,
            real: path.clone(),
            path,
        }
    }
}

/// The file that `typed` means: itself with a slash, otherwise the first in `search` that can be
/// run.
fn resolve(typed: &OsStr, search: &OsStr) -> Result<PathBuf, Failure> {
    let candidates: Vec<PathBuf> = if typed.as_bytes().contains(&b'/') {
        vec![PathBuf::from(typed)]
    } else {
        env::split_paths(search)
            .map(|dir| dir.join(typed))
            .collect()
    };
    let is_there = |path: &&PathBuf| path.is_file();
    let can_run = |path: &&PathBuf| rustix::fs::access(path.as_path(), Access::EXEC_OK).is_ok();
    if let Some(path) = candidates.iter().filter(is_there).find(can_run) {
        return Ok(path.clone());
    }
    if let Some(path) = candidates.iter().find(|path| path.exists()) {
        let what = if path.is_dir() {
            "is a directory"
        } else {
            "is not executable"
        };
        return Err(Failure::NotRun(126, format!("{} {what}", path.display())));
    }
    let typed = typed.to_string_lossy();
    Err(Failure::NotRun(
        127,
        if typed.contains('/') {
            format!("{typed}: there is no such program")
        } else {
            format!("{typed}: there is no such program in PATH")
        },
    ))
}

/// A program, or the interpreter of one that is a script.
#[derive(Debug)]
struct JudgedProgram {
    path: PathBuf,
    kind: LinkKind,
}

/// Judges a program. None if that cannot be told.
///
/// # Errors
/// It would run without its durability being taken over, whoever looks at its calls.
fn judge(path: &Path, depth: usize) -> Result<Option<JudgedProgram>, Failure> {
    let refuse = |why: String| Err(Failure::NotRun(126, format!("{} {why}", path.display())));
    let failed = || Failure::io("reading", path.display());
    let file = match File::open(path) {
        Ok(file) => file,
        // May be run and not read: then it is not checked, and its files stay plain if the library
        // is not loaded.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
        Err(error) => return Err(failed()(error)),
    };
    let mut start = [0; 256];
    let read = file.read_at(&mut start, 0).map_err(failed())?;
    let start = &start[..read];
    if let Some(line) = start.strip_prefix(b"#!") {
        return match interpreter(line) {
            Some(interpreter) if depth < SCRIPTS_MAX => judge(&interpreter, depth + 1),
            _ => Ok(None),
        };
    }
    if let Some(why) = gains_privileges(&file).map_err(failed())? {
        return refuse(format!(
            "{why}, so the system loads no library into it and nothing of it can be absorbed. Run it as its owner, or run a copy without that"
        ));
    }
    let own = File::open("/proc/self/exe").map_err(|e| {
        Failure::Failed(format!(
            "reading /proc/self/exe: {e}. /proc is not mounted, which forebay and its program need: mount it in the chroot or container"
        ))
    })?;
    match Elf::read(&file, &own) {
        Ok(elf) if !elf.ours => refuse(
            "is a program for another kind of machine than forebay, so nothing of it can be absorbed"
                .to_owned(),
        ),
        Ok(elf) => Ok(Some(JudgedProgram {
            path: path.to_owned(),
            kind: elf.link_kind(),
        })),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => refuse(format!("{error}")),
        Err(error) => Err(failed()(error)),
    }
}

/// The program that runs a script with this first line; for `env NAME`, the one called so.
fn interpreter(line: &[u8]) -> Option<PathBuf> {
    let mut words = words(line);
    let interpreter = Path::new(words.next()?);
    if interpreter.file_name() == Some(OsStr::new("env")) {
        let named = words
            .find(|word| !word.as_bytes().starts_with(b"-") && !word.as_bytes().contains(&b'='))?;
        return resolve(named, &env::var_os("PATH").unwrap_or_default()).ok();
    }
    Some(interpreter.to_owned())
}

impl JudgedProgram {
    /// Decides if an agent is to serve it. Where none can be had, one that the library could be put
    /// before has that, which sees what it does by its C library.
    ///
    /// # Errors
    /// Why it is the library.
    fn agent_or_library(&self) -> Result<(), String> {
        match self.kind {
            LinkKind::Go | LinkKind::OtherLibrary => forebay_notify::can_serve().map_err(|why| {
                complain!(
                    "forebay: no agent can serve {}, and the library is put before it instead: {}",
                    self.path.display(),
                    why.0
                );
                why.0
            }),
            _ => Ok(()),
        }
    }

    /// Refuses one that the library cannot be put before, and warns of one that it does not see all
    /// of.
    ///
    /// # Errors
    /// Why, and what to do.
    fn check(&self) -> Result<(), Failure> {
        let (path, words) = (self.path.display(), self.kind.in_words());
        let remedy = match self.kind {
            LinkKind::Glibc | LinkKind::OtherLibrary => return Ok(()),
            LinkKind::Go => {
                complain!(
                    "forebay: warning: {path} {words}: such writes stay as they are, not absorbed"
                );
                return Ok(());
            }
            LinkKind::Static => "Link it dynamically, or have an agent serve it",
            LinkKind::StaticGo => "Have an agent serve it",
            LinkKind::Musl => "Run a build for glibc, or have an agent serve it",
        };
        Err(Failure::NotRun(
            126,
            format!(
                "{path} {words}, and forebay's library cannot be put before it. {remedy} (leave out --front-end preload, --flash, and emulated devices)"
            ),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt};

    fn script(dir: &Path, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = dir.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[track_caller]
    fn status(done: Result<PathBuf, Failure>) -> u8 {
        match done {
            Err(Failure::NotRun(status, _)) => status,
            other => panic!("{other:?}"),
        }
    }

    fn kind(path: &Path) -> Option<LinkKind> {
        judge(path, 0).unwrap().map(|judged| judged.kind)
    }

    #[test]
    fn a_program_is_found_as_a_shell_finds_it() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("1"), dir.path().join("2"));
        fs::create_dir(&one).unwrap();
        fs::create_dir(&two).unwrap();
        script(&one, "db", "", 0o644);
        let real = script(&two, "db", "", 0o755);
        let search = env::join_paths([&one, &two]).unwrap();
        // What cannot be run is passed over, and is the reason only if nothing else is there.
        if !rustix::process::getuid().is_root()
            || rustix::fs::access(one.join("db"), Access::EXEC_OK).is_err()
        {
            assert_eq!(resolve(OsStr::new("db"), &search).unwrap(), real);
        }
        let first = env::join_paths([&one]).unwrap();
        assert_eq!(status(resolve(OsStr::new("db"), &first)), 126);
        assert_eq!(status(resolve(OsStr::new("no-such-db"), &search)), 127);
        assert_eq!(status(resolve(OsStr::new("./no/such"), &search)), 127);
        assert_eq!(status(resolve(one.as_os_str(), &search)), 126);
    }

    #[test]
    fn a_script_is_judged_by_its_interpreter() {
        let dir = tempfile::tempdir().unwrap();
        let good = script(dir.path(), "good", "#!/bin/sh\n", 0o755);
        assert_eq!(kind(&good), Some(LinkKind::Glibc));
        let env = script(dir.path(), "env", "#!/usr/bin/env -S LANG=C sh -e\n", 0o755);
        assert_eq!(kind(&env), Some(LinkKind::Glibc));
        let of_script = script(
            dir.path(),
            "nested",
            &format!("#!{} -x\n", good.display()),
            0o755,
        );
        assert_eq!(kind(&of_script), Some(LinkKind::Glibc));
        let text = script(dir.path(), "text", "hello\n", 0o755);
        let Err(Failure::NotRun(126, message)) = judge(&text, 0) else {
            panic!("a text was taken for a program");
        };
        assert!(
            message.contains("neither a program nor a script"),
            "{message}"
        );
    }

    #[test]
    fn a_program_without_a_loader_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        // Our own program, with its request for a loader made a plain note.
        let mut bytes = fs::read("/proc/self/exe").unwrap();
        // Program headers of 56 bytes follow the file's own; that of the loader is of type 3.
        for at in (64..64 + 56 * 16).step_by(56) {
            if bytes[at..at + 4] == 3_u32.to_ne_bytes() {
                bytes[at..at + 4].copy_from_slice(&0_u32.to_ne_bytes());
            }
        }
        let path = dir.path().join("static");
        fs::write(&path, &bytes).unwrap();
        let program = RunProgram::of_agent(path.clone(), vec!["static".into()]);
        for (asked, only_library) in [(FrontEnd::Preload, false), (FrontEnd::Auto, true)] {
            let Err(Failure::NotRun(126, message)) = program.choose(asked, only_library) else {
                panic!("a static program was taken");
            };
            assert!(message.contains("linked statically"), "{message}");
        }
        for asked in [FrontEnd::Notify, FrontEnd::Auto] {
            let choice = program.choose(asked, false).unwrap();
            assert_eq!(choice.front_end, RunFrontEnd::Agent);
        }
        bytes[18..20].copy_from_slice(&[0xff, 0x7f]);
        fs::write(&path, &bytes).unwrap();
        let Err(Failure::NotRun(126, message)) = program.choose(FrontEnd::Notify, false) else {
            panic!("a program for another machine was taken");
        };
        assert!(message.contains("another kind of machine"), "{message}");
        let own = RunProgram::of_agent("/proc/self/exe".into(), vec!["own".into()]);
        let choice = own.choose(FrontEnd::Auto, false).unwrap();
        assert_eq!(choice.front_end, RunFrontEnd::Library);
    }

    #[test]
    fn a_setuid_program_of_somebody_else_is_refused() {
        if !rustix::process::getuid().is_root() {
            println!("skipped: only root can give a file to another user");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("su");
        fs::copy("/proc/self/exe", &path).unwrap();
        std::os::unix::fs::chown(&path, Some(1), Some(1)).unwrap();
        assert!(kind(&path).is_some());
        for (mode, word) in [(0o4755, "setuid"), (0o2755, "setgid")] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let Err(Failure::NotRun(126, message)) = judge(&path, 0) else {
                panic!("a {word} program was taken");
            };
            assert!(message.contains(word), "{message}");
        }
    }
}
