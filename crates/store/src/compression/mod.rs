//! Compression of values: the option ([`Compression`]), its effect on a value that is written
//! ([`Compressor`]), and the bytes that are stored (`packed`). Small values may have a dictionary
//! (`dictionary`), which is made from some of them (`sampler`, `training`).
//!
//! Each stored value says by itself whether and how it is compressed, so values are read whatever
//! the options are. What does not become smaller by an eighth is stored as it is.
//! docs/store-format.md, "Compressed values".

mod compressor;
#[cfg_attr(
    not(feature = "zstd"),
    expect(dead_code, reason = "only Zstandard has dictionaries")
)]
mod dictionary;
mod packed;
#[cfg_attr(
    not(feature = "zstd"),
    expect(dead_code, reason = "only Zstandard has dictionaries")
)]
mod sampler;
mod scratch;
#[cfg_attr(
    not(feature = "zstd"),
    expect(dead_code, reason = "only Zstandard has dictionaries")
)]
mod training;

pub(crate) use compressor::Compressor;
pub(crate) use dictionary::{
    DICTIONARY_BYTES_MAX, DictionarySource, NoDictionaries, PackDictionary, UnpackDictionary,
};
pub(crate) use packed::{HEADER as PACKED_HEADER, NotUnpacked, raw_length, unpack, unpack_within};
pub(crate) use training::{TrainedDictionary, TrainingPace};

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
/// assert_eq!("zstd-dict".parse(), Ok(Compression::ZstdDictionary(3)));
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
    /// The same, with a dictionary for values of 32 bytes to 4 KiB that resemble each other, as
    /// rows of JSON do: each of them refers to what they have in common, instead of repeating it.
    ///
    /// The store makes the dictionary itself, in the background, once it has seen some 4 MiB of
    /// such values, and uses it if it makes them smaller by another eighth. It makes another one
    /// when that has become less by a tenth and a new one gains an eighth again. Nothing has to be
    /// configured (as RocksDB's `max_dict_bytes`, of which this has 16 KiB). Until there is one,
    /// and where none pays, this is [`Zstd`](Self::Zstd).
    ///
    /// Values need the dictionary that they were compressed with to be read. So it is kept, in a
    /// small file of the store's, as long as the keyspace is there, and copies of the store have
    /// it. A keyspace has at most 8, a store 128; after that the last ones stay in use. Each takes
    /// about 50 KB of memory when values are read that need it. Each keyspace's newest one takes
    /// 0.45 MB more up to level 3, and at most 1.5 MB above. So does a sample of 1.1 MiB until a
    /// dictionary was made of it.
    ZstdDictionary(i32),
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Lz4 => f.write_str("lz4"),
            Self::Zstd(level) => write!(f, "zstd={level}"),
            Self::ZstdDictionary(level) => write!(f, "zstd-dict={level}"),
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
            "zstd-dict" => Ok(Self::ZstdDictionary(LEVEL)),
            _ => {
                let with_level = |(how, level): (&str, &str)| {
                    let level = level.parse().ok().filter(|level| LEVELS.contains(level))?;
                    match how {
                        "zstd" => Some(Self::Zstd(level)),
                        "zstd-dict" => Some(Self::ZstdDictionary(level)),
                        _ => None,
                    }
                };
                text.split_once('=').and_then(with_level).ok_or_else(|| {
                    format!("unknown compression {text:?}: none, lz4, zstd, zstd-dict, or zstd=LEVEL or zstd-dict=LEVEL with a level from -7 to 22")
                })
            }
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
            Self::Zstd(_) | Self::ZstdDictionary(_) if !cfg!(feature = "zstd") => {
                Some(not_built_in("zstd"))
            }
            Self::Zstd(level) | Self::ZstdDictionary(level) if !LEVELS.contains(&level) => {
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
        for text in [
            "none",
            "lz4",
            "zstd=-7",
            "zstd=1",
            "zstd=22",
            "zstd-dict=19",
        ] {
            assert_eq!(text.parse::<Compression>().unwrap().to_string(), text);
        }
        assert_eq!("zstd".parse(), Ok(Compression::Zstd(3)));
        assert_eq!("zstd-dict".parse(), Ok(Compression::ZstdDictionary(3)));
        for text in [
            "",
            "LZ4",
            "zstd=",
            "zstd=23",
            "zstd=-8",
            "gzip",
            "zstd-dict=",
            "lz4=1",
        ] {
            assert!(text.parse::<Compression>().is_err(), "{text}");
        }
        assert!(Compression::ZstdDictionary(-8).objection().is_some());
        assert!(Compression::Zstd(23).objection().is_some());
    }
}
