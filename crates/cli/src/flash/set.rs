//! `forebay flash set`.

use super::settings::{SettingsOptions, keep};
use crate::{failure::Failure, output};
use clap::Args;
use forebay_innodb::{CacheLocation, Settings, SetupError};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Change a flash cache's settings, also while a server runs with it
#[derive(Args)]
#[command(
    long_about = "Changes settings of a flash cache: at once if a server runs with it, and for its next runs (they are kept in PATH.settings). \
                  Settings that are not given stay as they are, and those in force are printed.",
    after_long_help = "Examples:\n  \
        forebay flash set --flash /fast/cache --policy through\n  \
        forebay flash set --flash /fast/cache --policy off           bring everything home, and use flash no more\n  \
        forebay flash set --flash /fast/cache --home-limit 20MiB     pages leave no faster than that, in bytes a second\n  \
        forebay flash set --flash /fast/cache --home-limit 0         without limit again\n\n\
        Exit status: 0 it is set, or kept for the next start; 1 it is not; 2 the command line is wrong."
)]
pub struct Set {
    /// The flash cache
    #[arg(long, value_name = "PATH")]
    flash: PathBuf,
    #[command(flatten)]
    settings: SettingsOptions,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct SettingsReport {
    #[serde(serialize_with = "forebay_files::readable")]
    flash: PathBuf,
    /// The settings kept from now on.
    settings: Settings,
    /// True if a server runs with it and does as it was told; false if the next one will.
    in_force: bool,
    /// The settings in force in that server, the defaults too.
    #[serde(skip_serializing_if = "Option::is_none")]
    running: Option<Settings>,
}

impl Set {
    pub fn run(self) -> Result<(), Failure> {
        let wanted = self.settings.settings();
        if wanted == Settings::default() {
            return Err(Failure::Usage(
                "nothing is to be set. Give a setting: --policy, --contents, --low, --high, --home-limit or --write-limit".to_owned(),
            ));
        }
        let place = CacheLocation::of(&self.flash)?;
        let flash = place.flash();
        let settings = keep(flash, wanted)?;
        let running = match forebay_innodb::retry_in_use(|| forebay_innodb::look(flash)) {
            Err(error) if error.is_in_use() => follow(flash, &wanted)?,
            // Whatever else is wrong with it, its next start says.
            _ => None,
        };
        let report = SettingsReport {
            flash: flash.to_owned(),
            settings,
            in_force: running.is_some(),
            running,
        };
        output::report(self.json, &report, human)
    }
}

/// Has the process that has the cache do as it was told: what is in force there. None if it has let
/// go of the cache.
fn follow(flash: &Path, wanted: &Settings) -> Result<Option<Settings>, Failure> {
    match forebay_innodb::set_running(flash, wanted) {
        Ok(running) => Ok(Some(running)),
        Err(SetupError::Released { .. }) => Ok(None),
        Err(SetupError::SetByAnother(why)) => Err(Failure::Failed(why)),
        Err(error) => Err(Failure::Failed(format!(
            "the settings are stored, and the next server with {} follows them, but: {error}",
            flash.display()
        ))),
    }
}

fn human(report: &SettingsReport) -> String {
    let flash = report.flash.display();
    match report.running {
        Some(now) => format!(
            "{flash}: set, and kept for its next runs. In force now: {}\n",
            now.in_words().unwrap_or_default()
        ),
        None => format!("{flash}: kept; no server runs with it now, the next one will do so\n"),
    }
}
