//! Processes of a measurement ([`forebay_measure::processes`]), and what the kernel says of one.

pub use forebay_measure::{processes::*, server::said_by};

use crate::BenchError;
use std::{fs, process::Command};

/// The command of these words: a program, and its first arguments.
///
/// # Errors
/// [`BenchError::Config`] without any.
pub(crate) fn command(words: &[String]) -> Result<Command, BenchError> {
    let Some((program, arguments)) = words.split_first() else {
        return Err(BenchError::Config("no command for the child".to_owned()));
    };
    let mut command = Command::new(program);
    command.args(arguments);
    Ok(command)
}

/// The processor time that a process has had, all its threads: in its own code and in the kernel, microseconds.
pub(crate) fn processor_time(pid: i32) -> Option<[f64; 2]> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name, which may hold anything.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut ticks = fields.split_whitespace().skip(11).map(str::parse::<f64>);
    let mut us =
        || Some(ticks.next()?.ok()? * 1e6 / rustix::param::clock_ticks_per_second() as f64);
    Some([us()?, us()?])
}

/// A size in the kernel's status of a process, as `RssAnon`, in bytes.
pub(crate) fn status_bytes(process: &str, name: &str) -> Option<u64> {
    kib(&format!("/proc/{process}/status"), name).map(|kib| kib * 1024)
}

/// A size of `name: N kB` in a file of the kernel's.
pub(crate) fn kib(path: &str, name: &str) -> Option<u64> {
    let size = field(path, name, ':')?;
    size.strip_suffix("kB")?.trim().parse().ok()
}

/// The value of the first line that begins with `name`.
pub(crate) fn field(path: &str, name: &str, separator: char) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    let (_, value) = line.split_once(separator)?;
    Some(value.trim().trim_matches('"').to_owned())
}
