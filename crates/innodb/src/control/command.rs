//! The end of a command. It asks the process that has the cache, with the rights of the cache's
//! owner, and waits so long for each answer as is said here, whatever becomes of that process.
//!
//! It opens the cache first: if no process has that, there is no one to ask. It takes the socket in
//! the directory that it holds, only if that is the cache's owner's. While it waits for the
//! connection it looks every second whether the cache is free by now. A server that is stopped is
//! known after [`PATIENCE`], one that has ended at once.

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

/// The longest time of the process to listen, which it does once its server has opened the system
/// tablespace, and to answer; and then to give the next answer.
const PATIENCE: Duration = Duration::from_secs(15);
/// The factor by which a step of a resize may take longer of which nothing is said before its end.
const WHOLE_STEPS: u32 = 20;
/// Interval of looks if a process has the cache, while none listens.
const LOOK: Duration = Duration::from_secs(1);
/// Bytes of an answer, at most.
const ANSWER_MAX: usize = 64 << 10;

/// Has the process that has the cache on this flash file take the kept settings: gives those in
/// force, which include those `wanted`.
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
        false => Err(SetupError::SetByAnother(format!(
            "the process that has the flash cache {} goes by its settings, and they are not all that was set here: another command has set them meanwhile, and the settings \
             kept for the next start differ too. In force is: {}",
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

/// The outcome of giving up a resize.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelledResize {
    /// The server has given it up: these are the cache's counts.
    GivenUp(CacheOccupancy),
    /// No server was at it, and none goes on with it.
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
    let answer = ask(flash, ControlRequest::Cancel, |_| {})?;
    cancelled_by(flash, &answer, cancelled)
}

/// The outcome by this answer, after the steps `done` before the server was asked.
fn cancelled_by(
    flash: &Path,
    answer: &ControlAnswer,
    done: CancelledResize,
) -> Result<CancelledResize, SetupError> {
    match *answer {
        ControlAnswer::GivenUp(now) => Ok(CancelledResize::GivenUp(now)),
        ControlAnswer::Resized(resized) => Ok(CancelledResize::TooLate(resized.now)),
        ControlAnswer::Idle => Ok(done),
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

/// Waits until the process listens, as long as one has the cache.
fn ask_held(
    held: &CacheFiles<'_>,
    request: ControlRequest,
    patience: Duration,
    mut progress: impl FnMut(&ResizeProgress),
) -> Result<ControlAnswer, SetupError> {
    let begun = Instant::now();
    loop {
        let left = patience.saturating_sub(begun.elapsed());
        match ask_listening(held, request, (left.min(LOOK), patience), &mut progress) {
            Err(error) if error.is_in_use() => {}
            answer => return answer,
        }
        let flash = held.place().flash();
        if begun.elapsed() >= patience {
            return Err(not_listening(flash, patience));
        }
        // It may have been another command's.
        if !look(flash).is_err_and(|error| error.is_in_use()) {
            return Err(SetupError::Released {
                flash: flash.to_owned(),
            });
        }
    }
}

/// The same, in a process that is the cache's owner, which waits so long that someone listens, and
/// then for an answer.
///
/// # Errors
/// [`SetupError::InUse`] if no one listens.
fn ask_listening(
    held: &CacheFiles<'_>,
    request: ControlRequest,
    (appears, patience): (Duration, Duration),
    mut progress: impl FnMut(&ResizeProgress),
) -> Result<ControlAnswer, SetupError> {
    held.as_owner(|| {
        let mut asked = AskedServer::connect(held, appears, patience)?;
        asked.ask(request)?;
        loop {
            match asked.answer()? {
                ControlAnswer::Resizing(far) => progress(&far),
                // Of the server's user, for root's terminal.
                ControlAnswer::Refused(why) => {
                    let plain = |c: char| if c.is_control() { '?' } else { c };
                    return Err(SetupError::Running(why.chars().map(plain).collect()));
                }
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
    /// The wait for the next answer, and the end of it.
    wait: Duration,
    limit: Instant,
    /// A resize has begun, and is noted.
    has_begun: bool,
}

impl<'a> AskedServer<'a> {
    /// Waits until the process listens.
    fn connect(
        held: &'a CacheFiles<'a>,
        appears: Duration,
        patience: Duration,
    ) -> Result<Self, SetupError> {
        const AGAIN: Duration = Duration::from_millis(50);
        let until = Instant::now() + appears;
        loop {
            // Without a file, or with one that is left of a server that has ended: it may come.
            let why = match held.socket()? {
                Some(file) => match connect_to(&file) {
                    Ok(socket) => {
                        return Ok(Self {
                            held,
                            socket,
                            patience,
                            wait: patience,
                            limit: Instant::now() + patience,
                            has_begun: false,
                        });
                    }
                    Err(errno) => errno,
                },
                None => Errno::NOENT,
            };
            match why {
                Errno::NOENT | Errno::CONNREFUSED | Errno::AGAIN if Instant::now() >= until => {
                    return Err(SetupError::InUse {
                        flash: held.place().flash().to_owned(),
                    });
                }
                Errno::NOENT | Errno::CONNREFUSED | Errno::AGAIN => thread::sleep(AGAIN),
                why => return Err(not_reached(held.place().flash(), why)),
            }
        }
    }

    fn ask(&mut self, request: ControlRequest) -> Result<(), SetupError> {
        if request == ControlRequest::Cancel {
            // The resize may be at a step of which nothing is said.
            self.wait_for(WHOLE_STEPS);
        }
        let bytes = serde_json::to_vec(&request).unwrap_or_default();
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let sent = send(&self.socket, &bytes, flags);
        sent.map(drop).map_err(|errno| self.unanswered(errno))
    }

    /// The next answer.
    fn answer(&mut self) -> Result<ControlAnswer, SetupError> {
        let answer = self.receive().map_err(|errno| self.unanswered(errno))?;
        if let ControlAnswer::Resizing(far) = answer {
            self.has_begun = true;
            // Before the first page goes home flash is made longer, and after the last one the
            // metadata is written: nothing is said meanwhile.
            let whole = if far.done == far.of { WHOLE_STEPS } else { 1 };
            self.wait_for(whole);
        }
        Ok(answer)
    }

    /// The next answer is waited for so many times as long as usual.
    fn wait_for(&mut self, times: u32) {
        self.wait = self.patience * times;
        self.limit = Instant::now() + self.wait;
    }

    /// The process that answers; 0 if that is not known.
    fn process(&self) -> i32 {
        peer(self.socket.as_fd()).map_or(0, |(process, _)| process.cast_signed())
    }

    fn is_stopped(&self) -> bool {
        let process = self.process();
        process > 0 && is_stopped(process)
    }

    fn receive(&self) -> Result<ControlAnswer, Errno> {
        let mut bytes = vec![0; ANSWER_MAX];
        loop {
            let left = self.limit.saturating_duration_since(Instant::now());
            let wait = Timespec::try_from(left.min(self.patience)).unwrap_or_default();
            match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&wait)) {
                Ok(0) if left <= self.patience || self.is_stopped() => {
                    return Err(Errno::TIMEDOUT);
                }
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

    /// The reason that there is no answer, as far as can be known, and the remedy.
    fn unanswered(&self, errno: Errno) -> SetupError {
        let seconds = self.wait.as_secs();
        let why = match errno {
            Errno::TIMEDOUT if self.is_stopped() => {
                format!("is stopped (kill -CONT {} lets it go on)", self.process())
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
            false => "Its answer is not known: see forebay flash status, and its log",
        };
        SetupError::Running(format!(
            "the process that has the flash cache {} {why}. {then}",
            self.held.place().flash().display()
        ))
    }
}

/// Connects to the socket of this file, by its held descriptor: its path may be longer than an
/// address, and lead elsewhere by now.
pub(crate) fn connect_to(file: &OwnedFd) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(link_to(file))?)?;
    Ok(socket)
}

fn not_listening(flash: &Path, patience: Duration) -> SetupError {
    SetupError::Running(format!(
        "the flash cache {} is in use by another process, which does not listen at {} within {} seconds: it has not opened its system tablespace yet, it could not make that socket, \
         as its log says then, it is another command, or a server with another version of Forebay. Repeat this, or stop that process first",
        flash.display(),
        socket_of(flash).display(),
        patience.as_secs()
    ))
}

fn not_reached(flash: &Path, why: Errno) -> SetupError {
    let (flash, socket) = (flash.display(), socket_of(flash));
    let socket = socket.display();
    SetupError::Running(match why {
        Errno::ACCESS | Errno::PERM => format!(
            "the process that has the flash cache {flash} listens at {socket} to its own user and to root: run this as one of them"
        ),
        why => format!(
            "the process that has the flash cache {flash} is not reached at {socket}: {why}. Stop that process first, or have it listen anew: remove the socket, and repeat this"
        ),
    })
}

#[cfg(test)]
mod tests;
