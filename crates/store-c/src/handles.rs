//! Targets of a caller's handles; batches and iterators are in modules of their own.

use forebay_bindings::{BindingOptions, BoundStore};
use forebay_store::Snapshot;

/// Options to open a store.
pub struct forebay_options_t {
    pub(crate) options: BindingOptions,
}

/// Options of a read.
#[derive(Default)]
pub struct forebay_readoptions_t {
    pub(crate) snapshot: Option<Snapshot>,
}

/// Options of a write.
pub struct forebay_writeoptions_t {
    pub(crate) sync: bool,
}

/// An open store.
pub struct forebay_t {
    pub(crate) store: BoundStore,
}

/// A view of a store that later writes leave as it is.
pub struct forebay_snapshot_t {
    pub(crate) snapshot: Snapshot,
}
