//! A file's name as a pattern: a number in it may be another one next time.

use std::{os::unix::ffi::OsStrExt, path::Path};

/// A pattern (`forebay_files::policy`) for files like the one at `path`: numbers, and hexadecimal
/// ones of four digits and more, may be any others. Where nothing else is left of the name, its
/// directory is in the pattern, too.
pub fn pattern_of(path: &Path) -> String {
    let name = path.file_name().map(OsStrExt::as_bytes).unwrap_or_default();
    let (pattern, has_words) = generalized(name);
    let directory = path.parent().and_then(Path::file_name);
    match directory.filter(|_| !has_words) {
        Some(directory) => format!("{}/{pattern}", generalized(directory.as_bytes()).0),
        None => pattern,
    }
}

/// The pattern, and whether it has a letter of the name's own.
fn generalized(name: &[u8]) -> (String, bool) {
    let mut pattern = String::new();
    let mut has_words = false;
    let text = String::from_utf8_lossy(name);
    for word in words(&text) {
        let is_number = word.bytes().all(|b| b.is_ascii_digit());
        let is_hexadecimal = word.len() >= 4
            && word.bytes().all(|b| b.is_ascii_hexdigit())
            && word.bytes().any(|b| b.is_ascii_digit());
        if is_number || !is_hexadecimal {
            has_words |= push_word(word, &mut pattern);
            continue;
        }
        let digits = match word.bytes().any(|b| b.is_ascii_uppercase()) {
            true => "[0-9A-F]*",
            false => "[0-9a-f]*",
        };
        pattern.push_str(digits);
    }
    (pattern, has_words)
}

/// A word with its numbers made any number. True if there is a letter in it.
fn push_word(word: &str, pattern: &mut String) -> bool {
    let mut is_in_number = false;
    for letter in word.chars() {
        let is_digit = letter.is_ascii_digit();
        match letter {
            _ if is_digit && is_in_number => {}
            _ if is_digit => pattern.push_str("[0-9]*"),
            // No valid text has it: a byte of another encoding.
            char::REPLACEMENT_CHARACTER => pattern.push('?'),
            '*' | '?' | '[' | '\\' => pattern.extend(['\\', letter]),
            _ => pattern.push(letter),
        }
        is_in_number = is_digit;
    }
    word.chars().any(char::is_alphabetic)
}

/// The name cut where letters and digits begin and end.
fn words(name: &str) -> impl Iterator<Item = &str> {
    let mut rest = name;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let is_word = first.is_ascii_alphanumeric();
        let end = rest.find(|c: char| c.is_ascii_alphanumeric() != is_word);
        let (word, others) = rest.split_at(end.unwrap_or(rest.len()));
        rest = others;
        Some(word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_files::policy::matches;

    #[test]
    fn a_pattern_matches_its_name_and_the_next_ones() {
        for (path, pattern, next) in [
            (
                "/d/appendonly.aof.12.incr.aof",
                "appendonly.aof.[0-9]*.incr.aof",
                "/d/appendonly.aof.13.incr.aof",
            ),
            ("/d/000031.log", "[0-9]*.log", "/d/000032.log"),
            ("/d/app.db-wal", "app.db-wal", "/x/app.db-wal"),
            (
                "/w/0000000000000001-00000000000186a0.wal",
                "[0-9]*-[0-9a-f]*.wal",
                "/w/0000000000000002-00000000000286a1.wal",
            ),
            (
                "/d/pg_wal/00000001000000000000000A",
                "pg_wal/[0-9A-F]*",
                "/e/pg_wal/00000001000000000000000B",
            ),
            ("/d/wal/17", "wal/[0-9]*", "/d/wal/18"),
        ] {
            assert_eq!(pattern_of(Path::new(path)), pattern);
            assert!(matches(pattern.as_bytes(), path.as_bytes()), "{path}");
            assert!(matches(pattern.as_bytes(), next.as_bytes()), "{next}");
        }
    }

    #[test]
    fn what_is_a_pattern_by_itself_is_not_in_a_name() {
        let path = "/d/a[b]*?\\c.log";
        let pattern = pattern_of(Path::new(path));
        assert!(matches(pattern.as_bytes(), path.as_bytes()), "{pattern}");
        assert!(!matches(pattern.as_bytes(), b"/d/abxy\\c.log"));
    }
}
