//! A shell in the guest, for what this machine wants it to do.

use crate::{Failure, initramfs::Initramfs, machine::Machine};
use std::{
    io::{Read, Write},
    net::{Shutdown, TcpStream},
    thread,
    time::{Duration, Instant},
};

/// The guest's port of it.
pub const PORT: u16 = 7000;

/// What comes behind a script's output, before its status.
const ENDED: &str = "LAB ended ";

/// Makes the guest one that does nothing but what it is told.
///
/// # Errors
/// Busybox cannot be read.
pub fn add(guest: &mut Initramfs) -> Result<(), Failure> {
    guest.add_init(include_str!("shell.sh"))
}

/// What a script printed, of all that came; none if it did not end.
fn ended(said: &str) -> Option<Result<&str, &str>> {
    let (printed, status) = said.rsplit_once(ENDED)?;
    Some(match status.trim() {
        "0" => Ok(printed),
        _ => Err(printed),
    })
}

/// What can be told to run a script.
pub trait Shell {
    /// Runs a script in the guest, which ends with the first command that fails, and gives what it
    /// printed. What it leaves behind in the background must not have its output.
    ///
    /// # Errors
    /// A command fails, or it takes longer than `limit`; with what it printed.
    fn sh(&self, script: &str, limit: Duration) -> Result<String, Failure>;

    /// Waits until there is a shell.
    ///
    /// # Errors
    /// As [`sh`](Self::sh).
    fn wait_shell(&self, limit: Duration) -> Result<(), Failure> {
        let until = Instant::now() + limit;
        loop {
            match self.sh("true", Duration::from_secs(10)) {
                Err(why) if Instant::now() >= until => return Err(why),
                // QEMU takes the connection before the guest listens.
                Err(_) => thread::sleep(Duration::from_millis(100)),
                Ok(_) => return Ok(()),
            }
        }
    }
}

impl Shell for Machine {
    fn sh(&self, script: &str, limit: Duration) -> Result<String, Failure> {
        let until = Instant::now() + limit;
        let mut stream = TcpStream::connect(("127.0.0.1", self.port(PORT)))?;
        // Its errors would go to the console.
        writeln!(
            stream,
            "(set -e\n{script}\n) 2>&1\necho \"{ENDED}$?\"; exit"
        )?;
        let (mut said, mut part) = (Vec::new(), [0; 4096]);
        loop {
            let text = String::from_utf8_lossy(&said);
            match ended(&text) {
                Some(Ok(printed)) if text.ends_with('\n') => return Ok(printed.to_owned()),
                Some(Err(printed)) if text.ends_with('\n') => {
                    return Err(format!("in the guest: {}", printed.trim_end()).into());
                }
                _ => {}
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let _ = stream.shutdown(Shutdown::Both);
                return Err(format!("in the guest nothing ended for {limit:?}: {text}").into());
            }
            stream.set_read_timeout(Some(left))?;
            match stream.read(&mut part) {
                Ok(0) => return Err(format!("the guest's shell ended: {text}").into()),
                Ok(bytes) => said.extend(&part[..bytes]),
                Err(error)
                    if matches!(
                        error.kind(),
                        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted
                    ) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_succeeds_and_fails_with_what_it_printed() {
        assert_eq!(ended("a\nb\n"), None);
        assert_eq!(ended("a\nb\nLAB ended 0\n"), Some(Ok("a\nb\n")));
        assert_eq!(ended("no file\nLAB ended 1\n"), Some(Err("no file\n")));
    }
}
