//! P4, figure 7: what is lost in a crash, of 60,000 distinct keys that were acknowledged.
//!
//! SIGKILL alone loses nothing that the server has written: the kernel still has it. So the server
//! is killed, and then its append-only file is put back to what was *really synced* at that moment,
//! which is the worst that a power cut could leave:
//!
//! * of a plain server: strace says when each sync that succeeded began; what the client had sent
//!   by then, it covers;
//! * under `forebay run`: the supervisor copies a file whenever it has synced it
//!   (`FOREBAY_TEST_SYNCED`), and the next start is made to believe that it is another boot
//!   (`FOREBAY_TEST_BOOT_ID`), so that it replays the pool to the file;
//! * where all is in NVM, the files are there as they were.
//!
//! That `forebay` has to be one that was built with failpoints.
//!
//! Then the server is started on it, and every key is looked for.

use super::{
    lab::{Lab, SERVER},
    outcome::Measured,
};
use crate::{
    BenchError,
    contest::{Mode, Pools, Syncs},
    mix,
    place::HERE,
    processes::find_program,
    redis::{
        modes::{ALWAYS, EVERYSEC, FOREBAY, NVM},
        resp::{Connection, Reply, expect_ok, unexpected},
        stage::Rewrites,
    },
    scratch::ScratchDir,
};
use rustix::process::Signal;
use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

const MODES: [Mode; 4] = [EVERYSEC, ALWAYS, NVM, FOREBAY];
/// Has the supervisor keep a copy of each file as of its last sync, in this directory.
const SYNCED: &str = "FOREBAY_TEST_SYNCED";
/// What a `forebay` with failpoints says of its version.
const WITH_FAILPOINTS: &str = "with failpoints";
const VALUE: &[u8] = b"thirty-two bytes, as P4's values";

pub(super) fn run(lab: &Lab<'_>) -> Result<Measured, BenchError> {
    let keys = lab.size.pick(500, 60_000, 60_000);
    let x = format!("{keys} keys");
    lab.server()?;
    let mut measured = Measured::default();
    for mode in MODES {
        for _ in 0..lab.rounds() {
            match one(lab, mode, keys) {
                Ok(percent) => {
                    lab.note(&format!(
                        "{SERVER} {mode}: {percent:.2} % of {keys} acknowledged keys lost"
                    ));
                    measured.add("lost", HERE, mode.name, &x, &[percent]);
                }
                Err(BenchError::Missing(why)) => {
                    measured.missing("lost", HERE, mode.name, &x, &why);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(measured)
}

/// The percentage that one crash loses; [`BenchError::Missing`] if it cannot be known here.
fn one(lab: &Lab<'_>, mode: Mode, keys: u64) -> Result<f64, BenchError> {
    let scratch = ScratchDir::new_in(lab.dir)?;
    // Small, so that part of the keys is in the file and part in the pool.
    let pools = Pools {
        segment_bytes: 1 << 20,
        ..lab.pools()
    };
    let forebay = match mode == FOREBAY {
        true => with_failpoints(lab.forebay)?,
        false => lab.forebay.to_owned(),
    };
    let lab = Lab {
        forebay: &forebay,
        ..*lab
    };
    let mut stage = lab.stage(mode, HERE, Rewrites::Asked, &pools)?;
    let traced = mode.syncs == Syncs::Disk;
    let trace = scratch.path().join("syncs");
    let copies = scratch.path().join("synced");
    let launch = stage.launch_mut();
    if traced {
        let missing = "strace is not installed: apt-get install strace";
        let strace = find_program("strace");
        let strace = strace.ok_or_else(|| BenchError::Missing(missing.to_owned()))?;
        launch.wrapper = tracer(&strace, &trace);
    }
    if mode == FOREBAY {
        fs::create_dir_all(&copies).map_err(BenchError::io("creating", &copies))?;
        let variable = (SYNCED.into(), copies.clone().into());
        launch.environment.push(variable);
    }
    let mut server = stage.start().map_err(|error| match error {
        BenchError::Child(said) if traced => {
            BenchError::Missing(format!("strace could not trace the server: {said}"))
        }
        other => other,
    })?;
    let sent = server.talk(|connection| promise(connection, keys))?;
    // Its supervisor first, which would write on.
    if mode == FOREBAY {
        server.outer().signal(Signal::KILL);
    }
    server.server().signal(Signal::KILL);
    server.wait()?;

    match mode.syncs {
        Syncs::Disk => {
            let text = fs::read_to_string(&trace).map_err(BenchError::io("reading", &trace))?;
            let synced = last_sync(&text).map_or(0, |began| covered(&sent, began));
            cut_off(stage.data_dir(), keys - synced)
                .map_err(BenchError::io("cutting files in", stage.data_dir()))?;
            stage.launch_mut().wrapper = Vec::new();
        }
        Syncs::Forebay => {
            put_back(stage.data_dir(), &copies)
                .map_err(BenchError::io("putting back files in", stage.data_dir()))?;
            let environment = &mut stage.launch_mut().environment;
            environment.retain(|(name, _)| name != SYNCED);
            let boot = uuid::Uuid::new_v4().to_string();
            environment.push(("FOREBAY_TEST_BOOT_ID".into(), boot.into()));
            // The pool is emulated, and stands for one on persistent memory.
            environment.push(("FOREBAY_TEST_POOL_SURVIVED".into(), "1".into()));
        }
        _ => {}
    }
    let server = stage.start()?;
    let found = server.talk(|connection| count(connection, keys))?;
    server.stop()?;
    Ok((keys - found) as f64 / keys as f64 * 100.0)
}

/// The `forebay` with failpoints: this one, or else the one that `make failpoints` builds.
fn with_failpoints(forebay: &Path) -> Result<PathBuf, BenchError> {
    let profiles = forebay.parent().and_then(Path::parent);
    let built = profiles.map(|profiles| profiles.join("failpoints/forebay"));
    let has_them = |program: &PathBuf| {
        let said = Command::new(program).arg("--version").output();
        said.is_ok_and(|said| String::from_utf8_lossy(&said.stdout).contains(WITH_FAILPOINTS))
    };
    let mut programs = [forebay.to_owned()].into_iter().chain(built);
    programs.find(has_them).ok_or_else(|| {
        let missing = "a power cut can only be played with a forebay that was built with failpoints: make failpoints";
        BenchError::Missing(missing.to_owned())
    })
}

/// What stands before a server to have its syncs that succeed noted, and nothing else slowed.
fn tracer(strace: &Path, output: &Path) -> Vec<OsString> {
    let options = "-f --seccomp-bpf -qq -y -ttt -z -e trace=fsync,fdatasync -e signal=none -o";
    let mut words = vec![strace.as_os_str().to_owned()];
    words.extend(options.split(' ').map(OsString::from));
    words.push(output.into());
    words
}

/// Sets every key, one after the other. When each was sent, seconds since 1970.
fn promise(connection: &mut Connection, keys: u64) -> io::Result<Vec<f64>> {
    let mut sent = Vec::new();
    for number in 0..keys {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        sent.push(since.map_or(0.0, |since| since.as_secs_f64()));
        let reply = connection.command(&[b"SET", mix::key(number).as_bytes(), VALUE])?;
        expect_ok(reply)?;
    }
    Ok(sent)
}

/// Keys that are there with their value.
fn count(connection: &mut Connection, keys: u64) -> io::Result<u64> {
    let mut found = 0;
    for number in 0..keys {
        match connection.command(&[b"GET", mix::key(number).as_bytes()])? {
            Reply::BulkString(value) if value == VALUE => found += 1,
            Reply::Null => {}
            other => return Err(unexpected(&other)),
        }
    }
    Ok(found)
}

/// Keys whose writes had been made when a sync began that covers them. The one that was on its way
/// then may not have been written: one of all is counted as kept that might be lost.
fn covered(sent: &[f64], began: f64) -> u64 {
    sent.partition_point(|time| *time < began) as u64
}

/// When the last sync of the append-only file that succeeded began. Lines are `THREAD TIME
/// fdatasync(9</path>) = 0`.
fn last_sync(trace: &str) -> Option<f64> {
    let ours = trace.lines().filter(|line| line.contains(".incr.aof>"));
    let began = ours.filter_map(|line| line.split_whitespace().nth(1)?.parse().ok());
    began.reduce(f64::max)
}

/// The append-only file that the server appends to.
fn append_only_file(data: &Path) -> io::Result<PathBuf> {
    let entries = fs::read_dir(data.join("appendonlydir"))?.flatten();
    let mut paths = entries.map(|entry| entry.path());
    let found = paths.find(|path| path.to_string_lossy().ends_with(".incr.aof"));
    found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "there is no append-only file"))
}

/// Cuts the last SETs off the append-only file, which ends with all of them, each of the same
/// length.
fn cut_off(data: &Path, sets: u64) -> io::Result<()> {
    let file = File::options().write(true).open(append_only_file(data)?)?;
    let (key, value) = (mix::key(0).len(), VALUE.len());
    let head = format!("*3\r\n$3\r\nSET\r\n${key}\r\n\r\n${value}\r\n\r\n");
    let bytes = sets * (head.len() + key + value) as u64;
    file.set_len(file.metadata()?.len().saturating_sub(bytes))
}

/// Puts every file below `data` that has a copy back to it, with the time of change that it has.
fn put_back(data: &Path, copies: &Path) -> io::Result<()> {
    for entry in fs::read_dir(data)? {
        let path = entry?.path();
        if path.is_dir() {
            put_back(&path, copies)?;
            continue;
        }
        let copy = copies.join(path.strip_prefix("/").unwrap_or(&path));
        if let Ok(bytes) = fs::read(copy) {
            let changed = fs::metadata(&path)?.modified()?;
            let mut file = File::options().write(true).truncate(true).open(&path)?;
            file.write_all(&bytes)?;
            file.set_modified(changed)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_sync_covers_what_was_sent_before_it_began() {
        let trace = "10 100.5 fsync(7</d/x.manifest>) = 0\n\
                     12 102.0 fdatasync(9</d/a.incr.aof>) = 0\n\
                     10 101.0 fdatasync(9</d/a.incr.aof>) = 0\n\
                     10 102.1 fsync(7</d/x.manifest>) = 0\n";
        assert_eq!(last_sync(trace), Some(102.0));
        assert_eq!(last_sync("10 100.5 fsync(7</d/x.manifest>) = 0\n"), None);
        assert_eq!(covered(&[101.0, 101.9, 102.5], 102.0), 2);
    }

    #[test]
    fn the_last_commands_of_a_file_are_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("appendonlydir")).unwrap();
        let path = dir.path().join("appendonlydir/a.aof.1.incr.aof");
        let head = "*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n".to_owned();
        let set = |number| {
            let value = String::from_utf8_lossy(VALUE);
            format!(
                "*3\r\n$3\r\nSET\r\n$16\r\n{}\r\n$32\r\n{value}\r\n",
                mix::key(number)
            )
        };
        fs::write(&path, head.clone() + &set(0) + &set(1) + &set(2)).unwrap();
        cut_off(dir.path(), 2).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), head + &set(0));
    }
}
