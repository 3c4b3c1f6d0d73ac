//! Paths that mean "this process". When the agent or the guardian says one for a thread of the
//! program, it must mean that thread.

use std::{
    borrow::Cow,
    ffi::{CStr, CString},
};

/// A path of a thread's as another process must say it.
pub(crate) fn said_for(thread: u32, path: &CStr) -> Cow<'_, CStr> {
    let names = [
        ("/proc/self/", ""),
        ("/proc/thread-self/", ""),
        ("/dev/fd/", "fd/"),
    ];
    for (name, below) in names {
        if let Some(rest) = path.to_bytes().strip_prefix(name.as_bytes()) {
            let meant = [format!("/proc/{thread}/{below}").as_bytes(), rest].concat();
            if let Ok(meant) = CString::new(meant) {
                return Cow::Owned(meant);
            }
        }
    }
    Cow::Borrowed(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_this_process_means_the_caller() {
        for (path, meant) in [
            (c"/proc/self/fd/7", c"/proc/42/fd/7"),
            (c"/proc/thread-self/cwd/a", c"/proc/42/cwd/a"),
            (c"/dev/fd/7", c"/proc/42/fd/7"),
            (c"/proc/selfish", c"/proc/selfish"),
            (c"dev/fd/7", c"dev/fd/7"),
        ] {
            assert_eq!(&*said_for(42, path), meant);
        }
    }
}
