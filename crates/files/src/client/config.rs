//! The run's settings, read from the environment.

use super::address::SupervisorAddress;
use crate::{
    absorbed::{AskingView, TableView},
    order::OrderView,
};
use std::{ffi::CString, path::PathBuf, sync::OnceLock, time::Duration};

/// See the module's head.
pub(super) struct ClientConfig {
    pub(super) address: SupervisorAddress,
    pub(super) patterns: Vec<CString>,
    /// Making an `io_uring` fails.
    pub(super) refuse_io_uring: bool,
    /// First part of the names of guards of the run's pool, which this process does not see.
    pub(super) guard: Option<CString>,
    /// The table of absorbed files. Without it, this process is as one outside the run to the
    /// others.
    pub(super) table: Option<TableView>,
    /// Changes that the run's file systems may still lack. Without it this process can be no
    /// member.
    pub(super) order: Option<OrderView>,
    /// The page by which a process asks that a file be made plain, though it cannot connect; none
    /// if this process may not write to the table.
    pub(super) asking: Option<AskingView>,
    /// The table's path.
    pub(super) table_path: PathBuf,
    /// The command that has an agent serve a program which the library does not fit.
    pub(super) enter: Option<CString>,
    /// Time to try to be heard by a supervisor that lives.
    pub(super) heard_wait: Duration,
}

/// Without one nothing is absorbed.
pub(super) static CONFIG: OnceLock<ClientConfig> = OnceLock::new();
