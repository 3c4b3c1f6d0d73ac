//! A dictionary: what many small values have in common, which each of them refers to then. Prepared
//! to compress ([`PackDictionary`]) or to decompress ([`UnpackDictionary`]), and shared by threads.
//!
//! It is what Zstandard's trainer makes, with the store's number of it in the place of the random
//! one. So each frame names its dictionary in one byte, up to number 255.

use std::fmt;

/// Bytes of a dictionary at most: more gains little with values that have one, and each put and get
/// goes through all of it.
pub(crate) const DICTIONARY_BYTES_MAX: usize = 16 << 10;
/// Values of so many bytes use a dictionary.
pub(super) const SMALL: std::ops::RangeInclusive<usize> = 32..=4096;

/// What a dictionary begins with: this, and its number.
#[cfg(feature = "zstd")]
const MAGIC: [u8; 4] = 0xEC30_A437_u32.to_le_bytes();

/// Where dictionaries are found by the numbers that compressed values have.
pub(crate) trait DictionarySource {
    /// Does `work` with the dictionary of that number, if it can be had.
    fn with_dictionary(&self, number: u32, work: &mut dyn FnMut(&UnpackDictionary));
}

/// Of what is written without any.
pub(crate) struct NoDictionaries;

impl DictionarySource for NoDictionaries {
    fn with_dictionary(&self, _: u32, _: &mut dyn FnMut(&UnpackDictionary)) {}
}

/// The reason that bytes are no dictionary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NotADictionary(&'static str);

impl fmt::Display for NotADictionary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// A dictionary that values are compressed with.
pub(crate) struct PackDictionary {
    #[cfg(feature = "zstd")]
    encoder: zstd::dict::EncoderDictionary<'static>,
}

/// A dictionary that values are decompressed with.
pub(crate) struct UnpackDictionary {
    number: u32,
    #[cfg(feature = "zstd")]
    decoder: zstd::dict::DecoderDictionary<'static>,
}

#[cfg(feature = "zstd")]
impl PackDictionary {
    /// The dictionary that these bytes are, for a level.
    pub(crate) fn new(number: u32, bytes: &[u8], level: i32) -> Result<Self, NotADictionary> {
        check(number, bytes)?;
        let encoder = zstd::dict::EncoderDictionary::try_copy(bytes, level);
        let encoder = encoder.map_err(|_| NotADictionary("Zstandard does not take it"))?;
        Ok(Self { encoder })
    }

    pub(super) fn encoder(&self) -> &zstd::dict::CDict<'static> {
        self.encoder.as_cdict()
    }
}

#[cfg(feature = "zstd")]
impl UnpackDictionary {
    /// The dictionary that these bytes are.
    pub(crate) fn new(number: u32, bytes: &[u8]) -> Result<Self, NotADictionary> {
        check(number, bytes)?;
        let decoder = zstd::dict::DecoderDictionary::try_copy(bytes);
        let decoder = decoder.map_err(|_| NotADictionary("Zstandard does not take it"))?;
        Ok(Self { number, decoder })
    }

    pub(super) fn decoder(&self) -> &zstd::dict::DDict<'static> {
        self.decoder.as_ddict()
    }
}

/// What no number can be had from without Zstandard.
#[cfg(not(feature = "zstd"))]
const NOT_BUILT_IN: NotADictionary =
    NotADictionary("this program was built without the cargo feature zstd");

#[cfg(not(feature = "zstd"))]
impl PackDictionary {
    pub(crate) fn new(_: u32, _: &[u8], _: i32) -> Result<Self, NotADictionary> {
        Err(NOT_BUILT_IN)
    }
}

#[cfg(not(feature = "zstd"))]
impl UnpackDictionary {
    pub(crate) fn new(_: u32, _: &[u8]) -> Result<Self, NotADictionary> {
        Err(NOT_BUILT_IN)
    }
}

impl UnpackDictionary {
    pub(crate) fn number(&self) -> u32 {
        self.number
    }
}

/// Refuses what does not begin as the dictionary of that number: Zstandard would take any bytes for
/// one without a number.
#[cfg(feature = "zstd")]
fn check(number: u32, bytes: &[u8]) -> Result<(), NotADictionary> {
    let rest = bytes.strip_prefix(&MAGIC);
    let rest = rest.ok_or(NotADictionary("it does not begin as a dictionary does"))?;
    match rest.starts_with(&number.to_le_bytes()) {
        true if number > 0 => Ok(()),
        _ => Err(NotADictionary("it has another number")),
    }
}

/// Gives the dictionary that the trainer has made its number in the store; false if it is none.
#[cfg(feature = "zstd")]
pub(super) fn set_number(bytes: &mut [u8], number: u32) -> bool {
    let is_one = bytes.starts_with(&MAGIC) && bytes.len() >= 8;
    if is_one {
        bytes[4..8].copy_from_slice(&number.to_le_bytes());
    }
    is_one
}
