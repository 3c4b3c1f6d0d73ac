//! Figures and names in words.

use std::fmt::Display;

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

/// The one of `all` that is called so.
///
/// # Errors
/// In words: that there is none, and which there are.
pub fn named<T: Copy + Display>(what: &str, all: &[T], name: &str) -> Result<T, String> {
    let found = all.iter().find(|it| it.to_string() == name);
    found.copied().ok_or_else(|| {
        let mut names = all.iter().map(T::to_string).collect::<Vec<_>>();
        let last = names.pop().unwrap_or_default();
        format!(
            "there is no such {what}; there are {} and {last}",
            names.join(", ")
        )
    })
}
