//! The screen's state, and the answer to each key.

use super::{
    detail,
    history::{RunHistory, WatchedCache, WatchedRunId},
    list,
    paint::{ScreenPaint, broken},
    rows::{self, RowId, RunOrder, RunRow},
    run_poll::{RunLook, RunPlace},
};
use crate::output::printable;
use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::{
    buffer::{Buffer, Cell as BufferCell},
    layout::Rect,
    text::{Line, Span},
    widgets::{Widget, Wrap},
};
use std::{cell::Cell, time::Duration};

/// Intervals that the keys choose, milliseconds.
const INTERVALS_MS: [u64; 8] = [200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000];
/// Lines of a page, for the keys that scroll by one.
const PAGE: usize = 10;

/// Of `?`.
const HELP: &str = "\
q, Ctrl-C     quit
up, down      choose a run, or scroll its files (also k, j, PgUp, PgDn)
Enter         the run's detail: its files, curves, the drain, trouble
Esc           back to the list
s             sort by the next of SYNC/S, MB/S, P99, LAG, PROGRAM; trouble is
              always first
+ -           a longer or a shorter interval
Ctrl-Z        stop; fg goes on. Ctrl-L draws the screen anew

BY       the front end of the program: a library in it, an agent, none
FILES    logs that are absorbed now
SYNC/S   syncs that cost no sync of the disk, a second of the last interval
MB/S     megabytes (10^6) that were absorbed, a second
P50 P99  the time that so many of 100 commits took at most; of a pool in
         memory one write in 64 is measured
LAG AGE  bytes acknowledged and not yet on the disk, and their age
WAIT/S   times a second that a process waited for the disk
STATE    absorbs, no log (none was opened so far), ended; and in trouble:
         FAILS (a log cannot be synced), DEGRADED, LEFT (records stay in the
         pool), SILENT (does not answer), ORPHANED (its forebay was killed),
         WAITING (a pool with records of a run that is over)

Any key goes back.
";

/// The view that the screen shows.
#[derive(Clone, Debug, PartialEq, Eq)]
enum TopView {
    /// All runs.
    List,
    /// One of them.
    Detail(RowId),
}

/// The answer to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyAction {
    /// Nothing, but that the screen may look otherwise.
    Draw,
    /// It is the end.
    Quit,
    /// The process is to be stopped, as the terminal would have done.
    Stop,
    /// The screen is to be written anew.
    Anew,
    /// Looks are to be taken so often.
    Interval(Duration),
}

/// All that the screen shows.
pub struct TopState {
    /// The runs that are looked for.
    pub place: RunPlace,
    /// Their history.
    pub history: RunHistory,
    /// The interval of looks.
    pub interval: Duration,
    /// Their order.
    pub order: RunOrder,
    /// The screen's look.
    pub paint: ScreenPaint,
    /// The line that the user chose.
    pub chosen: Option<RowId>,
    /// The first line of the list that is on the screen.
    pub offset: Cell<usize>,
    /// The first file of the detail that is.
    pub file_offset: Cell<usize>,
    view: TopView,
    shows_help: bool,
}

impl TopState {
    /// Before the first look.
    pub fn new(place: RunPlace, interval: Duration, paint: ScreenPaint) -> Self {
        Self {
            place,
            history: RunHistory::default(),
            interval,
            order: RunOrder::default(),
            paint,
            chosen: None,
            offset: Cell::new(0),
            file_offset: Cell::new(0),
            view: TopView::List,
            shows_help: false,
        }
    }

    /// Takes up a look. If the first one finds a single run, its detail is shown.
    pub fn add(&mut self, look: RunLook) {
        let viewed = self.viewed_run().cloned();
        self.history.add(look, viewed.as_ref());
        if let ([only], 1) = (self.rows().as_slice(), self.history.looks) {
            self.view = TopView::Detail(only.id.clone());
        }
        if let TopView::Detail(id) = &self.view
            && !self.ids().contains(id)
        {
            self.view = TopView::List;
        }
    }

    /// The lines of the list.
    pub fn rows(&self) -> Vec<RunRow> {
        rows::rows(&self.history, self.order)
    }

    /// Those that can be chosen, flash caches behind the runs.
    fn ids(&self) -> Vec<RowId> {
        let runs = self.rows().into_iter().map(|row| row.id);
        let caches = self.history.caches.iter().map(WatchedCache::row_id);
        runs.chain(caches).collect()
    }

    /// The place of the chosen line among these.
    pub fn chosen_among<'a>(&self, mut ids: impl Iterator<Item = &'a RowId>) -> Option<usize> {
        let chosen = self.chosen.as_ref()?;
        ids.position(|id| id == chosen)
    }

    fn viewed_run(&self) -> Option<&WatchedRunId> {
        match &self.view {
            TopView::Detail(RowId::Run(id)) => Some(id),
            _ => None,
        }
    }

    /// Obeys a key.
    pub fn press(&mut self, key: KeyEvent) -> KeyAction {
        if key.kind == KeyEventKind::Release {
            return KeyAction::Draw;
        }
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if is_control => return KeyAction::Quit,
            KeyCode::Char('z') if is_control => return KeyAction::Stop,
            KeyCode::Char('l') if is_control => return KeyAction::Anew,
            KeyCode::Char('q') => return KeyAction::Quit,
            _ if std::mem::take(&mut self.shows_help) => {}
            KeyCode::Char('?' | 'h') => self.shows_help = true,
            KeyCode::Char('+' | '=') => return self.change_interval(true),
            KeyCode::Char('-') => return self.change_interval(false),
            KeyCode::Char('s') => self.order = self.order.next(),
            KeyCode::Esc | KeyCode::Left | KeyCode::Backspace => self.view = TopView::List,
            KeyCode::Enter | KeyCode::Right => self.open(),
            KeyCode::Up | KeyCode::Char('k') => self.move_by(|at| at.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.move_by(|at| at.saturating_add(1)),
            KeyCode::PageUp => self.move_by(|at| at.saturating_sub(PAGE)),
            KeyCode::PageDown => self.move_by(|at| at.saturating_add(PAGE)),
            KeyCode::Home => self.move_by(|_| 0),
            KeyCode::End => self.move_by(|_| usize::MAX),
            _ => {}
        }
        KeyAction::Draw
    }

    fn change_interval(&mut self, is_longer: bool) -> KeyAction {
        let mut steps = INTERVALS_MS.map(Duration::from_millis).into_iter();
        let now = self.interval;
        let next = match is_longer {
            true => steps.find(|step| *step > now),
            false => steps.rfind(|step| *step < now),
        };
        self.interval = next.unwrap_or(now);
        KeyAction::Interval(self.interval)
    }

    /// Shows the detail of the chosen line, or of the first.
    fn open(&mut self) {
        let ids = self.ids();
        let chosen = self.chosen_among(ids.iter());
        if let (TopView::List, Some(id)) = (&self.view, ids.get(chosen.unwrap_or(0))) {
            self.file_offset.set(0);
            self.chosen = Some(id.clone());
            self.view = TopView::Detail(id.clone());
        }
    }

    /// Chooses another line, or scrolls.
    fn move_by(&mut self, to: impl Fn(usize) -> usize) {
        if self.view != TopView::List {
            // The drawing knows how far it can be.
            self.file_offset.set(to(self.file_offset.get()));
            return;
        }
        let ids = self.ids();
        let at = match self.chosen_among(ids.iter()) {
            Some(at) => to(at),
            // The first key shows where it is.
            None => to(0).saturating_sub(1),
        };
        self.chosen = ids.get(at.min(ids.len().saturating_sub(1))).cloned();
    }

    /// Draws all of it.
    pub fn draw(&self, area: Rect, buffer: &mut Buffer) {
        match &self.view {
            _ if self.shows_help => {
                let lines: Vec<Line> = HELP.lines().map(Line::from).collect();
                let indented = broken(&lines).wrap(Wrap { trim: false });
                indented.render(area, buffer);
            }
            TopView::List => list::draw(self, area, buffer),
            TopView::Detail(RowId::Run(id)) => {
                if let Some(run) = self.history.run(id) {
                    detail::draw_run(self, run, area, buffer);
                }
            }
            TopView::Detail(id) => detail::draw_words(self, &self.words_of(id), area, buffer),
        }
        self.paint.finish(buffer);
    }

    /// The words on a line that has no figures.
    fn words_of(&self, id: &RowId) -> Vec<Line<'static>> {
        let mut caches = self.history.caches.iter();
        if let Some(cache) = caches.find(|cache| cache.row_id() == *id) {
            return detail::cache_lines(cache, self);
        }
        let rows = self.rows();
        let row = rows.iter().find(|row| row.id == *id);
        let why = row.and_then(|row| row.health.reason().map(str::to_owned));
        vec![Line::from(why.unwrap_or_default())]
    }

    /// All of the list as text, in so many columns: then, for each run that is not well, why.
    pub fn text(&self, width: u16) -> String {
        let rows = self.rows();
        let lines = rows.len() + self.history.caches.len();
        // Heads, the lines between, and where runs were looked for.
        let height = u16::try_from(lines).unwrap_or(u16::MAX).saturating_add(16);
        let area = Rect::new(0, 0, width, height);
        let mut buffer = Buffer::empty(area);
        list::draw_body(self, &rows, area, &mut buffer);
        self.paint.finish(&mut buffer);
        let lines = buffer.content.chunks(usize::from(width).max(1)).map(line);
        let mut text = lines.collect::<Vec<_>>().join("\n").trim_end().to_owned() + "\n";
        for note in list::notes_of(self, rows.iter()) {
            text.push_str(&format!("{note}\n"));
        }
        printable(&text)
    }
}

/// A row of the screen as text. Behind a wide character is a cell without any.
fn line(cells: &[BufferCell]) -> String {
    let mut text = String::new();
    let mut cells = cells.iter();
    while let Some(cell) = cells.next() {
        text.push_str(cell.symbol());
        for _ in 1..Span::raw(cell.symbol()).width() {
            cells.next();
        }
    }
    text.truncate(text.trim_end().len());
    text
}
