//! A pool in other machines' memory: its gain, and the losses that it survives. Each leg that is
//! named is asked for a page, many times. Nothing is written to them.

use crate::size;
use forebay_pool::LegTrip;
use forebay_probe::figures::percentile;
use serde::Serialize;

/// A gain below this is within the noise of a network.
const PAYS: f64 = 1.5;

/// A pool on the named legs.
#[derive(Debug, Serialize)]
pub struct LegsFound {
    pub legs: Vec<LegFound>,
    /// A commit on all of them, µs: the slowest one's median. None if one cannot be a leg.
    pub commit_us: Option<f64>,
    /// Its speed, as a multiple of a sync in the directory.
    pub gain: Option<f64>,
    /// The losses that a pool on them survives.
    pub survives: String,
    /// Warnings against it.
    pub warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
pub struct LegFound {
    pub url: String,
    /// Asking it for a page: the median, µs.
    pub round_trip_us: Option<f64>,
    /// The 99th percentile of it, µs.
    pub round_trip_p99_us: Option<f64>,
    /// The largest pool that fits there.
    pub pool_bytes: Option<u64>,
    /// The reason that it can be no leg.
    pub trouble: Option<String>,
}

/// Asks the legs, one after the other; `sync_us` is the time of a sync in the data's directory.
pub fn find(urls: &[String], insecure: bool, sync_us: Option<f64>) -> Option<LegsFound> {
    let legs: Vec<LegFound> = urls.iter().map(|url| LegFound::of(url, insecure)).collect();
    (!legs.is_empty()).then(|| LegsFound::of(legs, sync_us))
}

impl LegFound {
    fn of(url: &str, insecure: bool) -> Self {
        let found = LegTrip::measure(url, insecure);
        let times = |trip: &LegTrip| -> Vec<f64> {
            (trip.times.iter())
                .map(|time| time.as_secs_f64() * 1e6)
                .collect()
        };
        let at = |share: f64| {
            let trip = found.as_ref().ok()?;
            Some(percentile(&mut times(trip), share))
        };
        Self {
            url: url.to_owned(),
            round_trip_us: at(0.5),
            round_trip_p99_us: at(0.99),
            pool_bytes: found.as_ref().ok().map(|trip| trip.pool_bytes),
            trouble: found.as_ref().err().map(ToString::to_string),
        }
    }

    fn sentence(&self) -> String {
        let Self { url, trouble, .. } = self;
        match (self.round_trip_us, self.round_trip_p99_us, self.pool_bytes) {
            (Some(half), Some(most), Some(bytes)) => format!(
                "{url}: a page and back in {half:.0} µs (99 of 100: {most:.0} µs), room for a pool of {}",
                size::show(bytes)
            ),
            _ => format!(
                "{url}: can be no leg: {}",
                trouble.as_deref().unwrap_or("unknown reason")
            ),
        }
    }
}

impl LegsFound {
    fn of(legs: Vec<LegFound>, sync_us: Option<f64>) -> Self {
        let times: Option<Vec<f64>> = legs.iter().map(|leg| leg.round_trip_us).collect();
        let commit_us = times.and_then(|times| times.into_iter().reduce(f64::max));
        let gain = commit_us.zip(sync_us).map(|(commit, sync)| sync / commit);
        let mut warnings = Vec::new();
        let own = ["127.", "localhost", "[::1]"];
        let is_own = |leg: &LegFound| {
            let place = leg.url.split_once("://").map(|(_, place)| place);
            place.is_some_and(|place| own.iter().any(|own| place.starts_with(own)))
        };
        if legs.iter().any(is_own) {
            warnings.push(
                "an address of this machine: a tunnel has to end there, or it is lost with this machine"
                    .to_owned(),
            );
        }
        Self {
            survives: survives(legs.len()),
            commit_us,
            gain,
            legs,
            warnings,
        }
    }

    /// In words, a line each.
    pub fn human(&self, sync_us: Option<f64>) -> String {
        let mut text = "\nA pool in other machines' memory\n".to_owned();
        for leg in &self.legs {
            text.push_str(&format!("- {}\n", leg.sentence()));
        }
        if let Some((commit, sync)) = self.commit_us.zip(sync_us) {
            let worth = match sync / commit {
                gain if gain >= PAYS => format!("{gain:.1} times faster"),
                _ => "which pays nothing: its disk syncs as fast".to_owned(),
            };
            text.push_str(&format!(
                "- a commit on them takes at least {commit:.0} µs, and a sync in the directory {sync:.0} µs: {worth}\n"
            ));
            text.push_str(&format!("- {}\n", self.survives));
        }
        for warning in &self.warnings {
            text.push_str(&format!("- {warning}\n"));
        }
        text
    }

    /// The next step, if it pays.
    pub fn advice(&self) -> Option<String> {
        self.gain.filter(|gain| *gain >= PAYS)?;
        let least = self.legs.iter().filter_map(|leg| leg.pool_bytes).min()?;
        // The drain empties it within seconds.
        let bytes = least.min(256 << 20) >> 20;
        // What stands behind ? is the shell's otherwise.
        let named: Vec<String> = (self.legs.iter())
            .map(|leg| match leg.url.contains('?') {
                true => format!("--leg '{}'", leg.url),
                false => format!("--leg {}", leg.url),
            })
            .collect();
        Some(format!(
            "Make a pool in these machines' memory, on the volume with the data: forebay pool create FILE --size {bytes}MiB {}",
            named.join(" ")
        ))
    }
}

/// With as many copies as there are legs.
fn survives(legs: usize) -> String {
    match legs {
        1 => "acknowledged writes survive the loss of this machine, or of that leg, and not of both at once: name two legs for that".to_owned(),
        legs => format!(
            "acknowledged writes survive the loss of this machine and of {} of these {legs} legs at once; of all of them while this machine lives",
            match legs - 1 {
                1 => "one".to_owned(),
                others => others.to_string(),
            }
        ),
    }
}
