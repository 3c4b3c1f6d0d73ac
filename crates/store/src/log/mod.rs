//! The log: one address space, whose end is in the pool and whose rest is in value-log files.
//!
//! The ordered set of files is a [`ValueLog`]. Records are appended to a [`LogTail`]: a pool's
//! lane, a lane that keeps everything ([`Resident`]), or without a pool the last file itself; who
//! only reads has a [`ReadTail`]. A [`LogReader`] walks records in address order; `drain` moves
//! sealed segments from the lane to the files. docs/store-format.md, "The log".

mod content;
mod drain;
mod file;
mod file_tail;
mod read_tail;
mod reader;
mod refused;
mod reserve;
mod resident;
mod retire;
mod tail;
mod tail_pages;
mod unlisted_files;
mod value_log;

pub(crate) use content::{ZEROS, ZEROS_AT_AN_END};
pub(crate) use drain::{drain, drain_one};
pub(crate) use file::{FILE_HEADER, VlogFile, file_name, header as file_header};
pub(crate) use file_tail::FileTail;
pub(crate) use read_tail::ReadTail;
pub(crate) use reader::{LogReader, WalkStop};
pub(crate) use reserve::{COPY_MORE, ReserveNeed, copy_bytes};
pub(crate) use resident::{Resident, RoomClaim, segments_min};
pub(crate) use tail::LogTail;
pub(crate) use unlisted_files::UnlistedFiles;
pub(crate) use value_log::{DIR, ValueLog};
