//! The flash device while it is opened: its headers. docs/flash-format.md, "Header".

use crate::{
    buffer::Buffer,
    error::FlashError,
    io::Flash,
    layout::{BLOCK, BadHeader, CacheHeader, HEADERS, VERSION},
};
use forebay_pool::Pool;
use std::io;

/// Flash, and its name in errors.
pub(super) struct FlashDevice<'a>(pub(super) &'a dyn Flash);

impl FlashDevice<'_> {
    pub(super) fn error(&self, doing: &'static str, source: io::Error) -> FlashError {
        FlashError::Flash {
            flash: self.0.describe(),
            doing,
            source,
        }
    }

    pub(super) fn damaged(&self, what: String) -> FlashError {
        FlashError::Damaged {
            flash: self.0.describe(),
            what,
        }
    }

    pub(super) fn bytes(&self) -> Result<u64, FlashError> {
        self.0
            .bytes()
            .map_err(|e| self.error("finding out its length", e))
    }

    pub(super) fn read(
        &self,
        doing: &'static str,
        bytes: u64,
        offset: u64,
    ) -> Result<Buffer, FlashError> {
        let mut buffer = Buffer::new(usize::try_from(bytes).unwrap_or(0));
        self.0
            .read_at(&mut buffer, offset)
            .map_err(|e| self.error(doing, e))?;
        Ok(buffer)
    }

    pub(super) fn check_blank(&self) -> Result<(), FlashError> {
        let start = self.read("reading its headers", 2 * BLOCK, 0)?;
        if start.iter().all(|&byte| byte == 0) {
            return Ok(());
        }
        let found = match CacheHeader::decode(&start[..BLOCK as usize]) {
            Ok(header) => format!("a flash cache, {}", header.owner),
            Err(_) => "something that is no flash cache".to_owned(),
        };
        Err(FlashError::NotBlank {
            flash: self.0.describe(),
            found,
        })
    }

    /// Writes the header to each of `places` in turn, durably: one of the two is always whole.
    pub(super) fn write_headers(
        &self,
        header: &CacheHeader,
        places: &[u64],
    ) -> Result<(), FlashError> {
        let mut block = Buffer::new(BLOCK as usize);
        block.copy_from_slice(&header.encode());
        self.write_blocks(&block, places)
    }

    /// Makes both headers zero, durably, the second one first: a process that finds one of them has
    /// a cache still.
    pub(super) fn blank_headers(&self) -> Result<(), FlashError> {
        let [a, b] = HEADERS;
        self.write_blocks(&Buffer::new(BLOCK as usize), &[b, a])
    }

    fn write_blocks(&self, block: &Buffer, places: &[u64]) -> Result<(), FlashError> {
        for &place in places {
            self.0
                .write_at(block, place)
                .and_then(|()| self.0.sync())
                .map_err(|e| self.error("writing a header", e))?;
        }
        Ok(())
    }

    /// The header, and the place of its damaged copy, with the finding.
    pub(super) fn read_header(&self) -> Result<(CacheHeader, Option<(u64, String)>), FlashError> {
        if self.bytes()? < 2 * BLOCK {
            return Err(FlashError::NotACache {
                flash: self.0.describe(),
                found: format!(
                    "it has {} bytes, its headers alone have {}",
                    self.bytes()?,
                    2 * BLOCK
                ),
            });
        }
        let [a, b] = HEADERS.map(|at| self.read("reading its headers", BLOCK, at));
        let [a, b] = match (a, b) {
            (Err(error), Err(_)) => return Err(error),
            blocks => [blocks.0, blocks.1].map(|block| match block {
                Ok(block) => CacheHeader::decode(&block),
                Err(_) => Err(BadHeader::Unreadable),
            }),
        };
        let say = |bad: &BadHeader| match bad {
            BadHeader::Blank => "is blank",
            BadHeader::Foreign => "is something else",
            BadHeader::Damaged => "is damaged",
            BadHeader::Unreadable => "cannot be read",
            BadHeader::Version(_) => "is of another version",
        };
        match (&a, &b) {
            (Ok(a), Ok(b)) if a.geometry.layout() != b.geometry.layout() => {
                // A resize was cut between the two.
                let (newer, older, name) = match a.geometry.layout() > b.geometry.layout() {
                    true => (a, HEADERS[1], "B"),
                    false => (b, HEADERS[0], "A"),
                };
                let what =
                    format!("header {name} has the sizes from before a resize; it is written anew");
                Ok((*newer, Some((older, what))))
            }
            (Ok(header), Ok(_)) => Ok((*header, None)),
            (Err(BadHeader::Version(found)), _) | (_, Err(BadHeader::Version(found))) => {
                Err(FlashError::Version {
                    flash: self.0.describe(),
                    found: *found,
                    known: VERSION,
                })
            }
            (Ok(header), Err(bad)) => {
                let what = format!("header B {}; it is written anew from A", say(bad));
                Ok((*header, Some((HEADERS[1], what))))
            }
            (Err(bad), Ok(header)) => {
                let what = format!("header A {}; it is written anew from B", say(bad));
                Ok((*header, Some((HEADERS[0], what))))
            }
            (Err(a), Err(b)) => Err(FlashError::NotACache {
                flash: self.0.describe(),
                found: format!("header A {}, header B {}", say(a), say(b)),
            }),
        }
    }

    pub(super) fn check_header(
        &self,
        header: &CacheHeader,
        pool: &Pool,
        wanted: u32,
    ) -> Result<(), FlashError> {
        let flash = self.0.describe();
        let found = header.geometry.page_bytes;
        if found != wanted {
            return Err(FlashError::PageSize {
                flash,
                found,
                wanted,
            });
        }
        let (stated, there) = (header.geometry.bytes(), self.bytes()?);
        if there < stated {
            return Err(FlashError::Truncated {
                flash,
                stated,
                found: there,
            });
        }
        let found = pool.uuid();
        if found != header.pool {
            return Err(FlashError::OtherPool {
                flash,
                wanted: header.pool,
                found,
            });
        }
        Ok(())
    }
}
