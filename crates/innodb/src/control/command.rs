//! The end of a command: it asks the process that has the cache, with the rights of the cache's
//! owner, and waits so long for each answer as is said here, whatever becomes of that process.

use super::{ControlAnswer, ControlRequest, socket_of};
use crate::{
    descriptor::link_to,
    resize_note::ResizeNote,
    settings::Settings,
    setup::{
        CacheFiles, CacheLocation, CacheOccupancy, ResizeResult, SetupError, look, retry_in_use,
    },
    status::ResizeProgress,
};
use forebay_pool::{rights::is_stopped, sockets::peer};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::{AsFd, OwnedFd},
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect,
        recv, send, socket_with,
    },
};
use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

/// How long the process may take to listen, which it does once its server has opened the system
/// tablespace, and to answer; and then to say the next thing.
const PATIENCE: Duration = Duration::from_secs(15);
/// Bytes of an answer, at most.
const ANSWER_MAX: usize = 64 << 10;

/// Has the process that has the cache on this flash file do as is kept for it: what is in force
/// there, which includes what was `wanted`.
///
/// # Errors
/// [`SetupError::Running`]; if the cache's files are not to be trusted.
pub fn set_running(flash: &Path, wanted: &Settings) -> Result<Settings, SetupError> {
    let answer = ask(flash, ControlRequest::Set, |_| {})?;
    let ControlAnswer::Settings(now) = answer else {
        return Err(unexpected(flash));
    };
    match now.include(wanted) {
        true => Ok(now),
        false => Err(SetupError::Running(format!(
            "the process that has the flash cache {} goes by its settings, and they are not all that was set here: another command has set them meanwhile. In force is: {}",
            flash.display(),
            now.in_words().unwrap_or_default()
        ))),
    }
}

/// Has the process that has the cache on this flash file give it `bytes` bytes, waits until it has,
/// and says how far it is.
///
/// # Errors
/// As [`set_running`]. If that process ends meanwhile, the next server does it.
pub fn resize_running(
    flash: &Path,
    bytes: u64,
    progress: impl FnMut(&ResizeProgress),
) -> Result<ResizeResult, SetupError> {
    match ask(flash, ControlRequest::Resize { bytes }, progress)? {
        ControlAnswer::Resized(resized) => Ok(resized),
        _ => Err(unexpected(flash)),
    }
}

/// What became of a resize that was to be given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelledResize {
    /// The server has given it up: this is what the cache has.
    GivenUp(CacheOccupancy),
    /// No server runs, and the next one does not go on with it.
    Forgotten,
    /// It had ended before: the cache has the new size, and this.
    TooLate(CacheOccupancy),
    /// None was under way.
    None,
}

/// Gives up the resize of the cache on this flash file that is under way, or that a server which is
/// gone has begun.
///
/// # Errors
/// As [`set_running`].
pub fn cancel_resize(flash: &Path) -> Result<CancelledResize, SetupError> {
    let place = CacheLocation::of(flash)?;
    let mut cancelled = CancelledResize::None;
    match retry_in_use(|| look(flash)) {
        Err(error) if error.is_in_use() => {}
        // Whatever else is wrong with the cache, nothing goes on with it.
        _ => {
            if ResizeNote::is_there(place.flash()) {
                CacheFiles::of(&place)?.forget_resize()?;
                cancelled = CancelledResize::Forgotten;
            }
            match look(flash) {
                // A server that has begun meanwhile may have read it before.
                Err(error) if error.is_in_use() => {}
                _ => return Ok(cancelled),
            }
        }
    }
    match ask(flash, ControlRequest::Cancel, |_| {})? {
        ControlAnswer::GivenUp(now) => Ok(CancelledResize::GivenUp(now)),
        ControlAnswer::Resized(resized) => Ok(CancelledResize::TooLate(resized.now)),
        ControlAnswer::Idle => Ok(CancelledResize::None),
        _ => Err(unexpected(flash)),
    }
}

fn unexpected(flash: &Path) -> SetupError {
    SetupError::Running(format!(
        "the process that has the flash cache {} gives another answer than was asked for: it has another version of Forebay",
        flash.display()
    ))
}

/// The last answer, whatever it is but a refusal.
fn ask(
    flash: &Path,
    request: ControlRequest,
    progress: impl FnMut(&ResizeProgress),
) -> Result<ControlAnswer, SetupError> {
    let place = CacheLocation::of(flash)?;
    ask_held(&CacheFiles::of(&place)?, request, PATIENCE, progress)
}

fn ask_held(
    held: &CacheFiles<'_>,
    request: ControlRequest,
    patience: Duration,
    mut progress: impl FnMut(&ResizeProgress),
) -> Result<ControlAnswer, SetupError> {
    held.as_owner(|| {
        let mut asked = AskedServer::connect(held, patience)?;
        asked.ask(request)?;
        loop {
            match asked.answer()? {
                ControlAnswer::Resizing(far) => progress(&far),
                ControlAnswer::Refused(why) => return Err(SetupError::Running(why)),
                answer => return Ok(answer),
            }
        }
    })
}

/// A connection to the process that has the cache.
struct AskedServer<'a> {
    held: &'a CacheFiles<'a>,
    socket: OwnedFd,
    patience: Duration,
    /// Until when the next answer is waited for.
    limit: Instant,
    /// A resize has begun, and is noted.
    has_begun: bool,
}

impl<'a> AskedServer<'a> {
    /// Waits until the process listens.
    fn connect(held: &'a CacheFiles<'a>, patience: Duration) -> Result<Self, SetupError> {
        const AGAIN: Duration = Duration::from_millis(50);
        let limit = Instant::now() + patience;
        loop {
            // Without a file, or with one that is left of a server that has ended: it may come.
            let why = match held.socket()? {
                Some(file) => match connect_to(&file) {
                    Ok(socket) => {
                        return Ok(Self {
                            held,
                            socket,
                            patience,
                            limit,
                            has_begun: false,
                        });
                    }
                    Err(errno) => errno,
                },
                None => Errno::NOENT,
            };
            let may_come = matches!(why, Errno::NOENT | Errno::CONNREFUSED | Errno::AGAIN);
            if !may_come || Instant::now() >= limit {
                return Err(not_listening(held.place().flash(), patience, why));
            }
            thread::sleep(AGAIN);
        }
    }

    fn ask(&self, request: ControlRequest) -> Result<(), SetupError> {
        let bytes = serde_json::to_vec(&request).unwrap_or_default();
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let sent = send(&self.socket, &bytes, flags);
        sent.map(drop).map_err(|errno| self.unanswered(errno))
    }

    /// The next answer.
    fn answer(&mut self) -> Result<ControlAnswer, SetupError> {
        let answer = self.receive().map_err(|errno| self.unanswered(errno))?;
        if matches!(answer, ControlAnswer::Resizing(_)) {
            self.has_begun = true;
            self.limit = Instant::now() + self.patience;
        }
        Ok(answer)
    }

    fn receive(&self) -> Result<ControlAnswer, Errno> {
        let mut bytes = vec![0; ANSWER_MAX];
        loop {
            let left = self.limit.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).unwrap_or_default();
            match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&left)) {
                Ok(0) => return Err(Errno::TIMEDOUT),
                Err(errno) if errno != Errno::INTR => return Err(errno),
                _ => {}
            }
            let flags = RecvFlags::TRUNC | RecvFlags::DONTWAIT;
            match recv(&self.socket, &mut bytes[..], flags) {
                Ok((_, 0)) => return Err(Errno::CONNRESET),
                Ok((_, length)) => {
                    let message = bytes.get(..length).ok_or(Errno::MSGSIZE)?;
                    return serde_json::from_slice(message).map_err(|_| Errno::PROTO);
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Why there is no answer, as far as can be known, and what is to be done.
    fn unanswered(&self, errno: Errno) -> SetupError {
        let seconds = self.patience.as_secs();
        let process = peer(self.socket.as_fd()).map_or(0, |(process, _)| process.cast_signed());
        let why = match errno {
            Errno::TIMEDOUT if process > 0 && is_stopped(process) => {
                format!("is stopped (kill -CONT {process} lets it go on)")
            }
            Errno::TIMEDOUT => {
                format!("says nothing for {seconds} seconds: its disks are slow, or it cannot run")
            }
            Errno::CONNRESET | Errno::PIPE => "has ended, or does not listen any more".to_owned(),
            errno => format!("gives no answer that is understood ({errno})"),
        };
        let then = match self.has_begun {
            true => {
                "The resize has begun, and is noted: that process goes on with it, or the next server does. forebay flash status says how large the cache is, and forebay flash resize --cancel gives it up"
            }
            false => {
                "Whether it does what was asked is not known: forebay flash status, and its log, say so"
            }
        };
        SetupError::Running(format!(
            "the process that has the flash cache {} {why}. {then}",
            self.held.place().flash().display()
        ))
    }
}

/// Connects to the socket of this file, by what is held of it: its path may be longer than an
/// address, and lead elsewhere by now.
pub(crate) fn connect_to(file: &OwnedFd) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(link_to(file))?)?;
    Ok(socket)
}

fn not_listening(flash: &Path, patience: Duration, why: Errno) -> SetupError {
    let socket = socket_of(flash);
    SetupError::Running(match why {
        Errno::ACCESS | Errno::PERM => format!(
            "the process that has the flash cache {} listens at {} to its own user and to root: run this as one of them",
            flash.display(),
            socket.display()
        ),
        why => format!(
            "the flash cache {} is in use by another process, which does not listen at {} within {} seconds ({why}): it has not opened its system tablespace yet, it could not make \
             that socket, as its log says then, it is another command, or a server with another version of Forebay. Repeat this, or stop that process first",
            flash.display(),
            socket.display(),
            patience.as_secs()
        ),
    })
}

#[cfg(test)]
mod tests;
