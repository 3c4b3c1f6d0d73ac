//! Numbers of bytes, as people write and read them.

/// Reads `64MiB`, `8M`, `4k`, `100`, `1.5GiB`, `10MB`: K, M, G, T alone or with `iB` are powers of
/// 1024, with `B` powers of 1000.
pub fn parse(text: &str) -> Result<u64, String> {
    let wrong = || {
        format!(
            "{text:?} is not a size; write bytes as 4096, 4k, 8M, 64MiB, 1.5G, or 10MB (powers of 1000)"
        )
    };
    let text_trimmed = text.trim();
    let unit_at = text_trimmed
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(text_trimmed.len());
    let (number, unit) = text_trimmed.split_at(unit_at);
    let unit = unit.trim().to_ascii_lowercase();
    let base: u64 = if unit.len() == 2 && unit.ends_with('b') {
        1000
    } else {
        1024
    };
    let factor = match unit.trim_end_matches("ib").trim_end_matches('b') {
        "" if matches!(unit.as_str(), "" | "b") => 1,
        "k" => base,
        "m" => base.pow(2),
        "g" => base.pow(3),
        "t" => base.pow(4),
        _ => return Err(wrong()),
    };
    if let Ok(number) = number.parse::<u64>() {
        return number.checked_mul(factor).ok_or_else(wrong);
    }
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let bytes = number * factor as f64;
    if bytes.is_finite() && bytes < u64::MAX as f64 {
        Ok(bytes.round() as u64)
    } else {
        Err(wrong())
    }
}

/// A size that must not be nothing.
pub fn parse_positive(text: &str) -> Result<u64, String> {
    match parse(text)? {
        0 => Err("must be more than 0 bytes".to_owned()),
        bytes => Ok(bytes),
    }
}

/// As `8 MiB`, `1.5 GiB`, `100 bytes`.
pub fn show(bytes: u64) -> String {
    const UNITS: [(&str, u64); 4] = [
        ("TiB", 1 << 40),
        ("GiB", 1 << 30),
        ("MiB", 1 << 20),
        ("KiB", 1 << 10),
    ];
    match UNITS.iter().find(|(_, unit)| bytes >= *unit) {
        None => format!("{bytes} bytes"),
        Some((name, unit)) if bytes.is_multiple_of(*unit) => format!("{} {name}", bytes / unit),
        Some((name, unit)) => format!("{:.1} {name}", bytes as f64 / *unit as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_in_all_their_spellings() {
        for (text, bytes) in [
            ("4096", 4096),
            ("4k", 4096),
            ("4K", 4096),
            ("8M", 8 << 20),
            ("64MiB", 64 << 20),
            ("64 mib", 64 << 20),
            ("1.5G", 3 << 29),
            ("10MB", 10_000_000),
            ("7B", 7),
            ("0", 0),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        for text in [
            "",
            "MiB",
            "4x",
            "-1",
            "1e3",
            "4kk",
            "iB",
            "99999999999T",
            "1.2.3",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse_positive("0").is_err());
    }

    #[test]
    fn sizes_are_shown_in_the_largest_unit() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (8 << 20, "8 MiB"),
            (3 << 29, "1.5 GiB"),
            (1500, "1.5 KiB"),
        ] {
            assert_eq!(show(bytes), text);
        }
    }
}
