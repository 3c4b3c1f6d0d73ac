//! Retires a file before a call that the client cannot follow.

use crate::{call_context::FailedCall, client_call::client, pages};
use forebay_files::client;
use libc::c_int;

/// Makes the file of an absorbed descriptor plain, or that of a page file.
pub(crate) fn retire(fd: c_int) -> Result<(), FailedCall> {
    pages::leave(fd)?;
    client(|| client::retire(fd))
}
