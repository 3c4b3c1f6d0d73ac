//! A MariaDB server in the guest, with the options that it has here.

use crate::{Failure, initramfs::Initramfs, machine::Machine, shell::Shell};
use forebay_databases::mariadb::server;
use std::{fs, path::Path, time::Duration};

/// The guest's port of its server.
pub const PORT: u16 = 3306;

/// Clients that may connect at the same moment.
pub const CLIENTS: usize = 16;

/// Where the server looks for its messages.
const MESSAGES: &str = "/usr/share/mysql/english/errmsg.sys";

/// Adds the server and its messages. `home` is where a smaller program is made.
///
/// # Errors
/// It is not installed, with the remedy; those of [`Initramfs::add_stripped`].
pub fn add_server(guest: &mut Initramfs, home: &Path) -> Result<(), Failure> {
    guest.add_stripped(&server::program("mariadbd")?, home, "/lab/mariadbd")?;
    let messages = fs::read(MESSAGES).map_err(|e| format!("reading {MESSAGES}: {e}"))?;
    guest.add(MESSAGES, messages);
    Ok(())
}

/// Starts it on the data directory `/data/data`, with what stands `before` it on the command line,
/// and waits until it serves, without asking who comes.
///
/// # Errors
/// It ends, with what it said; it takes longer than `limit`.
pub fn start(
    machine: &Machine,
    before: &str,
    options: &[String],
    limit: Duration,
) -> Result<(), Failure> {
    let options = options.join(" ");
    let script = format!(
        "{before} mariadbd --no-defaults --user=root --datadir=/data/data --socket=/run/mariadb --pid-file=/run/mariadb.pid --port={PORT} \
         --bind-address=0.0.0.0 --skip-grant-tables --skip-name-resolve {options} < /dev/null > /run/mariadb.out 2>&1 &
         until netstat -lnt | grep -q ':{PORT} '; do
             kill -0 $! || {{ tail -n 30 /run/mariadb.out; exit 1; }}
             sleep 0.2
         done"
    );
    machine.sh(&script, limit).map(drop)
}

/// Has it end in the orderly way, and what stands before it, and everything be on the disks.
///
/// # Errors
/// It takes longer than `limit`.
pub fn stop(machine: &Machine, limit: Duration) -> Result<(), Failure> {
    let script = "kill $(pidof mariadbd)
        while pidof mariadbd forebay > /dev/null; do sleep 0.2; done
        sync
        umount -a -t ext4";
    machine.sh(script, limit).map(drop)
}
