//! The settings of a cache that can change while a server uses it. `settings_file` stores them
//! beside it, for the next runs too.

mod settings_file;

pub use settings_file::settings_of;

use forebay_flash::{AdmissionPolicy, CacheOptions, Watermarks, WritePolicy};
use serde::{Deserialize, Serialize};

/// Each of them may be set or left as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The route of writes: `back`, `through`, `around`, `off`, `adaptive`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<WritePolicy>,
    /// The pages that come in: `dirty`, `all`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contents: Option<AdmissionPolicy>,
    /// Slots in use, in percent: pages leave until no more than this are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low: Option<u8>,
    /// And begin to when more than this are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high: Option<u8>,
    /// Bytes a second towards the files; 0 for no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub home_bytes_per_second: Option<u64>,
    /// Bytes a second towards flash; 0 for no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flash_bytes_per_second: Option<u64>,
}

impl Settings {
    /// Refuses settings that make no sense, with the reason.
    ///
    /// # Errors
    /// In words.
    pub fn check(&self) -> Result<(), String> {
        if self.low.max(self.high).is_some_and(|percent| percent > 100) {
            return Err("a watermark is a percentage of the slots, 100 at most".to_owned());
        }
        match (self.low, self.high) {
            (Some(low), Some(high)) if low > high => Err(format!(
                "the low watermark is {low} percent, the high one {high}; the low one must not be above it"
            )),
            _ => Ok(()),
        }
    }

    /// These, and where they say nothing those of `others`.
    #[must_use]
    pub fn or(self, others: Self) -> Self {
        Self {
            policy: self.policy.or(others.policy),
            contents: self.contents.or(others.contents),
            low: self.low.or(others.low),
            high: self.high.or(others.high),
            home_bytes_per_second: self.home_bytes_per_second.or(others.home_bytes_per_second),
            flash_bytes_per_second: self
                .flash_bytes_per_second
                .or(others.flash_bytes_per_second),
        }
    }

    /// The options with these.
    pub(crate) fn over(&self, options: &CacheOptions) -> CacheOptions {
        let marks = options.watermarks;
        CacheOptions {
            policy: self.policy.unwrap_or(options.policy),
            contents: self.contents.unwrap_or(options.contents),
            watermarks: Watermarks {
                // One that is given alone takes the other with it.
                low: self
                    .low
                    .unwrap_or(marks.low.min(self.high.unwrap_or(marks.low))),
                high: self
                    .high
                    .unwrap_or(marks.high.max(self.low.unwrap_or(marks.high))),
            },
            home_bytes_per_second: (self.home_bytes_per_second)
                .unwrap_or(options.home_bytes_per_second),
            flash_bytes_per_second: (self.flash_bytes_per_second)
                .unwrap_or(options.flash_bytes_per_second),
            ..*options
        }
    }

    /// The settings in force.
    pub(crate) fn of(options: &CacheOptions) -> Self {
        Self {
            policy: Some(options.policy),
            contents: Some(options.contents),
            low: Some(options.watermarks.low),
            high: Some(options.watermarks.high),
            home_bytes_per_second: Some(options.home_bytes_per_second),
            flash_bytes_per_second: Some(options.flash_bytes_per_second),
        }
    }

    /// True if all that `wanted` says is so.
    #[must_use]
    pub fn include(&self, wanted: &Self) -> bool {
        wanted.or(*self) == *self
    }

    /// For people, if nothing is left open.
    #[must_use]
    pub fn in_words(&self) -> Option<String> {
        let name = |value: serde_json::Value| value.as_str().map(str::to_owned);
        let policy = name(serde_json::to_value(self.policy?).ok()?)?;
        let contents = name(serde_json::to_value(self.contents?).ok()?)?;
        let limit = |bytes: Option<u64>| match bytes.unwrap_or(0) {
            0 => "no limit".to_owned(),
            bytes => format!("{bytes} bytes a second at most"),
        };
        Some(format!(
            "policy {policy}, contents {contents}, pages leave from {} % down to {} % of the slots; {} towards the files, {} towards flash",
            self.high?,
            self.low?,
            limit(self.home_bytes_per_second),
            limit(self.flash_bytes_per_second),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watermark_that_is_given_alone_takes_the_other_with_it() {
        let marks = |low, high| {
            let settings = Settings {
                low,
                high,
                ..Settings::default()
            };
            let marks = settings.over(&CacheOptions::default()).watermarks;
            (settings.check().is_ok(), marks.low, marks.high)
        };
        assert_eq!(marks(None, None), (true, 90, 95));
        assert_eq!(marks(Some(97), None), (true, 97, 97));
        assert_eq!(marks(None, Some(50)), (true, 50, 50));
        assert!(!marks(Some(60), Some(50)).0 && !marks(None, Some(101)).0);
    }

    #[test]
    fn what_is_in_force_includes_what_was_set() {
        let set = Settings {
            contents: Some(AdmissionPolicy::All),
            home_bytes_per_second: Some(7),
            ..Settings::default()
        };
        let now = Settings::of(&set.over(&CacheOptions::default()));
        assert!(now.include(&set));
        assert!(!Settings::of(&CacheOptions::default()).include(&set));
    }
}
