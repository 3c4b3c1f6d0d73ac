//! `forebay flash …`: a flash cache itself.

pub mod flush;
mod remove;
mod resize;
mod set;
mod status;

use crate::failure::Failure;
use clap::Subcommand;

/// Set, resize, flush, look at and remove flash caches
#[derive(Subcommand)]
pub enum FlashCommand {
    Set(set::Set),
    Resize(resize::Resize),
    Flush(flush::Flush),
    Status(status::FlashStatus),
    Remove(remove::Remove),
}

impl FlashCommand {
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Self::Set(set) => set.run(),
            Self::Resize(resize) => resize.run(),
            Self::Flush(flush) => flush.run(),
            Self::Status(status) => status.run(),
            Self::Remove(remove) => remove.run(),
        }
    }
}
