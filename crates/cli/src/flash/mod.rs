//! `forebay flash …`: a flash cache itself.

mod create;
pub mod flush;
mod remove;
mod resize;
mod set;
mod settings;
mod status;

use crate::failure::Failure;
use clap::Subcommand;

/// Make, set, resize, flush, look at and remove flash caches
#[derive(Subcommand)]
pub enum FlashCommand {
    Create(create::CreateCache),
    Set(set::Set),
    Resize(resize::Resize),
    Flush(flush::Flush),
    Status(status::FlashStatus),
    Remove(remove::Remove),
}

impl FlashCommand {
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Self::Create(create) => create.run(),
            Self::Set(set) => set.run(),
            Self::Resize(resize) => resize.run(),
            Self::Flush(flush) => flush.run(),
            Self::Status(status) => status.run(),
            Self::Remove(remove) => remove.run(),
        }
    }
}
