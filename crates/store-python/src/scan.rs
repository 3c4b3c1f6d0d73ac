//! Scans, which fetch some pairs at a time without Python's lock.

use crate::{
    arguments::ByteArgument,
    errors::{UsageError, raised},
};
use forebay_pool::media::ProcessMark;
use forebay_store::{Scan, ScanRange, StoreError, Value};
use parking_lot::Mutex;
use pyo3::{prelude::*, types::PyBytes};
use std::{collections::VecDeque, ops::Bound as KeyBound};

/// How many pairs a scan fetches at first, and at most; their bytes.
const FETCHED: (usize, usize) = (4, 256);
const FETCHED_BYTES: usize = 1 << 20;

/// The items that a scan gives.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScanKind {
    Items,
    Keys,
    Values,
}

impl ScanKind {
    pub(crate) fn of(name: &str) -> PyResult<Self> {
        match name {
            "items" => Ok(Self::Items),
            "keys" => Ok(Self::Keys),
            "values" => Ok(Self::Values),
            _ => Err(UsageError::new_err(format!(
                "a scan gives items, keys or values, not {name:?}"
            ))),
        }
    }

    pub(crate) fn of_range(self, range: ScanRange, reverse: bool) -> ScanRange {
        let range = match self {
            Self::Keys => range.keys_only(),
            Self::Items | Self::Values => range,
        };
        match reverse {
            true => range.reversed(),
            false => range,
        }
    }
}

/// The keys that a scan is asked for.
pub(crate) fn range(
    start: Option<ByteArgument>,
    stop: Option<ByteArgument>,
    prefix: Option<ByteArgument>,
    include_stop: bool,
) -> PyResult<ScanRange> {
    if let Some(prefix) = prefix {
        return match (start, stop) {
            (None, None) => Ok(ScanRange::prefix(&*prefix)),
            _ => Err(UsageError::new_err(
                "a scan has a prefix, or a start and a stop; give one of the two",
            )),
        };
    }
    let start = start.map_or(KeyBound::Unbounded, |key| KeyBound::Included(key.to_vec()));
    let stop = stop.map_or(KeyBound::Unbounded, |key| match include_stop {
        true => KeyBound::Included(key.to_vec()),
        false => KeyBound::Excluded(key.to_vec()),
    });
    Ok(ScanRange::new::<Vec<u8>>((start, stop)))
}

/// A range of keys, in order, as of when it began.
#[pyclass(frozen, name = "Scan", module = "forebay")]
pub(crate) struct PyScan {
    kind: ScanKind,
    state: Mutex<FetchedPairs>,
    /// Whose it is: in a forked child another thread may have had the lock.
    process: ProcessMark,
}

/// Pairs that were fetched, in order.
pub(crate) type PairQueue = VecDeque<(Vec<u8>, Value)>;

/// Where the pairs of a scan come from.
pub(crate) trait PairSource: Send {
    /// Appends pairs until there are so many; false if there are no more.
    fn fetch(&mut self, ready: &mut PairQueue, most: usize) -> PyResult<bool>;
}

impl PairSource for Scan {
    fn fetch(&mut self, ready: &mut PairQueue, most: usize) -> PyResult<bool> {
        take(self, ready, most).map_err(raised)
    }
}

struct FetchedPairs {
    source: Option<Box<dyn PairSource>>,
    ready: PairQueue,
    next: usize,
    trouble: Option<PyErr>,
}

/// Takes pairs of a scan until there are so many, or many bytes; false if there are no more.
pub(crate) fn take(
    scan: &mut impl Iterator<Item = Result<(Vec<u8>, Value), StoreError>>,
    ready: &mut PairQueue,
    most: usize,
) -> Result<bool, StoreError> {
    let mut bytes = 0;
    while ready.len() < most && bytes < FETCHED_BYTES {
        let Some(pair) = scan.next() else {
            return Ok(false);
        };
        let (key, value) = pair?;
        bytes += key.len() + value.len();
        ready.push_back((key, value));
    }
    Ok(true)
}

impl FetchedPairs {
    fn fetch(&mut self) {
        let Some(source) = &mut self.source else {
            return;
        };
        match source.fetch(&mut self.ready, self.next) {
            Ok(true) => self.next = (self.next * 2).min(FETCHED.1),
            Ok(false) => self.source = None,
            Err(error) => {
                self.source = None;
                self.trouble = Some(error);
            }
        }
    }
}

impl PyScan {
    pub(crate) fn of(source: impl PairSource + 'static, kind: ScanKind) -> Self {
        let state = FetchedPairs {
            source: Some(Box::new(source)),
            ready: VecDeque::new(),
            next: FETCHED.0,
            trouble: None,
        };
        Self {
            kind,
            state: Mutex::new(state),
            process: ProcessMark::take(),
        }
    }

    /// The next pair: without Python's lock, if it has to be fetched or waited for.
    fn pair(&self, py: Python<'_>) -> PyResult<Option<(Vec<u8>, Value)>> {
        if !self.process.is_here() {
            return Err(raised(StoreError::Forked));
        }
        if let Some(mut state) = self.state.try_lock()
            && let Some(pair) = state.ready.pop_front()
        {
            return Ok(Some(pair));
        }
        py.detach(|| {
            let mut state = self.state.lock();
            if state.ready.is_empty() {
                state.fetch();
            }
            match state.ready.pop_front() {
                None => state.trouble.take().map_or(Ok(None), Err),
                pair => Ok(pair),
            }
        })
    }
}

#[pymethods]
impl PyScan {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some((key, value)) = self.pair(py)? else {
            return Ok(None);
        };
        let bytes = |bytes: &[u8]| PyBytes::new(py, bytes);
        Ok(Some(match self.kind {
            ScanKind::Items => (bytes(&key), bytes(&value)).into_pyobject(py)?.into_any(),
            ScanKind::Keys => bytes(&key).into_any(),
            ScanKind::Values => bytes(&value).into_any(),
        }))
    }

    /// Ends it, and gives up what it keeps.
    fn close(&self, py: Python<'_>) {
        if !self.process.is_here() {
            return;
        }
        py.detach(|| {
            let mut state = self.state.lock();
            (state.source, state.trouble) = (None, None);
            state.ready.clear();
        });
    }
}
