//! The end of the process that has the cache. Its thread looks here between two steps of its work,
//! and no call here waits for a command: who says nothing, too much, or does not read, holds up no
//! one.
//!
//! Who may write to the socket's file commands: root, and the user whose process it is.
//!
//! 1. The socket is made for that user alone (0600), and bound in the directory of the flash file,
//!    held open, by a name of its own (`.forebay-UUID.new`): paths and names of any length will do.
//!    Such names that are older than ten minutes, of servers that were killed here, are removed.
//! 2. It listens, and its file is renamed to `PATH.control`. Only the process that has the cache's
//!    lane locked does this, so a socket that has the name is left of a server that has ended.
//! 3. The thread reads `PATH.settings` once more, and goes on with a resize that an earlier server
//!    has begun (`cache_thread/command_service.rs`).
//! 4. Every five seconds it looks whether the name is still that of its socket, and begins again if
//!    it is not, or if a step failed.
//! 5. An orderly end removes the name, if it is that of its socket. A forked child closes its
//!    copies of the socket and of the connections; an execution closes them too.

use super::{ControlAnswer, ControlRequest, socket_of};
use crate::{
    complain::complain_once,
    control_files::{NEW, directory_of},
    descriptor::{hold, link_to},
};
use forebay_pool::sockets::PrivateSocket;
use rustix::{
    fs::{AtFlags, FileType, Mode, fchmod, renameat, statat, unlinkat},
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with,
        bind, listen, recv, send, socket_with,
    },
};
use std::{
    fs, io,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::Path,
    time::{Duration, Instant},
};
use uuid::Uuid;

/// The first part of the name that the socket's file has first. It is not the cache's own: that may
/// be as long as a name can be.
const ASIDE: &str = ".forebay-";
/// Connections that wait, at most.
const BACKLOG: i32 = 16;
/// Bytes of a request, at most.
const REQUEST_MAX: usize = 4096;
/// So long a command may take to say what it wants, and to fetch its last answer.
const SILENT: Duration = Duration::from_secs(2);
const UNFETCHED: Duration = Duration::from_secs(60);

/// See the module's head.
pub(crate) struct ControlListener {
    socket: PrivateSocket,
    /// Device and inode of the socket's file.
    pub(crate) file: (u64, u64),
}

impl ControlListener {
    /// Listens for commands to the cache on this flash file, which this process alone has: another
    /// socket by that name is left of one that has ended.
    ///
    /// # Errors
    /// What the operating system says; `AlreadyExists` if something else has the name.
    pub(crate) fn open(flash: &Path) -> io::Result<Self> {
        let path = socket_of(flash);
        let name = path.file_name().unwrap_or_default();
        let dir = hold(directory_of(&path))?;
        remove_stale(&link_to(&dir));
        match statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => {}
            Ok(there) if FileType::from_raw_mode(there.st_mode) == FileType::Socket => {}
            Ok(_) => {
                let what = "something that is no socket has that name: remove it";
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
            }
            Err(e) => return Err(e.into()),
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        // Linux gives the file these permissions, whatever the process's mask leaves of them.
        fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
        // Its own name may be longer than an address: it gets that once it listens.
        let aside = format!("{ASIDE}{}{NEW}", Uuid::new_v4());
        bind(&socket, &SocketAddrUnix::new(link_to(&dir).join(&aside))?)?;
        let named = || {
            let made = statat(&dir, &aside, AtFlags::SYMLINK_NOFOLLOW)?;
            if made.st_mode & 0o077 != 0 {
                let what = "the file system gives a socket other permissions than it is to have, and other users could command this server: move the cache to another file system";
                return Err(io::Error::new(io::ErrorKind::Unsupported, what));
            }
            listen(&socket, BACKLOG)?;
            renameat(&dir, &aside, &dir, name)?;
            Ok((made.st_dev, made.st_ino))
        };
        let file = named().inspect_err(|_: &io::Error| {
            let _ = unlinkat(&dir, &aside, AtFlags::empty());
        })?;
        let socket = PrivateSocket::hold(socket)?;
        Ok(Self { socket, file })
    }

    /// False if commands to the cache on this flash file do not find it any more: its file or its
    /// descriptor is gone.
    pub(crate) fn is_reachable(&self, flash: &Path) -> bool {
        self.socket.fd().is_ok() && is_file(&socket_of(flash), self.file)
    }

    /// The next command that has connected. None if there is none, or no room for it, which is said
    /// once.
    pub(crate) fn accept(&self) -> Option<ControlClient> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let accepted = accept_with(self.socket.fd().ok()?, flags).and_then(PrivateSocket::hold);
        if let Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) = accepted {
            complain_once(
                "commands to the flash cache wait, or are not answered, since this server has no room for more files: raise its limit (LimitNOFILE)",
            );
        }
        Some(ControlClient {
            socket: accepted.ok()?,
            request: None,
            unsent: None,
            has_last: false,
            since: Instant::now(),
        })
    }
}

/// Removes the socket, whose file is this one, at the orderly end of the process that has the
/// cache.
pub(crate) fn remove_socket(flash: &Path, file: (u64, u64)) {
    let path = socket_of(flash);
    if is_file(&path, file) {
        // What is left is replaced by the next server.
        let _ = fs::remove_file(path);
    }
}

/// True if `file`, its device and inode, still has this name.
fn is_file(path: &Path, file: (u64, u64)) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| (meta.dev(), meta.ino()) == file)
}

/// Removes what a server has left that was killed before its socket had its name. No server takes
/// so long for that.
fn remove_stale(dir: &Path) {
    const LONG: Duration = Duration::from_secs(600);
    let is_stale = |entry: &fs::DirEntry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_aside = name.starts_with(ASIDE) && name.ends_with(NEW);
        let meta = entry.metadata().ok().filter(|_| is_aside);
        meta.is_some_and(|meta| {
            let age = meta
                .modified()
                .map(|then| then.elapsed().unwrap_or_default());
            meta.file_type().is_socket() && age.is_ok_and(|age| age > LONG)
        })
    };
    // A server without them listens as well.
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if is_stale(&entry) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// A command that is connected.
pub(crate) struct ControlClient {
    socket: PrivateSocket,
    request: Option<ControlRequest>,
    /// The newest answer, if it is not sent yet: the last one takes the place of those before it.
    unsent: Option<Vec<u8>>,
    has_last: bool,
    /// Time at which it connected, or got its last answer.
    since: Instant,
}

/// The progress of a command.
pub(crate) enum CommandProgress {
    /// Nothing that is new.
    Nothing,
    /// Its request.
    Request(ControlRequest),
    /// It is gone, or has said nothing for too long.
    Gone,
}

impl ControlClient {
    /// Receives the command's request.
    pub(crate) fn hear(&mut self) -> CommandProgress {
        if self.request.is_some() || self.has_last {
            return CommandProgress::Nothing;
        }
        let mut bytes = [0; REQUEST_MAX];
        let length = match self.receive(&mut bytes, RecvFlags::TRUNC) {
            Ok(0) => return CommandProgress::Gone,
            Ok(length) => length,
            Err(Errno::AGAIN | Errno::INTR) if self.since.elapsed() < SILENT => {
                return CommandProgress::Nothing;
            }
            Err(_) => return CommandProgress::Gone,
        };
        // What a command has asked that does not wait any more is not done.
        if self.receive(&mut [0; 1], RecvFlags::PEEK) == Ok(0) {
            return CommandProgress::Gone;
        }
        let request = bytes.get(..length).map(serde_json::from_slice);
        if let Some(Ok(request)) = request {
            self.request = Some(request);
            return CommandProgress::Request(request);
        }
        let why = "this is no command that the server knows: it is of another version of Forebay";
        self.answer(&ControlAnswer::Refused(why.to_owned()), true);
        CommandProgress::Nothing
    }

    fn receive(&self, to: &mut [u8], flags: RecvFlags) -> Result<usize, Errno> {
        recv(self.socket.fd()?, to, flags | RecvFlags::DONTWAIT).map(|(_, length)| length)
    }

    /// True if it waits for more answers to this.
    pub(crate) fn awaits(&self, is: impl Fn(ControlRequest) -> bool) -> bool {
        !self.has_last && self.request.is_some_and(is)
    }

    /// Has it get this answer, which is its last one or not.
    pub(crate) fn answer(&mut self, answer: &ControlAnswer, is_last: bool) {
        // Of numbers and text: it is JSON in any case.
        self.unsent = serde_json::to_vec(answer).ok();
        if is_last {
            self.has_last = true;
            self.since = Instant::now();
        }
    }

    /// Sends the unsent rest, as far as it is read: false if nothing more is to be done.
    pub(crate) fn send(&mut self) -> bool {
        if let Some(bytes) = &self.unsent {
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            let sent = self
                .socket
                .fd()
                .and_then(|socket| send(socket, bytes, flags));
            match sent {
                Ok(_) => self.unsent = None,
                Err(Errno::AGAIN | Errno::INTR) => {
                    return !self.has_last || self.since.elapsed() < UNFETCHED;
                }
                Err(_) => return false,
            }
        }
        !self.has_last
    }
}
