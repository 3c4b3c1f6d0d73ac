//! Contents of devices after a power cut.

use super::{
    Rng,
    devices::{Contents, Event, HomeKey, SECTOR, put, set_flash_length},
};

/// A write that was not synced.
#[derive(Clone)]
struct InFlight {
    home: Option<HomeKey>,
    offset: usize,
    bytes: Vec<u8>,
    whole: bool,
    /// It has returned.
    done: bool,
}

/// The devices at one moment: what is durable, and what is in flight.
#[derive(Clone)]
pub struct Devices {
    durable: Contents,
    in_flight: Vec<InFlight>,
}

impl Devices {
    pub fn new(durable: Contents) -> Self {
        Self {
            durable,
            in_flight: Vec::new(),
        }
    }

    pub fn apply(&mut self, event: &Event, rng: &mut Rng) {
        match event {
            Event::FlashWrite(offset, bytes) => self.in_flight.push(InFlight {
                home: None,
                offset: *offset,
                bytes: bytes.clone(),
                whole: false,
                done: false,
            }),
            Event::HomeWrite(key, offset, bytes, whole) => self.in_flight.push(InFlight {
                home: Some(*key),
                offset: *offset,
                bytes: bytes.clone(),
                whole: *whole,
                done: true,
            }),
            Event::FlashWritten(offset) => {
                let writes = self.in_flight.iter_mut();
                let there = |w: &&mut InFlight| w.home.is_none() && w.offset == *offset;
                writes.filter(there).for_each(|write| write.done = true);
            }
            Event::FlashSync => self.arrive(None, 16, rng),
            Event::FlashSyncFailed => self.arrive(None, 8, rng),
            Event::FlashLength(bytes) => {
                let behind = |w: &InFlight| w.home.is_none() && w.offset >= *bytes;
                self.in_flight.retain(|write| !behind(write));
                set_flash_length(&mut self.durable.flash, *bytes);
            }
            Event::HomeSync(key) => self.arrive(Some(*key), 16, rng),
            Event::HomeSyncFailed(key) => {
                // What is lost is bytes: the file keeps the length that its owner sees.
                let of_it = self.in_flight.iter().filter(|w| w.home == Some(*key));
                let end = of_it.map(|write| write.offset + write.bytes.len()).max();
                let home = self.durable.homes.entry(*key).or_default();
                home.resize(home.len().max(end.unwrap_or(0)), 0);
                self.arrive(Some(*key), 8, rng);
            }
            Event::HomeLength(key, bytes) => {
                // What was in flight behind the new end is gone.
                self.arrive(Some(*key), 16, rng);
                self.durable
                    .homes
                    .entry(*key)
                    .or_default()
                    .resize(*bytes, 0);
            }
            Event::Copies(_, true) if rng.chance(2) => {}
            Event::Copies(copies, _) => self.durable.copies = copies.clone(),
            Event::Model(_) => {}
        }
    }

    /// What was written to a device and not synced: of its sectors so many in 16 arrive, the others
    /// never.
    fn arrive(&mut self, home: Option<HomeKey>, of_16: u64, rng: &mut Rng) {
        let (now, later) = std::mem::take(&mut self.in_flight)
            .into_iter()
            .partition(|write: &InFlight| write.home == home && write.done);
        self.in_flight = later;
        for write in now {
            let to = match home {
                None => &mut self.durable.flash,
                Some(key) => self.durable.homes.entry(key).or_default(),
            };
            let unit = if write.whole {
                write.bytes.len()
            } else {
                SECTOR
            };
            for (n, sector) in write.bytes.chunks(unit).enumerate() {
                if rng.below(16) < of_16 {
                    put(to, write.offset + n * unit, sector);
                }
            }
        }
    }

    /// The power fails: of what is in flight, so many sectors in 16 have arrived.
    pub fn settle(mut self, rng: &mut Rng, of_16: u64) -> Contents {
        self.in_flight
            .iter_mut()
            .for_each(|write| write.done = true);
        while let Some(write) = self.in_flight.first() {
            let home = write.home;
            self.arrive(home, of_16, rng);
        }
        self.durable
    }
}
