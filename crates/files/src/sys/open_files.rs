//! Raises the number of files that this process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// As many as it may be let, as long as this is there. What it starts meanwhile has that limit.
pub(crate) struct ManyOpenFiles(Rlimit);

impl ManyOpenFiles {
    pub(crate) fn begin() -> Self {
        let before = getrlimit(Resource::Nofile);
        let current = before.maximum;
        // Who then finds no descriptor says so.
        let _ = setrlimit(Resource::Nofile, Rlimit { current, ..before });
        Self(before)
    }
}

impl Drop for ManyOpenFiles {
    fn drop(&mut self) {
        let _ = setrlimit(Resource::Nofile, self.0);
    }
}
