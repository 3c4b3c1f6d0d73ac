//! Figures in a few characters, for columns.

use crate::rates;

/// A rate a second: 0, 0.4, 17, 123456, 1.2M.
pub fn rate(per_second: f64) -> String {
    match per_second {
        some if some < 0.05 => "0".to_owned(),
        few if few < 9.95 => format!("{few:.1}"),
        more if more < 999_999.5 => format!("{more:.0}"),
        many => format!("{:.1}M", many / 1e6),
    }
}

/// Bytes: 0, 512B, 1.2K, 64M.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["K", "M", "G", "T"];
    if bytes < 1024 {
        return match bytes {
            0 => "0".to_owned(),
            bytes => format!("{bytes}B"),
        };
    }
    let mut figure = bytes as f64 / 1024.0;
    let mut units = UNITS.iter();
    let mut unit = units.next();
    // What would be rounded to 1024 is one of the next unit.
    while figure >= 1023.5
        && let Some(next) = units.next()
    {
        figure /= 1024.0;
        unit = Some(next);
    }
    let unit = unit.unwrap_or(&"");
    match figure < 9.95 {
        true => format!("{figure:.1}{unit}"),
        false => format!("{figure:.0}{unit}"),
    }
}

/// An age, or a duration that goes on: 0, 0.3s, 42s, 17m, 30h, 12d.
pub fn age(seconds: f64) -> String {
    const MINUTE: f64 = 60.0;
    const HOUR: f64 = 60.0 * MINUTE;
    const DAY: f64 = 24.0 * HOUR;
    match seconds {
        none if none < 0.05 => "0".to_owned(),
        s if s < 9.95 => format!("{s:.1}s"),
        s if s < 99.5 => format!("{s:.0}s"),
        s if s < 99.5 * MINUTE => format!("{:.0}m", s / MINUTE),
        s if s < 99.5 * HOUR => format!("{:.0}h", s / HOUR),
        s => format!("{:.0}d", s / DAY),
    }
}

/// The time that a share of commits took at most: 8µs, >8.4s; a dash if there was none.
pub fn quantile((seconds, is_longer): (Option<f64>, bool)) -> String {
    let words = rates::at_most(seconds, is_longer);
    words.map_or_else(|| "-".to_owned(), |words| words.replace(' ', ""))
}

/// Part of a whole: 99.1%.
pub fn percent(part: u64, whole: u64) -> String {
    match whole {
        0 => "-".to_owned(),
        whole => format!("{:.1}%", part as f64 * 100.0 / whole as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_fit_their_columns() {
        for (per_second, text) in [
            (0.0, "0"),
            (0.42, "0.4"),
            (9.96, "10"),
            (165_098.4, "165098"),
            (999_999.7, "1.0M"),
        ] {
            assert_eq!(rate(per_second), text);
        }
        for (count, text) in [
            (0, "0"),
            (512, "512B"),
            (1 << 10, "1.0K"),
            (1_500, "1.5K"),
            ((1 << 20) - 1, "1.0M"),
            (700 << 20, "700M"),
            (3 << 40, "3.0T"),
        ] {
            assert_eq!(bytes(count), text);
        }
        for (seconds, text) in [
            (0.0, "0"),
            (0.31, "0.3s"),
            (42.0, "42s"),
            (99.6, "2m"),
            (7_200.0, "2h"),
            (1e6, "12d"),
        ] {
            assert_eq!(age(seconds), text);
        }
        assert_eq!(quantile((Some(8e-6), false)), "8µs");
        assert_eq!(quantile((Some(8.388_608), true)), ">8.4s");
        assert_eq!(quantile((None, false)), "-");
        assert_eq!(percent(991, 1_000), "99.1%");
    }
}
