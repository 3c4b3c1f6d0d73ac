//! The state of a page file: the route of its pages.

use forebay_flash::CachedFile;
use std::sync::Arc;

/// The route of pages.
#[derive(Clone)]
pub(crate) enum PageRoute {
    /// It is being made: its page 0 will say.
    Undecided,
    /// They go through the cache.
    Cached(Arc<CachedFile>),
    /// They do not.
    Plain,
}
