//! The supervisor's address, and messages to it from a process that is no member, or not yet.

use crate::{
    shared::LOOK,
    wire::{self, ClientRequest, SupervisorAnswer},
};
use rustix::{
    io::Errno,
    net::{RecvFlags, SendFlags},
};
use std::{
    os::fd::{AsFd, OwnedFd},
    time::Duration,
};
use uuid::Uuid;

/// The longest time of a message to the supervisor that has no answer.
const TELL_WAIT: Duration = Duration::from_secs(2);
/// The longest time of the supervisor to have a file let go of, asked by a signal handler.
const LET_GO_WAIT: Duration = Duration::from_secs(15);
/// Attempts to be welcomed by a supervisor that has too many connections.
const WELCOME_ATTEMPTS: u32 = 500;

/// The supervisor's address, and the introduction of this process.
pub(super) struct SupervisorAddress {
    pub(super) socket: Vec<u8>,
    pub(super) token: Uuid,
}

impl SupervisorAddress {
    /// A connection; with a limit, no call of it takes longer.
    pub(super) fn connect(&self, limit: Option<Duration>) -> Result<OwnedFd, Errno> {
        wire::connect(&self.socket, limit)
    }

    /// Tells the supervisor something that has no answer, by a connection of its own, which it
    /// closes once it knows: the process may end at once.
    pub(super) fn tell(&self, request: &ClientRequest) {
        if let Ok(socket) = self.connect(Some(TELL_WAIT))
            && wire::send(socket.as_fd(), request, &[]).is_ok()
        {
            let _ = wire::receive::<SupervisorAnswer>(socket.as_fd());
        }
    }

    /// Asks to be a member. A supervisor that has too many connections closes some: they come
    /// again.
    pub(super) fn ask_welcome(&self) -> Result<(OwnedFd, SupervisorAnswer, Vec<OwnedFd>), Errno> {
        let hello = ClientRequest::Hello {
            version: wire::version(),
            token: self.token,
        };
        let mut attempts = 0..WELCOME_ATTEMPTS;
        loop {
            let socket = self.connect(None)?;
            let answered = wire::send(socket.as_fd(), &hello, &[])
                .and_then(|()| wire::receive::<SupervisorAnswer>(socket.as_fd()));
            match answered {
                Ok((answer, fds)) => return Ok((socket, answer, fds)),
                Err(Errno::PIPE | Errno::CONNRESET) if attempts.next().is_some() => {
                    std::thread::sleep(LOOK);
                }
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Asks for a file to be made plain, for a signal handler: does not allocate.
    pub(super) fn foreign_at_once(&self, (dev, ino): (u64, u64)) -> Result<(), Errno> {
        let socket = self.connect(Some(LET_GO_WAIT))?;
        let token = self.token;
        let mut message = [0; 256];
        let bytes = wire::encode(&ClientRequest::Foreign { token, dev, ino }, &mut message)?;
        rustix::net::send(&socket, bytes, SendFlags::NOSIGNAL)?;
        loop {
            // Whatever the answer is, or how long.
            match rustix::net::recv(&socket, &mut [0_u8; 256], RecvFlags::TRUNC) {
                Ok((_, 1..)) => return Ok(()),
                Ok(_) => return Err(Errno::CONNRESET),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}
