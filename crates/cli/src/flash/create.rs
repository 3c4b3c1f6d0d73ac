//! `forebay flash create`.

use super::settings::{SettingsOptions, keep_for_new};
use crate::{failure::Failure, output, size};
use clap::Args;
use forebay_innodb::{CacheLocation, Settings};
use serde::Serialize;
use std::path::PathBuf;

/// Make a flash cache
#[derive(Args)]
#[command(
    long_about = "Makes a flash cache, and keeps settings for its runs: those that are not given are policy back, contents dirty, low 90, high 95, and no limits. forebay run --flash PATH --flash-size SIZE makes one too, with the defaults; forebay flash set changes settings later. \
                  A block device must be blank, and is named by a link in a directory where files stay: the metadata (PATH.lane) is beside that link.",
    after_long_help = "Examples:\n  \
        forebay flash create --flash /fast/cache 20GiB\n  \
        forebay flash create --flash /fast/cache 20GiB --policy through    losing the flash loses nothing that was synced\n\n\
        Exit status: 0 it is there; 1 it is not, or its settings are not kept; 2 the command line is wrong."
)]
pub struct CreateCache {
    /// The flash file to make, or a blank device
    #[arg(long, value_name = "PATH")]
    flash: PathBuf,
    /// Its size
    #[arg(value_name = "SIZE", value_parser = size::parse_positive)]
    size: u64,
    #[command(flatten)]
    settings: SettingsOptions,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct CreateReport {
    #[serde(serialize_with = "forebay_files::readable")]
    flash: PathBuf,
    bytes: u64,
    /// Number of pages that it has room for.
    slots: u64,
    settings: Settings,
}

impl CreateCache {
    pub fn run(self) -> Result<(), Failure> {
        let wanted = self.settings.settings();
        wanted.check().map_err(Failure::Usage)?;
        let made = forebay_innodb::create(&self.flash, self.size)?;
        let flash = CacheLocation::of(&self.flash)?.flash().to_owned();
        // Not what an earlier cache of this name has left.
        keep_for_new(&flash, &wanted)?;
        let report = CreateReport {
            flash,
            bytes: self.size,
            slots: made.slots,
            settings: wanted,
        };
        output::report(self.json, &report, |report| {
            format!(
                "{}: a flash cache of {}, with room for {} pages\n",
                report.flash.display(),
                size::show(report.bytes),
                report.slots
            )
        })
    }
}
