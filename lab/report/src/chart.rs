//! Charts as SVG: grouped bars or lines over categories, with the span of the rounds as error bars.
//! Colours are the style sheet's, so that one drawing serves light and dark.

use crate::{section::Figures, words};
use forebay_bench::paper::catalogue::ChartKind;
use maud::{Markup, html};

const WIDTH: f64 = 760.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 14.0;
/// Where the axis below is.
const BOTTOM: f64 = 244.0;
/// Height of one line below the axis.
const LINE: f64 = 14.0;
/// Height of one line of the legend.
const LEGEND: f64 = 20.0;
/// About what a letter of the legend and of names takes.
const LETTER: f64 = 6.8;
/// Bars at most that have their value above them.
const LABELLED_MAX: usize = 9;
/// Colours that the style sheet has.
const COLOURS: usize = 8;

/// Series that are ours have the first colour.
const OURS: [&str; 3] = ["forebay", "double", "forebay wc"];

/// The chart of a panel.
pub fn svg(figures: &Figures<'_>) -> Markup {
    let chart = Chart::new(figures);
    let (legend, legend_height) = chart.legend();
    let height = round(legend_height + BOTTOM + chart.names.height() + 2.0 * LINE);
    html! {
        svg viewBox={ "0 0 " (WIDTH) " " (height) } role="img" aria-label=(figures.title()) {
            title { (figures.title()) }
            g { (legend) }
            g transform={ "translate(0 " (legend_height) ")" } {
                (chart.axes())
                @if figures.panel.drawn == ChartKind::Lines { (chart.lines()) } @else { (chart.bars()) }
            }
        }
    }
}

struct Chart<'a> {
    figures: &'a Figures<'a>,
    axis: Axis,
    /// Series as categories: where there is one x only, each bar has its name below it.
    by_series: bool,
    colours: Vec<usize>,
    categories: &'a [&'a str],
    /// Width of a category's place.
    slot: f64,
    names: Names<'a>,
}

/// The names below the axis.
enum Names<'a> {
    /// Each in as many lines as it needs in its place.
    Level(Vec<Vec<&'a str>>),
    /// Aslant, because a word is wider than its place; the longest has so many letters.
    Slanted(usize),
}

impl<'a> Names<'a> {
    /// How far names are turned that stand aslant, degrees.
    const SLANT: f64 = 60.0;

    fn new(names: &[&'a str], place: f64) -> Self {
        let letters = (place / LETTER) as usize;
        let lines = names.iter().map(|name| wrapped(name, letters));
        match lines.collect() {
            Some(lines) => Self::Level(lines),
            None => Self::Slanted(
                names
                    .iter()
                    .map(|name| name.chars().count())
                    .max()
                    .unwrap_or(0),
            ),
        }
    }

    fn height(&self) -> f64 {
        match self {
            Self::Level(lines) => LINE * lines.iter().map(Vec::len).max().unwrap_or(1) as f64,
            Self::Slanted(letters) => {
                LINE + *letters as f64 * LETTER * Self::SLANT.to_radians().sin()
            }
        }
    }
}

/// A name in lines of so many letters; none if a word is longer.
fn wrapped(name: &str, letters: usize) -> Option<Vec<&str>> {
    let mut lines = Vec::new();
    let mut rest = name;
    while rest.chars().count() > letters {
        // A space may stand right behind the line.
        let within = rest.char_indices().take(letters + 1);
        let space = within.filter(|(_, letter)| *letter == ' ').last()?.0;
        lines.push(&rest[..space]);
        rest = &rest[space + 1..];
    }
    lines.push(rest);
    Some(lines)
}

/// The vertical axis.
struct Axis {
    low: f64,
    high: f64,
    log: bool,
    ticks: Vec<f64>,
}

impl Axis {
    fn new(figures: &Figures<'_>) -> Self {
        let mut values = Vec::new();
        for series in &figures.series {
            for x in &figures.xs {
                if let Some((value, min, max)) = figures.at(series, x) {
                    values.extend([value, min, max]);
                }
            }
        }
        let highest = values.iter().copied().fold(0.0, f64::max);
        let lowest = values
            .iter()
            .copied()
            .filter(|v| *v > 0.0)
            .fold(f64::INFINITY, f64::min);
        // A logarithmic axis has no place for zero, and says nothing over less than a decade or so.
        let log = figures.panel.drawn == ChartKind::LogBars
            && lowest.is_finite()
            && highest / lowest > 8.0;
        if log {
            // Bars begin below the smallest, so that it has a length.
            let (low, high) = (
                (lowest / 2.0).log10().floor() as i32,
                highest.log10().ceil() as i32,
            );
            return Self {
                low: 10_f64.powi(low),
                high: 10_f64.powi(high),
                log,
                ticks: (low..=high).map(|power| 10_f64.powi(power)).collect(),
            };
        }
        let step = nice_step(if highest > 0.0 { highest } else { 1.0 });
        let count = (highest / step).ceil().max(1.0) as i32;
        Self {
            low: 0.0,
            high: f64::from(count) * step,
            log,
            ticks: (0..=count).map(|n| f64::from(n) * step).collect(),
        }
    }

    fn y(&self, value: f64) -> f64 {
        let share = match self.log {
            true => (value.max(self.low) / self.low).log10() / (self.high / self.low).log10(),
            false => value / self.high,
        };
        BOTTOM - share.clamp(0.0, 1.0) * (BOTTOM - TOP)
    }
}

/// A step of 1, 2 or 5 times a power of ten that gives about five.
fn nice_step(highest: f64) -> f64 {
    let rough = highest / 5.0;
    let power = 10_f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .find(|factor| factor * power >= rough);
    factor.unwrap_or(10.0) * power
}

impl<'a> Chart<'a> {
    fn new(figures: &'a Figures<'a>) -> Self {
        let mut next = 0;
        let mut colours = Vec::new();
        let ours = figures
            .series
            .iter()
            .position(|series| OURS.contains(series));
        for at in 0..figures.series.len() {
            if ours == Some(at) {
                colours.push(0);
            } else {
                next += 1;
                colours.push(1 + (next - 1) % (COLOURS - 1));
            }
        }
        let by_series = figures.xs.len() == 1 && figures.panel.drawn != ChartKind::Lines;
        let categories = match by_series {
            true => &figures.series,
            false => &figures.xs,
        };
        let slot = (WIDTH - LEFT - RIGHT) / categories.len() as f64;
        Self {
            figures,
            axis: Axis::new(figures),
            by_series,
            colours,
            slot,
            names: Names::new(categories, slot),
            categories,
        }
    }

    /// The legend in as many lines as it needs, and their height. None where the names stand below
    /// the bars.
    fn legend(&self) -> (Markup, f64) {
        if self.by_series || self.figures.series.len() == 1 {
            return (html! {}, 0.0);
        }
        let (mut x, mut y) = (LEFT, 0.0);
        let mut places = Vec::new();
        for series in &self.figures.series {
            let width = 34.0 + series.chars().count() as f64 * LETTER;
            if x + width > WIDTH - RIGHT && x > LEFT {
                (x, y) = (LEFT, y + LEGEND);
            }
            places.push((x, y));
            x += width;
        }
        let drawn = html! {
            @for ((series, (x, y)), colour) in self.figures.series.iter().zip(&places).zip(&self.colours) {
                rect class={ "c" (colour) } x=(round(*x)) y=(round(y + 4.0)) width="11" height="11" rx="2" {}
                text class="label" x=(round(x + 16.0)) y=(round(y + 14.0)) { (series) }
            }
        };
        (drawn, y + LEGEND + 4.0)
    }

    fn axes(&self) -> Markup {
        html! {
            @for tick in &self.axis.ticks {
                line class="grid" x1=(LEFT) x2=(WIDTH - RIGHT) y1=(round(self.axis.y(*tick))) y2=(round(self.axis.y(*tick))) {}
                text class="tick" x=(LEFT - 6.0) y=(round(self.axis.y(*tick) + 4.0)) text-anchor="end" { (words::short(*tick)) }
            }
            line class="axis" x1=(LEFT) x2=(WIDTH - RIGHT) y1=(BOTTOM) y2=(BOTTOM) {}
            @for (at, name) in self.categories.iter().enumerate() {
                @let middle = round(LEFT + self.slot * (at as f64 + 0.5));
                @match &self.names {
                    Names::Level(lines) => @for (line, words) in lines[at].iter().enumerate() {
                        text class="label" x=(middle) y=(BOTTOM + LINE * (line as f64 + 1.0) + 2.0) text-anchor="middle" { (words) }
                    }
                    Names::Slanted(_) => text class="label" transform={ "translate(" (middle + 4.0) " " (BOTTOM + LINE) ") rotate(-" (Names::SLANT) ")" }
                        text-anchor="end" { (name) }
                }
            }
            text class="tick" x=(round(f64::midpoint(LEFT, WIDTH - RIGHT))) y=(round(BOTTOM + self.names.height() + LINE + 6.0)) text-anchor="middle" { (self.caption()) }
            text class="tick" transform={ "translate(12 " (round(f64::midpoint(TOP, BOTTOM))) ") rotate(-90)" } text-anchor="middle" {
                (self.figures.panel.unit) @if self.axis.log { " (logarithmic)" }
            }
        }
    }

    fn caption(&self) -> String {
        match (self.by_series, self.figures.panel.x.as_str()) {
            (true, "") => String::new(),
            (true, x) => format!(
                "{x}: {}",
                self.figures.xs.first().copied().unwrap_or_default()
            ),
            (false, x) => x.to_owned(),
        }
    }

    fn bars(&self) -> Markup {
        let series = &self.figures.series;
        let most = if self.by_series { 1 } else { series.len() };
        let width = (self.slot * 0.8 / most as f64).min(56.0);
        let labelled = series.len() * self.figures.xs.len() <= LABELLED_MAX;
        html! {
            @for (at, x) in self.figures.xs.iter().enumerate() {
                // Those that were measured here stand in the middle of their place.
                @let present: Vec<usize> = (0..series.len()).filter(|n| self.figures.at(series[*n], x).is_some()).collect();
                @for (nth, n) in present.iter().copied().enumerate() {
                    @if let Some((value, min, max)) = self.figures.at(series[n], x) {
                        @let (slot, aside) = match self.by_series {
                            true => (n, 0.0),
                            false => (at, width * (nth as f64 - (present.len() - 1) as f64 / 2.0)),
                        };
                        @let middle = LEFT + self.slot * (slot as f64 + 0.5) + aside;
                        @let top = self.axis.y(value);
                        rect class={ "c" (self.colours[n]) } x=(round(middle - width * 0.46)) y=(round(top)) width=(round(width * 0.92))
                            height=(round((BOTTOM - top).max(0.5))) {
                            title { (series[n]) ", " (x) ": " (self.figures.words(series[n], x)) }
                        }
                        (self.error_bar(middle, min, max))
                        @if labelled {
                            text class="value" x=(round(middle)) y=(round(self.axis.y(max) - 4.0)) text-anchor="middle" { (words::number(value)) }
                        }
                    }
                }
            }
        }
    }

    fn lines(&self) -> Markup {
        html! {
            @for (n, name) in self.figures.series.iter().enumerate() {
                @let points: Vec<(f64, &str, (f64, f64, f64))> = self.figures.xs.iter().enumerate()
                    .filter_map(|(at, x)| Some((LEFT + self.slot * (at as f64 + 0.5) + self.aside(n), *x, self.figures.at(name, x)?)))
                    .collect();
                polyline class={ "line l" (self.colours[n]) }
                    points=(points.iter().map(|(x, _, (value, ..))| format!("{},{}", round(*x), round(self.axis.y(*value)))).collect::<Vec<_>>().join(" ")) {}
                @for (middle, x, (value, min, max)) in &points {
                    (self.error_bar(*middle, *min, *max))
                    circle class={ "c" (self.colours[n]) } cx=(round(*middle)) cy=(round(self.axis.y(*value))) r="4" {
                        title { (name) ", " (x) ": " (self.figures.words(name, x)) }
                    }
                }
            }
        }
    }

    /// How far the points of a series stand beside those of the others, so that no error bar hides
    /// another.
    fn aside(&self, series: usize) -> f64 {
        const STEP: f64 = 7.0;
        STEP * (series as f64 - (self.figures.series.len() - 1) as f64 / 2.0)
    }

    /// The span of the rounds; none of one round.
    fn error_bar(&self, x: f64, min: f64, max: f64) -> Markup {
        let (low, high) = (self.axis.y(min), self.axis.y(max));
        html! {
            @if low - high > 0.5 {
                path class="error" d=(format!(
                    "M{} {}H{}M{} {}V{}M{} {}H{}",
                    round(x - 4.0), round(high), round(x + 4.0), round(x), round(high), round(low), round(x - 4.0), round(low), round(x + 4.0)
                )) {}
            }
        }
    }
}

/// A coordinate with one decimal.
fn round(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_wrapped_into_its_place_or_stands_aslant() {
        assert_eq!(
            wrapped("read 4 KiB, sequential", 30),
            Some(vec!["read 4 KiB, sequential"])
        );
        assert_eq!(
            wrapped("read 4 KiB, sequential", 11),
            Some(vec!["read 4 KiB,", "sequential"])
        );
        assert_eq!(
            wrapped("read 4 KiB, sequential", 10),
            Some(vec!["read 4", "KiB,", "sequential"])
        );
        assert_eq!(wrapped("rocksdb disable_wal", 10), None);
        assert_eq!(wrapped("10 µs", 2), Some(vec!["10", "µs"]));
        assert_eq!(wrapped("2 µs or so", 5), Some(vec!["2 µs", "or so"]));
        assert_eq!(wrapped("", 0), Some(vec![""]));
    }

    #[test]
    fn ticks_are_round_numbers() {
        assert_eq!(nice_step(100.0), 20.0);
        assert_eq!(nice_step(7.0), 2.0);
        assert!((nice_step(0.03) - 0.01).abs() < 1e-9);
    }
}
