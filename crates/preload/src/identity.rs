//! `setuid` and its kin: a process that becomes another user gives the pool back first, since it is
//! not that user's to write to. docs/durability.md, "Who trusts whom".
#![expect(unsafe_code, reason = "exports C functions")]

use crate::{
    call_context::{FailedCall, missing},
    client_call::client,
    handler::handlers,
};
use forebay_files::client;
use libc::{c_int, uid_t};

handlers! {
    fn setuid(uid: uid_t) -> c_int;
    missing missing(-1);
    plain if is_no_change([uid; 3]);
    // SAFETY: our caller's argument.
    else |real| after_giving_back(|| unsafe { real(uid) });

    fn seteuid(effective: uid_t) -> c_int;
    missing missing(-1);
    plain if is_no_change([KEPT, effective, KEPT]);
    // SAFETY: our caller's argument.
    else |real| after_giving_back(|| unsafe { real(effective) });

    fn setreuid(uid: uid_t, effective: uid_t) -> c_int;
    missing missing(-1);
    plain if is_no_change([uid, effective, KEPT]);
    // SAFETY: our caller's arguments.
    else |real| after_giving_back(|| unsafe { real(uid, effective) });

    fn setresuid(uid: uid_t, effective: uid_t, saved: uid_t) -> c_int;
    missing missing(-1);
    plain if is_no_change([uid, effective, saved]);
    // SAFETY: our caller's arguments.
    else |real| after_giving_back(|| unsafe { real(uid, effective, saved) });
}

/// A user that is not changed.
const KEPT: uid_t = uid_t::MAX;

/// True if the process has these ids already, real, effective and saved; or if it has no pool.
fn is_no_change(wanted: [uid_t; 3]) -> bool {
    if !client::is_absorbing() {
        return true;
    }
    let mut own = [0; 3];
    let [uid, effective, saved] = &mut own;
    // SAFETY: three places for three numbers.
    let known = unsafe { libc::getresuid(uid, effective, saved) } == 0;
    known
        && wanted
            .iter()
            .zip(own)
            .all(|(wanted, own)| *wanted == KEPT || *wanted == own)
}

/// Before a system call that is made by its number.
pub(crate) fn before(wanted: [uid_t; 3]) -> Result<(), FailedCall> {
    match is_no_change(wanted) {
        true => Ok(()),
        false => client(client::changing_identity),
    }
}

fn after_giving_back(change: impl FnOnce() -> c_int) -> c_int {
    match client(client::changing_identity) {
        Ok(()) => change(),
        Err(failed) => failed.with(-1),
    }
}
