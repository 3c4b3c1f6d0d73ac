//! A thread's buffers for compressing: room for the output, and the algorithms' own tables. So a
//! put allocates nothing, but for its first ones and for values beyond [`KEPT_MAX`].

#[cfg(feature = "zstd")]
use super::dictionary::UnpackDictionary;
use super::{Compression, dictionary::PackDictionary};
use std::{
    cell::Cell,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

/// Room that a thread keeps beyond one value.
const KEPT_MAX: usize = 2 << 20;

/// One thread's.
pub(super) struct CompressionScratch {
    /// The compressed bytes.
    pub(super) packed: Vec<u8>,
    /// A copy of what is to be decompressed.
    pub(super) stored: Vec<u8>,
    /// A frame that is to be decompressed, with what is not stored of it.
    #[cfg(feature = "zstd")]
    pub(super) framed: Vec<u8>,
    /// The thread's number.
    pub(super) number: usize,
    /// Small values that it has seen.
    small_values: usize,
    #[cfg(feature = "lz4")]
    lz4: Lz4Tables,
    #[cfg(feature = "zstd")]
    zstd: ZstdContexts,
}

/// The table of values below 64 KiB is half as large, and emptied for each of them.
#[cfg(feature = "lz4")]
#[derive(Default)]
struct Lz4Tables {
    small: Option<lz4_flex::block::CompressTable>,
    large: Option<lz4_flex::block::CompressTable>,
}

#[cfg(feature = "zstd")]
#[derive(Default)]
struct ZstdContexts {
    compressor: Option<(i32, zstd::bulk::Compressor<'static>)>,
    decompressor: Option<zstd::bulk::Decompressor<'static>>,
    /// Those that get a dictionary with each value.
    with_dictionary: Option<zstd::zstd_safe::CCtx<'static>>,
    unpacks_with_dictionary: Option<zstd::zstd_safe::DCtx<'static>>,
}

thread_local! {
    static SCRATCH: Cell<Option<Box<CompressionScratch>>> = const { Cell::new(None) };
}

/// Does `work` with the thread's scratch. Within it, another one is made.
pub(super) fn with_scratch<T>(work: impl FnOnce(&mut CompressionScratch) -> T) -> T {
    // A thread that ends has none any more.
    let kept = SCRATCH.try_with(Cell::take).ok().flatten();
    let mut scratch = kept.unwrap_or_else(|| Box::new(CompressionScratch::new()));
    let done = work(&mut scratch);
    scratch.trim();
    let _ = SCRATCH.try_with(|place| place.set(Some(scratch)));
    done
}

impl CompressionScratch {
    fn new() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        Self {
            packed: Vec::new(),
            stored: Vec::new(),
            #[cfg(feature = "zstd")]
            framed: Vec::new(),
            small_values: 0,
            number: NUMBER.fetch_add(1, Relaxed),
            #[cfg(feature = "lz4")]
            lz4: Lz4Tables::default(),
            #[cfg(feature = "zstd")]
            zstd: ZstdContexts::default(),
        }
    }

    /// Gives back what only a very large value needed.
    fn trim(&mut self) {
        let is_large = |room: &Vec<u8>| room.capacity() > KEPT_MAX;
        #[cfg(feature = "zstd")]
        if is_large(&self.framed) {
            self.framed = Vec::new();
        }
        if is_large(&self.packed) || is_large(&self.stored) {
            (self.packed, self.stored) = (Vec::new(), Vec::new());
            #[cfg(feature = "zstd")]
            {
                self.zstd.compressor = None;
            }
        }
    }

    /// Compresses `value` to `self.packed` from `at` on; how many bytes it became. `None` if that
    /// is more than `bytes_max`, or could not be done.
    #[cfg_attr(
        not(any(feature = "lz4", feature = "zstd")),
        expect(unused_variables, reason = "nothing is built in")
    )]
    pub(super) fn compress(
        &mut self,
        compression: Compression,
        value: &[u8],
        at: usize,
        bytes_max: usize,
    ) -> Option<usize> {
        match compression {
            #[cfg(feature = "lz4")]
            Compression::Lz4 => {
                use lz4_flex::block::{
                    CompressTable, compress_into_with_table, get_maximum_output_size,
                };
                let room = self.room(at + get_maximum_output_size(value.len()));
                let table = match value.len() < usize::from(u16::MAX) {
                    true => self.lz4.small.get_or_insert_with(CompressTable::small),
                    false => self.lz4.large.get_or_insert_with(CompressTable::large),
                };
                let to = &mut self.packed[at..room];
                let bytes = compress_into_with_table(value, to, table).ok()?;
                (bytes <= bytes_max).then_some(bytes)
            }
            #[cfg(feature = "zstd")]
            Compression::Zstd(level) | Compression::ZstdDictionary(level) => {
                // It ends early where there is no room for what it makes.
                let room = self.room(at + bytes_max);
                let kept = self.zstd.compressor.take().filter(|(of, _)| *of == level);
                let (_, mut compressor) = match kept {
                    Some(kept) => kept,
                    None => (level, zstd::bulk::Compressor::new(level).ok()?),
                };
                let bytes = compressor.compress_to_buffer(value, &mut self.packed[at..room]);
                self.zstd.compressor = Some((level, compressor));
                bytes.ok()
            }
            _ => None,
        }
    }

    /// The same with a dictionary, of a small value.
    #[cfg_attr(
        not(feature = "zstd"),
        expect(
            unused_variables,
            clippy::unused_self,
            reason = "only Zstandard has dictionaries"
        )
    )]
    pub(super) fn compress_with(
        &mut self,
        dictionary: &PackDictionary,
        value: &[u8],
        at: usize,
        bytes_max: usize,
    ) -> Option<usize> {
        #[cfg(feature = "zstd")]
        {
            let room = self.room(at + bytes_max);
            let mut context = match self.zstd.with_dictionary.take() {
                Some(kept) => kept,
                None => zstd::zstd_safe::CCtx::try_create()?,
            };
            let to = &mut self.packed[at..room];
            let bytes = context.compress_using_cdict(to, value, dictionary.encoder());
            self.zstd.with_dictionary = Some(context);
            bytes.ok()
        }
        #[cfg(not(feature = "zstd"))]
        None
    }

    /// The number of the next small value of this thread.
    pub(super) fn next_small_value(&mut self) -> usize {
        self.small_values = self.small_values.wrapping_add(1);
        self.small_values
    }

    /// Has room for so many bytes in `self.packed`.
    #[cfg(any(feature = "lz4", feature = "zstd"))]
    fn room(&mut self, bytes: usize) -> usize {
        if self.packed.len() < bytes {
            self.packed.resize(bytes, 0);
        }
        bytes
    }

    /// Decompresses a frame of LZ4; how many bytes it was, or why not.
    #[cfg(feature = "lz4")]
    pub(super) fn unpack_lz4(&self, frame: &[u8], to: &mut [u8]) -> Result<usize, String> {
        lz4_flex::block::decompress_into(frame, to).map_err(|error| error.to_string())
    }

    /// The same of Zstandard.
    #[cfg(feature = "zstd")]
    pub(super) fn unpack_zstd(&mut self, frame: &[u8], to: &mut [u8]) -> Result<usize, String> {
        let said = |error: std::io::Error| error.to_string();
        let kept = self.zstd.decompressor.take();
        let mut decompressor = match kept {
            Some(kept) => kept,
            None => zstd::bulk::Decompressor::new().map_err(said)?,
        };
        let bytes = decompressor.decompress_to_buffer(frame, to);
        self.zstd.decompressor = Some(decompressor);
        bytes.map_err(said)
    }

    /// The same of Zstandard with a dictionary.
    #[cfg(feature = "zstd")]
    pub(super) fn unpack_zstd_with(
        &mut self,
        frame: &[u8],
        to: &mut [u8],
        dictionary: &UnpackDictionary,
    ) -> Result<usize, String> {
        use zstd::zstd_safe::{DCtx, get_error_name};
        let kept = self.zstd.unpacks_with_dictionary.take();
        let kept = kept.or_else(DCtx::try_create);
        let mut context = kept.ok_or_else(|| "no memory for it".to_owned())?;
        let bytes = context.decompress_using_ddict(to, frame, dictionary.decoder());
        self.zstd.unpacks_with_dictionary = Some(context);
        bytes.map_err(|code| get_error_name(code).to_owned())
    }
}

#[cfg(test)]
#[cfg(all(feature = "lz4", feature = "zstd"))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_gives_back_what_only_a_very_large_value_needed() {
        let value = vec![7; 4 << 20];
        for compression in [Compression::Lz4, Compression::Zstd(1)] {
            let bytes = with_scratch(|scratch| scratch.compress(compression, &value, 0, 4 << 20));
            assert!(bytes.is_some_and(|bytes| bytes < 1 << 20));
            let kept = with_scratch(|scratch| scratch.packed.capacity());
            assert!(kept <= KEPT_MAX, "{compression}: {kept}");
        }
    }

    #[test]
    fn a_scratch_that_is_in_use_is_not_asked_for_again() {
        with_scratch(|outer| {
            outer.packed = vec![1; 10];
            with_scratch(|inner| assert!(inner.packed.is_empty()));
            assert_eq!(outer.packed, [1; 10]);
        });
    }
}
