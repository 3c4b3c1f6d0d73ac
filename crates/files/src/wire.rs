//! The messages between a client and its supervisor: JSON, one message a packet of a Unix socket, with descriptors beside it.
//! docs/files-protocol.md, "Messages".

use rustix::{
    io::Errno,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags,
    },
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{
    io::{IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{BorrowedFd, OwnedFd},
    path::PathBuf,
};
use uuid::Uuid;

/// Version of the messages, the shared page and the records.
pub const VERSION: u32 = 3;
/// Bytes of a message at most: the status of many files.
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
        /// Process id.
        pid: u32,
    },
    /// The first message of somebody who wants to look. Answer: [`Answer::Status`].
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
    },
    /// Nothing in the lane is of this file any more, and its number is free. No answer.
    Forget {
        /// The file.
        file: u32,
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
        /// Owner to claim a lane for.
        owner: Uuid,
        /// Buffers of the lane.
        buffers: u16,
        /// Its label.
        label: String,
        /// This boot's id.
        boot: Uuid,
    },
    /// The file and its directory are synced.
    Absorb {
        /// True if nobody else has the file open.
        alone: bool,
    },
    /// The file stays plain.
    Refused {
        /// Why.
        reason: String,
    },
    /// Done.
    Done,
    /// The supervisor's state.
    Status(Box<serde_json::value::Value>),
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

/// Receives a message and its descriptors.
///
/// # Errors
/// What the kernel says; `ECONNRESET` if the other side is gone, `EPROTO` for what is no message.
pub fn receive<T: DeserializeOwned>(socket: BorrowedFd<'_>) -> Result<(T, Vec<OwnedFd>), Errno> {
    let mut bytes = vec![0; MESSAGE_MAX];
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
