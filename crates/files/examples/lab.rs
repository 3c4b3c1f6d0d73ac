//! Programs that the tests of the files tier start and kill: a supervisor (`lab run POOL DIR
//! PATTERN…`), the database under it (`lab database`), and a recovery (`lab recover POOL [--force]
//! [--discard]`).
//!
//! The database does what it reads on standard input, a call a line, through the client, as
//! libforebay.so would have it, and answers `ok N` or `errno N`. What follows `other` is done by a
//! second process, what follows `third` by a third one, whose recoveries are cut as `LAB_CUT_THIRD`
//! says; with `begin` before it the answer is not waited for, until `end` asks for it. Of one that
//! died it is `gone 0`. With `LAB_COUNTS_CHANGES` calls that change names are counted, as the front
//! ends do it.

#[path = "../tests/common/content.rs"]
mod content;

use content::content;
use forebay_files::{
    client,
    replay::{RecoverOptions, recover},
    supervisor::{Supervisor, SupervisorOptions},
};
use forebay_pool::PoolOptions;
use rustix::{
    fs::{FallocateFlags, FlockOperation, Mode, OFlags, Timespec, Timestamps},
    io::Errno,
    process::{Resource, Rlimit, Signal, getpid, getrlimit, kill_process, setrlimit},
    time::{ClockId, clock_gettime},
};
use std::{
    collections::{HashMap, hash_map::Entry},
    ffi::{CString, c_int},
    io::{BufRead, BufReader, IoSlice, Write},
    os::fd::{AsRawFd, OwnedFd},
    path::Path,
    process::{Child, ChildStdout, Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

type Failure = Box<dyn std::error::Error>;

/// So many a database may have that is to have none left: fewer than the numbers of the client's
/// own.
const DESCRIPTORS: u64 = 100;
/// So long a call is held up at most.
const WAIT: Duration = Duration::from_secs(60);

fn main() -> Result<ExitCode, Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["run", pool, run_dir, patterns @ ..] => run(Path::new(pool), Path::new(run_dir), patterns),
        ["database"] => database(),
        ["recover", pool, options @ ..] => {
            let options = RecoverOptions {
                force: options.contains(&"--force"),
                discard: options.contains(&"--discard"),
            };
            let reports = recover(&PoolOptions::new().open(Path::new(pool))?, &options)?;
            println!("{}", serde_json::to_string(&reports)?);
            Ok(ExitCode::SUCCESS)
        }
        _ => Err("run POOL DIR PATTERN… | database | recover POOL".into()),
    }
}

/// Supervises a database, whose process id is the first line of the output.
fn run(pool: &Path, run_dir: &Path, patterns: &[&str]) -> Result<ExitCode, Failure> {
    let options = SupervisorOptions {
        preallocated: Vec::new(),
        refuse_io_uring: false,
        guard: None,
        patterns: patterns.iter().map(|&p| p.to_owned()).collect(),
        segments: 2,
        run_dir: run_dir.to_owned(),
        program: "lab".to_owned(),
        front_end: Default::default(),
        layer: None,
    };
    let supervisor = Supervisor::start(PoolOptions::new().open(pool)?, options)?;
    let environment = supervisor.environment();
    let mut database = Command::new(std::env::current_exe()?)
        .arg("database")
        .envs(
            environment
                .into_iter()
                .filter(|(name, _)| name != "LD_PRELOAD"),
        )
        .spawn()?;
    database.wait()?;
    let status = supervisor.finish()?;
    println!("{}", serde_json::to_string(&status)?);
    Ok(ExitCode::SUCCESS)
}

/// Another process of the database, which answers like this one.
struct Other {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Other {
    fn start(who: &str) -> std::io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        if let Some(cut) = std::env::var_os("LAB_CUT_THIRD").filter(|_| who == "third") {
            command.env("FOREBAY_FAILPOINT", cut);
        }
        let mut process = command
            .arg("database")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = process
            .stdout
            .take()
            .ok_or(std::io::ErrorKind::BrokenPipe)?;
        let mut other = Self {
            process,
            output: BufReader::new(output),
        };
        other.answer()?;
        Ok(other)
    }

    fn answer(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        match self.output.read_line(&mut line)? {
            0 => Ok("gone 0\n".to_owned()),
            _ => Ok(line),
        }
    }

    fn tell(&mut self, line: &str) {
        // Of one that died meanwhile there is no answer either.
        if let Some(mut input) = self.process.stdin.as_ref() {
            let _ = writeln!(input, "{line}");
        }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

fn database() -> Result<ExitCode, Failure> {
    client::start();
    let mut files: HashMap<String, OwnedFd> = HashMap::new();
    let mut others: HashMap<String, Other> = HashMap::new();
    let mut out = std::io::stdout().lock();
    writeln!(out, "pid {}", std::process::id())?;
    out.flush()?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split(' ').collect();
        if let ["begin" | "end", who, ..] | [who @ ("other" | "third"), ..] = words[..] {
            let other = match others.entry(who.to_owned()) {
                Entry::Occupied(other) => other.into_mut(),
                Entry::Vacant(none) => none.insert(Other::start(who)?),
            };
            if let Some((_, call)) = line.split_once(&format!("{who} ")) {
                other.tell(call);
            }
            let answer = match words[0] {
                "begin" => "ok 0\n".to_owned(),
                _ => other.answer()?,
            };
            write!(out, "{answer}")?;
            out.flush()?;
            continue;
        }
        match call(&words, &mut files) {
            Ok(done) => writeln!(out, "ok {done}")?,
            Err(errno) => writeln!(out, "errno {}", errno.raw_os_error())?,
        }
        out.flush()?;
    }
    drop(others);
    client::exiting();
    Ok(ExitCode::SUCCESS)
}

/// Whatever needs a descriptor fails from now on.
fn exhaust() -> Result<(), Errno> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let current = Some(DESCRIPTORS);
    setrlimit(Resource::Nofile, Rlimit { current, maximum })?;
    while let Ok(copy) = rustix::io::dup(std::io::stdin()) {
        std::mem::forget(copy);
    }
    Ok(())
}

/// Makes a file, and waits until it is not there any more.
fn wait_at(place: &Path) {
    let begun = Instant::now();
    if std::fs::write(place, "").is_ok() {
        while place.exists() && begun.elapsed() < WAIT {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Names may have been changed.
fn count_change() {
    if std::env::var_os("LAB_COUNTS_CHANGES").is_some() && client::counts_changes() {
        client::changed_on(None);
    }
}

/// A call that changes names; `before` is done when the kernel is about to.
fn change_names(words: &[&str], before: impl Fn()) -> Result<usize, Errno> {
    use rustix::fs;
    let at = libc::AT_FDCWD;
    let name = |text: &str| CString::new(text).map_err(|_| Errno::INVAL);
    let done = match *words {
        ["unlink", path] => {
            let path = name(path)?;
            client::unlink(at, &path, || {
                before();
                fs::unlink(&path)
            })
        }
        [call, from, to] => {
            let (from, to) = (name(from)?, name(to)?);
            let named = ((at, from.as_c_str()), (at, to.as_c_str()));
            let real = || {
                before();
                match call {
                    "link" => fs::link(&from, &to),
                    "rename" => fs::rename(&from, &to),
                    _ => fs::renameat_with(fs::CWD, &from, fs::CWD, &to, fs::RenameFlags::EXCHANGE),
                }
            };
            match call {
                "link" => client::link(named.0, named.1, 0, real),
                "rename" => client::rename(named.0, named.1, real),
                "exchange" => client::exchange(named.0, named.1, real),
                _ => Err(Errno::NOSYS),
            }
        }
        _ => Err(Errno::NOSYS),
    };
    count_change();
    done.map(|()| 0)
}

fn call(words: &[&str], files: &mut HashMap<String, OwnedFd>) -> Result<usize, Errno> {
    let number = |text: &str| text.parse::<u64>().map_err(|_| Errno::INVAL);
    let path = |text: &str| CString::new(text).map_err(|_| Errno::INVAL);
    let fd = |files: &HashMap<String, OwnedFd>, name: &str| {
        files.get(name).map(|fd| fd.as_raw_fd()).ok_or(Errno::BADF)
    };
    match *words {
        // open HANDLE PATH FLAGS
        ["open", handle, name, flags] => {
            let name = path(name)?;
            let flags = c_int::try_from(number(flags)?).map_err(|_| Errno::INVAL)?;
            let mut opened = None;
            let is_new = flags & libc::O_CREAT != 0
                && rustix::fs::access(&name, rustix::fs::Access::EXISTS).is_err();
            let done = client::open(libc::AT_FDCWD, &name, flags, |flags| {
                let flags = OFlags::from_bits_retain(flags as u32) | OFlags::CLOEXEC;
                let fd = rustix::fs::open(&name, flags, Mode::from_raw_mode(0o644))?;
                Ok(opened.insert(fd).as_raw_fd())
            });
            if let Err(errno) = done {
                // What was opened in vain the client has closed.
                std::mem::forget(opened);
                return Err(errno);
            }
            if is_new {
                count_change();
            }
            let opened = opened.ok_or(Errno::BADF)?;
            let absorbed = client::absorbs(opened.as_raw_fd());
            files.insert(handle.to_owned(), opened);
            Ok(usize::from(absorbed))
        }
        // Past the client, as the C library opens a stream.
        ["raw", handle, name, flags] => {
            let flags =
                OFlags::from_bits_retain(u32::try_from(number(flags)?).map_err(|_| Errno::INVAL)?);
            let opened =
                rustix::fs::open(name, flags | OFlags::CLOEXEC, Mode::from_raw_mode(0o644))?;
            files.insert(handle.to_owned(), opened);
            Ok(0)
        }
        ["flock", handle] => {
            let file = files.get(handle).ok_or(Errno::BADF)?;
            rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive).map(|()| 0)
        }
        ["close", handle] => {
            client::closing(fd(files, handle)?);
            files.remove(handle);
            Ok(0)
        }
        ["write", handle, seed, bytes] => {
            let bytes = content(number(seed)?, number(bytes)? as usize);
            client::write(fd(files, handle)?, &[IoSlice::new(&bytes)], None, 0)
        }
        ["pwrite", handle, offset, seed, bytes] => {
            let bytes = content(number(seed)?, number(bytes)? as usize);
            let (first, second) = bytes.split_at(bytes.len() / 3);
            let parts = [IoSlice::new(first), IoSlice::new(&[]), IoSlice::new(second)];
            client::write(fd(files, handle)?, &parts, Some(number(offset)?), 0)
        }
        ["sync", handle] => client::sync(fd(files, handle)?, client::SyncKind::Full).map(|_| 0),
        ["truncate", handle, bytes] => {
            client::truncate(fd(files, handle)?, number(bytes)?).map(|()| 0)
        }
        ["retire", handle] => client::retire(fd(files, handle)?).map(|()| 0),
        ["absorbs", handle] => Ok(usize::from(client::absorbs(fd(files, handle)?))),
        ["give_up"] => {
            client::give_up("as asked");
            Ok(0)
        }
        // As a signal handler does it above another call of the client.
        ["interrupting", ref call_words @ ..] => {
            // The stack grows downwards.
            let [inner, outer] = &[client::Frame::new(), client::Frame::new()];
            let _inside = (client::enter(outer), client::enter(inner));
            call(call_words, files)
        }
        ["hidden", handle] => Ok(client::hidden_flags(fd(files, handle)?) as usize),
        ["rename" | "exchange" | "link" | "unlink", ..] => change_names(words, || ()),
        // killed CALL: when the kernel is about to do it.
        ["killed", ref names @ ..] => change_names(names, || {
            let _ = kill_process(getpid(), Signal::KILL);
        }),
        // slowly FILE CALL: there is FILE when the kernel is about to do it, which waits until it
        // is removed.
        ["slowly", at, ref names @ ..] => change_names(names, || wait_at(Path::new(at))),
        // touch HANDLE SECONDS: sets the modification time, SECONDS after now
        ["touch", handle, seconds] => {
            let seconds: i64 = seconds.parse().map_err(|_| Errno::INVAL)?;
            let raw = fd(files, handle)?;
            let fd = files.get(handle).ok_or(Errno::BADF)?;
            let time = Timespec {
                tv_sec: clock_gettime(ClockId::Realtime).tv_sec + seconds,
                tv_nsec: 0,
            };
            let times = Timestamps {
                last_access: time,
                last_modification: time,
            };
            client::touching(raw, || rustix::fs::futimens(fd, &times)).map(|()| 0)
        }
        // room HANDLE BYTES: `fallocate` that keeps the size
        ["room", handle, bytes] => {
            let raw = fd(files, handle)?;
            let fd = files.get(handle).ok_or(Errno::BADF)?;
            let keep = FallocateFlags::KEEP_SIZE;
            let bytes = number(bytes)?;
            client::touching(raw, || rustix::fs::fallocate(fd, keep, 0, bytes)).map(|()| 0)
        }
        ["exhaust"] => exhaust().map(|()| 0),
        _ => Err(Errno::NOSYS),
    }
}
