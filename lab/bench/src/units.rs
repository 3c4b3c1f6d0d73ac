//! Figures in words.

/// Bytes, as rows have them: `512 B`, `8 KiB`, `16 MiB`, `1 GiB`.
#[must_use]
pub fn bytes_name(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let fits = |(shift, _): &&(u32, &str)| bytes > 0 && bytes.is_multiple_of(1 << shift);
    match units.iter().find(fits) {
        Some((shift, unit)) => format!("{} {unit}", bytes >> shift),
        None => format!("{bytes} B"),
    }
}
