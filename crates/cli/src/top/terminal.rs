//! The terminal: the screen is taken over, and given back at every end, by an error, a signal or a
//! panic too, and while the process is stopped.
//!
//! Keys and signals come from threads of their own, which only pass them on. The signals are
//! blocked in all threads and read, so that no handler runs; stopping is left to the kernel, which
//! knows whether there is somebody to go on with it.

use crate::failure::Failure;
use crossterm::{
    cursor::{Hide, Show},
    event::{self, Event},
    execute,
    terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode},
};
use nix::{
    sys::signal::{SigSet, Signal, kill, raise},
    unistd::Pid,
};
use ratatui::{Terminal, backend::CrosstermBackend, buffer::Buffer, layout::Rect};
use std::{
    io::{self, Stdout, stdout},
    panic, process,
    sync::Once,
};

/// The signals that end it.
const ENDING: [Signal; 4] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
];

/// Signals of this process, which are read from now on: for this thread and those that it starts.
pub struct SignalReader(SigSet);

impl SignalReader {
    /// Blocks them.
    pub fn block() -> Result<Self, Failure> {
        let mut set: SigSet = ENDING.into_iter().collect();
        set.add(Signal::SIGTSTP);
        set.add(Signal::SIGCONT);
        let blocked = set.thread_block();
        blocked.map_err(|e| Failure::Failed(format!("handling signals: {e}")))?;
        Ok(Self(set))
    }

    /// Passes each of them on. A second one that ends it does so at once: the terminal may take
    /// nothing any more.
    pub fn read(&self, take: impl Fn(Signal) -> bool) {
        let mut ends = false;
        while let Ok(signal) = self.0.wait() {
            let ending = ENDING.contains(&signal);
            if ends && ending {
                process::exit(128 + signal as i32);
            }
            ends |= ending;
            if !take(signal) {
                return;
            }
        }
    }
}

/// Ends by this signal, as if nobody had read it.
pub fn end_by(signal: Signal) -> Failure {
    deliver(signal);
    // It was ignored from the start.
    Failure::Passed(u8::try_from(128 + signal as i32).unwrap_or(u8::MAX))
}

/// Has it delivered to this thread, and to no other one that reads signals.
fn deliver(signal: Signal) {
    let one: SigSet = std::iter::once(signal).collect();
    let _ = one.thread_unblock();
    let _ = raise(signal);
    let _ = one.thread_block();
}

/// Asks this process, and those of its group (a `sudo`, a shell that waits for it), to stop, as the
/// terminal would have done on Ctrl-Z.
pub fn ask_to_stop() {
    let _ = kill(Pid::from_raw(0), Signal::SIGTSTP);
}

/// Passes each key on, and that the window's size changed: as None.
///
/// # Errors
/// There are no more.
pub fn read_keys(take: impl Fn(Option<event::KeyEvent>) -> bool) -> io::Result<()> {
    loop {
        let is_taken = match event::read()? {
            Event::Key(key) => take(Some(key)),
            Event::Resize(..) => take(None),
            _ => true,
        };
        if !is_taken {
            return Ok(());
        }
    }
}

/// The screen, ours until this is dropped.
pub struct TopScreen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl TopScreen {
    /// Takes it over.
    pub fn enter() -> Result<Self, Failure> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let before = panic::take_hook();
            panic::set_hook(Box::new(move |why| {
                leave();
                before(why);
            }));
        });
        let entered = enter().and_then(|()| Terminal::new(CrosstermBackend::new(stdout())));
        match entered {
            Ok(terminal) => Ok(Self { terminal }),
            Err(e) => {
                leave();
                Err(failed(e))
            }
        }
    }

    /// Draws the screen.
    pub fn draw(&mut self, draw: impl FnOnce(Rect, &mut Buffer)) -> Result<(), Failure> {
        let drawn = self
            .terminal
            .draw(|frame| draw(frame.area(), frame.buffer_mut()));
        drawn.map(drop).map_err(failed)
    }

    /// Stops this process, with the terminal as it was, and goes on when it is continued.
    pub fn stop(&mut self) -> Result<(), Failure> {
        leave();
        deliver(Signal::SIGTSTP);
        self.take_again()
    }

    /// Takes it over once more: whoever had it meanwhile may have left it otherwise.
    pub fn take_again(&mut self) -> Result<(), Failure> {
        let taken = disable_raw_mode().and_then(|()| enter()).and_then(|()| {
            let size = self.terminal.size()?;
            // Everything is drawn again. `clear` would ask where the cursor is, and the answer
            // would come to the thread that reads keys.
            self.terminal
                .resize(Rect::new(0, 0, size.width, size.height))
        });
        taken.map_err(failed)
    }
}

impl Drop for TopScreen {
    fn drop(&mut self) {
        leave();
    }
}

fn failed(error: io::Error) -> Failure {
    Failure::Failed(format!("showing runs on the terminal: {error}"))
}

fn enter() -> io::Result<()> {
    enable_raw_mode()?;
    execute!(stdout(), EnterAlternateScreen, Hide)
}

/// Gives it back. If it takes nothing any more, there is nothing to be done.
fn leave() {
    let _ = execute!(stdout(), LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
}
