//! Pairs as lines: JSON Lines and tab-separated.

use crate::encoding::{Encoding, from_base64, to_base64};
use clap::ValueEnum;
use forebay_store::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use serde::{Deserialize, Serialize};
use std::{borrow::Cow, path::Path};

/// The form of pairs as lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LineFormat {
    /// {"key":…,"value":…}, with "key_base64" and "value_base64" for bytes that are not UTF-8
    Jsonl,
    /// Key, tab, value, with the escapes \t \n \r \\ \xHH (or in hexadecimal or Base64)
    Tsv,
}

/// The form of pairs in lines: arguments that export and import share.
#[derive(clap::Args)]
pub struct LineArguments {
    #[command(flatten)]
    pub encoding: Encoding,
    /// Format of the lines [default: by the file's name, tsv for .tsv and .tab, otherwise jsonl]
    #[arg(long, value_enum)]
    format: Option<LineFormat>,
}

impl LineArguments {
    /// The format of the lines in a file, or on a standard stream.
    pub fn format(&self, path: Option<&Path>) -> LineFormat {
        self.format.unwrap_or_else(|| LineFormat::of(path))
    }
}

/// A key and its value, each as text or in Base64.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyValue<'a> {
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    key: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    key_base64: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    value: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    value_base64: Option<Cow<'a, str>>,
    #[serde(skip)]
    raw: (&'a [u8], Option<&'a [u8]>),
}

impl<'a> KeyValue<'a> {
    /// A key, and its value if that is wanted.
    pub fn new(key: &'a [u8], value: Option<&'a [u8]>) -> Self {
        let (key_text, key_base64) = text_or_base64(key);
        let (value_text, value_base64) = value.map_or((None, None), text_or_base64);
        Self {
            key: key_text,
            key_base64,
            value: value_text,
            value_base64,
            raw: (key, value),
        }
    }
}

fn text_or_base64(bytes: &[u8]) -> (Option<Cow<'_, str>>, Option<Cow<'_, str>>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text.into()), None),
        Err(_) => (None, Some(to_base64(bytes).into())),
    }
}

/// A key and its value as read from a line.
pub type ReadPair = (Vec<u8>, Vec<u8>);

impl LineFormat {
    /// The format that a file's name promises.
    pub fn of(path: Option<&Path>) -> Self {
        match path.and_then(Path::extension).and_then(|e| e.to_str()) {
            Some("tsv" | "tab") => Self::Tsv,
            _ => Self::Jsonl,
        }
    }

    /// Appends a pair as a line.
    pub fn write(self, pair: &KeyValue<'_>, encoding: Encoding, to: &mut Vec<u8>) {
        match self {
            Self::Jsonl => {
                // Strings into memory: cannot fail.
                let _ = serde_json::to_writer(&mut *to, pair);
            }
            Self::Tsv => {
                let (key, value) = pair.raw;
                encoding.encode_field(key, to);
                if let Some(value) = value {
                    to.push(b'\t');
                    encoding.encode_field(value, to);
                }
            }
        }
        to.push(b'\n');
    }

    /// Reads a line without its newline. `None` for an empty one.
    pub fn read(self, line: &[u8], encoding: Encoding) -> Result<Option<ReadPair>, String> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            return Ok(None);
        }
        let (key, value) = match self {
            Self::Jsonl => read_json(line)?,
            Self::Tsv => read_tsv(line, encoding)?,
        };
        if !(1..=KEY_BYTES_MAX).contains(&key.len()) {
            return Err(format!(
                "the key has {} bytes; 1 to {KEY_BYTES_MAX} are possible",
                key.len()
            ));
        }
        if value.len() > VALUE_BYTES_MAX {
            return Err(format!(
                "the value has {} bytes; at most {VALUE_BYTES_MAX} are possible",
                value.len()
            ));
        }
        Ok(Some((key, value)))
    }
}

fn read_json(line: &[u8]) -> Result<ReadPair, String> {
    let pair: KeyValue<'_> = serde_json::from_slice(line).map_err(|e| {
        format!(
            "is not {{\"key\":…,\"value\":…}}: {}",
            e.to_string().replace(" at line 1 column", " at column")
        )
    })?;
    let one =
        |name: &str, text: Option<Cow<'_, str>>, base64: Option<Cow<'_, str>>| match (text, base64)
        {
            (Some(text), None) => Ok(text.into_owned().into_bytes()),
            (None, Some(text)) => {
                from_base64(&text).map_err(|what| format!("\"{name}_base64\" {what}"))
            }
            (None, None) => Err(format!("has neither \"{name}\" nor \"{name}_base64\"")),
            (Some(_), Some(_)) => Err(format!("has both \"{name}\" and \"{name}_base64\"")),
        };
    Ok((
        one("key", pair.key, pair.key_base64)?,
        one("value", pair.value, pair.value_base64)?,
    ))
}

fn read_tsv(line: &[u8], encoding: Encoding) -> Result<ReadPair, String> {
    let mut fields = line.split(|&byte| byte == b'\t');
    match (fields.next(), fields.next(), fields.next()) {
        (Some(key), Some(value), None) => {
            let field = |name: &str, field| {
                encoding
                    .decode_field(field)
                    .map_err(|what| format!("the {name} {what}"))
            };
            Ok((field("key", key)?, field("value", value)?))
        }
        (_, None, _) => Err("has no tab between key and value".to_owned()),
        _ => Err("has more than two fields; a tab in a key or value is written \\t".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args, FromArgMatches};

    fn plain() -> Encoding {
        let command = Encoding::augment_args(clap::Command::new("test"));
        Encoding::from_arg_matches(&command.get_matches_from(["test"])).unwrap()
    }

    #[test]
    fn every_pair_is_read_as_it_was_written() {
        let pairs: [(&[u8], &[u8]); 4] = [
            (b"k", b""),
            (b"a\tb\n", b"\\x"),
            (&[0xFF, 0], &[0xC3]),
            ("ü".as_bytes(), b"\"{}"),
        ];
        for format in [LineFormat::Jsonl, LineFormat::Tsv] {
            for (key, value) in pairs {
                let mut line = Vec::new();
                format.write(&KeyValue::new(key, Some(value)), plain(), &mut line);
                let text = line.strip_suffix(b"\n").unwrap();
                assert!(!text.contains(&b'\n'));
                let read = format.read(text, plain()).unwrap().unwrap();
                assert_eq!((&*read.0, &*read.1), (key, value));
            }
        }
    }

    #[test]
    fn lines_that_are_no_pairs_are_refused_with_the_reason() {
        for (format, line, reason) in [
            (LineFormat::Jsonl, r#"{"key":"a"}"#, "neither"),
            (
                LineFormat::Jsonl,
                r#"{"key":"a","value":"b","value_base64":"Yg=="}"#,
                "both",
            ),
            (LineFormat::Jsonl, r#"{"key":"a","value":1}"#, "is not"),
            (
                LineFormat::Jsonl,
                r#"{"key":"a","value":"b","ttl":1}"#,
                "ttl",
            ),
            (
                LineFormat::Jsonl,
                r#"{"key":"a","key":"a","value":"b"}"#,
                "duplicate",
            ),
            (
                LineFormat::Jsonl,
                r#"{"key":"a","value":"b"} x"#,
                "trailing",
            ),
            (LineFormat::Jsonl, r#"{"key":"","value":"b"}"#, "0 bytes"),
            (
                LineFormat::Jsonl,
                r#"{"key_base64":"!","value":"b"}"#,
                "Base64",
            ),
            (LineFormat::Tsv, "a", "no tab"),
            (LineFormat::Tsv, "a\tb\tc", "two fields"),
            (LineFormat::Tsv, "a\t\\q", "escape"),
            (LineFormat::Tsv, "\tb", "0 bytes"),
        ] {
            let error = format.read(line.as_bytes(), plain()).unwrap_err();
            assert!(error.contains(reason), "{line}: {error}");
        }
        assert!(LineFormat::Jsonl.read(b"\r", plain()).unwrap().is_none());
    }
}
