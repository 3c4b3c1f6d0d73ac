//! Exceptions: one for each thing that a program does about an error.

use forebay_bindings::BindingError;
use forebay_store::StoreError;
use pyo3::{create_exception, exceptions::PyException, prelude::*, types::PyBytes};

create_exception!(
    forebay,
    Error,
    PyException,
    "What the store refused; its message says what to do."
);
create_exception!(
    forebay,
    UsageError,
    Error,
    "An argument or option that is not possible."
);
create_exception!(
    forebay,
    NoStoreError,
    Error,
    "There is no store, or there is one and none was to be there."
);
create_exception!(
    forebay,
    BusyError,
    Error,
    "Another process has the store open, or this one has."
);
create_exception!(
    forebay,
    ClosedError,
    Error,
    "The store was closed, or is that of the process that this one was forked from."
);
create_exception!(
    forebay,
    ConflictError,
    Error,
    "What a transaction has read was changed before it was committed; key says which key. Nothing of it was done."
);
create_exception!(
    forebay,
    DamagedError,
    Error,
    "Data that fails its checks, or is not there."
);
create_exception!(
    forebay,
    OutdatedError,
    Error,
    "What is read was removed by the store's owner since the last look: refresh(), and read again."
);
create_exception!(
    forebay,
    FullError,
    Error,
    "No room: the write was not done."
);

pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("Error", py.get_type::<Error>())?;
    module.add("UsageError", py.get_type::<UsageError>())?;
    module.add("NoStoreError", py.get_type::<NoStoreError>())?;
    module.add("BusyError", py.get_type::<BusyError>())?;
    module.add("ClosedError", py.get_type::<ClosedError>())?;
    module.add("ConflictError", py.get_type::<ConflictError>())?;
    module.add("DamagedError", py.get_type::<DamagedError>())?;
    module.add("OutdatedError", py.get_type::<OutdatedError>())?;
    module.add("FullError", py.get_type::<FullError>())
}

/// An error of the store as an exception.
pub(crate) fn raised(error: impl Into<BindingError>) -> PyErr {
    let error = error.into();
    let said = error.to_string();
    match error {
        BindingError::Argument(_) => UsageError::new_err(said),
        BindingError::StoreExists { .. } => NoStoreError::new_err(said),
        BindingError::TransactionEnded { .. } => ClosedError::new_err(said),
        BindingError::Store(StoreError::Conflict { key }) => conflict(&key, said),
        BindingError::Store(store) => of_store(&store, said),
        _ => Error::new_err(said),
    }
}

/// With its key, unless the interpreter has ended.
fn conflict(key: &[u8], said: String) -> PyErr {
    let error = ConflictError::new_err(said);
    let with_key = Python::try_attach(|py| {
        let value = error.value(py);
        value.setattr("key", PyBytes::new(py, key))
    });
    match with_key {
        Some(Err(failed)) => failed,
        _ => error,
    }
}

fn of_store(error: &StoreError, said: String) -> PyErr {
    use StoreError as E;
    match error {
        E::BadOption { .. }
        | E::BadKey { .. }
        | E::ValueTooLarge { .. }
        | E::BatchTooLarge { .. }
        | E::NotEmpty { .. }
        | E::TooManySnapshots { .. } => UsageError::new_err(said),
        E::NotAStore { .. } => NoStoreError::new_err(said),
        E::Outdated { .. } => OutdatedError::new_err(said),
        E::InUse { .. } | E::BackupsInUse { .. } => BusyError::new_err(said),
        E::Forked | E::ForeignTransaction { .. } => ClosedError::new_err(said),
        E::Damaged { .. } | E::ValueLog { .. } | E::NotOneMoment { .. } | E::DataInPool { .. } => {
            DamagedError::new_err(said)
        }
        E::Stalled { .. } | E::Full { .. } | E::IndexStalled { .. } | E::NoRoomToOpen { .. } => {
            FullError::new_err(said)
        }
        _ => Error::new_err(said),
    }
}

/// The store was closed.
pub(crate) fn closed() -> PyErr {
    ClosedError::new_err("the store was closed; open it again")
}
