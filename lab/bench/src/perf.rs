//! Processor time inside fsync, by Linux's `perf`: its share of a process's samples.
//!
//! P1 reports `__x64_sys_fsync`'s share of core time. Not every machine lets a process be sampled
//! with kernel stacks (perf is not installed, `kernel.perf_event_paranoid`, no symbols): then
//! [`Sampler::start`] or [`Sampler::share`] say why, and the caller names its substitute.

use crate::processes::{Process, find_program};
use rustix::process::Signal;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Samples a second. Not a divisor of timers' frequencies, so that nothing periodic is always hit.
const HERTZ: &str = "1997";
/// How long perf may take to begin or to end.
const PATIENCE: Duration = Duration::from_secs(20);

/// Kernel functions that every fsync or fdatasync goes through.
const SYNCS: [&str; 4] = [
    "do_fsync",
    "vfs_fsync_range",
    "_sys_fsync",
    "_sys_fdatasync",
];

/// A running `perf record`.
pub struct Sampler {
    perf: Process,
    program: PathBuf,
    samples: PathBuf,
}

impl Sampler {
    /// Samples the process `pid` from now on, into a file in `dir`.
    ///
    /// # Errors
    /// In words, why perf cannot.
    pub fn start(pid: u32, dir: &Path) -> Result<Self, String> {
        let program =
            find_program("perf").ok_or("perf is not installed: apt-get install linux-perf")?;
        let (samples, said) = (dir.join("perf.data"), dir.join("perf.out"));
        let output = fs::File::create(&said).map_err(|e| format!("{}: {e}", said.display()))?;
        let mut command = Command::new(&program);
        command
            .args(["record", "-F", HERTZ, "-g", "-o"])
            .arg(&samples)
            .args(["-p", &pid.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(output);
        let mut perf = Process::spawn(&mut command).map_err(|e| e.to_string())?;
        // It samples once its file has a header.
        let until = Instant::now() + PATIENCE;
        while fs::metadata(&samples).map_or(0, |meta| meta.len()) == 0 {
            if perf.ended().is_some() || Instant::now() > until {
                let said = fs::read_to_string(&said).unwrap_or_default();
                let why = said.trim().lines().next().unwrap_or("no reason");
                return Err(format!(
                    "perf is not permitted ({why}); see kernel.perf_event_paranoid"
                ));
            }
            thread::sleep(Duration::from_millis(5));
        }
        thread::sleep(Duration::from_millis(100));
        Ok(Self {
            perf,
            program,
            samples,
        })
    }

    /// Ends the sampling: the share of samples inside fsync or fdatasync, 0 to 1.
    ///
    /// # Errors
    /// In words, why there is none: no samples, or none with kernel symbols.
    pub fn share(mut self) -> Result<f64, String> {
        self.perf.handle().signal(Signal::INT);
        self.perf.wait(PATIENCE).map_err(|e| e.to_string())?;
        let script = Command::new(&self.program)
            .args(["script", "-F", "ip,sym", "-i"])
            .arg(&self.samples)
            .stdin(Stdio::null())
            .output()
            .map_err(|e| format!("running perf script: {e}"))?;
        share(&String::from_utf8_lossy(&script.stdout))
    }
}

/// The share of stacks with one of [`SYNCS`] in them. A stack is some lines `ADDRESS SYMBOL`, and
/// an empty line.
fn share(script: &str) -> Result<f64, String> {
    const KERNEL: [&str; 3] = ["entry_SYSCALL_64", "_sys_", "el0_svc"];
    let stacks = || {
        script
            .split("\n\n")
            .filter(|stack| !stack.trim().is_empty())
    };
    let with = |names: &[&str]| {
        let has = |stack: &&str| names.iter().any(|name| stack.contains(name));
        stacks().filter(has).count()
    };
    let all = stacks().count();
    if all == 0 {
        return Err("perf took no samples".to_owned());
    }
    if with(&KERNEL) == 0 {
        return Err("perf sees no kernel functions here; see kernel.perf_event_paranoid and kernel.kptr_restrict".to_owned());
    }
    Ok(with(&SYNCS) as f64 / all as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_that_of_stacks_inside_a_sync() {
        let script = "\n    ffffffff81 crc32c\n    55d0 main\n\n    ffffffff82 ext4_sync_file\n    ffffffff83 __x64_sys_fdatasync\n    \
                      ffffffff84 entry_SYSCALL_64_after_hwframe\n\n    7f01 memcpy\n\n    7f01 memcpy\n\n";
        assert_eq!(share(script), Ok(0.25));
    }

    #[test]
    fn no_samples_or_no_kernel_symbols_are_no_figure() {
        assert!(share("").unwrap_err().contains("no samples"));
        assert!(
            share("  55d0 [unknown]\n\n 55d1 main\n")
                .unwrap_err()
                .contains("kptr_restrict")
        );
    }
}
