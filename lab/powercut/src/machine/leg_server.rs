//! [`LegServer`]: another machine's memory, as nbdkit has it, that outlives the emulated one. The
//! guest reaches it at an address of its own; on this machine there is a socket in the lab's
//! directory, and no port.

use crate::Failure;
use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// How long a server may take until it listens.
const LISTEN_MAX: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(5);

/// A running server, ended when this is dropped.
pub struct LegServer {
    server: Child,
    socket: PathBuf,
}

impl LegServer {
    /// Serves what `image` has.
    ///
    /// # Errors
    /// nbdkit is not installed, or does not listen.
    pub fn start(image: &Path) -> Result<Self, Failure> {
        let socket = image.with_extension("socket");
        let _ = std::fs::remove_file(&socket);
        // With more threads for a connection nbdkit 1.32 aborts when its client is gone amid
        // requests. It ends with us, however we end.
        let server = Command::new("nbdkit")
            .args([
                "--foreground",
                "--exit-with-parent",
                "--threads",
                "1",
                "--unix",
            ])
            .arg(&socket)
            .args(["file"])
            .arg(image)
            .stdin(Stdio::null())
            .spawn()
            .map_err(|e| format!("nbdkit: {e}. Install it: scripts/setup.sh powercut"))?;
        let mut leg = Self { server, socket };
        let until = Instant::now() + LISTEN_MAX;
        while !leg.socket.exists() {
            if let Some(status) = leg.server.try_wait()? {
                return Err(format!("nbdkit: {status}").into());
            }
            if Instant::now() > until {
                return Err("nbdkit does not listen".into());
            }
            thread::sleep(PAUSE);
        }
        Ok(leg)
    }

    /// What leads a connection of the guest's to `address` there, as QEMU's user network takes it:
    /// each one by a program of its own.
    pub fn forward(&self, address: &str) -> String {
        let socket = self.socket.display();
        format!("guestfwd=tcp:{address}-cmd:socat STDIO UNIX-CONNECT:{socket}")
    }
}

impl Drop for LegServer {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
