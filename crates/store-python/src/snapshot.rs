//! [`PySnapshot`]: the store as of one moment.

use crate::{
    arguments::ByteArgument,
    errors::{ClosedError, raised},
    reader::PyReader,
    scan::{PyScan, ScanKind, range},
    store::PyStore,
};
use forebay_pool::media::ProcessMark;
use forebay_store::{Snapshot, StoreError};
use parking_lot::RwLock;
use pyo3::{prelude::*, types::PyBytes};

/// The store as of one moment.
#[pyclass(frozen, subclass, name = "_Snapshot", module = "forebay")]
pub(crate) struct PySnapshot {
    snapshot: RwLock<Option<Snapshot>>,
    /// Whose it is: in a forked child another thread may have had the lock.
    process: ProcessMark,
}

/// What a snapshot is taken of.
#[derive(FromPyObject)]
enum SnapshotSource<'py> {
    Store(Bound<'py, PyStore>),
    Reader(Bound<'py, PyReader>),
}

impl PySnapshot {
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        read: impl Send + FnOnce(&Snapshot) -> Result<T, StoreError>,
    ) -> PyResult<T> {
        py.detach(|| {
            if !self.process.is_here() {
                return Err(raised(StoreError::Forked));
            }
            match &*self.snapshot.read() {
                Some(snapshot) => read(snapshot).map_err(raised),
                None => Err(ClosedError::new_err(
                    "the snapshot was released; take another one",
                )),
            }
        })
    }
}

#[pymethods]
impl PySnapshot {
    #[new]
    fn new(py: Python<'_>, store: SnapshotSource<'_>) -> PyResult<Self> {
        let snapshot = match store {
            SnapshotSource::Store(store) => store.get().with(py, |store| store.snapshot()),
            SnapshotSource::Reader(reader) => reader.get().with(py, |store| store.snapshot()),
        }?;
        Ok(Self {
            snapshot: RwLock::new(Some(snapshot)),
            process: ProcessMark::take(),
        })
    }

    fn _get<'py>(
        &self,
        py: Python<'py>,
        key: ByteArgument,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let found = self.with(py, |snapshot| snapshot.get(&*key))?;
        Ok(found.map(|value| PyBytes::new(py, &value)))
    }

    fn _contains(&self, py: Python<'_>, key: ByteArgument) -> PyResult<bool> {
        self.with(py, |snapshot| snapshot.contains_key(&*key))
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
        let scan = self.with(py, |snapshot| snapshot.scan(range))?;
        Ok(PyScan::of(scan, kind))
    }

    /// Gives up what it keeps; scans that it began go on.
    fn release(&self, py: Python<'_>) {
        if self.process.is_here() {
            py.detach(|| drop(self.snapshot.write().take()));
        }
    }
}
