//! The desk of the cache's thread: it answers commands between two steps of its work, and during
//! whatever else takes it long. docs/flash-tier.md, "The control socket".
//!
//! A request of a command that has gone by then is not done; what a command sends after its request
//! is not read. An answer that it does not fetch waits, and the next one takes its place.

use super::{IDLE, StatusWindows};
use crate::{
    complain::{complain, complain_once},
    control::{
        CommandProgress, ControlAnswer, ControlClient, ControlListener, ControlRequest, socket_of,
    },
    resize_note::{ResizeNote, note_of},
    session::CacheSession,
    setup::CacheOccupancy,
    status::ResizeProgress,
};
use std::{
    mem, thread,
    time::{Duration, Instant},
};

/// Commands that are served at a time; more wait to be accepted.
const CLIENTS_MAX: usize = 8;
/// Interval of looks if commands find the socket, and of tries to make it.
const LOOK: Duration = Duration::from_secs(5);
/// Interval at which a command hears the progress of a resize.
const OFTEN: Duration = Duration::from_millis(500);

/// See the module's head.
pub(super) struct ControlDesk<'a> {
    pub(super) session: &'a CacheSession,
    pub(super) windows: StatusWindows,
    listener: Option<ControlListener>,
    looked: Option<Instant>,
    clients: Vec<ControlClient>,
    served: Instant,
    /// Another size that is asked for, and noted.
    pub(super) resize: Option<RunningResize>,
}

/// See [`ControlDesk::resize`].
pub(super) struct RunningResize {
    pub(super) progress: ResizeProgress,
    said: Instant,
    /// The last that was said is that all pages are home, or none has to go there.
    is_whole_said: bool,
    pub(super) is_given_up: bool,
}

impl<'a> ControlDesk<'a> {
    /// Listens from now on. What was set since the session began is in force, and what an earlier
    /// server has begun goes on.
    pub(super) fn open(session: &'a CacheSession) -> Self {
        let mut desk = Self {
            session,
            windows: StatusWindows::new(session.cache.stats()),
            listener: None,
            looked: None,
            clients: Vec::new(),
            served: Instant::now(),
            resize: None,
        };
        // A command that has found nobody listening tries again.
        desk.listen();
        // Damaged settings were named when the session began.
        let _ = session.follow_settings();
        desk.resume();
        desk.windows.say(session);
        desk
    }

    /// Goes on with an earlier server's resize.
    fn resume(&mut self) {
        let place = self.session.hold_place();
        let noted = place.and_then(|place| ResizeNote::read(place.flash()));
        let error = match noted {
            Ok(None) => return,
            Ok(Some(note)) => return self.begin_resize(note.bytes),
            Err(error) => error,
        };
        let then = match ResizeNote::is_damaged(&error) {
            true => match self.forget_resize() {
                Ok(()) => "It says nothing, and was removed".to_owned(),
                Err(why) => format!("It says nothing: {why}"),
            },
            // It may be read, and is as it was noted.
            false => "It stays, and the next start does it".to_owned(),
        };
        complain(&format!(
            "a resize that an earlier server has begun, {}: {error}. {then}",
            note_of(self.session.flash()).display()
        ));
    }

    fn begin_resize(&mut self, bytes: u64) {
        let begins = self.resize.insert(RunningResize::of(bytes));
        self.session.set_resizing(Some(begins.progress));
    }

    /// Nothing is noted any more.
    ///
    /// # Errors
    /// In words.
    pub(super) fn forget_resize(&self) -> Result<(), String> {
        let place = self.session.hold_place();
        let forgotten = place.and_then(|place| ResizeNote::forget(place.flash()));
        forgotten.map_err(|e| {
            let note = note_of(self.session.flash());
            format!(
                "removing {}: {e}. As long as it is there, each start gives the cache the size that it says",
                note.display()
            )
        })
    }

    fn listen(&mut self) {
        let is_time = self.looked.is_none_or(|then| then.elapsed() >= LOOK);
        if !is_time {
            return;
        }
        let mut named = self.session.named_socket.lock();
        if self.session.has_ended() {
            return;
        }
        self.looked = Some(Instant::now());
        let opened = self.session.hold_place().and_then(|place| {
            let listener = self.listener.as_ref();
            match listener.is_some_and(|listener| listener.is_reachable(place.flash())) {
                true => Ok(None),
                false => ControlListener::open(place.flash()).map(Some),
            }
        });
        // Where it cannot be made anew, the old one may be found by another path.
        match opened {
            Ok(None) => {}
            Ok(Some(listener)) => {
                *named = Some(listener.file);
                self.listener = Some(listener);
            }
            Err(e) => complain_once(&format!(
                "{}: {e}. No command reaches this server before it can make that socket, which it tries every {} seconds: its user is to be one who may make files there. Without it \
                 forebay flash set is for the next start, and the server has to be stopped for forebay flash resize",
                socket_of(self.session.flash()).display(),
                LOOK.as_secs()
            )),
        }
    }

    /// Answers the commands that have come, and says every second how the cache is. It takes no
    /// longer for a command that says nothing, or does not read.
    pub(super) fn serve(&mut self) {
        self.windows.follow(self.session);
        // What takes long then may begin after this call.
        let is_whole = self
            .resize
            .as_ref()
            .is_some_and(RunningResize::is_whole_unsaid);
        if self.served.elapsed() < IDLE && !is_whole {
            return;
        }
        self.served = Instant::now();
        self.listen();
        while self.clients.len() < CLIENTS_MAX
            && let Some(client) = self.listener.as_ref().and_then(ControlListener::accept)
        {
            self.clients.push(client);
        }
        if let Some(resize) = self.resize.as_mut().filter(|resize| resize.is_to_be_said()) {
            (resize.said, resize.is_whole_said) = (Instant::now(), resize.is_whole());
            let far = ControlAnswer::Resizing(resize.progress);
            self.tell(is_resize, &far, false);
        }
        let mut clients = mem::take(&mut self.clients);
        clients.retain_mut(|client| self.tend(client));
        self.clients = clients;
    }

    /// Serves for so long.
    pub(super) fn rest(&mut self, long: Duration) {
        let begun = Instant::now();
        while begun.elapsed() < long {
            thread::sleep(IDLE);
            self.serve();
        }
    }

    /// False of a command that is done with.
    fn tend(&mut self, client: &mut ControlClient) -> bool {
        match client.hear() {
            CommandProgress::Gone => return false,
            CommandProgress::Nothing => {}
            CommandProgress::Request(request) => {
                if let Some((answer, is_last)) = self.answer(request) {
                    client.answer(&answer, is_last);
                }
            }
        }
        client.send()
    }

    /// The answer that a command gets now, if any, and true if that is all.
    fn answer(&mut self, request: ControlRequest) -> Option<(ControlAnswer, bool)> {
        let refused = |why: String| Some((ControlAnswer::Refused(why), true));
        match (request, &mut self.resize) {
            (ControlRequest::Set, _) => match self.session.follow_settings() {
                Ok(now) => {
                    self.windows.say(self.session);
                    Some((ControlAnswer::Settings(now), true))
                }
                Err(why) => refused(why),
            },
            // It was asked for twice: both wait for it.
            (ControlRequest::Resize { bytes }, Some(running))
                if bytes == running.progress.bytes =>
            {
                Some((ControlAnswer::Resizing(running.progress), false))
            }
            (ControlRequest::Resize { .. }, Some(other)) => refused(format!(
                "the flash cache is being given {} bytes already. forebay flash status says how far that is; forebay flash resize --cancel gives it up",
                other.progress.bytes
            )),
            (ControlRequest::Resize { bytes }, None) => match self.note(bytes) {
                Ok(()) => {
                    self.begin_resize(bytes);
                    self.windows.say(self.session);
                    let begins = self.resize.as_ref();
                    begins.map(|begins| (ControlAnswer::Resizing(begins.progress), false))
                }
                Err(why) => refused(why),
            },
            (ControlRequest::Cancel, Some(resize)) => {
                resize.is_given_up = true;
                None
            }
            (ControlRequest::Cancel, None) => Some((self.give_up_noted(), true)),
        }
    }

    /// Notes a resize, which then begins.
    ///
    /// # Errors
    /// In words; nothing is noted, or it is said that it may be.
    fn note(&self, bytes: u64) -> Result<(), String> {
        let place = self.session.hold_place();
        let Err(e) = place.and_then(|place| ResizeNote { bytes }.keep(place.flash())) else {
            return Ok(());
        };
        // It may be there, and not be durable.
        let left = match self.forget_resize() {
            Ok(()) => String::new(),
            Err(why) => format!(". And {why}"),
        };
        Err(format!(
            "noting the new size in {}: {e}. The cache keeps its size: let the server's user make files there, and room for them, or stop the server and repeat this{left}",
            note_of(self.session.flash()).display()
        ))
    }

    /// No resize is under way: gives up what is noted all the same, since it could not be read or
    /// removed before.
    fn give_up_noted(&self) -> ControlAnswer {
        let place = self.session.hold_place();
        if !place.is_ok_and(|place| ResizeNote::is_there(place.flash())) {
            return ControlAnswer::Idle;
        }
        match self.forget_resize() {
            Ok(()) => ControlAnswer::GivenUp(CacheOccupancy::of(&self.session.cache)),
            Err(why) => ControlAnswer::Refused(why),
        }
    }

    /// All who wait for such a thing are to hear this.
    fn tell(
        &mut self,
        what: impl Fn(ControlRequest) -> bool,
        answer: &ControlAnswer,
        is_last: bool,
    ) {
        for client in self
            .clients
            .iter_mut()
            .filter(|client| client.awaits(&what))
        {
            client.answer(answer, is_last);
        }
    }

    /// The resize has ended: first the status says so, then all who wait for it hear how.
    pub(super) fn end_resize(&mut self, ended: &ControlAnswer) {
        self.resize = None;
        self.session.set_resizing(None);
        self.windows.say(self.session);
        let own = match ended {
            ControlAnswer::GivenUp(_) => ControlAnswer::Refused(
                "the resize of the flash cache was given up by forebay flash resize --cancel: it has the size that it had".to_owned(),
            ),
            ended => ended.clone(),
        };
        self.tell(is_resize, &own, true);
        self.tell(|request| request == ControlRequest::Cancel, ended, true);
    }
}

fn is_resize(request: ControlRequest) -> bool {
    matches!(request, ControlRequest::Resize { .. })
}

impl RunningResize {
    fn of(bytes: u64) -> Self {
        let progress = ResizeProgress {
            bytes,
            ..ResizeProgress::default()
        };
        Self {
            progress,
            said: Instant::now(),
            is_whole_said: true,
            is_given_up: false,
        }
    }

    /// No page has to go home: what follows says nothing before its end.
    fn is_whole(&self) -> bool {
        self.progress.done == self.progress.of
    }

    fn is_whole_unsaid(&self) -> bool {
        self.is_whole() && !self.is_whole_said
    }

    fn is_to_be_said(&self) -> bool {
        self.said.elapsed() >= OFTEN || self.is_whole_unsaid()
    }
}

#[cfg(test)]
mod tests;
