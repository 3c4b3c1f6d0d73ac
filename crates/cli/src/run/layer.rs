//! The seam for a laboratory: its layer under a run, empty in a run of `forebay`.

use super::library::PreloadLibrary;
use forebay_files::supervisor;
use std::{ffi::OsString, sync::Arc};

/// A laboratory's layer under a run. The default is nothing.
#[derive(Default)]
pub struct RunLayer {
    /// The library put before the program's own.
    pub library: PreloadLibrary,
    /// Environment of the program beside its own.
    pub environment: Vec<(OsString, OsString)>,
    /// Under the syncs of the supervisor.
    pub supervisor: Option<Arc<dyn supervisor::SyncLayer>>,
    /// Without any option that says which pool, there is none.
    pub needs_no_pool: bool,
}

impl RunLayer {
    /// True if something is to be put into the program that only a library can.
    pub(super) fn needs_library(&self) -> bool {
        self.library.name != PreloadLibrary::default().name || !self.environment.is_empty()
    }
}
