//! Comparing a path with a pattern. Neither allocates nor locks: the client does it when the
//! database opens a file.

/// True if the last names of `path` (as many as `pattern` has; all, if it begins with a slash)
/// match `pattern`.
#[must_use]
pub fn matches(pattern: &[u8], path: &[u8]) -> bool {
    let absolute = pattern.first() == Some(&b'/');
    let slashes = pattern.iter().filter(|&&b| b == b'/').count();
    let tail = if absolute {
        path
    } else {
        // From the slash before the last names on; the whole path if it has no more names than
        // that.
        let mut left = slashes + 1;
        let cut = path.iter().rposition(|&b| {
            left -= usize::from(b == b'/');
            left == 0
        });
        match cut {
            Some(at) => &path[at + 1..],
            None => path,
        }
    };
    tail.iter().filter(|&&b| b == b'/').count() == slashes && matches_whole(pattern, tail)
}

/// As fnmatch(3) with `FNM_PATHNAME`.
fn matches_whole(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // Where to go on after a failure: behind the last star, one byte further in the text.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            retry = Some((p, t));
            continue;
        }
        if p == pattern.len() && t == text.len() {
            return true;
        }
        if let (Some(&byte), true) = (text.get(t), p < pattern.len())
            && let Some(length) = matches_one(&pattern[p..], byte)
        {
            p += length;
            t += 1;
            continue;
        }
        match retry {
            Some((star, at)) if text.get(at).is_some_and(|&b| b != b'/') => {
                (p, t) = (star, at + 1);
                retry = Some((star, at + 1));
            }
            _ => return false,
        }
    }
}

/// The length of the first element of `pattern` (not a star), if `byte` matches it.
fn matches_one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] if byte != b'/' => Some(1),
        [b'?', ..] => None,
        [b'\\', literal, ..] => (*literal == byte).then_some(2),
        [b'[', ..] if byte != b'/' => match set(pattern, byte) {
            Some((true, length)) => Some(length),
            Some((false, _)) => None,
            None => (byte == b'[').then_some(1),
        },
        [literal, ..] => (*literal == byte).then_some(1),
        [] => None,
    }
}

/// True if `byte` is in the set that `pattern` begins with, and the set's length; `None` if it has
/// no end.
fn set(pattern: &[u8], byte: u8) -> Option<(bool, usize)> {
    let negated = matches!(pattern.get(1), Some(b'!' | b'^'));
    let first = if negated { 2 } else { 1 };
    let mut at = first;
    let mut found = false;
    loop {
        match pattern.get(at..)? {
            [b']', ..] if at > first => return Some((found != negated, at + 1)),
            [low, b'-', high, ..] if *high != b']' => {
                found |= (*low..=*high).contains(&byte);
                at += 3;
            }
            [one, ..] => {
                found |= *one == byte;
                at += 1;
            }
            [] => return None,
        }
    }
}

/// Refuses a pattern that can match no file, with the mistake.
pub(super) fn check(pattern: &str) -> Result<(), &'static str> {
    if pattern.is_empty() {
        Err("is empty; write one like '*.log'")
    } else if pattern.ends_with('/') {
        Err("matches no file: it ends with a slash; write one like 'dir/*'")
    } else if pattern.bytes().any(|b| b == 0 || b == b'\n') {
        Err("has a byte in it that no pattern can have")
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_the_end_of_a_path() {
        for (pattern, path, expected) in [
            ("*.aof", "/var/lib/redis/a.aof", true),
            ("*.aof", "a.aof", true),
            ("*.aof", "/a.aof/b", false),
            ("*.aof", "/x/.aof", true),
            ("*.aof", "/x/a.aof.manifest", false),
            ("pg_wal/*", "/pg/pg_wal/0001", true),
            ("pg_wal/*", "pg_wal/0001", true),
            ("pg_wal/*", "0001", false),
            ("pg_wal/*", "/pg/pg_wal/archive/0001", false),
            ("pg_wal/*", "/pg/my_pg_wal/0001", false),
            ("/data/*.log", "/data/1.log", true),
            ("/data/*.log", "/x/data/1.log", false),
            ("/data/*.log", "/data/x/1.log", false),
            ("[0-9]*.log", "/db/000004.log", true),
            ("[0-9]*.log", "/db/LOG.log", false),
            ("[!0-9]*", "/db/x", true),
            ("[!0-9]*", "/db/1", false),
            ("a?c", "/abc", true),
            ("a?c", "/ac", false),
            ("a[b", "/a[b", true),
            ("[]x]y", "/]y", true),
            ("\\*x", "/*x", true),
            ("\\*x", "/ax", false),
            ("*a*b*c", "/xaxxbxxbc", true),
            ("*a*b*c", "/xaxxbxx", false),
            ("ib_logfile*", "/m/ib_logfile0", true),
            ("*", "/m/x", true),
            ("**", "/m/x", true),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), path.as_bytes()),
                expected,
                "{pattern} {path}"
            );
        }
    }

    #[test]
    fn a_pattern_of_many_stars_is_decided_at_once() {
        let text = [b'a'; 4096];
        let pattern = b"a*a*a*a*a*a*a*a*a*a*a*a*b";
        assert!(!matches(pattern, &text));
    }
}
