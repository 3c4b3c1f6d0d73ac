//! Calls of the client, in a forked child too that no handler of `fork` told of.

use crate::{
    call_context::{FailedCall, inside},
    forked_child,
};
use forebay_files::client;
use rustix::io::Errno;

/// Calls the client. The thread cannot be cancelled meanwhile, not even asynchronously, and its
/// errno afterwards is what it was before.
pub(crate) fn client<T: Copy>(call: impl FnOnce() -> Result<T, Errno>) -> Result<T, FailedCall> {
    if client::is_new_process() {
        forked_child::forked();
    }
    inside(call)
}

/// As [`client`], of a call that cannot fail.
pub(crate) fn tell_client(call: impl FnOnce()) {
    let _: Result<(), FailedCall> = client(|| {
        call();
        Ok(())
    });
}
