//! Reads from InnoDB's pages: the flags of a tablespace, on its page 0. They say how long its
//! pages are and whether they are compressed.

use crate::page::PAGE_BYTES;

/// Offset of the flags: 16 bytes into the tablespace's header, which is behind the page's own of
/// 38.
const FLAGS: usize = 38 + 16;
/// As much of page 0 as is looked at.
pub(crate) const LOOKED_AT: usize = FLAGS + 4;

/// Flags with this bit are of the format whose pages have a CRC-32C over all (`full_crc32`).
const FULL_CRC32: u32 = 1 << 4;

/// A tablespace's pages: fit for a cache of pages, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageLayout {
    /// All are of [`PAGE_BYTES`], and written whole.
    Whole,
    /// They are of another size.
    OtherSize,
    /// They are compressed: written ones are shorter, and a hole is punched behind them.
    Compressed,
}

/// The layout that page 0, or its beginning, gives of the tablespace. None if it is too short, or
/// of zeros: not made yet.
pub(crate) fn pages(page: &[u8]) -> Option<PageLayout> {
    let start = page.get(..LOOKED_AT)?;
    if start.iter().all(|&byte| byte == 0) {
        return None;
    }
    let flags = u32::from_be_bytes(start[FLAGS..].try_into().ok()?);
    let field = |from: u32, bits: u32| flags >> from & ((1 << bits) - 1);
    let size = |shift: u32| match shift {
        // The default, which older formats leave out.
        0 => 16 << 10,
        shift => 512usize << shift,
    };
    let (bytes, compressed) = if flags & FULL_CRC32 != 0 {
        (size(field(0, 4)), field(5, 3) != 0)
    } else {
        // The physical size of a row format that is compressed goes before the logical one.
        let physical = field(1, 4);
        let bytes = if physical != 0 {
            512 << physical
        } else {
            size(field(6, 4))
        };
        (bytes, field(16, 1) != 0)
    };
    Some(match (bytes == PAGE_BYTES, compressed) {
        (_, true) => PageLayout::Compressed,
        (true, false) => PageLayout::Whole,
        (false, false) => PageLayout::OtherSize,
    })
}

/// Offset of a page's log sequence number, at which it is written: in its first sector, also of a
/// page that is encrypted.
const LSN: usize = 16;

/// The position of the server's log when a page, or its beginning, was changed last; 0 if it is not
/// made yet.
pub(crate) fn log_sequence(page: &[u8]) -> u64 {
    let bytes = page.get(LSN..LSN + 8).and_then(|at| at.try_into().ok());
    bytes.map_or(0, u64::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(flags: u32) -> Vec<u8> {
        let mut page = vec![0; 64];
        page[0] = 1;
        page[FLAGS..LOOKED_AT].copy_from_slice(&flags.to_be_bytes());
        page
    }

    #[test]
    fn flags_of_both_formats_say_size_and_compression() {
        // As MariaDB 10.11 writes them: full_crc32 has the size's shift in its lowest bits.
        assert_eq!(pages(&page(0x15)), Some(PageLayout::Whole));
        assert_eq!(pages(&page(0x14)), Some(PageLayout::OtherSize));
        assert_eq!(pages(&page(0x15 | 1 << 5)), Some(PageLayout::Compressed));
        // DYNAMIC of the older format, and KEY_BLOCK_SIZE=8.
        assert_eq!(pages(&page(0x21)), Some(PageLayout::Whole));
        assert_eq!(pages(&page(0x21 | 4 << 1)), Some(PageLayout::OtherSize));
        assert_eq!(pages(&page(0x21 | 1 << 16)), Some(PageLayout::Compressed));
    }

    #[test]
    fn a_page_that_is_not_made_yet_says_nothing() {
        assert_eq!(pages(&[0; 64]), None);
        assert_eq!(pages(&[1; 8]), None);
    }
}
