//! A machine that runs: QEMU with two processors, watched on its console.

use crate::{Failure, kernel::Kernel};
use std::{
    ffi::OsStr,
    fs::{self, File},
    net::TcpListener,
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Starts of a machine whose emulator fails: QEMU 7.2 does, once in some hundred starts on a busy
/// machine, while the guest sets up its interrupts.
const BOOTS_MAX: u32 = 3;
/// What QEMU says then.
const EMULATOR_FAILED: &str = "msix_table_mmio_write: Assertion";

/// A running machine, killed when this is dropped.
pub struct Machine {
    process: Child,
    console: PathBuf,
    /// The guest's ports, and those of this machine that lead there.
    ports: Vec<(u16, u16)>,
    started: Instant,
}

impl Machine {
    /// Starts one with further words of QEMU's command line for its board, memory and disks, ports
    /// of the guest that are to be reached from here, and parameters of the kernel. What it prints
    /// goes to the file `console`. A port may be named more than once: QEMU lets only one
    /// connection at a time wait for it to be taken, and a client that waits for the server to
    /// speak first waits for ever if its own is not.
    ///
    /// # Errors
    /// QEMU is not installed, with the remedy; I/O errors.
    pub fn start(
        kernel: &Kernel,
        devices: impl IntoIterator<Item = impl AsRef<OsStr>>,
        ports: &[u16],
        parameters: &str,
        console: PathBuf,
    ) -> Result<Self, Failure> {
        let mut leading = Vec::new();
        let mut network = "user,id=net,restrict=on".to_owned();
        // Held until all are chosen, then given back: QEMU binds them a moment later.
        let mut held = Vec::new();
        for &inside in ports {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let outside = listener.local_addr()?.port();
            held.push(listener);
            leading.push((inside, outside));
            network += &format!(",hostfwd=tcp:127.0.0.1:{outside}-:{inside}");
        }
        drop(held);
        let output = File::create(&console)?;
        // It ends with us, however we end.
        let process = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "qemu-system-x86_64"])
            .args(kernel.accelerator.options())
            .args(["-cpu", "max", "-smp", "2"])
            .args(devices)
            .args(["-netdev", &network])
            .args(["-device", "virtio-net-pci,netdev=net,romfile="])
            .args(["-display", "none", "-serial", "stdio", "-monitor", "none"])
            .arg("-no-reboot")
            .arg("-kernel")
            .arg(&kernel.image)
            .arg("-initrd")
            .arg(&kernel.initramfs)
            .args([
                "-append",
                // The kernel's own tests of its ciphers have hung in emulation, and that of its
                // timer fails where this machine is busy.
                &format!(
                    "console=ttyS0 quiet panic=-1 mitigations=off audit=0 apparmor=0 cryptomgr.notests no_timer_check {parameters}"
                ),
            ])
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .map_err(|e| {
                format!("qemu-system-x86_64: {e}. Install it: scripts/setup.sh powercut")
            })?;
        Ok(Self {
            process,
            console,
            ports: leading,
            started: Instant::now(),
        })
    }

    /// The ports of this machine that lead to one of the guest's: as many as were asked for.
    #[must_use]
    pub fn ports(&self, inside: u16) -> Vec<u16> {
        let leading = self.ports.iter().filter(|(port, _)| *port == inside);
        leading.map(|&(_, outside)| outside).collect()
    }

    /// The first of them.
    ///
    /// # Panics
    /// If none was asked for.
    #[must_use]
    pub fn port(&self, inside: u16) -> u16 {
        let first = self.ports(inside).first().copied();
        first.unwrap_or_else(|| unreachable!("port {inside} was not asked for"))
    }

    /// Seconds since it was started.
    #[must_use]
    pub fn age(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// What the guest printed.
    #[must_use]
    pub fn console(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.console).unwrap_or_default()).into_owned()
    }

    /// Calls `ready` with the console until it gives something.
    ///
    /// # Errors
    /// The guest says that something failed (`LAB failed`), ends, or takes longer than `limit`;
    /// with what it printed.
    pub fn wait<T>(
        &mut self,
        limit: Duration,
        mut ready: impl FnMut(&str) -> Option<T>,
    ) -> Result<T, Failure> {
        let until = Instant::now() + limit;
        loop {
            let console = self.console();
            if let Some(done) = ready(&console) {
                return Ok(done);
            }
            let why = if let Some(line) = console.lines().find(|line| line.contains("LAB failed")) {
                line.to_owned()
            } else if let Some(status) = self.process.try_wait()? {
                format!("the machine ended ({status})")
            } else if Instant::now() >= until {
                format!("nothing happened for {limit:?}")
            } else {
                thread::sleep(Duration::from_millis(20));
                continue;
            };
            return Err(format!("{why}; the guest said:\n{}", console.trim_end()).into());
        }
    }

    /// Waits until its first process has the kernel's modules, and is about to touch the disks.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_up(&mut self, limit: Duration) -> Result<(), Failure> {
        self.wait(limit, |console| console.contains("LAB up").then_some(()))
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// It takes longer than `limit`; with what it printed.
    pub fn wait_end(&mut self, limit: Duration) -> Result<(), Failure> {
        let until = Instant::now() + limit;
        while self.process.try_wait()?.is_none() {
            if Instant::now() >= until {
                return Err(format!("the guest did not end; it said:\n{}", self.console()).into());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Kills it.
    ///
    /// # Errors
    /// I/O errors.
    pub fn kill(&mut self) -> Result<(), Failure> {
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Ended already, or ours to end.
        let _ = self.kill();
    }
}

/// A machine that `boot` started and that is up; started again if the emulator fails.
///
/// # Errors
/// Those of `boot`.
pub fn until_up<M>(boot: impl Fn() -> Result<M, Failure>) -> Result<M, Failure> {
    let mut booted = boot();
    for _ in 1..BOOTS_MAX {
        match &booted {
            Err(why) if why.to_string().contains(EMULATOR_FAILED) => {
                eprintln!(
                    "the emulator failed before it touched a disk, and is started again: {why}"
                );
                booted = boot();
            }
            _ => break,
        }
    }
    booted
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_machine_is_started_again_only_if_the_emulator_failed() {
        for (why, starts) in [(EMULATOR_FAILED, BOOTS_MAX), ("no such kernel", 1)] {
            let started = Cell::new(0);
            let boot = || {
                started.set(started.get() + 1);
                Err::<(), _>(format!("it ended: {why}").into())
            };
            assert!(until_up(boot).unwrap_err().to_string().contains(why));
            assert_eq!(started.get(), starts, "{why}");
        }
    }
}
