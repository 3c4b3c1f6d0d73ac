//! A machine that runs: QEMU with two processors, watched on its console.

use crate::{Failure, kernel::Kernel, watched::WatchedProcess};
use std::{
    ffi::OsStr,
    fs::File,
    net::TcpListener,
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Command, Stdio},
};

/// Starts of a machine whose emulator fails: QEMU 7.2 does, once in some hundred starts on a busy
/// machine, while the guest sets up its interrupts.
const BOOTS_MAX: u32 = 3;
/// What QEMU says then.
const EMULATOR_FAILED: &str = "msix_table_mmio_write: Assertion";

/// A running machine, killed when this is dropped.
pub struct Machine {
    /// QEMU, and what the guest prints.
    pub guest: WatchedProcess,
    /// The guest's ports, and those of this machine that lead there.
    ports: Vec<(u16, u16)>,
}

/// What leads into a machine, and out of it.
pub struct NetworkSetup<'a> {
    /// Ports of the guest that are to be reached from here. One may be named more than once: QEMU
    /// lets only one connection at a time wait for it to be taken, and a client that waits for the
    /// server to speak first waits for ever if its own is not.
    pub ports: &'a [u16],
    /// Further words of QEMU's user network, such as what leads the guest to a program here.
    pub forwards: &'a [String],
}

impl Machine {
    /// Starts one with further words of QEMU's command line for its board, memory and disks, and
    /// parameters of the kernel. What it prints goes to the file `console`.
    ///
    /// # Errors
    /// QEMU is not installed, with the remedy; I/O errors.
    pub fn start(
        kernel: &Kernel,
        devices: impl IntoIterator<Item = impl AsRef<OsStr>>,
        NetworkSetup { ports, forwards }: NetworkSetup<'_>,
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
        for forward in forwards {
            network += &format!(",{forward}");
        }
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
            // A terminal's interrupt is for us.
            .process_group(0)
            .spawn()
            .map_err(|e| {
                format!("qemu-system-x86_64: {e}. Install it: scripts/setup.sh powercut")
            })?;
        Ok(Self {
            guest: WatchedProcess::new(process, console),
            ports: leading,
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
