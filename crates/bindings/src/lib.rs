//! Common parts of the store's bindings, for languages whose users expect one directory and one
//! call:
//!
//! * `options`; `place`: where a store and its pool are, by one name;
//! * `bound`: an open store with the pool that it needs, and writes that may be committed later;
//! * `reader`: one that is only read; `destroy`: store and pool, removed;
//! * `transaction`: one that borrows no store;
//! * `cursor`: iteration with seeks, in both directions;
//! * `error`: what a binding adds to the store's errors.
//!
//! docs/store-c.md and docs/store-python.md describe the bindings.

mod bound;
mod cursor;
mod destroy;
mod error;
mod options;
mod place;
mod reader;
mod transaction;

pub use bound::BoundStore;
pub use cursor::StoreCursor;
pub use destroy::destroy;
pub use error::BindingError;
pub use options::{BindingOptions, PoolKind};
pub use reader::BoundReader;
pub use transaction::BoundTransaction;
