//! The control socket of a running cache: commands' requests to the process that has it, and its
//! answers. docs/flash-tier.md, "The control socket". `listener`: the process's end; `command`: the
//! other one.

mod command;
mod listener;

pub(crate) use crate::control_files::socket_of;
#[cfg(test)]
pub(crate) use command::connect_to;
pub use command::{CancelledResize, cancel_resize, resize_running, set_running};
pub(crate) use listener::{CommandProgress, ControlClient, ControlListener, remove_socket};

use crate::{
    settings::Settings,
    setup::{CacheOccupancy, ResizeResult},
    status::ResizeProgress,
};
use serde::{Deserialize, Serialize};

/// A command's request: the one message that it sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ControlRequest {
    /// Do as the settings file says, from now on. Answer: [`ControlAnswer::Settings`].
    Set,
    /// Give the cache another size. Answers: [`ControlAnswer::Resizing`] once it is noted, and
    /// every half second; then [`ControlAnswer::Resized`].
    Resize {
        /// The size that it is to have.
        bytes: u64,
    },
    /// Give up the resize that is under way. Answer, once that has ended: how it did.
    Cancel,
}

/// The answer of the process that has the cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ControlAnswer {
    /// The settings in force.
    Settings(Settings),
    /// The progress of a resize.
    Resizing(ResizeProgress),
    /// The cache has the size that was asked for.
    Resized(ResizeResult),
    /// The resize was given up: the cache has the size that it had.
    GivenUp(CacheOccupancy),
    /// There is no resize to be given up.
    Idle,
    /// It is not done, and why.
    Refused(String),
}
