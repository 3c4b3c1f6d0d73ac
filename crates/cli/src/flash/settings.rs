//! The settings of a flash cache on a command line, and keeping them for its runs.

use crate::{failure::Failure, size};
use clap::{
    Args,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
};
use forebay_innodb::{AdmissionPolicy, Settings, WritePolicy};
use std::path::Path;

const POLICIES: [(WritePolicy, &str, &str); 5] = [
    (
        WritePolicy::Back,
        "back",
        "To flash, and to their files when they reach the queue's front",
    ),
    (
        WritePolicy::Through,
        "through",
        "To flash, and to their files at every sync: losing the flash loses nothing that was synced",
    ),
    (
        WritePolicy::Around,
        "around",
        "Straight to their files; the cache serves the pages it has, and takes nothing in",
    ),
    (
        WritePolicy::Off,
        "off",
        "As around, and the cache is emptied into the files",
    ),
    (
        WritePolicy::Adaptive,
        "adaptive",
        "As back while flash is measurably faster than the files, to read or to write; else as around, and the cache empties slowly",
    ),
];

const CONTENTS: [(AdmissionPolicy, &str, &str); 2] = [
    (AdmissionPolicy::Dirty, "dirty", "Pages that are written"),
    (AdmissionPolicy::All, "all", "Also pages that are only read"),
];

/// Takes one of these names for what it stands for.
fn one_of<T: Copy + Send + Sync + 'static, const N: usize>(
    names: [(T, &'static str, &'static str); N],
) -> impl TypedValueParser<Value = T> {
    let shown = names.map(|(_, name, help)| PossibleValue::new(name).help(help));
    PossibleValuesParser::new(shown).try_map(move |given| {
        let found = names.iter().find(|(_, name, _)| *name == given);
        found.map(|(value, ..)| *value).ok_or("an unknown name")
    })
}

/// Settings, each of which may be given.
#[derive(Args)]
pub struct SettingsOptions {
    /// The way of written pages
    #[arg(long, value_name = "WHAT", value_parser = one_of(POLICIES))]
    policy: Option<WritePolicy>,
    /// Pages to cache
    #[arg(long, value_name = "WHAT", value_parser = one_of(CONTENTS))]
    contents: Option<AdmissionPolicy>,
    /// Pages stop leaving when at most this much of the cache is in use, in percent
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    low: Option<u8>,
    /// Pages begin to leave when more than this much of the cache is in use, in percent
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    high: Option<u8>,
    /// Bytes a second that go to the files in the background; 0 for no limit
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    home_limit: Option<u64>,
    /// Bytes a second that are written to flash; the rest goes straight to the files. 0 for no
    /// limit
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    write_limit: Option<u64>,
}

impl SettingsOptions {
    pub fn settings(&self) -> Settings {
        Settings {
            policy: self.policy,
            contents: self.contents,
            low: self.low,
            high: self.high,
            home_bytes_per_second: self.home_limit,
            flash_bytes_per_second: self.write_limit,
        }
    }
}

/// Keeps the settings of a new cache, and nothing of an earlier one's.
pub fn keep_for_new(flash: &Path, wanted: &Settings) -> Result<(), Failure> {
    let keeping = || {
        let what = "the cache is there; keeping its settings (forebay flash set tries again):";
        Failure::io(what, flash.display())
    };
    let _alone = Settings::lock(flash).map_err(keeping())?;
    wanted.keep(flash).map_err(keeping())
}

/// Keeps these settings beside the kept ones, under a lock: of two commands at a time none undoes
/// the other's.
pub fn keep(flash: &Path, wanted: Settings) -> Result<Settings, Failure> {
    let keeping = || Failure::io("keeping the settings of", flash.display());
    let _alone = Settings::lock(flash).map_err(keeping())?;
    let before =
        Settings::kept(flash).map_err(Failure::io("reading the settings of", flash.display()))?;
    let kept = wanted.or(before);
    kept.check().map_err(Failure::Usage)?;
    kept.keep(flash).map_err(keeping())?;
    Ok(kept)
}
