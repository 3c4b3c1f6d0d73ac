//! [`ByteArgument`]: a key or value as Python gives it.

use pyo3::{
    exceptions::PyTypeError,
    prelude::*,
    pybacked::PyBackedBytes,
    types::{PyBytes, PyMemoryView},
};
use std::ops::Deref;

/// Bytes that stay as they are while Python's lock is given up: those of `bytes` are borrowed,
/// others are copied.
pub(crate) struct ByteArgument(PyBackedBytes);

impl Deref for ByteArgument {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl FromPyObject<'_, '_> for ByteArgument {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = given.extract::<PyBackedBytes>() {
            return Ok(Self(bytes));
        }
        if given.is_instance_of::<PyMemoryView>() {
            let copy = given.py().get_type::<PyBytes>().call1((given,))?;
            return Ok(Self(copy.extract::<PyBackedBytes>()?));
        }
        Err(PyTypeError::new_err(format!(
            "keys and values are bytes, not {}; encode what is none, as in \"boat\".encode()",
            given.get_type().name()?
        )))
    }
}
