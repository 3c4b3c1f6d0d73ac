//! Tells if a descriptor is none of this library's business: each hook asks that first.

use crate::{layer, pages};
use forebay_files::client;
use libc::c_int;

/// True if calls on `fd` are the kernel's business alone: it is neither absorbed nor behind a flash
/// cache, nor does a [layer](crate::layer) see it. Costs three loads.
#[inline]
pub(crate) fn is_plain(fd: c_int) -> bool {
    !client::absorbs(fd) && !pages::is_cached(fd) && !layer::sees(fd)
}
