//! Connections: the first messages that a user may send, and the time limits. docs/durability.md,
//! "Who trusts whom".
//!
//! The socket's name is no secret and any user can connect, so nothing that a stranger does may
//! keep a process of the run from being heard. The first message has a time limit, each user a
//! limit of connections that have said nothing yet, and an error of `accept` ends nothing.

use super::{SupervisorState, child_agents, member};
use crate::{
    sys,
    wire::{self, ClientRequest, SupervisorAnswer},
};
use parking_lot::Mutex;
use rustix::{
    fs::{MemfdFlags, Mode, OFlags},
    io::Errno,
    net::{SocketFlags, sockopt},
};
use std::{
    collections::HashMap,
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, atomic::Ordering::Acquire},
    thread,
    time::Duration,
};
use uuid::Uuid;

/// The longest time of a connection to name its purpose, and to take an answer.
const FIRST_WAIT: Duration = Duration::from_secs(5);
/// Wait after an error of `accept`: there are no descriptors, or no memory.
const BACK_OFF: Duration = Duration::from_millis(20);
/// Connections of one user that have said nothing yet, at most: more are closed, and come again.
const SILENT_MAX: usize = 64;
/// And of all users.
const SILENT_ALL_MAX: usize = 512;

/// Connections that have said nothing yet, by user.
#[derive(Default)]
pub(super) struct SilentConnections(Mutex<HashMap<u32, usize>>);

/// One of them.
struct SilentPlace<'a>(&'a SilentConnections, u32);

impl SilentConnections {
    fn place(&self, uid: u32) -> Option<SilentPlace<'_>> {
        let mut silent = self.0.lock();
        let all: usize = silent.values().sum();
        let own = silent.entry(uid).or_default();
        if *own >= SILENT_MAX || all >= SILENT_ALL_MAX {
            return None;
        }
        *own += 1;
        Some(SilentPlace(self, uid))
    }
}

impl Drop for SilentPlace<'_> {
    fn drop(&mut self) {
        let mut silent = self.0.0.lock();
        if let Some(own) = silent.get_mut(&self.1) {
            *own -= 1;
            if *own == 0 {
                silent.remove(&self.1);
            }
        }
    }
}

/// Connections that could not be served. The first is reported at once, since the process may stay
/// plain for it, and how many there were at the end.
#[derive(Default)]
struct RefusedConnections(u64);

impl RefusedConnections {
    fn add(&mut self, why: &io::Error) {
        self.0 += 1;
        if self.0 == 1 {
            sys::complain(&format!("a process of the program was not heard: {why}"));
        }
    }
}

impl Drop for RefusedConnections {
    fn drop(&mut self) {
        if self.0 > 1 {
            let times = self.0;
            sys::complain(&format!(
                "so it was {times} times in all: a process that is not heard asks again, or its files stay plain"
            ));
        }
    }
}

/// Takes connections until the supervisor stops.
pub(super) fn run(shared: &Arc<SupervisorState>, socket: &OwnedFd) {
    let mut complained = false;
    let mut unheard = RefusedConnections::default();
    loop {
        let accepted = rustix::net::accept_with(socket.as_fd(), SocketFlags::CLOEXEC);
        if shared.stopping.load(Acquire) {
            return;
        }
        match accepted {
            Ok(connection) => {
                if let Err(why) = admit(shared, connection) {
                    unheard.add(&why);
                }
            }
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            Err(errno) => {
                if !complained {
                    sys::complain(&format!(
                        "processes of the program wait to be heard: {errno}"
                    ));
                    complained = true;
                }
                thread::sleep(BACK_OFF);
            }
        }
    }
}

/// Serves a connection by a thread of its own.
///
/// # Errors
/// There is no thread for it. It is closed: the process asks again, or its files stay plain.
fn admit(shared: &Arc<SupervisorState>, connection: OwnedFd) -> io::Result<()> {
    let Ok(peer) = sys::peer(connection.as_fd()) else {
        return Ok(());
    };
    let wait = |which| sockopt::set_socket_timeout(&connection, which, Some(FIRST_WAIT));
    if wait(sockopt::Timeout::Recv).is_err() || wait(sockopt::Timeout::Send).is_err() {
        return Ok(());
    }
    let shared = Arc::clone(shared);
    let serving = move || {
        let first = {
            let Some(_place) = shared.silent.place(peer.1) else {
                return;
            };
            wire::receive::<ClientRequest>(connection.as_fd())
        };
        if let Ok((first, _)) = first {
            serve(&shared, connection, peer, first);
        }
    };
    let thread = thread::Builder::new().name("client".into());
    thread.spawn(serving).map(drop)
}

/// Does what the `first` message of a connection asks; at its other end are this process and user.
fn serve(
    shared: &Arc<SupervisorState>,
    connection: OwnedFd,
    (pid, uid): (u32, u32),
    first: ClientRequest,
) {
    let known = |token: Uuid| token == shared.token;
    let mut along: Vec<OwnedFd> = Vec::new();
    let answer = match first {
        ClientRequest::Hello { version, token } if known(token) => {
            let own = wire::version();
            if version == own {
                return member::handshake(shared, &Arc::new(connection), (pid, uid));
            }
            let reason = format!(
                "the library speaks version {version}, the supervisor {own}: install forebay and libforebay.so of one release"
            );
            SupervisorAnswer::Refused { reason }
        }
        ClientRequest::Status { token } if known(token) || may_look(uid) => match status(shared) {
            Ok(file) => {
                along.push(file);
                SupervisorAnswer::Status
            }
            Err(errno) => SupervisorAnswer::Refused {
                reason: format!("the status: {errno}"),
            },
        },
        ClientRequest::Foreign { token, dev, ino } if known(token) => {
            shared.let_go((dev, ino));
            SupervisorAnswer::Done
        }
        ClientRequest::OtherRunAnswer { dev, ino } => match shared.may_ask(uid, (dev, ino)) {
            true => {
                shared.let_go((dev, ino));
                SupervisorAnswer::Done
            }
            false => SupervisorAnswer::Refused {
                reason: "the file is not yours to write to".into(),
            },
        },
        ClientRequest::Table { token } if known(token) => match table(shared) {
            Ok(both) => {
                along.extend(both);
                SupervisorAnswer::Done
            }
            Err(errno) => SupervisorAnswer::Refused {
                reason: format!("the table: {errno}"),
            },
        },
        ClientRequest::Agent {
            token,
            path,
            is_filtered,
        } if known(token) => {
            let path = child_agents::path_of(path);
            match child_agents::admit(shared, (pid, uid), &path, is_filtered) {
                Ok(()) => {
                    let _ = wire::send(connection.as_fd(), &SupervisorAnswer::Done, &[]);
                    return child_agents::serve(shared, connection, pid, path);
                }
                Err(reason) => SupervisorAnswer::Refused { reason },
            }
        }
        ClientRequest::Plain {
            token,
            path,
            reason,
        } if known(token) => {
            shared.stays_plain(pid, path, reason);
            return;
        }
        _ => SupervisorAnswer::Refused {
            reason: "that is not this supervisor's secret".into(),
        },
    };
    let along: Vec<_> = along.iter().map(AsFd::as_fd).collect();
    // Who asked may be gone.
    let _ = wire::send(connection.as_fd(), &answer, &along);
}

/// True of a user who may look without the secret: the note that has it may be gone.
fn may_look(uid: u32) -> bool {
    const ROOT: u32 = 0;
    uid == ROOT || uid == rustix::process::geteuid().as_raw()
}

/// The table of absorbed files, only to be read, and the counts beside it.
fn table(shared: &SupervisorState) -> Result<[OwnedFd; 2], Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let table = sys::link_of(shared.table.file.as_fd());
    let table = rustix::fs::open(table, flags, Mode::empty())?;
    let order = rustix::io::fcntl_dupfd_cloexec(&shared.order.file, 0)?;
    Ok([table, order])
}

/// The status in a file of its own: it may be larger than a message.
fn status(shared: &SupervisorState) -> Result<OwnedFd, Errno> {
    let bytes = serde_json::to_vec(&shared.status()).map_err(|_| Errno::INVAL)?;
    let file = rustix::fs::memfd_create("forebay-status", MemfdFlags::CLOEXEC)?;
    crate::sys::write_at(file.as_fd(), &bytes, 0)?;
    Ok(file)
}
