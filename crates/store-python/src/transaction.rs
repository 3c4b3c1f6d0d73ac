//! [`PyTransaction`]: reads and writes that are done as one.

use crate::{
    arguments::ByteArgument,
    errors::raised,
    scan::{PairQueue, PairSource, PyScan, ScanKind, range, take},
    store::PyStore,
};
use forebay_bindings::BoundTransaction;
use forebay_pool::media::ProcessMark;
use forebay_store::{ScanRange, StoreError, Transaction};
use parking_lot::Mutex;
use pyo3::{prelude::*, types::PyBytes};

/// A transaction of a store. Threads that share it take turns. Its lock comes behind the store's:
/// who closes the store waits for what is being done, and finds no transaction in its way.
#[pyclass(frozen, subclass, name = "_Transaction", module = "forebay")]
pub(crate) struct PyTransaction {
    store: Py<PyStore>,
    transaction: Mutex<BoundTransaction>,
    /// Whose it is: in a forked child another thread may have had the lock.
    process: ProcessMark,
}

impl PyTransaction {
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        done: impl Send + FnOnce(&mut Transaction<'_>) -> Result<T, StoreError>,
    ) -> PyResult<T> {
        py.detach(|| self.reading(done))
    }

    /// The same, of a thread that has given Python's lock up.
    pub(crate) fn reading<T>(
        &self,
        done: impl FnOnce(&mut Transaction<'_>) -> Result<T, StoreError>,
    ) -> PyResult<T> {
        let store = self.store.get();
        store.reading(|store| self.transaction.lock().with(store, done))
    }
}

/// What is left of a range, which is scanned anew for each fetch: the transaction goes on between.
struct TransactionPairs {
    transaction: Py<PyTransaction>,
    range: ScanRange,
}

impl PairSource for TransactionPairs {
    fn fetch(&mut self, ready: &mut PairQueue, most: usize) -> PyResult<bool> {
        let transaction = self.transaction.get();
        let goes_on =
            transaction.reading(|tx| take(&mut tx.scan(self.range.clone())?, ready, most))?;
        if let Some((last, _)) = ready.back() {
            self.range = self.range.clone().behind(last);
        }
        Ok(goes_on)
    }
}

#[pymethods]
impl PyTransaction {
    #[new]
    fn new(py: Python<'_>, store: Py<PyStore>) -> PyResult<Self> {
        let transaction = store.get().with(py, BoundTransaction::begin)?;
        Ok(Self {
            store,
            transaction: Mutex::new(transaction),
            process: ProcessMark::take(),
        })
    }

    fn _get<'py>(
        &self,
        py: Python<'py>,
        key: ByteArgument,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let found = self.with(py, |tx| tx.get(&*key))?;
        Ok(found.map(|value| PyBytes::new(py, &value)))
    }

    fn _contains(&self, py: Python<'_>, key: ByteArgument) -> PyResult<bool> {
        self.with(py, |tx| tx.contains_key(&*key))
    }

    /// Put a key, when it is committed.
    fn put(&self, py: Python<'_>, key: ByteArgument, value: ByteArgument) -> PyResult<()> {
        self.with(py, |tx| tx.put(&*key, &*value))
    }

    /// Delete a key, when it is committed. One that is not there is no error.
    fn delete(&self, py: Python<'_>, key: ByteArgument) -> PyResult<()> {
        self.with(py, |tx| tx.delete(&*key))
    }

    #[pyo3(signature = (start, stop, prefix, reverse, include_stop, kind))]
    fn _scan(
        this: Bound<'_, Self>,
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
        // Refused at once, as a store's is.
        this.get().with(this.py(), |_| Ok(()))?;
        let transaction = this.unbind();
        Ok(PyScan::of(TransactionPairs { transaction, range }, kind))
    }

    /// Do all of it, or raise ConflictError; durable when it returns, unless sync is False.
    #[pyo3(signature = (*, sync = true))]
    fn commit(&self, py: Python<'_>, sync: bool) -> PyResult<()> {
        let commit = |store: &_| self.transaction.lock().commit(store, sync);
        self.store.get().with(py, commit)
    }

    /// Forget all of it. After its end this does nothing.
    fn rollback(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| match self.process.is_here() {
            true => {
                self.transaction.lock().roll_back();
                Ok(())
            }
            false => Err(raised(StoreError::Forked)),
        })
    }

    /// True once it was committed or rolled back, or its commit was refused.
    #[getter]
    fn ended(&self, py: Python<'_>) -> bool {
        py.detach(|| !self.process.is_here() || self.transaction.lock().has_ended())
    }
}
