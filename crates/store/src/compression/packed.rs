//! A compressed value as bytes. docs/store-format.md, "Compressed values".
//!
//! ```text
//! 0  raw length   4
//! 4  algorithm    1   0: none, 1: LZ4 (a block), 2: Zstandard (a frame),
//!                     3: Zstandard with a dictionary
//! 5  frame            of 3 without its magic number; its header has the dictionary's number
//! ```

use super::{
    Compression,
    dictionary::{DictionarySource, PackDictionary},
    scratch::{CompressionScratch, with_scratch},
};
use forebay_pool::format::layout::SEGMENT_MAX;
use std::{fmt, ops::Range};

/// Bytes before the frame.
pub(crate) const HEADER: usize = 5;

/// Shorter values are not tried without a dictionary: their records' headers take as much.
pub(super) const BYTES_MIN: usize = 64;
/// No frame is of more: values go into records by their raw lengths, and larger ones into blocks.
const RAW_MAX: usize = SEGMENT_MAX as usize;
/// What a byte of an LZ4 block can become at most.
const LZ4_MOST: usize = 255;
/// What the shortest block of a Zstandard frame can become, and its bytes.
const ZSTD_BLOCK: (usize, usize) = (128 << 10, 4);
/// What a Zstandard frame begins with, and is not stored where the algorithm says it all.
const ZSTD_MAGIC: [u8; 4] = 0xFD2F_B528_u32.to_le_bytes();

/// What a frame is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FrameAlgorithm {
    /// The value as it is: of a block of a large value.
    None,
    Lz4,
    Zstd,
    ZstdDictionary,
}

/// The reason that bytes are not a value that can be decompressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotUnpacked {
    /// They end before the frame.
    Short,
    /// The algorithm has no such number.
    Algorithm(u8),
    /// This program has not got it.
    #[cfg_attr(
        all(feature = "lz4", feature = "zstd"),
        expect(dead_code, reason = "it has all")
    )]
    NotBuiltIn(&'static str),
    /// It says to be longer than its frame can become.
    RawLength { said: usize, most: usize },
    /// The dictionary of this number is not to be had.
    Dictionary(u32),
    /// There is no memory for so many bytes.
    NoMemory(usize),
    /// The frame is none, or of another length.
    Frame(String),
}

impl fmt::Display for NotUnpacked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => write!(f, "a compressed value without a frame"),
            Self::Algorithm(number) => {
                write!(
                    f,
                    "a value compressed by an unknown algorithm, number {number}"
                )
            }
            Self::NotBuiltIn(name) => write!(
                f,
                "a value compressed with {name}, which this program was built without"
            ),
            Self::RawLength { said, most } => write!(
                f,
                "a compressed value that is {said} bytes by its header, and {most} at most by its frame"
            ),
            Self::Dictionary(number) => write!(
                f,
                "a value compressed with dictionary {number}, which cannot be had"
            ),
            Self::NoMemory(bytes) => write!(f, "no memory for a value of {bytes} bytes"),
            Self::Frame(why) => write!(f, "a value that cannot be decompressed ({why})"),
        }
    }
}

impl FrameAlgorithm {
    fn of_number(number: u8) -> Result<Self, NotUnpacked> {
        match number {
            0 => Ok(Self::None),
            1 => Ok(Self::Lz4),
            2 => Ok(Self::Zstd),
            3 => Ok(Self::ZstdDictionary),
            _ => Err(NotUnpacked::Algorithm(number)),
        }
    }

    /// The most that a frame of so many bytes can become.
    fn most_of(self, frame: usize) -> usize {
        let most = match self {
            Self::None => frame,
            Self::Lz4 => frame.saturating_mul(LZ4_MOST),
            Self::Zstd | Self::ZstdDictionary => {
                (frame / ZSTD_BLOCK.1).saturating_mul(ZSTD_BLOCK.0)
            }
        };
        most.min(RAW_MAX)
    }

    #[cfg_attr(
        not(feature = "zstd"),
        expect(unused_variables, reason = "only Zstandard has dictionaries")
    )]
    fn decompress(
        self,
        frame: &[u8],
        to: &mut [u8],
        scratch: &mut CompressionScratch,
        dictionaries: &dyn DictionarySource,
    ) -> Result<usize, NotUnpacked> {
        match self {
            Self::None => {
                to[..frame.len()].copy_from_slice(frame);
                Ok(frame.len())
            }
            #[cfg(feature = "lz4")]
            Self::Lz4 => scratch.unpack_lz4(frame, to).map_err(NotUnpacked::Frame),
            #[cfg(feature = "zstd")]
            Self::Zstd => scratch.unpack_zstd(frame, to).map_err(NotUnpacked::Frame),
            #[cfg(feature = "zstd")]
            Self::ZstdDictionary => unpack_with(frame, to, scratch, dictionaries),
            #[cfg(not(feature = "lz4"))]
            Self::Lz4 => Err(NotUnpacked::NotBuiltIn("lz4")),
            #[cfg(not(feature = "zstd"))]
            Self::Zstd | Self::ZstdDictionary => Err(NotUnpacked::NotBuiltIn("zstd")),
        }
    }
}

/// Decompresses what was compressed with a dictionary.
#[cfg(feature = "zstd")]
fn unpack_with(
    frame: &[u8],
    to: &mut [u8],
    scratch: &mut CompressionScratch,
    dictionaries: &dyn DictionarySource,
) -> Result<usize, NotUnpacked> {
    let mut whole = std::mem::take(&mut scratch.framed);
    whole.clear();
    whole.extend_from_slice(&ZSTD_MAGIC);
    whole.extend_from_slice(frame);
    let unpacked = match zstd::zstd_safe::get_dict_id_from_frame(&whole) {
        None => Err(NotUnpacked::Frame("it names no dictionary".to_owned())),
        Some(number) => {
            let mut done = Err(NotUnpacked::Dictionary(number.get()));
            dictionaries.with_dictionary(number.get(), &mut |dictionary| {
                let found = scratch.unpack_zstd_with(&whole, to, dictionary);
                done = found.map_err(NotUnpacked::Frame);
            });
            done
        }
    };
    scratch.framed = whole;
    unpacked
}

fn header(raw: usize, algorithm: FrameAlgorithm) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..4].copy_from_slice(&u32::try_from(raw).unwrap_or(u32::MAX).to_le_bytes());
    header[4] = algorithm as u8;
    header
}

/// The header of a value that is stored as it is.
pub(super) fn raw_header(raw: usize) -> [u8; HEADER] {
    header(raw, FrameAlgorithm::None)
}

/// Compresses a value to `scratch.packed`; how many bytes are stored then. `None` if it does not
/// pay.
pub(super) fn pack(
    scratch: &mut CompressionScratch,
    by: Compression,
    value: &[u8],
) -> Option<usize> {
    let algorithm = match by {
        Compression::None => return None,
        Compression::Lz4 => FrameAlgorithm::Lz4,
        Compression::Zstd(_) | Compression::ZstdDictionary(_) => FrameAlgorithm::Zstd,
    };
    let frame_max = (value.len() - value.len() / 8).checked_sub(HEADER)?;
    let frame = scratch.compress(by, value, HEADER, frame_max)?;
    scratch.packed[..HEADER].copy_from_slice(&header(value.len(), algorithm));
    Some(HEADER + frame)
}

/// The same with a dictionary.
pub(super) fn pack_with(
    scratch: &mut CompressionScratch,
    dictionary: &PackDictionary,
    value: &[u8],
) -> Option<usize> {
    let frame_max = (value.len() - value.len() / 8).checked_sub(HEADER)?;
    // The header takes the place of the magic number.
    let at = HEADER - ZSTD_MAGIC.len();
    let frame = scratch.compress_with(dictionary, value, at, frame_max + ZSTD_MAGIC.len())?;
    let head = header(value.len(), FrameAlgorithm::ZstdDictionary);
    let place = &mut scratch.packed[..HEADER];
    let is_whole = place.ends_with(&ZSTD_MAGIC);
    place.copy_from_slice(&head);
    is_whole.then_some(at + frame)
}

/// The value's length by its header, if that is there.
pub(crate) fn raw_length(body: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(*body.first_chunk()?))
}

/// Appends the value of which `body` is stored to `to`. Takes no more memory than its frame can
/// become, whatever its header says.
pub(crate) fn unpack(
    body: &[u8],
    to: &mut Vec<u8>,
    dictionaries: &dyn DictionarySource,
) -> Result<(), NotUnpacked> {
    let (head, frame) = body
        .split_first_chunk::<HEADER>()
        .ok_or(NotUnpacked::Short)?;
    let said = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
    let algorithm = FrameAlgorithm::of_number(head[4])?;
    let most = algorithm.most_of(frame.len());
    if said > most || algorithm == FrameAlgorithm::None && said != frame.len() {
        return Err(NotUnpacked::RawLength { said, most });
    }
    let start = to.len();
    to.try_reserve_exact(said)
        .map_err(|_| NotUnpacked::NoMemory(said))?;
    to.resize(start + said, 0);
    let found = with_scratch(|scratch| {
        algorithm.decompress(frame, &mut to[start..], scratch, dictionaries)
    });
    let found = found.and_then(|found| match found == said {
        true => Ok(()),
        false => Err(NotUnpacked::Frame(format!(
            "it has {found} bytes, and {said} by its header"
        ))),
    });
    if found.is_err() {
        to.truncate(start);
    }
    found
}

/// Has the value in `buffer` of which the bytes of `body` there are stored, and nothing else.
/// Allocates nothing if the buffer is large enough.
pub(crate) fn unpack_within(
    buffer: &mut Vec<u8>,
    body: Range<usize>,
    dictionaries: &dyn DictionarySource,
) -> Result<(), NotUnpacked> {
    let mut stored = with_scratch(|scratch| std::mem::take(&mut scratch.stored));
    stored.clear();
    stored.extend_from_slice(&buffer[body]);
    buffer.clear();
    let done = unpack(&stored, buffer, dictionaries);
    with_scratch(|scratch| scratch.stored = stored);
    done
}

#[cfg(test)]
#[cfg(all(feature = "lz4", feature = "zstd"))]
mod tests {
    use super::{super::dictionary::NoDictionaries, *};

    const ALL: [Compression; 4] = [
        Compression::Lz4,
        Compression::Zstd(-7),
        Compression::Zstd(3),
        Compression::Zstd(19),
    ];

    fn packed(by: Compression, value: &[u8]) -> Vec<u8> {
        with_scratch(|scratch| {
            let bytes = pack(scratch, by, value).unwrap();
            scratch.packed[..bytes].to_vec()
        })
    }

    fn text(bytes: usize) -> Vec<u8> {
        let words = b"the boat is blue and the boat is large ";
        words.iter().copied().cycle().take(bytes).collect()
    }

    #[test]
    fn a_value_of_any_length_is_unpacked_behind_what_is_there() {
        for by in ALL {
            for bytes in [100, 1000, 65_534, 65_535, 65_536, 3 << 20] {
                let body = packed(by, &text(bytes));
                assert_eq!(raw_length(&body), Some(bytes as u32));
                let mut to = b"before".to_vec();
                unpack(&body, &mut to, &NoDictionaries).unwrap();
                assert!(to == [&b"before"[..], &text(bytes)].concat());
                let mut within = [&b"key"[..], &body].concat();
                let end = within.len();
                unpack_within(&mut within, 3..end, &NoDictionaries).unwrap();
                assert!(within == text(bytes));
            }
        }
    }

    /// Promise (store): A compressed value whose header says another length takes no more memory
    /// than its frame can become, and is refused.
    #[test]
    fn a_lying_raw_length_is_refused_and_takes_no_memory() {
        for by in ALL {
            let body = packed(by, &text(1000));
            // Of so many bytes a frame might become a gigabyte.
            let frame = vec![0; 5 << 20];
            for said in [RAW_MAX as u32 + 1, 1 << 30] {
                let lying = [&said.to_le_bytes()[..], &body[4..5], &frame].concat();
                let (mut to, most) = (Vec::new(), RAW_MAX);
                let said = said as usize;
                let refused = Err(NotUnpacked::RawLength { said, most });
                assert_eq!(unpack(&lying, &mut to, &NoDictionaries), refused, "{by}");
                assert_eq!(to.capacity(), 0);
            }
            for said in [0, 1, 999, 1001, 20_000, 1 << 30, (1 << 30) + 1, u32::MAX] {
                let lying = [&said.to_le_bytes()[..], &body[4..]].concat();
                let mut to = Vec::new();
                assert!(
                    unpack(&lying, &mut to, &NoDictionaries).is_err(),
                    "{by}: {said}"
                );
                let most = FrameAlgorithm::of_number(body[4]).unwrap();
                assert!(to.is_empty() && to.capacity() <= most.most_of(body.len()));
            }
        }
    }

    #[test]
    fn no_changed_byte_or_cut_of_a_frame_panics() {
        for by in ALL {
            let body = packed(by, &text(300));
            for at in 0..body.len() {
                for flip in [1, 0x80, 0xFF] {
                    let mut changed = body.clone();
                    changed[at] ^= flip;
                    let mut to = Vec::new();
                    if unpack(&changed, &mut to, &NoDictionaries).is_ok() {
                        assert_eq!(to.len(), raw_length(&changed).unwrap() as usize);
                    }
                }
                assert!(
                    unpack(&body[..at], &mut Vec::new(), &NoDictionaries).is_err(),
                    "{by}: {at}"
                );
            }
        }
    }

    #[test]
    fn what_compresses_best_is_within_what_a_frame_can_become() {
        for by in ALL {
            for bytes in [64, 4096, 1 << 20, 20 << 20] {
                let body = packed(by, &vec![0; bytes]);
                let mut to = Vec::new();
                unpack(&body, &mut to, &NoDictionaries).unwrap();
                assert_eq!(to.len(), bytes, "{by}");
            }
        }
    }
}
