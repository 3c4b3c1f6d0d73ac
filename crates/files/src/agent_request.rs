//! A process that is to become a program which the library does not fit asks the run's supervisor
//! for an agent. docs/notify.md, "A child of a program with the library".

use crate::{
    ENV_SOCKET, ENV_TOKEN,
    wire::{self, ClientRequest, SupervisorAnswer},
};
use rustix::{io::Errno, net::SendFlags};
use std::{
    ffi::OsStr,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::Path,
    time::Duration,
};

/// Bytes of the request at most: a path's are numbers in it.
const MESSAGE_MAX: usize = 64 << 10;
/// The longest time of each step: afterwards the program is executed without an agent.
const STEP_WAIT: Duration = Duration::from_secs(10);

/// Asks for an agent for the program at this path, by the environment's address of the run. The
/// agent is at the other end of the connection from then on, on which no call takes longer than ten
/// seconds. With `is_filtered`, this process had one, and cannot be without.
///
/// # Errors
/// The kernel's; `EPERM` if the supervisor refuses; `ENOTCONN` if this is no process of a run.
pub fn ask(path: &[u8], is_filtered: bool) -> Result<OwnedFd, Errno> {
    let socket = std::env::var_os(ENV_SOCKET).ok_or(Errno::NOTCONN)?;
    let token = std::env::var(ENV_TOKEN).ok();
    let token = token.and_then(|it| it.parse().ok()).ok_or(Errno::NOTCONN)?;
    let connection = wire::connect(&socket.into_vec(), Some(STEP_WAIT))?;
    // By which it is told from others, whatever directory they are executed in.
    let path = Path::new(OsStr::from_bytes(path));
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    // Not by `sendmsg`, which a filter may hold up.
    let mut space = vec![0; MESSAGE_MAX];
    let request = ClientRequest::Agent {
        token,
        path: path.into_os_string().into_vec(),
        is_filtered,
    };
    let bytes = wire::encode(&request, &mut space)?;
    let send = || rustix::net::send(&connection, bytes, SendFlags::NOSIGNAL);
    rustix::io::retry_on_intr(send)?;
    match wire::receive::<SupervisorAnswer>(connection.as_fd())? {
        (SupervisorAnswer::Done, _) => Ok(connection),
        _ => Err(Errno::PERM),
    }
}
