//! [`PyStore`] and its batches.

use crate::{
    arguments::ByteArgument,
    errors::{UsageError, closed, raised},
    scan::{PyScan, ScanKind, range},
};
use forebay_bindings::{BindingError, BindingOptions, BoundStore, PoolKind, destroy};
use forebay_pool::media::ProcessMark;
use forebay_store::{Batch, Durability, StoreError};
use parking_lot::{Mutex, RwLock};
use pyo3::{prelude::*, types::PyBytes};
use std::path::PathBuf;

/// An open store; closed, it has none. `forebay.Store` is its subclass.
#[pyclass(frozen, subclass, weakref, name = "_Store", module = "forebay")]
pub(crate) struct PyStore {
    store: RwLock<Option<BoundStore>>,
    /// Whose it is: in a forked child another thread may have had the lock.
    process: ProcessMark,
}

impl PyStore {
    pub(crate) fn with<T: Send, E: Into<BindingError>>(
        &self,
        py: Python<'_>,
        done: impl Send + FnOnce(&BoundStore) -> Result<T, E>,
    ) -> PyResult<T> {
        py.detach(|| self.reading(done))
    }

    /// The same, of a thread that has given Python's lock up.
    pub(crate) fn reading<T, E: Into<BindingError>>(
        &self,
        done: impl FnOnce(&BoundStore) -> Result<T, E>,
    ) -> PyResult<T> {
        if !self.process.is_here() {
            return Err(raised(StoreError::Forked));
        }
        match &*self.store.read() {
            Some(store) => done(store).map_err(raised),
            None => Err(closed()),
        }
    }
}

impl Drop for PyStore {
    /// Closes it with the last reference, while other threads of Python run.
    fn drop(&mut self) {
        let store = self.store.get_mut().take();
        // None when the interpreter ends: dropped all the same.
        let _ = Python::try_attach(|py| py.detach(|| drop(store)));
    }
}

/// Arguments to open a store.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct OpenArguments {
    create: bool,
    error_if_exists: bool,
    pool: Option<PathBuf>,
    pool_kind: String,
    pool_size: u64,
    durability: String,
    cache_size: Option<u64>,
    memtable_size: Option<usize>,
    open_files: Option<usize>,
    salvage: bool,
}

impl OpenArguments {
    pub(crate) fn options(self) -> PyResult<BindingOptions> {
        let durability: Durability = self.durability.parse().map_err(UsageError::new_err)?;
        let kind = match &self.pool_kind[..] {
            "disk" => PoolKind::Disk,
            "memory" => PoolKind::Memory,
            "emulated" => PoolKind::Emulated,
            other => {
                return Err(UsageError::new_err(format!(
                    "there is no pool_kind {other:?}: disk, memory or emulated"
                )));
            }
        };
        let options = BindingOptions::default()
            .create_if_missing(self.create)
            .error_if_exists(self.error_if_exists)
            .pool(self.pool)
            .pool_kind(kind)
            .pool_bytes(self.pool_size)
            .durability(durability);
        Ok(options.with_store(|mut store| {
            store = store.salvage(self.salvage);
            if let Some(bytes) = self.cache_size {
                store = store.cache_size(bytes);
            }
            if let Some(bytes) = self.memtable_size {
                store = store.memtable_size(bytes);
            }
            if let Some(files) = self.open_files {
                store = store.open_files(files);
            }
            store
        }))
    }
}

#[pymethods]
impl PyStore {
    #[new]
    fn open(py: Python<'_>, path: PathBuf, options: OpenArguments) -> PyResult<Self> {
        let options = options.options()?;
        let opened = py.detach(|| BoundStore::open(&options, path).map_err(raised))?;
        Ok(Self {
            store: RwLock::new(Some(opened)),
            process: ProcessMark::take(),
        })
    }

    #[staticmethod]
    fn _destroy(py: Python<'_>, path: PathBuf, options: OpenArguments) -> PyResult<()> {
        let options = options.options()?;
        py.detach(|| destroy(&options, path).map_err(raised))
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

    /// Put a key; durable when it returns, unless sync is False.
    #[pyo3(signature = (key, value, *, sync = true))]
    fn put(
        &self,
        py: Python<'_>,
        key: ByteArgument,
        value: ByteArgument,
        sync: bool,
    ) -> PyResult<()> {
        self.with(py, |store| store.put_as(&key, &value, sync))
    }

    /// Delete a key. One that is not there is no error.
    #[pyo3(signature = (key, *, sync = true))]
    fn delete(&self, py: Python<'_>, key: ByteArgument, sync: bool) -> PyResult<()> {
        self.with(py, |store| store.delete_as(&key, sync))
    }

    /// Do all that the batch has, or nothing.
    #[pyo3(signature = (batch, *, sync = true))]
    fn write(&self, py: Python<'_>, batch: &PyBatch, sync: bool) -> PyResult<()> {
        self.with(py, |store| store.write_as(&batch.batch.lock(), sync))
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

    /// Make durable what was written before with sync=False.
    fn commit(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |store| store.commit())
    }

    /// Wait until everything is in the store's files.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |store| store.flush())
    }

    /// Collect garbage now; the bytes of files that were given up.
    fn collect(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.with(py, |store| store.gc())?.reclaimed_bytes)
    }

    /// Make of an empty directory a store of its own, with everything as of now.
    fn checkpoint(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.with(py, |store| store.checkpoint(path).map(drop))
    }

    fn _stats(&self, py: Python<'_>) -> PyResult<String> {
        let stats = self.with(py, |store| Ok::<_, StoreError>(store.stats()))?;
        serde_json::to_string(&stats).map_err(|error| UsageError::new_err(error.to_string()))
    }

    fn _verify(&self, py: Python<'_>) -> PyResult<String> {
        let report = self.with(py, |store| store.verify())?;
        serde_json::to_string(&report).map_err(|error| UsageError::new_err(error.to_string()))
    }

    /// What this opening gave up, with salvage, in words.
    fn given_up(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.with(py, |store| Ok::<_, StoreError>(store.given_up()))
    }

    /// Close it; once more does nothing. Calls of other threads are waited for.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| {
            if !self.process.is_here() {
                return Err(raised(StoreError::Forked));
            }
            let store = self.store.write().take();
            store.map_or(Ok(()), |store| store.close().map_err(raised))
        })
    }

    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        py.detach(|| !self.process.is_here() || self.store.read().is_none())
    }
}

/// Puts and deletes that are done as one. `forebay.Batch` is its subclass.
#[pyclass(frozen, subclass, name = "_Batch", module = "forebay")]
pub(crate) struct PyBatch {
    batch: Mutex<Batch>,
    /// As a store's.
    process: ProcessMark,
}

impl PyBatch {
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        done: impl Send + FnOnce(&mut Batch) -> Result<T, StoreError>,
    ) -> PyResult<T> {
        py.detach(|| match self.process.is_here() {
            true => done(&mut self.batch.lock()).map_err(raised),
            false => Err(raised(StoreError::Forked)),
        })
    }
}

#[pymethods]
impl PyBatch {
    /// An empty one, which refuses what the store would.
    #[new]
    fn new(py: Python<'_>, store: &PyStore) -> PyResult<Self> {
        let batch = store.with(py, |store| Ok::<_, StoreError>(store.batch()))?;
        Ok(Self {
            batch: Mutex::new(batch),
            process: ProcessMark::take(),
        })
    }

    /// Add a put. Of several on a key the last one counts.
    fn put(&self, py: Python<'_>, key: ByteArgument, value: ByteArgument) -> PyResult<()> {
        self.with(py, |batch| batch.put(&*key, &*value))
    }

    /// Add a delete.
    fn delete(&self, py: Python<'_>, key: ByteArgument) -> PyResult<()> {
        self.with(py, |batch| batch.delete(&*key))
    }

    /// Forget all of it.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |batch| {
            batch.clear();
            Ok(())
        })
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.with(py, |batch| Ok(batch.len()))
    }

    /// Bytes of its keys and values.
    #[getter]
    fn nbytes(&self, py: Python<'_>) -> PyResult<usize> {
        self.with(py, |batch| Ok(batch.bytes()))
    }
}
