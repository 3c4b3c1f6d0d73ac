//! So many logs in one process that each look at all of them would be felt.

use super::{Lab, content, eventually};
use rustix::{
    fs::StatVfs,
    process::{Resource, Rlimit, getrlimit, setrlimit},
};
use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

const APPEND: i32 = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND;
const OTHER_BOOT: &str = "00000000-0000-0000-0000-00000000b007";
/// Descriptors of the supervisor's for each, as it counts them.
const OPEN_OF_FILE: u64 = 2;
/// And others.
const OTHERS_OPEN: u64 = 1024;
/// Bytes that each takes, with its copy and its place in what the run shares.
const BYTES_EACH: u64 = 16 << 10;
/// And others.
const OTHERS_BYTES: u64 = 64 << 20;

/// How many can be open, up to so many, as root lets a process have files open.
pub fn most(wanted: usize) -> usize {
    let limit = |count: u64| Rlimit {
        current: Some(count),
        maximum: Some(count),
    };
    let needed = wanted as u64 * OPEN_OF_FILE + OTHERS_OPEN;
    let there = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let there = match setrlimit(Resource::Nofile, limit(there.max(needed))) {
        Ok(()) => there.max(needed),
        Err(_) => there,
    };
    setrlimit(Resource::Nofile, limit(there)).unwrap();
    let most = there.saturating_sub(OTHERS_OPEN) / OPEN_OF_FILE;
    wanted.min(most as usize)
}

/// Has `count` logs open in one process, kills all, cuts the power, and recovers.
pub fn have_all_after_a_kill(count: usize) {
    // In memory, if there is as much, where a sync costs nothing: a disk would be what takes the
    // time.
    let shared = Path::new("/dev/shm");
    let needed = OTHERS_BYTES + count as u64 * BYTES_EACH;
    let is_room = |there: StatVfs| there.f_bavail * there.f_frsize >= needed;
    let lab = match rustix::fs::statvfs(shared).is_ok_and(is_room) {
        true => Lab::within(shared),
        false => Lab::new(),
    };
    let mut run = lab.run();
    let path = |n: usize| lab.data(&format!("{n}.log"));
    for n in 0..count {
        assert_eq!(run.open_only(&format!("f{n}"), &path(n), APPEND), 1, "{n}");
        run.call(format!("write f{n} {} 100", n % 50)).unwrap();
    }
    // All of them get their first syncs side by side, and nobody asks.
    let mut synced = 0;
    while synced < count {
        let there = |n: &usize| lab.synced(&path(*n)).exists();
        assert!(eventually(|| there(&synced)), "{synced} of {count} were");
        synced += (synced..count).take_while(there).count();
    }
    for n in (0..count).rev() {
        run.call(format!("write f{n} {} 60", n % 40)).unwrap();
        run.call(format!("sync f{n}")).unwrap();
    }
    run.kill_both();
    power_cut(&lab, count, path);
    lab.recover(Some(OTHER_BOOT), &[]);
    for n in 0..count {
        let expected = [content((n % 50) as u64, 100), content((n % 40) as u64, 60)].concat();
        assert_eq!(fs::read(path(n)).unwrap(), expected, "{n}");
    }
    assert_eq!(lab.lanes(), 0);
}

/// As [`Lab::power_cut`], by a few programs instead of one a file.
fn power_cut(lab: &Lab, count: usize, path: impl Fn(usize) -> PathBuf) {
    let mut copies = Command::new("xargs");
    copies.args(["-0", "cp", "--preserve=timestamps", "-t"]);
    copies.arg(lab.data("")).stdin(Stdio::piped());
    let mut copies = copies.spawn().unwrap();
    let mut input = copies.stdin.take().unwrap();
    for n in 0..count {
        let path = path(n);
        let synced = lab.synced(&path);
        let times = fs::metadata(path).unwrap().modified().unwrap();
        let file = fs::File::options().write(true).open(&synced).unwrap();
        file.set_modified(times).unwrap();
        input
            .write_all(synced.as_os_str().as_encoded_bytes())
            .unwrap();
        input.write_all(b"\0").unwrap();
    }
    drop(input);
    assert!(copies.wait().unwrap().success());
}
