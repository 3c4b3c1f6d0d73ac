//! The log: one address space, whose end is in the pool and whose rest is in value-log files.
//!
//! A [`ValueLog`] is the row of files. A [`Head`] is where records are appended: a pool's lane, or
//! without a pool the last file itself. [`LogReader`] walks records in address order; `drain` moves sealed
//! segments from the lane to the files. docs/store-format.md, "The log".

mod drain;
mod file;
mod file_head;
mod head;
mod reader;
mod value_log;

pub(crate) use drain::drain;
pub(crate) use file::VlogFile;
pub(crate) use file_head::FileHead;
pub(crate) use head::Head;
pub(crate) use reader::{LogReader, Stop};
pub(crate) use value_log::ValueLog;
