//! The store for Python: the native half of the package `forebay`. docs/store-python.md.
//!
//! `python/forebay/__init__.py` makes mappings of what is here, and is what users import. Here:
//!
//! * `store`: [`store::PyStore`], its batches, and what it is opened with; `snapshot`;
//!   `transaction`; `reader`; `scan`;
//! * `arguments`: Python's bytes; `errors`: exceptions.
//!
//! Python's lock is given up around every call of the store, and no lock of this crate is waited
//! for with it: a thread that waits for a disk keeps none of Python's waiting.

mod arguments;
mod errors;
mod reader;
mod scan;
mod snapshot;
mod store;
mod transaction;

use pyo3::prelude::*;

/// The native half of forebay.
#[pymodule]
fn _forebay(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<store::PyStore>()?;
    module.add_class::<store::PyBatch>()?;
    module.add_class::<reader::PyReader>()?;
    module.add_class::<snapshot::PySnapshot>()?;
    module.add_class::<transaction::PyTransaction>()?;
    module.add_class::<scan::PyScan>()?;
    errors::add_to(module)
}
