//! The screen's look: colours if they are wanted, and ASCII if the locale has no more.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::{Color, Modifier, Style},
    symbols::bar,
    text::{Line, Span},
    widgets::{Paragraph, Widget, Wrap},
};
use std::env;

/// The terminal's means.
#[derive(Clone, Copy, Debug)]
pub struct ScreenPaint {
    /// Characters other than ASCII.
    pub is_utf8: bool,
    /// Colours.
    pub is_coloured: bool,
}

impl ScreenPaint {
    /// By the environment: the locale, as the C library chooses it, and NO_COLOR (no-color.org).
    pub fn of_environment() -> Self {
        let names = ["LC_ALL", "LC_CTYPE", "LANG"];
        let locale = names.map(|name| env::var_os(name).unwrap_or_default());
        let locale = locale.iter().find(|value| !value.is_empty());
        let locale = locale.map(|value| value.to_string_lossy().to_ascii_lowercase());
        let is_utf8 = |locale: String| locale.contains("utf-8") || locale.contains("utf8");
        Self {
            is_utf8: locale.is_some_and(is_utf8),
            is_coloured: env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        }
    }

    /// Of heads.
    pub fn head(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// The style of trouble.
    pub fn unwell(self) -> Style {
        match self.is_coloured {
            true => Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
            false => Style::new().add_modifier(Modifier::BOLD),
        }
    }

    /// The style of lines that are over, or have less weight.
    pub fn faint(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// Of the chosen line.
    pub fn chosen(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// Leaves ASCII alone in the buffer, where there is no more.
    pub fn finish(self, buffer: &mut Buffer) {
        if self.is_utf8 {
            return;
        }
        for cell in &mut buffer.content {
            if !cell.symbol().is_ascii() {
                let ascii = ascii(cell.symbol());
                cell.set_char(ascii);
            }
        }
    }
}

/// The stand-in for a character of ours. There are others in names.
fn ascii(symbol: &str) -> char {
    const BARS: [(&str, char); 8] = [
        (bar::ONE_EIGHTH, '.'),
        (bar::ONE_QUARTER, ':'),
        (bar::THREE_EIGHTHS, '-'),
        (bar::HALF, '='),
        (bar::FIVE_EIGHTHS, '+'),
        (bar::THREE_QUARTERS, '*'),
        (bar::SEVEN_EIGHTHS, '#'),
        (bar::FULL, '@'),
    ];
    let bar = BARS.iter().find(|(bar, _)| *bar == symbol);
    match (symbol, bar) {
        (_, Some((_, ascii))) => *ascii,
        ("µ", _) => 'u',
        ("…", _) => '~',
        ("–", _) => '-',
        _ => '?',
    }
}

/// One line, and at its right end another one, if there is room for both.
pub fn ends(left: Line<'static>, right: Line<'static>, area: Rect, buffer: &mut Buffer) {
    let has_room = left.width() + right.width() < usize::from(area.width);
    left.render(area, buffer);
    if has_room {
        right.right_aligned().render(area, buffer);
    }
}

/// Lines that are broken where they do not fit.
pub fn broken(lines: &[Line<'static>]) -> Paragraph<'static> {
    Paragraph::new(lines.to_vec()).wrap(Wrap { trim: true })
}

/// The rows of the screen that these lines take at most when they are broken.
pub fn broken_height(lines: &[Line<'static>], width: u16) -> u16 {
    // A word that does not fit leaves room before it: on each row half of it at most, as a rule.
    let width = usize::from(width).max(1);
    let rows = lines.iter().map(|line| match line.width() {
        few if few <= width => 1,
        more => (more + more / 8).div_ceil(width),
    });
    u16::try_from(rows.sum::<usize>()).unwrap_or(u16::MAX)
}

/// A line of one style.
pub fn styled(text: impl Into<String>, style: Style) -> Line<'static> {
    Line::from(Span::styled(text.into(), style))
}

/// The row of an area, counted from its top, or no room.
pub fn row_of(area: Rect, at: u16) -> Rect {
    let row = Rect {
        y: area.y.saturating_add(at),
        height: 1,
        ..area
    };
    row.intersection(area)
}
