//! [`PyReader`]: a store that is only read, beside the process that has it open.

use crate::{
    arguments::ByteArgument,
    errors::{UsageError, closed, raised},
    scan::{PyScan, ScanKind, range},
    store::OpenArguments,
};
use forebay_bindings::BoundReader;
use forebay_pool::media::ProcessMark;
use forebay_store::StoreError;
use parking_lot::RwLock;
use pyo3::{prelude::*, types::PyBytes};
use std::path::PathBuf;

/// A store as of its last look; closed, it has none. `forebay.ReadOnlyStore` is its subclass.
#[pyclass(frozen, subclass, weakref, name = "_Reader", module = "forebay")]
pub(crate) struct PyReader {
    store: RwLock<Option<BoundReader>>,
    /// Whose it is: in a forked child another thread may have had the lock.
    process: ProcessMark,
}

impl PyReader {
    pub(crate) fn with<T: Send>(
        &self,
        py: Python<'_>,
        done: impl Send + FnOnce(&BoundReader) -> Result<T, StoreError>,
    ) -> PyResult<T> {
        py.detach(|| {
            if !self.process.is_here() {
                return Err(raised(StoreError::Forked));
            }
            match &*self.store.read() {
                Some(store) => done(store).map_err(raised),
                None => Err(closed()),
            }
        })
    }
}

#[pymethods]
impl PyReader {
    #[new]
    fn open(py: Python<'_>, path: PathBuf, options: OpenArguments) -> PyResult<Self> {
        let options = options.options()?;
        let opened = py.detach(|| BoundReader::open(&options, path).map_err(raised))?;
        Ok(Self {
            store: RwLock::new(Some(opened)),
            process: ProcessMark::take(),
        })
    }

    fn _get<'py>(
        &self,
        py: Python<'py>,
        key: ByteArgument,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let found = self.with(py, |store| store.get(&*key))?;
        Ok(found.map(|value| PyBytes::new(py, &value)))
    }

    fn _contains(&self, py: Python<'_>, key: ByteArgument) -> PyResult<bool> {
        self.with(py, |store| store.contains_key(&*key))
    }

    #[pyo3(signature = (start, stop, prefix, reverse, include_stop, kind))]
    #[expect(clippy::too_many_arguments, reason = "Python's")]
    fn _scan(
        &self,
        py: Python<'_>,
        start: Option<ByteArgument>,
        stop: Option<ByteArgument>,
        prefix: Option<ByteArgument>,
        reverse: bool,
        include_stop: bool,
        kind: &str,
    ) -> PyResult<PyScan> {
        let kind = ScanKind::of(kind)?;
        let range = range(start, stop, prefix, include_stop)?;
        let range = kind.of_range(range, reverse);
        let scan = self.with(py, |store| store.scan(range))?;
        Ok(PyScan::of(scan, kind))
    }

    /// Look again: what is read from now on is as of now. Scans and snapshots stay as they are.
    fn refresh(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |store| store.refresh())
    }

    fn _stats(&self, py: Python<'_>) -> PyResult<String> {
        let stats = self.with(py, |store| Ok(store.stats()))?;
        serde_json::to_string(&stats).map_err(|error| UsageError::new_err(error.to_string()))
    }

    /// Close it; once more does nothing. Calls of other threads are waited for.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| match self.process.is_here() {
            true => {
                drop(self.store.write().take());
                Ok(())
            }
            false => Err(raised(StoreError::Forked)),
        })
    }

    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        py.detach(|| !self.process.is_here() || self.store.read().is_none())
    }
}
