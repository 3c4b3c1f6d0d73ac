//! The list: all runs and flash caches, a line each.

use super::{
    columns::{CACHE_COLUMNS, RUN_COLUMNS, table},
    figures::{bytes, rate},
    history::WatchedCache,
    paint::{broken, broken_height, ends, row_of, styled},
    rows::{RowId, RunHealth, RunRow},
    state::TopState,
};
use crate::{found_runs, users::SystemUser};
use forebay_files::supervisor::RunScope;
use ratatui::{
    buffer::Buffer,
    layout::{Constraint, Layout, Rect},
    style::Style,
    text::{Line, Span},
    widgets::{StatefulWidget, TableState, Widget},
};

/// Rows of what is said below the list, at most.
const NOTES_HEIGHT_MAX: u16 = 6;

/// The line at the bottom.
const KEYS: &str = "q quit  up/down choose  Enter detail  s sort  +/- interval  ? help";

/// Draws it.
pub fn draw(state: &TopState, area: Rect, buffer: &mut Buffer) {
    let rows = state.rows();
    let notes = notes(state, &rows);
    let notes_height = broken_height(&notes, area.width)
        .min(NOTES_HEIGHT_MAX)
        .min(area.height / 3);
    let [body, below, keys] = Layout::vertical([
        Constraint::Min(0),
        Constraint::Length(notes_height),
        Constraint::Length(1),
    ])
    .areas(area);
    draw_body(state, &rows, body, buffer);
    broken(&notes).render(below, buffer);
    styled(KEYS, state.paint.faint()).render(keys, buffer);
}

/// Draws the head, the runs and the flash caches.
pub fn draw_body(state: &TopState, rows: &[RunRow], area: Rect, buffer: &mut Buffer) {
    const HEAD: u16 = 3;
    let height = |lines: usize| u16::try_from(lines).unwrap_or(u16::MAX);
    let room = area.height.saturating_sub(HEAD);
    let caches = match state.history.caches.len() {
        0 => 0,
        some => height(some + 2).min(room / 2),
    };
    let is_empty = rows.is_empty() && caches == 0;
    let runs = match is_empty {
        true => room,
        false => height(rows.len() + 1).min(room - caches),
    };
    let [head, list, caches, _] = Layout::vertical([
        Constraint::Length(HEAD),
        Constraint::Length(runs),
        Constraint::Length(caches),
        Constraint::Min(0),
    ])
    .areas(area);
    draw_head(state, rows, head, buffer);
    match is_empty {
        true => nothing(state, list, buffer),
        false => draw_rows(state, rows, list, buffer),
    }
    draw_caches(state, caches, buffer);
}

/// The number of runs, the interval of looks, and the sums of all runs.
fn draw_head(state: &TopState, rows: &[RunRow], area: Rect, buffer: &mut Buffer) {
    let [first, second] = [0, 1].map(|at| row_of(area, at));
    let count = rows.len();
    let unwell = rows.iter().filter(|row| row.health.reason().is_some());
    let runs = if count == 1 { "run" } else { "runs" };
    let mut left = Line::from(vec![
        Span::styled("forebay top", state.paint.head()),
        format!("  {count} {runs} {}", of_whom(state)).into(),
    ]);
    match unwell.count() {
        0 => {}
        unwell => left.push_span(Span::styled(
            format!(", {unwell} not well"),
            state.paint.unwell(),
        )),
    }
    let (every, by) = (state.interval.as_secs_f64(), state.order.column());
    ends(
        left,
        format!("every {every} s, by {by}").into(),
        first,
        buffer,
    );
    Line::from(totals(rows)).render(second, buffer);
}

fn of_whom(state: &TopState) -> String {
    match state.place.whose {
        RunScope::All => "of all users".to_owned(),
        RunScope::Directory => format!("of {}", state.place.dir.display()),
        RunScope::User => {
            let user = SystemUser::numbered(rustix::process::geteuid().as_raw());
            format!("of {}", user.name)
        }
    }
}

fn totals(rows: &[RunRow]) -> String {
    let rates = || rows.iter().filter_map(|row| row.rates.as_ref());
    let syncs: f64 = rates().map(|it| it.saved_syncs_per_second).sum();
    let real: f64 = rates().map(|it| it.real_syncs_per_second).sum();
    let absorbed: f64 = rates().map(|it| it.bytes_per_second).sum();
    let lag = rows.iter().filter_map(|row| row.lag).map(|(lag, _)| lag);
    let lag = bytes(lag.fold(0, u64::saturating_add));
    let [syncs, real, absorbed] = [syncs, real, absorbed / 1e6].map(rate);
    format!("a second: {syncs} syncs saved, {real} real ones, {absorbed} MB absorbed; lag {lag}")
}

/// The text if nothing was found.
fn nothing(state: &TopState, area: Rect, buffer: &mut Buffer) {
    let said = match (state.history.looks, &state.history.failure) {
        (0, _) => "looking for runs".to_owned(),
        // It is below.
        (_, Some(_)) => String::new(),
        _ => found_runs::looked(&state.place.dir, state.place.whose),
    };
    broken(&[Line::from(said)]).render(area, buffer);
}

/// The style of a line.
pub fn style_of(state: &TopState, row: &RunRow) -> Style {
    match row.health {
        RunHealth::Unwell(..) => state.paint.unwell(),
        RunHealth::Ended | RunHealth::NoLog => state.paint.faint(),
        RunHealth::Absorbs => Style::new(),
    }
}

fn draw_rows(state: &TopState, rows: &[RunRow], area: Rect, buffer: &mut Buffer) {
    let style = |row: &RunRow| style_of(state, row);
    let table = table(RUN_COLUMNS, rows, area.width, state.paint.head(), style)
        .row_highlight_style(state.paint.chosen());
    let chosen = state.chosen_among(rows.iter().map(|row| &row.id));
    let mut at = TableState::new().with_offset(state.offset.get());
    at.select(chosen);
    StatefulWidget::render(table, area, buffer, &mut at);
    state.offset.set(at.offset());
}

fn draw_caches(state: &TopState, area: Rect, buffer: &mut Buffer) {
    if area.is_empty() {
        return;
    }
    let [_, area] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    let caches = &state.history.caches;
    let style = |cache: &WatchedCache| match cache.status.is_well() {
        true => Style::new(),
        false => state.paint.unwell(),
    };
    let table = table(CACHE_COLUMNS, caches, area.width, state.paint.head(), style)
        .row_highlight_style(state.paint.chosen());
    let ids: Vec<RowId> = caches.iter().map(WatchedCache::row_id).collect();
    let mut at = TableState::new();
    at.select(state.chosen_among(ids.iter()));
    StatefulWidget::render(table, area, buffer, &mut at);
}

/// The reason that something is not known, or not well: of runs the chosen one, or the first that
/// is not.
fn notes(state: &TopState, rows: &[RunRow]) -> Vec<Line<'static>> {
    let chosen = rows
        .iter()
        .find(|row| Some(&row.id) == state.chosen.as_ref());
    let first = || rows.iter().find(|row| row.health.reason().is_some());
    let row = chosen.or_else(first);
    let notes = notes_of(state, row.into_iter());
    let unwell = state.paint.unwell();
    notes.map(|note| styled(note, unwell)).collect()
}

/// The same of these runs.
pub fn notes_of<'a>(
    state: &'a TopState,
    rows: impl Iterator<Item = &'a RunRow>,
) -> impl Iterator<Item = String> {
    let failure = state.history.failure.iter().cloned();
    let runs = rows.filter_map(|row| {
        let why = row.health.reason()?;
        Some(match (&row.id, row.pid) {
            (RowId::Run(_), Some(pid)) => format!("{} {pid}: {why}", row.program),
            _ => why.to_owned(),
        })
    });
    let caches = state.history.silent_caches.iter().cloned();
    failure.chain(runs).chain(caches)
}
