//! Tables whose columns fit the width there is: the least important ones give way first.

use super::{
    figures::{age, bytes, percent, quantile, rate},
    files::FileRow,
    history::WatchedCache,
    rows::RunRow,
};
use ratatui::{
    layout::{Alignment, Constraint},
    style::Style,
    text::{Line, Span},
    widgets::{Row, Table},
};

/// Between two columns.
const GAP: u16 = 1;

/// The width of a column.
#[derive(Clone, Copy)]
enum ColumnWidth {
    /// As wide as its figures can be: it does not move when they grow.
    Figures(u16),
    /// As wide as its contents, but no wider than that.
    Contents(u16),
    /// As `Contents`, and as narrow as the first of these if there is no room.
    Text(u16, u16),
    /// The same, and it takes the rest of the width.
    Rest(u16),
}

/// A column of a table of `T`.
pub struct ScreenColumn<T> {
    head: &'static str,
    width: ColumnWidth,
    alignment: Alignment,
    /// A cell without room shows its end: a path's name is there.
    keeps_end: bool,
    /// The larger, the longer it stays when there is no room.
    rank: u8,
    cell: fn(&T) -> String,
}

/// A column that was given room.
struct PlacedColumn {
    /// Its place.
    at: usize,
    width: u16,
}

fn some<T>(figure: Option<T>, show: impl FnOnce(T) -> String) -> String {
    figure.map_or_else(|| "-".to_owned(), show)
}

/// A column of the values that `show` makes of a row's rates.
macro_rules! of_rates {
    ($show:expr) => {
        |row| some(row.rates.as_ref(), $show)
    };
}

const fn figures<T>(
    head: &'static str,
    width: u16,
    rank: u8,
    cell: fn(&T) -> String,
) -> ScreenColumn<T> {
    ScreenColumn {
        alignment: Alignment::Right,
        ..words(head, ColumnWidth::Figures(width), rank, cell)
    }
}

const fn words<T>(
    head: &'static str,
    width: ColumnWidth,
    rank: u8,
    cell: fn(&T) -> String,
) -> ScreenColumn<T> {
    ScreenColumn {
        head,
        width,
        alignment: Alignment::Left,
        keeps_end: false,
        rank,
        cell,
    }
}

const fn path<T>(
    head: &'static str,
    width: ColumnWidth,
    rank: u8,
    cell: fn(&T) -> String,
) -> ScreenColumn<T> {
    ScreenColumn {
        keeps_end: true,
        ..words(head, width, rank, cell)
    }
}

/// Of runs. With a program of 12 letters, a process id of six digits and the library they take 80
/// columns without the last two.
pub const RUN_COLUMNS: &[ScreenColumn<RunRow>] = &[
    words("PROGRAM", ColumnWidth::Text(8, 15), 9, |row| {
        row.program.clone()
    }),
    ScreenColumn {
        alignment: Alignment::Right,
        ..words("PID", ColumnWidth::Contents(7), 9, |row| {
            some(row.pid, |pid| pid.to_string())
        })
    },
    words("BY", ColumnWidth::Contents(5), 2, |row| {
        row.front_end.to_owned()
    }),
    figures("FILES", 5, 3, |row| {
        some(row.files, |files| files.to_string())
    }),
    figures(
        "SYNC/S",
        6,
        9,
        of_rates!(|it| rate(it.saved_syncs_per_second)),
    ),
    figures(
        "MB/S",
        4,
        6,
        of_rates!(|it| rate(it.bytes_per_second / 1e6)),
    ),
    figures(
        "P50",
        5,
        5,
        of_rates!(|it| quantile((it.commit_p50_seconds, it.commit_p50_is_longer))),
    ),
    figures(
        "P99",
        5,
        8,
        of_rates!(|it| quantile((it.commit_p99_seconds, it.commit_p99_is_longer))),
    ),
    figures("LAG", 5, 7, |row| some(row.lag, |(lag, _)| bytes(lag))),
    figures("AGE", 4, 4, |row| {
        some(row.lag, |(_, seconds)| age(seconds))
    }),
    figures("WAIT/S", 6, 4, of_rates!(|it| rate(it.waits_per_second))),
    words("STATE", ColumnWidth::Contents(8), 9, |row| {
        row.health.word().to_owned()
    }),
    path("POOL", ColumnWidth::Text(14, 40), 1, |row| row.pool.clone()),
    words("WHY", ColumnWidth::Rest(16), 0, |row| {
        row.health.reason().unwrap_or_default().to_owned()
    }),
];

/// Of a run's files.
pub const FILE_COLUMNS: &[ScreenColumn<FileRow>] = &[
    path("FILE", ColumnWidth::Rest(12), 9, |file| file.path.clone()),
    figures("WRITE/S", 7, 5, |file| some(file.writes, rate)),
    figures("SYNC/S", 6, 8, |file| some(file.syncs, rate)),
    figures("MB/S", 4, 7, |file| {
        some(file.bytes, |bytes| rate(bytes / 1e6))
    }),
    figures("BYTES", 5, 4, |file| bytes(file.all_bytes)),
    words("STATE", ColumnWidth::Contents(30), 6, |file| {
        file.state.clone()
    }),
];

/// Of flash caches.
pub const CACHE_COLUMNS: &[ScreenColumn<WatchedCache>] = &[
    path("FLASH CACHE", ColumnWidth::Text(11, 40), 9, |cache| {
        cache.status.flash.clone()
    }),
    figures("PID", 7, 9, |cache| cache.pid.to_string()),
    figures("PAGES", 8, 5, |cache| cache.status.pages.to_string()),
    figures("DIRTY", 8, 6, |cache| cache.status.dirty_pages.to_string()),
    figures("FULL", 6, 3, |cache| {
        percent(cache.status.slots_used, cache.status.slots)
    }),
    // Of about the last ten seconds.
    figures("HITS", 6, 7, |cache| {
        let (hits, misses) = (cache.status.recent_hits, cache.status.recent_misses);
        percent(hits, hits + misses)
    }),
    words("STATE", ColumnWidth::Rest(8), 9, |cache| {
        match (&cache.status.trouble, cache.status.lost_pages) {
            (Some(why), _) => format!("FAILS: {why}"),
            (None, 0) => "well".to_owned(),
            (None, lost) => format!("LOST {lost} pages"),
        }
    }),
];

impl<T> ScreenColumn<T> {
    /// The least that it can be, with these cells, and what it would have.
    fn wanted(&self, widest: u16) -> (u16, u16) {
        let head = u16::try_from(self.head.len()).unwrap_or(u16::MAX);
        let contents = widest.max(head);
        match self.width {
            ColumnWidth::Figures(width) => (width, width),
            ColumnWidth::Contents(most) => (contents.min(most), contents.min(most)),
            ColumnWidth::Text(least, most) => {
                let wanted = contents.min(most);
                (least.min(wanted), wanted)
            }
            ColumnWidth::Rest(least) => (least, contents.max(least)),
        }
    }
}

/// The columns that are shown, and their widths.
fn placed<T>(columns: &[ScreenColumn<T>], cells: &[Vec<String>], width: u16) -> Vec<PlacedColumn> {
    let widest = |at: usize| {
        let widths = cells.iter().map(|row| Span::raw(&row[at]).width());
        u16::try_from(widths.max().unwrap_or(0)).unwrap_or(u16::MAX)
    };
    let wanted: Vec<(u16, u16)> = (columns.iter().enumerate())
        .map(|(at, column)| column.wanted(widest(at)))
        .collect();
    let mut shown: Vec<usize> = (0..columns.len()).collect();
    let least = |shown: &[usize]| {
        let gaps = GAP * u16::try_from(shown.len().saturating_sub(1)).unwrap_or(u16::MAX);
        shown.iter().map(|at| wanted[*at].0).sum::<u16>() + gaps
    };
    while shown.len() > 1 && least(&shown) > width {
        let lowest = (0..shown.len())
            .rev()
            .min_by_key(|at| columns[shown[*at]].rank);
        shown.remove(lowest.unwrap_or(0));
    }
    let mut left = width.saturating_sub(least(&shown));
    let mut placed: Vec<PlacedColumn> = (shown.iter())
        .map(|at| PlacedColumn {
            at: *at,
            width: wanted[*at].0.min(width),
        })
        .collect();
    // Texts first, from the left; the rest has what they leave.
    let is_rest = |at: usize| matches!(columns[at].width, ColumnWidth::Rest(_));
    for column in placed.iter_mut().filter(|column| !is_rest(column.at)) {
        let more = (wanted[column.at].1 - wanted[column.at].0).min(left);
        (column.width, left) = (column.width + more, left - more);
    }
    if let Some(rest) = placed.iter_mut().find(|column| is_rest(column.at)) {
        rest.width += left;
    }
    placed
}

/// A text in so many columns of the screen: its start, or its end.
fn cut(text: String, width: u16, keeps_end: bool) -> String {
    let width = usize::from(width);
    if Span::raw(&text).width() <= width {
        return text;
    }
    let mut rest = text.as_str();
    // A character may be wide.
    while Span::raw(rest).width() >= width.max(1) {
        let mut characters = rest.chars();
        match keeps_end {
            true => characters.next(),
            false => characters.next_back(),
        };
        rest = characters.as_str();
    }
    match keeps_end {
        true => format!("…{rest}"),
        false => format!("{rest}…"),
    }
}

/// A table of these rows, each with its style, in so many columns of the screen.
pub fn table<T>(
    columns: &[ScreenColumn<T>],
    rows: &[T],
    width: u16,
    head: Style,
    style: impl Fn(&T) -> Style,
) -> Table<'static> {
    let cells: Vec<Vec<String>> = (rows.iter())
        .map(|row| columns.iter().map(|column| (column.cell)(row)).collect())
        .collect();
    let placed = placed(columns, &cells, width);
    let line = |column: &PlacedColumn, text: String| {
        let its = &columns[column.at];
        Line::from(cut(text, column.width, its.keeps_end)).alignment(its.alignment)
    };
    let heads = placed
        .iter()
        .map(|column| line(column, columns[column.at].head.to_owned()));
    let heads = Row::new(heads.collect::<Vec<_>>()).style(head);
    let body = cells.into_iter().zip(rows).map(|(mut cells, row)| {
        let cells = (placed.iter()).map(|it| line(it, std::mem::take(&mut cells[it.at])));
        Row::new(cells.collect::<Vec<_>>()).style(style(row))
    });
    let widths = placed.iter().map(|column| Constraint::Length(column.width));
    Table::new(body.collect::<Vec<_>>(), widths.collect::<Vec<_>>())
        .header(heads)
        .column_spacing(GAP)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::rows::RunHealth;

    fn row(program: &str, pid: u32) -> RunRow {
        RunRow {
            program: program.to_owned(),
            pid: Some(pid),
            front_end: "lib",
            pool: "/mnt/pmem/forebay.pool".to_owned(),
            ..RunRow::example(RunHealth::Absorbs)
        }
    }

    fn heads(rows: &[RunRow], width: u16) -> Vec<&'static str> {
        let cells: Vec<Vec<String>> = (rows.iter())
            .map(|row| RUN_COLUMNS.iter().map(|it| (it.cell)(row)).collect())
            .collect();
        let placed = placed(RUN_COLUMNS, &cells, width);
        let sum: u16 = placed.iter().map(|column| column.width + GAP).sum();
        assert!(sum - GAP <= width, "{sum} in {width}");
        placed.iter().map(|it| RUN_COLUMNS[it.at].head).collect()
    }

    #[test]
    fn columns_give_way_by_rank_and_most_fit_80() {
        let rows = [row("redis-server", 123_456), row("etcd", 7)];
        let all: Vec<&str> = RUN_COLUMNS.iter().map(|column| column.head).collect();
        assert_eq!(heads(&rows, 160), all);
        assert_eq!(heads(&rows, 80), all[..all.len() - 2]);
        let few = ["PROGRAM", "PID", "SYNC/S", "P99", "STATE"];
        assert_eq!(heads(&rows, 40), few);
        assert_eq!(heads(&rows, 3).len(), 1);
    }

    #[test]
    fn text_without_room_is_cut_where_it_says_least() {
        let name = || "/data/appendonly.aof".to_owned();
        assert_eq!(cut(name(), 9, true), "…only.aof");
        assert_eq!(cut(name(), 9, false), "/data/ap…");
        assert_eq!(cut(name(), 20, true), name());
        assert_eq!(cut("日本語".to_owned(), 4, false), "日…");
        assert_eq!(cut(name(), 1, true), "…");
    }
}
