//! What the database's administrator has to hear: one line on standard error, which is the server's log.

use forebay_flash::FlashError;
pub(crate) use forebay_pool::complain;
use rustix::io::Errno;
use std::collections::BTreeSet;

/// Says it once, however often it happens.
pub(crate) fn complain_once(what: &str) {
    static SAID: parking_lot::Mutex<BTreeSet<String>> = parking_lot::Mutex::new(BTreeSet::new());
    if SAID.lock().insert(what.to_owned()) {
        complain(what);
    }
}

/// Says what the cache failed with: what the program gets for it.
pub(crate) fn said(error: &FlashError) -> Errno {
    complain(&error.to_string());
    Errno::IO
}
