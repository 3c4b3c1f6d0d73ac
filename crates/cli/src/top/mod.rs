//! `forebay top`: all runs on one screen, again and again.
//!
//! * [`run_poll`]: what `forebay status` reads, by a thread of its own;
//! * [`history`]: what is known of the runs by then, and what they did in each interval;
//! * [`rows`], [`files`], [`columns`], [`figures`]: lines of tables, their order and their width;
//! * [`list`], [`detail`], [`paint`]: what is drawn;
//! * [`state`]: what is on the screen, and what a key makes of it;
//! * [`terminal`]: the terminal, keys and signals.

mod columns;
mod detail;
mod figures;
mod files;
mod history;
mod list;
mod paint;
mod rows;
mod run_poll;
mod state;
mod terminal;

use crate::{failure::Failure, output, run};
use clap::Args;
use crossterm::event::KeyEvent;
use nix::sys::signal::Signal;
use paint::ScreenPaint;
use run_poll::{RunLook, RunPlace};
use state::{KeyAction, TopState};
use std::{
    env,
    io::{self, IsTerminal, stdout},
    sync::mpsc::{self, Receiver, Sender},
    thread,
    time::Duration,
};
use terminal::{SignalReader, TopScreen};

/// Columns of text that goes to no terminal, unless COLUMNS says how many.
const TEXT_WIDTH: u16 = 160;

/// Watch programs under forebay run
#[derive(Args)]
#[command(
    long_about = "Shows every program under forebay run for this user, a line each, again and again: the program, its front end, syncs saved and bytes absorbed a second, \
    the time of commits, the bytes not yet on the disk, waits, and trouble. Enter shows a run's files and more; ? explains keys and columns. A single run is shown so at once. \
                  It reads what forebay status reads. NO_COLOR in the environment is obeyed.",
    after_long_help = "Examples:\n  forebay top\n  forebay top --all --interval 5\n  forebay top --once"
)]
pub struct TopCommand {
    /// Those of all users too (root only)
    #[arg(long)]
    all: bool,
    /// Seconds between two looks, 0.1 to 3600
    #[arg(short = 'd', long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    interval: Duration,
    /// Print one frame as text, after one interval, and end
    #[arg(long)]
    once: bool,
}

fn interval(text: &str) -> Result<Duration, String> {
    let seconds: Option<f64> = text.parse().ok();
    let seconds = seconds.filter(|seconds| (0.1..=3600.0).contains(seconds));
    let seconds = seconds.ok_or_else(|| "is to be a number from 0.1 to 3600".to_owned())?;
    Ok(Duration::from_secs_f64(seconds))
}

/// A message to the screen.
enum TopMessage {
    Look(Box<RunLook>),
    Key(KeyEvent),
    Resized,
    Signal(Signal),
    /// A thread that has to go on does not.
    Lost(String),
}

/// The next step.
enum TopStep {
    Draw,
    End,
    EndBy(Signal),
}

impl TopCommand {
    pub fn run(self) -> Result<(), Failure> {
        let place = RunPlace {
            dir: run::existing_run_dir()?,
            whose: run::whose_runs(self.all)?,
        };
        let mut state = TopState::new(place, self.interval, ScreenPaint::of_environment());
        if self.once {
            return once(&mut state);
        }
        const OTHERWISE: &str = "forebay top --once prints a frame of it as text, forebay status --watch a text each second";
        if !stdout().is_terminal() {
            return Err(Failure::Usage(format!(
                "standard output is no terminal: {OTHERWISE}"
            )));
        }
        if env::var_os("TERM").is_some_and(|term| term == "dumb") {
            return Err(Failure::Usage(format!(
                "the terminal has no screen (TERM=dumb): {OTHERWISE}"
            )));
        }
        watch(state)
    }
}

/// Prints what came between two looks.
fn once(state: &mut TopState) -> Result<(), Failure> {
    state.add(RunLook::take(&state.place));
    if let Some(why) = &state.history.failure {
        return Err(Failure::Failed(why.clone()));
    }
    thread::sleep(state.interval);
    state.add(RunLook::take(&state.place));
    output::print(&state.text(text_width()))
}

fn text_width() -> u16 {
    let named = env::var("COLUMNS").ok();
    let named = named.and_then(|columns| columns.parse().ok());
    let named = named.filter(|columns: &u16| *columns > 0);
    let screen = || {
        let size = crossterm::terminal::size().ok();
        size.filter(|_| stdout().is_terminal())
            .map(|(columns, _)| columns)
    };
    named.or_else(screen).unwrap_or(TEXT_WIDTH)
}

/// Goes on until a key or a signal ends it.
fn watch(mut state: TopState) -> Result<(), Failure> {
    let signals = SignalReader::block()?;
    let (to_screen, messages) = mpsc::channel();
    let (intervals, to_looks) = mpsc::channel();
    let mut screen = TopScreen::enter()?;
    begin(&state, signals, &to_screen, to_looks)?;
    loop {
        screen.draw(|area, buffer| state.draw(area, buffer))?;
        // This end sends as well, so it is never closed.
        let Ok(first) = messages.recv() else {
            return Ok(());
        };
        // What has come meanwhile is one drawing.
        for message in std::iter::once(first).chain(messages.try_iter()) {
            match take(message, &mut state, &mut screen, &intervals)? {
                TopStep::Draw => {}
                TopStep::End => return Ok(()),
                TopStep::EndBy(signal) => {
                    drop(screen);
                    return Err(terminal::end_by(signal));
                }
            }
        }
    }
}

fn take(
    message: TopMessage,
    state: &mut TopState,
    screen: &mut TopScreen,
    intervals: &Sender<Duration>,
) -> Result<TopStep, Failure> {
    let action = match message {
        TopMessage::Look(look) => {
            state.add(*look);
            KeyAction::Draw
        }
        TopMessage::Key(key) => state.press(key),
        TopMessage::Resized => KeyAction::Draw,
        TopMessage::Signal(Signal::SIGTSTP) => {
            screen.stop()?;
            KeyAction::Draw
        }
        TopMessage::Signal(Signal::SIGCONT) => KeyAction::Anew,
        TopMessage::Signal(signal) => return Ok(TopStep::EndBy(signal)),
        TopMessage::Lost(why) => return Err(Failure::Failed(why)),
    };
    match action {
        KeyAction::Draw => {}
        KeyAction::Quit => return Ok(TopStep::End),
        KeyAction::Stop => terminal::ask_to_stop(),
        KeyAction::Anew => screen.take_again()?,
        // A thread that looks no more says so itself.
        KeyAction::Interval(interval) => drop(intervals.send(interval)),
    }
    Ok(TopStep::Draw)
}

/// Begins the threads that look, and that read keys and signals.
fn begin(
    state: &TopState,
    signals: SignalReader,
    to_screen: &Sender<TopMessage>,
    intervals: Receiver<Duration>,
) -> Result<(), Failure> {
    let (place, interval) = (state.place.clone(), state.interval);
    spawn("looks", to_screen, move |to_screen| {
        let take = |look| to_screen.send(TopMessage::Look(Box::new(look))).is_ok();
        run_poll::go_on_looking(&place, interval, &intervals, take);
        Ok(())
    })?;
    spawn("signals", to_screen, move |to_screen| {
        signals.read(|signal| to_screen.send(TopMessage::Signal(signal)).is_ok());
        Ok(())
    })?;
    spawn("keys", to_screen, |to_screen| {
        terminal::read_keys(|key| {
            let message = key.map_or(TopMessage::Resized, TopMessage::Key);
            to_screen.send(message).is_ok()
        })
    })
}

/// Begins a thread, of whose end the screen hears, also if that is a panic.
fn spawn(
    name: &'static str,
    to_screen: &Sender<TopMessage>,
    work: impl FnOnce(&Sender<TopMessage>) -> io::Result<()> + Send + 'static,
) -> Result<(), Failure> {
    struct ThreadEnd(&'static str, Sender<TopMessage>, Option<io::Error>);
    impl Drop for ThreadEnd {
        fn drop(&mut self) {
            let why = match self.2.take() {
                Some(error) => format!("waiting for {}: {error}", self.0),
                None => format!("the thread that waits for {} ended", self.0),
            };
            let _ = self.1.send(TopMessage::Lost(why));
        }
    }
    let ending = ThreadEnd(name, to_screen.clone(), None);
    let thread = thread::Builder::new().name(name.to_owned());
    let spawned = thread.spawn(move || {
        let mut ending = ending;
        ending.2 = work(&ending.1).err();
    });
    spawned
        .map(drop)
        .map_err(Failure::io("starting", "a thread"))
}

#[cfg(test)]
mod tests;
