//! [`LegTrip`]: the distance of an export that could be a leg. Nothing is written to it.

use super::{address::LegAddress, link::LegLink, superblock::LEG_DATA};
use crate::format::layout::PAGE;
use std::{
    io,
    time::{Duration, Instant},
};

/// It is asked so often, and for so long, at most.
const TIMES: usize = 200;
const LIMIT: Duration = Duration::from_secs(1);
/// Trips that are not counted: the first ones find nothing warm.
const FIRST: usize = 5;

/// The time of asking an export for a page. A commit to a leg takes as long: it sends what this
/// fetches.
#[derive(Clone, Debug)]
pub struct LegTrip {
    /// Each time it was asked, the shortest first.
    pub times: Vec<Duration>,
    /// Bytes that a pool there may have.
    pub pool_bytes: u64,
}

impl LegTrip {
    /// Asks the export at `url`; in another machine only if `insecure` allows that without
    /// encryption.
    ///
    /// # Errors
    /// It is no address of an export, cannot be reached, or can be no leg.
    pub fn measure(url: &str, insecure: bool) -> io::Result<Self> {
        let address = LegAddress::parse(url).map_err(io::Error::other)?;
        if address.is_disk() {
            return Err(io::Error::other(
                "it is a disk of this machine, where a commit is a sync: forebay doctor --dir, with its directory, measures that",
            ));
        }
        let link = LegLink::connect(&address, insecure)?;
        let pool_bytes = link.export().bytes.saturating_sub(LEG_DATA);
        if pool_bytes < PAGE {
            return Err(io::Error::other("it is too small for any pool"));
        }
        link.pipeline()?;
        let mut page = vec![0; PAGE as usize];
        let begun = Instant::now();
        let mut times = Vec::with_capacity(TIMES);
        while times.len() < TIMES && (times.len() <= FIRST || begun.elapsed() < LIMIT) {
            let asked = Instant::now();
            link.read(LEG_DATA, &mut page)?;
            times.push(asked.elapsed());
        }
        link.close();
        times.drain(..FIRST);
        times.sort_unstable();
        Ok(Self { times, pool_bytes })
    }
}
