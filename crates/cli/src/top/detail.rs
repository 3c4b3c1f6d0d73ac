//! One run: its identity, its rates in each interval, its files, and its trouble.

use super::{
    columns::{FILE_COLUMNS, RUN_COLUMNS, table},
    figures::{age, bytes, quantile, rate},
    files::{self, FileRow},
    history::{WatchedCache, WatchedRun},
    list::style_of,
    paint::{broken, broken_height, ends, row_of, styled},
    rows::RunRow,
    state::TopState,
};
use crate::rates;
use forebay_files::{DurationHistogram, supervisor::RunDurations};
use ratatui::{
    buffer::Buffer,
    layout::{Constraint, Layout, Rect},
    style::Style,
    text::{Line, Span},
    widgets::{Sparkline, StatefulWidget, TableState, Widget},
};

/// Columns of the names on the left.
const NAME_WIDTH: u16 = 14;
/// Columns of the figures on the right of a curve.
const MOST_WIDTH: u16 = 13;
/// The line at the bottom.
const KEYS: &str = "q quit  Esc list  up/down scroll files  +/- interval  ? help";

/// Draws a run.
pub fn draw_run(state: &TopState, run: &WatchedRun, area: Rect, buffer: &mut Buffer) {
    let row = RunRow::of_run(run);
    let fields = fields(run);
    let problems = problems(state, run, &row);
    // Curves are worth more rows where there are some.
    let curve = if area.height >= 36 { 4 } else { 1 };
    let height = |lines: usize| u16::try_from(lines).unwrap_or(u16::MAX);
    let [head, line, facts, curves, _, files, problems_area, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(3),
        Constraint::Length(height(fields.len())),
        Constraint::Length(2 * curve),
        Constraint::Length(1),
        Constraint::Min(2),
        Constraint::Max(broken_height(&problems, area.width).min(area.height / 3)),
        Constraint::Length(1),
    ])
    .areas(area);
    let (pid, running) = (run.status.pid, age(run.status.uptime_seconds));
    let title = format!("{} (forebay {pid}), running {running}", run.status.program);
    let every = format!("every {} s", state.interval.as_secs_f64());
    ends(
        styled(title, state.paint.head()),
        every.into(),
        head,
        buffer,
    );
    let style = |row: &RunRow| style_of(state, row);
    let table = table(RUN_COLUMNS, &[row], line.width, state.paint.head(), style);
    Widget::render(table, line, buffer);
    for (at, (name, said)) in (0..).zip(fields) {
        let [left, right] = named(row_of(facts, at));
        styled(name, state.paint.faint()).render(left, buffer);
        Line::from(said).render(right, buffer);
    }
    let [above, below] = Layout::vertical([Constraint::Length(curve); 2]).areas(curves);
    draw_curves(state, run, [above, below], buffer);
    draw_files(state, run, files, buffer);
    broken(&problems).render(problems_area, buffer);
    styled(KEYS, state.paint.faint()).render(keys, buffer);
}

fn named(area: Rect) -> [Rect; 2] {
    Layout::horizontal([Constraint::Length(NAME_WIDTH), Constraint::Min(0)]).areas(area)
}

/// The durations of the last interval, or, before there was one, since the run began.
fn took(run: &WatchedRun, which: fn(&RunDurations) -> &DurationHistogram) -> DurationHistogram {
    let lane = run.status.lane.as_ref();
    let now = lane.map(|lane| which(&lane.durations).clone());
    let before = run.before.as_ref().and_then(|before| before.lane.as_ref());
    match (now, before) {
        (Some(now), Some(before)) => now.since(which(&before.durations)),
        (now, _) => now.unwrap_or_default(),
    }
}

fn quantiles(took: &DurationHistogram) -> String {
    let [half, most] = [0.5, 0.99].map(|share| quantile(rates::quantile(took, share)));
    format!("p50 {half}, p99 {most}")
}

fn fields(run: &WatchedRun) -> Vec<(&'static str, String)> {
    let status = &run.status;
    let pool = status.pool.display();
    let mut fields = vec![
        ("pool", format!("{pool}, which {}", status.survives)),
        ("calls seen by", status.seen_by()),
    ];
    let Some(lane) = &status.lane else {
        return fields;
    };
    let living = status.processes.iter().filter(|it| !it.ended).count();
    let processes = if living == 1 { "process" } else { "processes" };
    let (lag, segments) = (bytes(lane.drain_lag_bytes), lane.segments_waiting);
    fields.push((
        "lane",
        format!(
            "{} of the pool, for {living} {processes}; the disk is behind {lag}, {} old, {segments} full segments",
            bytes(lane.bytes),
            age(lane.lag_seconds)
        ),
    ));
    let real = run.rates.as_ref().map(|it| rate(it.real_syncs_per_second));
    let real = real.unwrap_or_else(|| "-".to_owned());
    let drain = quantiles(&took(run, |durations| &durations.drain));
    fields.push((
        "drain",
        format!(
            "{real} real syncs/s, {} in all, {} of them for the order; rounds {drain}",
            lane.real_syncs + lane.order_syncs,
            lane.order_syncs
        ),
    ));
    let waited = quantiles(&took(run, |durations| &durations.wait));
    fields.push(("waits", format!("{} in all; {waited}", lane.waits)));
    fields
}

/// Syncs saved and what commits took, an interval a column, the last one at the right.
fn draw_curves(state: &TopState, run: &WatchedRun, areas: [Rect; 2], buffer: &mut Buffer) {
    let syncs = run.series.syncs.iter().map(|syncs| Some(*syncs));
    let p99 = run.series.commit_p99.iter().copied();
    type CurveFigure = fn(u64) -> String;
    let shows: [(_, Vec<Option<u64>>, CurveFigure); 2] = [
        ("syncs saved/s", syncs.collect(), |most| rate(most as f64)),
        ("commit p99", p99.collect(), |most| {
            quantile((Some(most as f64 * 1e-6), false))
        }),
    ];
    for (area, (name, series, show)) in areas.into_iter().zip(shows) {
        let [left, curve, _, right] = Layout::horizontal([
            Constraint::Length(NAME_WIDTH),
            Constraint::Min(0),
            Constraint::Length(1),
            Constraint::Length(MOST_WIDTH),
        ])
        .areas(area);
        styled(name, state.paint.faint()).render(left, buffer);
        let shown = &series[series.len().saturating_sub(usize::from(curve.width))..];
        Sparkline::default()
            .data(shown.iter().copied())
            .absent_value_symbol(" ")
            .render(curve, buffer);
        let most = shown.iter().flatten().max();
        let most = most.map(|most| format!("max {}", show(*most)));
        Line::from(most.unwrap_or_default()).render(right, buffer);
    }
}

fn draw_files(state: &TopState, run: &WatchedRun, area: Rect, buffer: &mut Buffer) {
    let rows = files::of_run(run);
    let style = |file: &FileRow| match file.is_failing {
        true => state.paint.unwell(),
        false => Style::new(),
    };
    // As far as it can be scrolled.
    let visible = usize::from(area.height.saturating_sub(1)).max(1);
    let offset = state.file_offset.get();
    let offset = offset.min(rows.len().saturating_sub(visible));
    state.file_offset.set(offset);
    let table = table(FILE_COLUMNS, &rows, area.width, state.paint.head(), style);
    let mut at = TableState::new().with_offset(offset);
    StatefulWidget::render(table, area, buffer, &mut at);
}

/// The run's troubles, the worst first; and the flash cache, if it has one.
fn problems(state: &TopState, run: &WatchedRun, row: &RunRow) -> Vec<Line<'static>> {
    let status = &run.status;
    let unwell = state.paint.unwell();
    let first = row.health.reason().map(str::to_owned);
    let others = status.degraded.iter().cloned();
    let left = status.lane.iter().filter_map(|lane| lane.left.clone());
    let mut said: Vec<String> = first.into_iter().collect();
    for why in others.chain(left) {
        if !said.iter().any(|before| before.contains(&why)) {
            said.push(why);
        }
    }
    let mut lines: Vec<Line> = said.into_iter().map(|why| styled(why, unwell)).collect();
    let plain = status.plain.iter().map(|file| {
        let (path, program, pid) = (file.path.display(), &file.program, file.pid);
        Line::from(format!(
            "{path} stays plain in {program} {pid}: {}",
            file.reason
        ))
    });
    lines.extend(plain);
    if let Some(cache) = state.history.cache_of(run) {
        lines.extend(cache_lines(cache, state));
    }
    lines
}

/// The lines on a flash cache.
pub fn cache_lines(cache: &WatchedCache, state: &TopState) -> Vec<Line<'static>> {
    let style = match cache.status.is_well() {
        true => Style::new(),
        false => state.paint.unwell(),
    };
    let lines = cache.status.lines().into_iter();
    lines.map(|line| styled(line, style)).collect()
}

/// Draws lines without figures: a run that does not answer, a pool; or a flash cache.
pub fn draw_words(state: &TopState, lines: &[Line<'static>], area: Rect, buffer: &mut Buffer) {
    let [head, _, body, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(area);
    Line::from(Span::styled("forebay top", state.paint.head())).render(head, buffer);
    broken(lines).render(body, buffer);
    styled(KEYS, state.paint.faint()).render(keys, buffer);
}
