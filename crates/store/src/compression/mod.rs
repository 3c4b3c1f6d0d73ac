//! Compression of values: the option ([`Compression`]), its effect on a value that is written
//! ([`Compressor`]), and the bytes that are stored (`packed`).
//!
//! Each stored value says by itself whether and how it is compressed, so values are read whatever
//! the options are. What does not become smaller by an eighth is stored as it is.
//! docs/store-format.md, "Compressed values".

mod compressor;
mod packed;
mod scratch;

pub(crate) use compressor::Compressor;
pub(crate) use packed::{HEADER as PACKED_HEADER, NotUnpacked, raw_length, unpack, unpack_within};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::{fmt, str::FromStr};

/// Levels of Zstandard.
const LEVELS: std::ops::RangeInclusive<i32> = -7..=22;
/// The one that stands where none is said.
const LEVEL: i32 = 3;

/// The compression of values before they are stored.
///
/// It is about what is written: values that are there already are read whichever they were written
/// with, and stay as they are, also when the collector copies them. Values below 64 bytes, and
/// those that would not become smaller by an eighth, are stored as they are. Where several values
/// of a length in a row did not, only some of that length are tried until one does.
///
/// ```
/// use forebay_store::Compression;
/// assert_eq!("lz4".parse(), Ok(Compression::Lz4));
/// assert_eq!("zstd=9".parse(), Ok(Compression::Zstd(9)));
/// assert_eq!(Compression::Zstd(3).to_string(), "zstd=3");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compression {
    /// Values are stored as they are.
    #[default]
    None,
    /// LZ4: little work. Needs the cargo feature `lz4`, which is on by default.
    Lz4,
    /// Zstandard, with its level, from -7 (fast) to 22 (small); 3 is its own default. Smaller, and
    /// more work. Needs the cargo feature `zstd`, and that a C compiler.
    Zstd(i32),
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Lz4 => f.write_str("lz4"),
            Self::Zstd(level) => write!(f, "zstd={level}"),
        }
    }
}

impl FromStr for Compression {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::None),
            "lz4" => Ok(Self::Lz4),
            "zstd" => Ok(Self::Zstd(LEVEL)),
            _ => text
                .strip_prefix("zstd=")
                .and_then(|level| level.parse().ok())
                .filter(|level| LEVELS.contains(level))
                .map(Self::Zstd)
                .ok_or_else(|| {
                    format!("unknown compression {text:?}: none, lz4, zstd, or zstd=LEVEL with a level from -7 to 22")
                }),
        }
    }
}

impl Serialize for Compression {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Compression {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl Compression {
    /// True of [`None`](Self::None).
    pub(crate) fn is_none(&self) -> bool {
        *self == Self::None
    }

    /// The objection to it in this program, if any.
    pub(crate) fn objection(self) -> Option<String> {
        match self {
            Self::Lz4 if !cfg!(feature = "lz4") => Some(not_built_in("lz4")),
            Self::Zstd(_) if !cfg!(feature = "zstd") => Some(not_built_in("zstd")),
            Self::Zstd(level) if !LEVELS.contains(&level) => {
                Some(format!("level {level} of Zstandard; -7 to 22 are possible"))
            }
            _ => None,
        }
    }
}

fn not_built_in(feature: &str) -> String {
    format!(
        "this program has no {feature}: build it with the cargo feature {feature} of forebay-store"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compression_is_written_as_it_is_read() {
        for text in ["none", "lz4", "zstd=-7", "zstd=1", "zstd=22"] {
            assert_eq!(text.parse::<Compression>().unwrap().to_string(), text);
        }
        assert_eq!("zstd".parse(), Ok(Compression::Zstd(3)));
        for text in ["", "LZ4", "zstd=", "zstd=23", "zstd=-8", "gzip"] {
            assert!(text.parse::<Compression>().is_err(), "{text}");
        }
        assert!(Compression::Zstd(23).objection().is_some());
    }
}
