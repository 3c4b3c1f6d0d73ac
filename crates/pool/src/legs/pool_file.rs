//! The small file that a pool on legs is named by: text, a word and its value on each line.
//! docs/legs.md, "The pool's file".
//!
//! ```text
//! forebay-legs 1
//! least 00000000000000065537            only with a leg on a disk: 20 digits, written in place
//! identity 2f1c6a1e-…
//! bytes 268435456
//! copies 2
//! leg nbd://127.0.0.1:10809/forebay
//! leg nbds://c:10809/forebay?tls-certificates=/etc/forebay/legs
//! leg /mnt/ssd/forebay.leg
//! insecure yes                          only with --insecure
//! ```

use super::{address::LegAddress, mask::LEGS_MAX};
use std::{fmt, fs::File, io, os::unix::fs::FileExt, path::Path};
use uuid::Uuid;

/// Its first bytes.
const FIRST: &str = "forebay-legs ";
const VERSION: &str = "1";
/// It is no larger.
const BYTES_MAX: usize = 64 << 10;
/// No disk asks for more.
const ALIGNMENT: usize = 4096;

/// See the module's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LegsFile {
    pub(crate) identity: Uuid,
    /// Of the pool on each leg: a leg's own word on that is another machine's.
    pub(crate) bytes: u64,
    pub(crate) copies: usize,
    pub(crate) insecure: bool,
    pub(crate) legs: Vec<LegAddress>,
    /// Of a pool with a leg on a disk, the generation below which no record counts: a disk that was
    /// left out keeps its records, however often the power fails.
    pub(crate) least: Option<u64>,
}

/// The first bytes of its line.
const LEAST: &str = "\nleast ";
const DIGITS: usize = 20;

impl LegsFile {
    /// Of a pool that is made.
    ///
    /// # Errors
    /// In words, why there is no such pool.
    pub(crate) fn new(
        legs: &[String],
        bytes: u64,
        copies: Option<usize>,
        insecure: bool,
    ) -> Result<Self, String> {
        let legs: Vec<_> = legs
            .iter()
            .map(|leg| LegAddress::parse(leg))
            .collect::<Result<_, _>>()?;
        let copies = copies.unwrap_or(legs.len());
        let least = legs.iter().any(LegAddress::is_disk).then_some(0);
        Self {
            identity: Uuid::new_v4(),
            bytes,
            copies,
            insecure,
            legs,
            least,
        }
        .checked()
    }

    /// The legs that are disks of this machine.
    pub(crate) fn disks(&self) -> impl Iterator<Item = &Path> {
        self.legs.iter().filter_map(|leg| match leg {
            LegAddress::Disk(path) => Some(path.as_path()),
            LegAddress::Export(_) => None,
        })
    }

    /// The number of the leg with this address, with its last slash or without, and with its part
    /// on TLS or without.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn named(&self, url: &str) -> io::Result<usize> {
        let found = self.legs.iter().position(|leg| leg.is_named(url));
        found.ok_or_else(|| io::Error::other(format!("{url} is not one of its legs")))
    }

    fn checked(self) -> Result<Self, String> {
        let count = self.legs.len();
        if !(1..=LEGS_MAX).contains(&count) {
            return Err(format!("{count} legs, and a pool has 1 to {LEGS_MAX}"));
        }
        if !(1..=count).contains(&self.copies) {
            return Err(format!(
                "{} copies on {count} legs: there can be 1 to {count}",
                self.copies
            ));
        }
        let is_named_before = |at: usize| {
            let mut before = self.legs[..at].iter();
            before.any(|leg| leg.is_place_of(&self.legs[at]))
        };
        if (1..count).any(is_named_before) {
            return Err("one leg is named twice: two copies in one place are one".to_owned());
        }
        if self.legs.iter().any(LegAddress::is_disk) != self.least.is_some() {
            return Err(
                "it has to have a line \"least N\" if a leg is on a disk, and only then".to_owned(),
            );
        }
        if self.legs.iter().all(LegAddress::is_disk) {
            return Err(
                "no leg is another machine's: a pool on a disk of this one is made with --disk"
                    .to_owned(),
            );
        }
        Ok(self)
    }

    /// The contents of `file`, if it is such a file.
    ///
    /// # Errors
    /// It cannot be read; or it begins as one, and is none: the inner one, in words.
    pub(crate) fn read(file: &File) -> io::Result<Option<Result<Self, String>>> {
        // A pool on a disk, which this is not yet known not to be, is read past the page cache:
        // into aligned memory, or EINVAL.
        let mut memory = vec![0_u8; BYTES_MAX + ALIGNMENT];
        let from = memory.as_ptr().align_offset(ALIGNMENT);
        let bytes = &mut memory[from..from + BYTES_MAX];
        let mut length = 0;
        while length < bytes.len() {
            // By the system call: in a program's process the C library's functions are hooked.
            match rustix::io::pread(file, &mut bytes[length..], length as u64) {
                Ok(0) => break,
                Ok(read) => length += read,
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
            if !bytes[..length.min(FIRST.len())]
                .starts_with(&FIRST.as_bytes()[..length.min(FIRST.len())])
            {
                return Ok(None);
            }
        }
        let text = String::from_utf8_lossy(&bytes[..length]);
        Ok(text.starts_with(FIRST).then(|| Self::parse(&text)))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut lines = text
            .lines()
            .map(|line| line.split_once(' ').unwrap_or((line, "")));
        let version = lines.next().map(|(_, version)| version.trim());
        if version != Some(VERSION) {
            let found = version.unwrap_or_default();
            return Err(format!(
                "it is of version {found}; this program knows {VERSION}"
            ));
        }
        let (mut identity, mut bytes, mut copies) = (None, None, None);
        let (mut insecure, mut legs, mut least) = (false, Vec::new(), None);
        for (word, value) in lines {
            match (word, value.trim()) {
                ("identity", value) => identity = Uuid::parse_str(value).ok(),
                ("bytes", value) => bytes = value.parse().ok(),
                ("copies", value) => copies = value.parse().ok(),
                ("leg", value) => legs.push(LegAddress::parse(value)?),
                ("insecure", "yes") => insecure = true,
                ("least", value) => least = value.parse().ok(),
                ("", "") => {}
                (word, _) => return Err(format!("it has a line {word:?} that is not known")),
            }
        }
        let identity = identity.ok_or("it has no line \"identity UUID\"")?;
        let copies = copies.ok_or("it has no line \"copies N\"")?;
        Self {
            identity,
            bytes: bytes.ok_or("it has no line \"bytes N\"")?,
            copies,
            insecure,
            legs,
            least,
        }
        .checked()
    }

    /// Notes in the pool's file that no record below this generation counts any more.
    ///
    /// # Errors
    /// It cannot be read or written, or has no line for that.
    pub(crate) fn note_least(file: &File, generation: u64) -> io::Result<()> {
        let mut text = vec![0; BYTES_MAX];
        let length = file.read_at(&mut text, 0)?;
        let text = String::from_utf8_lossy(&text[..length]);
        let at = text.find(LEAST).map(|at| at + LEAST.len());
        let at = at.filter(|at| text[*at..].find('\n') == Some(DIGITS));
        let at = at.ok_or_else(|| {
            io::Error::other("the pool's file has no line for its least generation")
        })?;
        // It is the second line, so one sector of any disk has all of it.
        file.write_all_at(format!("{generation:0DIGITS$}").as_bytes(), at as u64)?;
        file.sync_data()
    }
}

impl fmt::Display for LegsFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{FIRST}{VERSION}")?;
        if let Some(least) = self.least {
            writeln!(f, "least {least:0DIGITS$}")?;
        }
        writeln!(
            f,
            "identity {}\nbytes {}\ncopies {}",
            self.identity, self.bytes, self.copies
        )?;
        self.legs
            .iter()
            .try_for_each(|leg| writeln!(f, "leg {leg}"))?;
        match self.insecure {
            true => writeln!(f, "insecure yes"),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pools_file_is_read_as_it_was_written() {
        let legs = ["nbd://127.0.0.1:1/a", "nbd://127.0.0.1:2/a"].map(str::to_owned);
        let made = LegsFile::new(&legs, 1 << 20, None, true).unwrap();
        assert_eq!(made.copies, 2);
        let read = |text: &str| {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), text).unwrap();
            LegsFile::read(file.as_file()).unwrap()
        };
        let text = made.to_string();
        assert_eq!(read(&text).unwrap().unwrap(), made);
        assert_eq!(read(""), None);
        assert_eq!(read("FOREBAY\0"), None);
        for (from, to) in [
            ("legs 1", "legs 2"),
            ("copies 2", "copies 3"),
            ("copies 2", ""),
            ("identity", "# "),
            ("bytes", "# "),
            (":2/a", ":1/a"),
            (
                "leg nbd://127.0.0.1:1/a\nleg nbd://127.0.0.1:2/a",
                "leg /a\nleg /b",
            ),
            ("nbd", "ssh"),
        ] {
            let refused = read(&text.replacen(from, to, 1)).unwrap();
            assert!(refused.is_err(), "{from} as {to}");
        }
        assert!(LegsFile::new(&[], 1 << 20, None, false).is_err());
        assert!(LegsFile::new(&legs, 1 << 20, Some(0), false).is_err());
    }

    #[test]
    fn the_least_generation_is_written_in_place() {
        let legs = ["nbd://127.0.0.1:1/a", "/mnt/leg"].map(str::to_owned);
        let made = LegsFile::new(&legs, 1 << 20, None, true).unwrap();
        assert_eq!(made.least, Some(0));
        let written = made.to_string();
        assert!(
            written
                .find(LEAST)
                .is_some_and(|at| at + LEAST.len() + DIGITS < 512)
        );
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), made.to_string()).unwrap();
        for generation in [65_537, u64::MAX, 7] {
            LegsFile::note_least(file.as_file(), generation).unwrap();
            let read = LegsFile::read(file.as_file()).unwrap().unwrap().unwrap();
            assert_eq!(read.least, Some(generation));
            assert_eq!(read.legs, made.legs);
        }
        std::fs::write(file.path(), made.to_string().replace("least", "last")).unwrap();
        assert!(LegsFile::note_least(file.as_file(), 1).is_err());
    }

    /// As a process gets the file of a pool on a disk from the supervisor. On tmpfs nothing has to
    /// be aligned.
    #[test]
    fn a_disks_pool_is_looked_at_past_the_page_cache() {
        let made = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(made.path(), vec![0; 2 * ALIGNMENT]).unwrap();
        let direct = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::DIRECT;
        let file = rustix::fs::open(made.path(), direct, rustix::fs::Mode::empty()).unwrap();
        let file = File::from(file);
        // Memory of these sizes between: what is allocated behind one lies elsewhere each time.
        let mut between = Vec::new();
        for size in (16..512).step_by(16) {
            between.push(vec![0_u8; size]);
            assert_eq!(LegsFile::read(&file).unwrap(), None);
        }
    }
}
