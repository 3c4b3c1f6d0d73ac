//! Finds a disk's contents by the marks of file systems, partition tables, arrays and volumes.
//!
//! A small table of well-known marks, each a few bytes at a fixed place. It says *that* something
//! is there and what it calls itself, never that it is whole. A mark that is not in it is no
//! licence: anything that is not zero in the first MiB counts as data.

use std::{collections::BTreeSet, fmt, fs::File, io, os::unix::fs::FileExt};

/// Bytes at a disk's start that are zeros if nothing is on it.
pub const LOOKED_AT: u64 = MIB;
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Something that was found on a disk.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FoundSignature {
    /// In words, as in `an XFS file system`.
    pub what: String,
    /// Place of the signature on the disk, bytes from the start.
    pub at: u64,
}

impl fmt::Display for FoundSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

/// The base of a structure's offset on a disk.
enum OffsetBase {
    /// So many bytes from the start.
    Start(u64),
    /// So many bytes before the end, at a multiple of `unit`.
    End { back: u64, unit: u64 },
}

impl OffsetBase {
    fn of(&self, bytes: u64) -> Option<u64> {
        match *self {
            Self::Start(at) => Some(at),
            Self::End { back, unit } => Some(bytes.checked_sub(back)? / unit * unit),
        }
    }
}

/// The bytes that a structure is known by.
struct DiskSignature {
    what: &'static str,
    base: OffsetBase,
    /// From the base on.
    offset: u64,
    magic: &'static [u8],
    /// The offset of its name from the base on, and the name's bytes; (0, 0) if it has none.
    name: (u64, usize),
}

const fn start(what: &'static str, at: u64, offset: u64, magic: &'static [u8]) -> DiskSignature {
    DiskSignature {
        what,
        base: OffsetBase::Start(at),
        offset,
        magic,
        name: (0, 0),
    }
}

const fn end(
    what: &'static str,
    back: u64,
    unit: u64,
    offset: u64,
    magic: &'static [u8],
) -> DiskSignature {
    DiskSignature {
        base: OffsetBase::End { back, unit },
        ..start(what, 0, offset, magic)
    }
}

const fn named(mark: DiskSignature, at: u64, bytes: usize) -> DiskSignature {
    DiskSignature {
        name: (at, bytes),
        ..mark
    }
}

const GPT: &str = "a partition table (GPT)";
const RAID: &str = "a member of a Linux software RAID";
const LVM: &str = "a physical volume of LVM";
const ZFS: &str = "a member of a ZFS pool";
const BTRFS: &str = "a Btrfs file system";
const EXT: &str = "an ext2, ext3 or ext4 file system";
const REISER: &str = "a ReiserFS file system";
const FAT: &str = "a FAT file system";
const SWAP: &str = "swap space";

const RAID_MAGIC: &[u8] = &[0xFC, 0x4E, 0x2B, 0xA9];
const BTRFS_MAGIC: &[u8] = b"_BHRfS_M";
/// The first pair of a label's list: the length of its name, and that.
const ZFS_MAGIC: &[u8] = b"\0\0\0\x07version\0";
const BCACHE_MAGIC: &[u8] = &[
    0xC6, 0x85, 0x73, 0xF6, 0x4E, 0x1A, 0x45, 0xCA, 0x82, 0x65, 0xF5, 0x7F, 0x48, 0xBA, 0x6D, 0x81,
];

/// From the formats' own documents; what is the same in all versions of one.
static MARKS: [DiskSignature; 50] = [
    start("a Forebay pool", 0, 0, b"FOREBAY\0"),
    start("a Forebay pool", 4096, 0, b"FOREBAY\0"),
    start("a Forebay flash cache", 0, 0, b"FFCH"),
    start(GPT, 512, 0, b"EFI PART"),
    start(GPT, 4096, 0, b"EFI PART"),
    end(GPT, 512, 512, 0, b"EFI PART"),
    end(GPT, 4096, 4096, 0, b"EFI PART"),
    named(start(EXT, 1024, 56, &[0x53, 0xEF]), 120, 16),
    named(start("an XFS file system", 0, 0, b"XFSB"), 108, 12),
    named(start(BTRFS, 64 * KIB, 64, BTRFS_MAGIC), 0x12B, 256),
    start(BTRFS, 64 * MIB, 64, BTRFS_MAGIC),
    start("an F2FS file system", 1024, 0, &[0x10, 0x20, 0xF5, 0xF2]),
    start("a bcache or bcachefs device", 4096, 24, BCACHE_MAGIC),
    start("a LUKS volume", 0, 0, b"LUKS\xBA\xBE"),
    start("a LUKS volume", 16 * KIB, 0, b"SKUL\xBA\xBE"),
    start("a BitLocker volume", 0, 3, b"-FVE-FS-"),
    start(LVM, 0, 0, b"LABELONE"),
    start(LVM, 512, 0, b"LABELONE"),
    start(LVM, 1024, 0, b"LABELONE"),
    start(LVM, 1536, 0, b"LABELONE"),
    start(RAID, 0, 0, RAID_MAGIC),
    start(RAID, 4096, 0, RAID_MAGIC),
    end(RAID, 8 * KIB, 4 * KIB, 0, RAID_MAGIC),
    end(RAID, 64 * KIB, 64 * KIB, 0, RAID_MAGIC),
    start(ZFS, 0, 16404, ZFS_MAGIC),
    start(ZFS, 256 * KIB, 16404, ZFS_MAGIC),
    end(ZFS, 512 * KIB, 256 * KIB, 16404, ZFS_MAGIC),
    end(ZFS, 256 * KIB, 256 * KIB, 16404, ZFS_MAGIC),
    start("a Ceph BlueStore device", 0, 0, b"bluestore block device"),
    named(start(SWAP, 0, 4086, b"SWAPSPACE2"), 1052, 16),
    start(SWAP, 0, 4086, b"SWAP-SPACE"),
    start(SWAP, 0, 16374, b"SWAPSPACE2"),
    start(SWAP, 0, 65526, b"SWAPSPACE2"),
    start("a hibernated system", 0, 4086, b"S1SUSPEND\0"),
    start("an NTFS file system", 0, 3, b"NTFS    "),
    start("an exFAT file system", 0, 3, b"EXFAT   "),
    start(FAT, 0, 54, b"FAT12   "),
    start(FAT, 0, 54, b"FAT16   "),
    start(FAT, 0, 82, b"FAT32   "),
    start("an ISO 9660 file system", 32 * KIB, 1, b"CD001"),
    start("a UDF file system", 32 * KIB, 1, b"BEA01"),
    start("an APFS container", 0, 32, b"NXSB"),
    start("an HFS+ file system", 1024, 0, b"H+"),
    start("a JFS file system", 32 * KIB, 0, b"JFS1"),
    start(REISER, 64 * KIB, 52, b"ReIsErFs"),
    start(REISER, 64 * KIB, 52, b"ReIsEr2Fs"),
    start("a NILFS2 file system", 1024, 6, &[0x34, 0x34]),
    start("an EROFS file system", 1024, 0, &[0xE2, 0xE1, 0xF5, 0xE0]),
    start("a SquashFS file system", 0, 0, b"hsqs"),
    start("an Oracle ASM disk", 32, 0, b"ORCLDISK"),
];

/// Signatures on the disk that `file` is open on, for reading, and that has so many `bytes`: empty
/// if there are none. Nothing is changed.
///
/// # Errors
/// I/O errors.
///
/// ```
/// use forebay_pool::disk_signatures;
/// # fn main() -> std::io::Result<()> {
/// # let image = tempfile::tempfile()?;
/// # image.set_len(8 << 20)?;
/// # std::os::unix::fs::FileExt::write_all_at(&image, b"XFSB", 0)?;
/// for found in disk_signatures::find(&image, 8 << 20)? {
///     println!("{found}, known by what is at {}", found.at); // an XFS file system, known by what is at 0
/// }
/// # Ok(())
/// # }
/// ```
pub fn find(file: &File, bytes: u64) -> io::Result<Vec<FoundSignature>> {
    let disk = DiskReader { file, bytes };
    let mut found = Vec::new();
    for mark in &MARKS {
        found.extend(disk.marked(mark)?);
    }
    // File systems have boot records too, and a GPT has one that keeps others off.
    let is_told = |content: &FoundSignature| content.at < 512 || content.what == GPT;
    if !found.iter().any(is_told) {
        found.extend(disk.boot_record()?);
    }
    if found.is_empty() {
        found.extend(disk.unknown()?);
    }
    Ok(found)
}

/// The contents in words, each once.
#[must_use]
pub fn words(found: &[FoundSignature]) -> String {
    let mut seen = BTreeSet::new();
    let each = found.iter().filter(|content| seen.insert(&content.what));
    each.map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", and ")
}

struct DiskReader<'a> {
    file: &'a File,
    bytes: u64,
}

impl DiskReader<'_> {
    /// So many bytes; none if the disk ends before.
    fn read(&self, at: u64, bytes: usize) -> io::Result<Option<Vec<u8>>> {
        if at
            .checked_add(bytes as u64)
            .is_none_or(|end| end > self.bytes)
        {
            return Ok(None);
        }
        let mut read = vec![0; bytes];
        self.file.read_exact_at(&mut read, at)?;
        Ok(Some(read))
    }

    fn marked(&self, mark: &DiskSignature) -> io::Result<Option<FoundSignature>> {
        let Some(base) = mark.base.of(self.bytes) else {
            return Ok(None);
        };
        let at = base + mark.offset;
        if self.read(at, mark.magic.len())?.as_deref() != Some(mark.magic) {
            return Ok(None);
        }
        let name = self.read(base + mark.name.0, mark.name.1)?;
        let name = name.unwrap_or_default();
        let name = String::from_utf8_lossy(name.split(|byte| *byte == 0).next().unwrap_or(&[]));
        let what = match name.trim() {
            "" => mark.what.to_owned(),
            name => format!("{} named {name:?}", mark.what),
        };
        Ok(Some(FoundSignature { what, at }))
    }

    /// A partition table in the first sector. Other boot records have the same two bytes at its
    /// end: the table's entries tell.
    fn boot_record(&self) -> io::Result<Option<FoundSignature>> {
        const ENTRIES: std::ops::Range<usize> = 446..510;
        let Some(sector) = self.read(0, 512)? else {
            return Ok(None);
        };
        let entries: Vec<&[u8]> = sector[ENTRIES].chunks(16).collect();
        let is_table = sector[510..] == [0x55, 0xAA]
            && entries.iter().all(|entry| matches!(entry[0], 0 | 0x80));
        let partitions = entries.iter().filter(|entry| entry[4] != 0).count();
        let what = match partitions {
            0 => return Ok(None),
            1 => "a partition table (MBR) with 1 partition".to_owned(),
            n => format!("a partition table (MBR) with {n} partitions"),
        };
        Ok(is_table.then_some(FoundSignature { what, at: 510 }))
    }

    fn unknown(&self) -> io::Result<Option<FoundSignature>> {
        let bytes = LOOKED_AT.min(self.bytes) as usize;
        let start = self.read(0, bytes)?.unwrap_or_default();
        let at = start.iter().position(|byte| *byte != 0);
        Ok(at.map(|at| FoundSignature {
            what: format!("data of a kind that is not known, from byte {at} on"),
            at: at as u64,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: u64 = 80 * MIB + 512;

    fn blank() -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(BYTES).unwrap();
        file
    }

    fn found(file: &File) -> String {
        words(&find(file, BYTES).unwrap())
    }

    #[test]
    fn no_signature_is_found_on_zeros_or_looked_for_beyond_the_end() {
        assert_eq!(found(&blank()), "");
        for bytes in [0, 1, 512, 4096, 8192] {
            let file = tempfile::tempfile().unwrap();
            file.set_len(bytes).unwrap();
            assert_eq!(find(&file, bytes).unwrap(), []);
        }
    }

    /// Promise: as `a_devices_contents_are_named_and_overwritten_only_by_force`.
    #[test]
    fn each_mark_is_found_where_it_is_and_nowhere_else() {
        for mark in &MARKS {
            let file = blank();
            let at = mark.base.of(BYTES).unwrap() + mark.offset;
            file.write_all_at(mark.magic, at).unwrap();
            let all = find(&file, BYTES).unwrap();
            assert!(
                all.iter().any(|c| c.what == mark.what && c.at == at),
                "{all:?}"
            );
            // A byte of it is not it.
            file.write_all_at(&[!mark.magic[0]], at).unwrap();
            let all = find(&file, BYTES).unwrap();
            assert!(!all.iter().any(|c| c.what == mark.what), "{all:?}");
        }
    }

    #[test]
    fn a_boot_record_is_a_partition_table_if_it_has_partitions() {
        let file = blank();
        let mut sector = [0; 512];
        sector[510..].copy_from_slice(&[0x55, 0xAA]);
        file.write_all_at(&sector, 0).unwrap();
        assert!(found(&file).contains("not known, from byte 510"));
        sector[446 + 4] = 0x83;
        sector[446 + 16..][..5].copy_from_slice(&[0x80, 0, 0, 0, 7]);
        file.write_all_at(&sector, 0).unwrap();
        assert_eq!(found(&file), "a partition table (MBR) with 2 partitions");
        file.write_all_at(b"EFI PART", 512).unwrap();
        assert_eq!(found(&file), GPT);
        file.write_all_at(&[0; 8], 512).unwrap();
        // What only looks like one.
        sector[446] = 7;
        file.write_all_at(&sector, 0).unwrap();
        assert!(found(&file).contains("not known"), "{}", found(&file));
    }

    #[test]
    fn a_name_is_told_and_several_contents_are_each_told_once() {
        let file = blank();
        file.write_all_at(b"XFSB", 0).unwrap();
        file.write_all_at(b"backup\0\0\0\0\0\0", 108).unwrap();
        file.write_all_at(b"EFI PART", 512).unwrap();
        file.write_all_at(b"EFI PART", BYTES - 512).unwrap();
        let told = "a partition table (GPT), and an XFS file system named \"backup\"";
        assert_eq!(found(&file), told);
    }

    #[test]
    fn what_is_not_known_is_data_all_the_same() {
        let file = blank();
        file.write_all_at(&[1], LOOKED_AT - 1).unwrap();
        assert!(found(&file).contains("from byte 1048575 on"));
    }
}
