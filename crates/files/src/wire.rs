//! The messages between a client and its supervisor: JSON, one message a packet of a Unix socket,
//! with descriptors beside it. docs/files-membership.md, "Messages".

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
    time::Duration,
};
use uuid::Uuid;

/// Version of the messages, the shared page, the table of absorbed files and the records.
pub const VERSION: u32 = 1;

/// The version that this process speaks: [`VERSION`], or the next one if a test wants two releases.
pub(crate) fn version() -> u32 {
    VERSION + u32::from(forebay_pool::fault_enabled!("next-version"))
}

/// Bytes of a message at most.
const MESSAGE_MAX: usize = 160 << 10;
/// Descriptors in a message at most.
const DESCRIPTORS_MAX: usize = 4;

/// A client's message.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientRequest {
    /// The first message of a process that is to be a member of the run. Answer:
    /// [`SupervisorAnswer::Welcome`].
    Hello {
        /// [`version`].
        version: u32,
        /// The secret from the environment.
        token: Uuid,
    },
    /// The first message of a process that wants to look. Answer: [`SupervisorAnswer::Status`], and
    /// the status as JSON in the file that comes along.
    Status {
        /// The secret of the supervisor's file; root and the supervisor's own user need none.
        token: Uuid,
    },
    /// The first message of a process that writes plainly to a file that another may absorb.
    /// Answer: [`SupervisorAnswer::Done`] once no process does.
    Foreign {
        /// The secret from the environment.
        token: Uuid,
        /// Device number of the file.
        dev: u64,
        /// Inode number of the file.
        ino: u64,
    },
    /// The first message of another run, one of whose processes has a file open that this run
    /// absorbs. Answer: [`SupervisorAnswer::Done`] once it does not. No secret: who may write to
    /// the file may ask.
    OtherRunAnswer {
        /// Device number of the file.
        dev: u64,
        /// Inode number of the file.
        ino: u64,
    },
    /// The first message of a process that cannot open the table of absorbed files. Answer:
    /// [`SupervisorAnswer::Done`] with the table.
    Table {
        /// The secret from the environment.
        token: Uuid,
    },
    /// The first message of a process that is to become a program which the library does not fit.
    /// Answer: [`SupervisorAnswer::Done`] if an agent is started, which has the connection from
    /// then on; or [`SupervisorAnswer::Refused`].
    Agent {
        /// The secret from the environment.
        token: Uuid,
        /// The program's path, as bytes.
        path: Vec<u8>,
        /// The process had one, which has died, and its calls would fail without.
        is_filtered: bool,
    },
    /// The first message of a process in which a file that the profile names stays plain, for a
    /// reason of its own. No answer.
    Plain {
        /// The secret from the environment.
        token: Uuid,
        /// The file's path, as bytes.
        path: Vec<u8>,
        /// The reason.
        reason: String,
    },
    /// Absorb the file whose descriptor comes along, and which the run does not absorb yet. Answer:
    /// [`SupervisorAnswer::Absorb`] once no process outside the run has it open, or
    /// [`SupervisorAnswer::Refused`], or [`SupervisorAnswer::Unheard`].
    Register {
        /// Its path, as bytes.
        path: Vec<u8>,
    },
    /// The file is about to be changed in a way that is not logged. Answer:
    /// [`SupervisorAnswer::Done`] once it is plain, for all processes of the run;
    /// [`SupervisorAnswer::Failed`] if what the lane has of it cannot be synced: then it must not
    /// be changed.
    Retire {
        /// Its number.
        file: u32,
        /// The generation of the file with the number.
        generation: u32,
    },
    /// A sync of a file that could not be synced. Answer: [`SupervisorAnswer::Done`] once what the
    /// lane has of it is written again and synced, [`SupervisorAnswer::Failed`] if that failed as
    /// well.
    Repair {
        /// Its number.
        file: u32,
    },
    /// A file lost its last name: to sync the directory that had it is enough. No answer.
    Unlinked {
        /// The file.
        file: u32,
        /// The name that it had, as bytes.
        path: Vec<u8>,
    },
    /// The process closed its last descriptor of a file that has no name. If no other has it open,
    /// nothing of it is needed any more. No answer.
    Released {
        /// The file.
        file: u32,
    },
}

/// A supervisor's answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SupervisorAnswer {
    /// The process is a member of the run. The pool's descriptor, the lane's state and the shared
    /// page come along, and of a pool on a disk its memory.
    Welcome {
        /// The pool's path, as bytes.
        pool: Vec<u8>,
        /// The process's number.
        member: u32,
        /// This boot's id.
        boot: Uuid,
    },
    /// No process outside the run has the file open, or the run absorbs it already. It and its
    /// directory are synced at its first write or sync.
    Absorb {
        /// Its number.
        file: u32,
        /// The generation of the file with the number.
        generation: u32,
    },
    /// The file stays plain.
    Refused {
        /// The reason.
        reason: String,
    },
    /// The file may not be written to: another run absorbs it, and cannot be told.
    Unheard {
        /// The condition, and the reason.
        reason: String,
    },
    /// Done.
    Done,
    /// Not done.
    Failed {
        /// The kernel's error.
        errno: i32,
    },
    /// The supervisor's state comes along.
    Status,
}

/// Listens at the abstract address `name`.
///
/// # Errors
/// What the kernel says.
pub fn listen(name: &[u8]) -> Result<OwnedFd, Errno> {
    /// Connections that wait to be accepted.
    const BACKLOG: i32 = 128;
    let socket = socket()?;
    rustix::net::bind(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

fn socket() -> Result<OwnedFd, Errno> {
    let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)
}

/// Connects to the supervisor that listens at the abstract address `name`. With a limit, no later
/// call on the connection takes longer. Does not allocate.
///
/// # Errors
/// What the kernel says; `ECONNREFUSED` if nothing listens there.
pub fn connect(name: &[u8], limit: Option<Duration>) -> Result<OwnedFd, Errno> {
    let socket = socket()?;
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
    if got.flags.contains(ReturnFlags::TRUNC) {
        return Err(Errno::PROTO);
    }
    if got.flags.contains(ReturnFlags::CTRUNC) {
        return Err(Errno::MFILE);
    }
    let message = serde_json::from_slice(&bytes[..got.bytes]).map_err(|_| Errno::PROTO)?;
    Ok((message, fds))
}
