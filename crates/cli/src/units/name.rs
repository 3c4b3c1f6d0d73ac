//! The name of a service unit: `redis-server.service`, or an instance,
//! `postgresql@15-main.service`.
//!
//! Guarantees that a name leads to no other directory, and says what of systemd's specifiers
//! (`%i` and its kin) in a unit's settings can be known here.

use crate::failure::Failure;
use std::path::Path;

/// The name of a service, with its suffix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitName(String);

/// The endings of units of another kind.
const OTHER_KINDS: [&str; 9] = [
    ".socket", ".target", ".timer", ".mount", ".path", ".slice", ".scope", ".device", ".swap",
];
/// As long as systemd has them.
const LENGTH_MAX: usize = 255;

impl UnitName {
    /// The unit that the user means: without a suffix a service.
    ///
    /// # Errors
    /// [`Failure::Usage`]: it is none, or none that can be wrapped.
    pub fn parse(typed: &str) -> Result<Self, Failure> {
        let wrong = |what: &str| Err(Failure::Usage(format!("{typed}: {what}")));
        let is_plain = |c: char| c.is_ascii_alphanumeric() || ":-_.\\@".contains(c);
        if typed.is_empty() || typed.len() > LENGTH_MAX || !typed.chars().all(is_plain) {
            return wrong("no name of a unit; systemctl list-units --type=service lists them");
        }
        if OTHER_KINDS.iter().any(|kind| typed.ends_with(kind)) {
            return wrong("no service; name the service that runs the database");
        }
        let stem = typed.strip_suffix(".service").unwrap_or(typed);
        if stem.is_empty() || stem.starts_with('.') || stem.starts_with('@') {
            return wrong("no name of a unit; systemctl list-units --type=service lists them");
        }
        if stem.ends_with('@') {
            return wrong(
                "a template, which does not run itself; name an instance of it, as in postgresql@15-main",
            );
        }
        Ok(Self(format!("{stem}.service")))
    }

    /// With its suffix.
    pub fn full(&self) -> &str {
        &self.0
    }

    /// Without its suffix, as people type it.
    pub fn stem(&self) -> &str {
        self.0.strip_suffix(".service").unwrap_or(&self.0)
    }

    /// The template that it is an instance of, and the instance.
    pub fn template(&self) -> Option<(String, &str)> {
        let (prefix, instance) = self.stem().split_once('@')?;
        Some((format!("{prefix}@.service"), instance))
    }

    /// The part before the instance.
    pub fn prefix(&self) -> &str {
        let stem = self.stem();
        stem.split_once('@').map_or(stem, |(prefix, _)| prefix)
    }

    /// The stem as a file's name that needs no quotes in a unit.
    pub fn plain(&self) -> String {
        self.stem().replace('\\', "_")
    }

    /// A setting with its specifiers replaced; none if it has one that is not known here.
    pub fn expand(&self, text: &str) -> Option<String> {
        let instance = self.template().map_or("", |(_, instance)| instance);
        let mut expanded = String::new();
        let mut left = text.chars();
        while let Some(c) = left.next() {
            if c != '%' {
                expanded.push(c);
                continue;
            }
            match left.next()? {
                '%' => expanded.push('%'),
                'i' => expanded.push_str(instance),
                'I' => expanded.push_str(&unescape(instance)?),
                'p' => expanded.push_str(self.prefix()),
                'P' => expanded.push_str(&unescape(self.prefix())?),
                'n' => expanded.push_str(self.full()),
                'N' => expanded.push_str(self.stem()),
                _ => return None,
            }
        }
        Some(expanded)
    }
}

/// As `systemd-escape --unescape`: none if it is not escaped so.
fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut left = text.as_bytes();
    while let [first, rest @ ..] = left {
        match (first, rest) {
            (b'-', _) => bytes.push(b'/'),
            (b'\\', [b'x', high, low, ..]) => {
                let digits = [*high, *low];
                let digits = str::from_utf8(&digits).ok()?;
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
                left = &rest[3..];
                continue;
            }
            (b'\\', _) => return None,
            (byte, _) => bytes.push(*byte),
        }
        left = rest;
    }
    String::from_utf8(bytes).ok()
}

/// A directory as an instance's name, as `systemd-escape --path` has it.
pub fn escape_path(path: &Path) -> String {
    let parts = path.components().filter_map(|part| match part {
        std::path::Component::Normal(name) => Some(name.as_encoded_bytes()),
        _ => None,
    });
    let joined = parts.collect::<Vec<_>>().join(&b'/');
    if joined.is_empty() {
        return "-".to_owned();
    }
    let escaped = joined.iter().enumerate().map(|(at, byte)| match byte {
        b'/' => "-".to_owned(),
        b'.' if at == 0 => "\\x2e".to_owned(),
        byte if byte.is_ascii_alphanumeric() || b":_.".contains(byte) => {
            char::from(*byte).to_string()
        }
        byte => format!("\\x{byte:02x}"),
    });
    escaped.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_named_with_or_without_its_suffix() {
        let name = UnitName::parse("redis-server").unwrap();
        assert_eq!(name, UnitName::parse("redis-server.service").unwrap());
        assert_eq!(
            (name.full(), name.template()),
            ("redis-server.service", None)
        );
        let instance = UnitName::parse("postgresql@15-main").unwrap();
        let template = ("postgresql@.service".to_owned(), "15-main");
        assert_eq!(instance.template(), Some(template));
        assert_eq!(instance.prefix(), "postgresql");
    }

    #[test]
    fn what_is_no_service_is_refused() {
        for typed in [
            "",
            "../etc/passwd",
            "a b",
            "redis@",
            "redis.socket",
            ".service",
            "@x",
        ] {
            let Err(Failure::Usage(message)) = UnitName::parse(typed) else {
                panic!("{typed} is a unit");
            };
            assert!(message.starts_with(typed), "{message}");
        }
    }

    #[test]
    fn specifiers_of_the_name_are_replaced() {
        let name = UnitName::parse("db@15-a\\x2db").unwrap();
        assert_eq!(
            name.expand("/x/%I/%i/%p/%n%%").unwrap(),
            "/x/15/a-b/15-a\\x2db/db/db@15-a\\x2db.service%"
        );
        assert_eq!(name.expand("%H"), None);
        assert_eq!(name.expand("%"), None);
    }

    #[test]
    fn a_directory_is_escaped_as_systemd_does() {
        for (path, escaped) in [
            ("/var/lib/redis", "var-lib-redis"),
            ("/var//lib/a-b/", "var-lib-a\\x2db"),
            ("/.x/.y", "\\x2ex-.y"),
            ("/", "-"),
        ] {
            assert_eq!(escape_path(Path::new(path)), escaped);
        }
    }
}
