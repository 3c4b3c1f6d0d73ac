//! Facts from /proc about processes, ours and others.

use rustix::{
    fs::{OFlags, Stat, major, minor},
    io::Errno,
    process::{Pid, test_kill_process},
};
use std::{fs::DirEntry, io::ErrorKind, path::PathBuf};

/// True if there is a process, or thread, with this id that has not ended, or if that cannot be
/// told.
pub(crate) fn is_process(id: u32) -> bool {
    match has_ended(id) {
        Ok(ended) => !ended,
        Err(e) => e.kind() != ErrorKind::NotFound,
    }
}

/// True if it is certain that there is no process, or thread, with this id that has not ended; also
/// where /proc shows only some.
pub(crate) fn is_gone(id: u32) -> bool {
    let is_unknown = || {
        let pid = i32::try_from(id).ok().and_then(Pid::from_raw);
        pid.is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH))
    };
    has_ended(id).unwrap_or_else(|e| e.kind() == ErrorKind::NotFound && is_unknown())
}

/// True if it has ended and is only not waited for.
fn has_ended(id: u32) -> std::io::Result<bool> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat"))?;
    // Behind the name, which may have any characters.
    let state = stat.rsplit_once(") ").map(|(_, rest)| rest);
    Ok(state.is_some_and(|state| state.starts_with(['Z', 'X'])))
}

/// A process as another one noted it: its number, which the kernel gives anew once it has ended,
/// and its [start].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NotedProcess {
    pub(crate) id: u32,
    /// 0 if it is not known.
    pub(crate) start: u32,
}

impl NotedProcess {
    /// True if it has not ended, or if that cannot be told.
    pub(crate) fn lives(self) -> bool {
        is_process(self.id) && !self.is_reused()
    }

    /// True if another process has the number.
    fn is_reused(self) -> bool {
        let now = start(self.id);
        self.start != 0 && now != 0 && now != self.start
    }
}

/// The low 32 bits of the time at which a process, or thread, started, in clock ticks since the
/// machine's start. It is 0 if that is not known, as in a time namespace, which shifts what is
/// said.
pub(crate) fn start(id: u32) -> u32 {
    /// Behind the name.
    const START: usize = 19;
    let read = || -> Option<u64> {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        let (_, behind_name) = stat.rsplit_once(") ")?;
        behind_name.split(' ').nth(START)?.parse().ok()
    };
    match is_time_shifted() {
        true => 0,
        #[expect(clippy::cast_possible_truncation, reason = "its low bits")]
        false => read().unwrap_or(0) as u32,
    }
}

/// True if this process is in a time namespace whose time since the machine's start differs.
fn is_time_shifted() -> bool {
    let offsets = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    let mut clocks = offsets.lines().map(str::split_ascii_whitespace);
    let since_start = clocks.find_map(|mut words| (words.next()? == "boottime").then_some(words));
    since_start.is_some_and(|mut shift| shift.any(|part| part != "0"))
}

/// True if the process is a child of ours, or a child's.
pub(crate) fn is_descendant(id: u32) -> bool {
    /// More generations are a parent that went and came again.
    const GENERATIONS: usize = 64;
    let parent = |id: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        let (_, behind_name) = stat.rsplit_once(") ")?;
        behind_name.split(' ').nth(1)?.parse().ok()
    };
    std::iter::successors(Some(id), parent)
        .take(GENERATIONS)
        .any(|id| id == std::process::id())
}

/// A process's name, as `ps` has it.
pub(crate) fn name_of_process(id: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{id}/comm"));
    name.map_or_else(|_| "?".to_owned(), |name| name.trim_end().to_owned())
}

/// A process that has a file mapped.
pub(crate) struct MappingProcess {
    pub(crate) id: u32,
    /// True if it may write to the file's first page.
    pub(crate) writes: bool,
}

/// The processes that have a file mapped, as far as /proc shows that.
pub(crate) fn that_map(stat: &Stat) -> Vec<MappingProcess> {
    let device = format!("{:02x}:{:02x}", major(stat.st_dev), minor(stat.st_dev));
    let inode = stat.st_ino.to_string();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mapping = ids.filter_map(|id: u32| {
        let maps = std::fs::read(format!("/proc/{id}/maps")).ok()?;
        let maps = String::from_utf8_lossy(&maps);
        let lines = maps.lines().map(|line| {
            let mut words = line.split_ascii_whitespace().skip(1);
            [(); 4].map(|()| words.next().unwrap_or_default())
        });
        let mut its = lines
            .filter(|[_, _, of, number]| *of == device && *number == inode)
            .peekable();
        its.peek()?;
        let writes = its.any(|[rights, offset, ..]| {
            rights.contains('w') && offset.bytes().all(|digit| digit == b'0')
        });
        Some(MappingProcess { id, writes })
    });
    mapping.collect()
}

/// True if a process was started with these bytes in its environment; none if that cannot be read.
/// Its memory may take for ever to be read, if that is what the process is after.
pub(crate) fn has_in_environment(id: u32, bytes: &str) -> Option<bool> {
    let environment = std::fs::read(format!("/proc/{id}/environ")).ok()?;
    let mut parts = environment.windows(bytes.len());
    // One that is gone but not waited for has none.
    (!environment.is_empty()).then(|| parts.any(|part| part == bytes.as_bytes()))
}

/// All processes; none where there is no /proc.
pub(crate) fn all() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// True if the process is known to have the file in its memory.
pub(crate) fn has_mapped(id: u32, file: &Stat) -> bool {
    let (major, minor) = (major(file.st_dev), minor(file.st_dev));
    let wanted = (format!("{major:02x}:{minor:02x}"), file.st_ino.to_string());
    let maps = std::fs::read_to_string(format!("/proc/{id}/maps"));
    maps.is_ok_and(|maps| {
        maps.lines().any(|line| {
            let mut words = line.split_ascii_whitespace().skip(3);
            (words.next(), words.next()) == (Some(&*wanted.0), Some(&*wanted.1))
        })
    })
}

/// True if the process has Forebay's library; none if that cannot be told, or if it is about to
/// end.
pub(crate) fn has_library(id: u32) -> Option<bool> {
    const LIBRARY: &str = "/libforebay";
    let maps = std::fs::read_to_string(format!("/proc/{id}/maps")).ok()?;
    (!maps.is_empty()).then(|| maps.contains(LIBRARY))
}

/// True if the process executes the same program as this one.
pub(crate) fn is_this_program(id: u32) -> bool {
    let file = |of: String| {
        let stat = rustix::fs::stat(format!("/proc/{of}/exe")).ok()?;
        Some((stat.st_dev, stat.st_ino))
    };
    let theirs = file(id.to_string());
    theirs.is_some() && theirs == file("self".to_owned())
}

/// True if the process has a filter of system calls (seccomp) that this one has not: an agent's, or
/// one of its own.
pub(crate) fn has_more_filters(id: u32) -> bool {
    let filters = |of: String| {
        let status = std::fs::read_to_string(format!("/proc/{of}/status")).ok()?;
        let line = |line: &str| line.strip_prefix("Seccomp_filters:")?.trim().parse().ok();
        status.lines().find_map(line)
    };
    let (theirs, own): (Option<u32>, _) = (filters(id.to_string()), filters("self".to_owned()));
    theirs > own
}

/// Files that the process has open to be written to, as far as it may be looked at.
pub(crate) fn written_by(id: u32) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(format!("/proc/{id}/fd"));
    let entries = entries.into_iter().flatten().flatten();
    let is_written = |fd: &DirEntry| {
        let info = format!("/proc/{id}/fdinfo/{}", fd.file_name().to_string_lossy());
        let info = std::fs::read_to_string(info).unwrap_or_default();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
        flags.is_some_and(|flags| flags & OFlags::ACCMODE.bits() != 0)
    };
    let written = entries.filter(is_written);
    written
        .filter_map(|fd| fd.path().read_link().ok())
        .collect()
}

/// The files, if they are files, that are this process's standard input, output and error output.
pub(crate) fn standard_streams() -> Vec<PathBuf> {
    let all = (0..3).map(|fd| std::fs::read_link(format!("/proc/self/fd/{fd}")));
    all.flatten().collect()
}

/// The process that a thread is of.
pub(crate) fn of_thread(thread: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let process = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    process?.trim().parse().ok()
}
