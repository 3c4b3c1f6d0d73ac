//! The messages between a client and its supervisor: JSON, one message a packet of a Unix socket, with descriptors beside it.
//! docs/files-protocol.md, "Messages".

use rustix::{
    io::Errno,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
        SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
        SocketType, sockopt,
    },
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{
    io::{IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{BorrowedFd, OwnedFd},
    path::PathBuf,
    time::Duration,
};
use uuid::Uuid;

/// Version of the messages, the shared page and the records.
pub const VERSION: u32 = 3;
/// Bytes of a message at most.
const MESSAGE_MAX: usize = 160 << 10;
/// Descriptors in a message at most.
const DESCRIPTORS_MAX: usize = 3;

/// What a client sends.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// The first message of a client that wants to absorb files. Answer: [`Answer::Welcome`] with the pool and the shared page.
    Hello {
        /// [`VERSION`].
        version: u32,
        /// The secret from the environment.
        token: Uuid,
    },
    /// The first message of a process that wants to look. Answer: [`Answer::Status`], and the status as JSON in the file that comes along.
    Status {
        /// The secret of the supervisor's file.
        token: Uuid,
    },
    /// The first message of a process that writes plainly to a file that another may absorb. Answer: [`Answer::Done`] once nobody does.
    Foreign {
        /// The secret from the environment.
        token: Uuid,
        /// Device number of the file.
        dev: u64,
        /// Inode number of the file.
        ino: u64,
    },
    /// The first message of another run, one of whose processes has a file open that this run absorbs. Answer: [`Answer::Done`] once it
    /// does not. No secret: who may write to the file may ask.
    OtherRun {
        /// Device number of the file.
        dev: u64,
        /// Inode number of the file.
        ino: u64,
    },
    /// The first message of a process that cannot open the table of absorbed files. Answer: [`Answer::Done`] with the table.
    Table {
        /// The secret from the environment.
        token: Uuid,
    },
    /// The first message of a process in which a file that the profile names stays plain, for a reason of its own. No answer.
    Plain {
        /// The secret from the environment.
        token: Uuid,
        /// The file's path, as bytes.
        path: Vec<u8>,
        /// Why.
        reason: String,
    },
    /// Absorb the file whose descriptor comes along. Answer: [`Answer::Absorb`] once it and its directory are synced, or [`Answer::Refused`].
    Register {
        /// The number under which the client will log it.
        file: u32,
        /// Its path, as bytes.
        path: Vec<u8>,
    },
    /// A segment was sealed: sync these files, then everything below `end` is drained. No answer but the shared page's.
    Drain {
        /// Log address behind the segment.
        end: u64,
        /// The files written in it.
        files: Vec<u32>,
    },
    /// The client wrote a file that could not be synced again, and synced it: go on draining. No answer.
    Repaired {
        /// The file.
        file: u32,
    },
    /// A file lost its last name: to sync the directory that had it is enough. No answer.
    Unlinked {
        /// The file.
        file: u32,
        /// The name that it had, as bytes.
        path: Vec<u8>,
        /// True if the program has closed it, too: as [`Request::Released`].
        #[serde(default)]
        closed: bool,
    },
    /// A file lost its last name, and the program closed its last descriptor: nothing of it is needed any more. No answer.
    Released {
        /// The file.
        file: u32,
    },
    /// Nothing in the lane is of this file any more, and its number is free. No answer.
    Forget {
        /// The file.
        file: u32,
        /// True if it is plain from now on, false if it is closed.
        retired: bool,
    },
}

/// What a supervisor answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The pool's descriptor and the shared page's come along.
    Welcome {
        /// The pool's path.
        pool: PathBuf,
        /// The client's number in the table of absorbed files.
        holder: u64,
        /// Owner to claim a lane for.
        owner: Uuid,
        /// Buffers of the lane.
        buffers: u16,
        /// Its label.
        label: String,
        /// This boot's id.
        boot: Uuid,
    },
    /// The file and its directory are synced, and no other process has it open.
    Absorb,
    /// The file stays plain.
    Refused {
        /// Why.
        reason: String,
    },
    /// The file may not be written to: another run absorbs it, and cannot be told.
    Unheard {
        /// Which, and why.
        reason: String,
    },
    /// Done.
    Done,
    /// The supervisor's state comes along.
    Status,
}

/// Connects to the supervisor that listens at the abstract address `name`. With a limit, no later call on the connection takes longer.
/// Does not allocate.
///
/// # Errors
/// What the kernel says; `ECONNREFUSED` if nothing listens there.
pub fn connect(name: &[u8], limit: Option<Duration>) -> Result<OwnedFd, Errno> {
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    if limit.is_some() {
        for which in [sockopt::Timeout::Recv, sockopt::Timeout::Send] {
            sockopt::set_socket_timeout(&socket, which, limit)?;
        }
    }
    rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
    Ok(socket)
}

/// Writes a message into `space` without allocating: its bytes.
///
/// # Errors
/// `EMSGSIZE` if there is not enough room.
pub fn encode<'a>(message: &impl Serialize, space: &'a mut [u8]) -> Result<&'a [u8], Errno> {
    let room = space.len();
    let mut rest = &mut *space;
    serde_json::to_writer(&mut rest, message).map_err(|_| Errno::MSGSIZE)?;
    let used = room - rest.len();
    Ok(&space[..used])
}

/// Sends a message. Does not raise `SIGPIPE`.
///
/// # Errors
/// What the kernel says; `EPIPE` if the other side is gone.
pub fn send(
    socket: BorrowedFd<'_>,
    message: &impl Serialize,
    fds: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    let bytes = serde_json::to_vec(message).map_err(|_| Errno::INVAL)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::INVAL);
    }
    loop {
        match rustix::net::sendmsg(
            socket,
            &[IoSlice::new(&bytes)],
            &mut control,
            SendFlags::NOSIGNAL,
        ) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Bytes of the next message, when it is there; 0 if the other side is gone.
fn waiting(socket: BorrowedFd<'_>) -> Result<usize, Errno> {
    loop {
        let none: &mut [u8] = &mut [];
        match rustix::net::recv(socket, none, RecvFlags::PEEK | RecvFlags::TRUNC) {
            Ok((_, bytes)) if bytes > MESSAGE_MAX => return Err(Errno::PROTO),
            Ok((_, bytes)) => return Ok(bytes),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Receives a message and its descriptors.
///
/// # Errors
/// What the kernel says; `ECONNRESET` if the other side is gone, `EPROTO` for what is no message.
pub fn receive<T: DeserializeOwned>(socket: BorrowedFd<'_>) -> Result<(T, Vec<OwnedFd>), Errno> {
    let mut bytes = vec![0; waiting(socket)?];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = loop {
        let mut to = [IoSliceMut::new(&mut bytes)];
        match rustix::net::recvmsg(socket, &mut to, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Ok(got) => break got,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    };
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    if got.bytes == 0 {
        return Err(Errno::CONNRESET);
    }
    if got
        .flags
        .intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC)
    {
        return Err(Errno::PROTO);
    }
    let message = serde_json::from_slice(&bytes[..got.bytes]).map_err(|_| Errno::PROTO)?;
    Ok((message, fds))
}
