//! A model of what a pool must have kept, and sessions on lanes that keep it.
//!
//! A record's payload tells who appended it and is filled from that, so that every byte of a
//! recovered record can be judged. What happened is noted in the medium's own order of events: the
//! notes before a crash point say what had been promised by then.

pub use forebay_random::Rng;

use forebay_pool::{
    AppendError, ClaimOptions, Lane, Pool, PoolOptions, Recovered,
    format::{
        layout::PAGE,
        segment::{RecordWalk, SegmentHeader},
    },
    media::SimMedia,
};
use std::{
    collections::{BTreeMap, HashSet},
    io::IoSlice,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};
use uuid::Uuid;

/// The owners that share the pool.
pub const OWNERS: [u8; 2] = [0, 1];
const KIND: u16 = 7;

/// Who appended a record, and how long it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id {
    pub owner: u8,
    pub writer: u8,
    pub session: u16,
    pub index: u32,
    pub length: u32,
}

impl Id {
    const BYTES: usize = 12;

    fn payload(self) -> Vec<u8> {
        let mut bytes = vec![self.owner, self.writer];
        bytes.extend(self.session.to_le_bytes());
        bytes.extend(self.index.to_le_bytes());
        bytes.extend(self.length.to_le_bytes());
        let mut filler = Rng(u64::from(self.session) << 32 | u64::from(self.index));
        while bytes.len() < self.length as usize {
            bytes.extend(filler.next().to_le_bytes());
        }
        bytes.truncate(self.length as usize);
        bytes
    }

    /// The id of a payload, every byte of which is as it was appended.
    fn of(payload: &[u8]) -> Self {
        let word = |at: usize| u32::from_le_bytes(payload[at..at + 4].try_into().unwrap());
        let id = Self {
            owner: payload[0],
            writer: payload[1],
            session: u16::from_le_bytes([payload[2], payload[3]]),
            index: word(4),
            length: word(8),
        };
        assert!(
            id.payload() == payload,
            "{id:?} has bytes it was not appended with"
        );
        id
    }
}

/// Something that was promised at some moment.
#[derive(Clone, Debug)]
pub enum Promise {
    /// An append returned.
    Acked(u8, u64, Id),
    /// These records are durable on the model's disk (and are released next).
    Drained(u8, Vec<(u64, Id)>),
    /// A claim returned these records.
    Recovered(u8, Vec<(u64, Id)>),
}

/// Everything that was tried and promised; a note on the medium is the number of a promise.
#[derive(Default)]
pub struct Ledger {
    attempted: Mutex<HashSet<Id>>,
    promises: Mutex<Vec<Promise>>,
}

impl Ledger {
    fn promise(&self, sim: &SimMedia, promise: Promise) {
        let mut promises = self.promises.lock().unwrap();
        promises.push(promise);
        sim.note(promises.len() as u64 - 1);
    }
}

/// What had been promised by a moment.
#[derive(Clone, Default)]
pub struct Known {
    attempted: HashSet<Id>,
    acked: BTreeMap<(u8, u64), Id>,
    disk: BTreeMap<(u8, u64), Id>,
}

impl Known {
    /// Takes over the promises that are noted, and everything that was tried.
    pub fn learn(&mut self, ledger: &Ledger, notes: impl Iterator<Item = u64>) {
        self.attempted
            .extend(ledger.attempted.lock().unwrap().iter());
        let promises = ledger.promises.lock().unwrap();
        for note in notes {
            match &promises[note as usize] {
                Promise::Acked(owner, lsn, id) => {
                    self.acked.insert((*owner, *lsn), *id);
                }
                Promise::Drained(owner, records) => {
                    self.disk
                        .extend(records.iter().map(|(lsn, id)| ((*owner, *lsn), *id)));
                }
                Promise::Recovered(owner, records) => {
                    self.acked
                        .extend(records.iter().map(|(lsn, id)| ((*owner, *lsn), *id)));
                }
            }
        }
    }

    /// A page behind everything of `owner`, for a lane that has to be made anew.
    fn behind(&self, owner: u8) -> u64 {
        let last = (self.acked.keys().chain(self.disk.keys()))
            .filter(|(of, _)| *of == owner)
            .map(|(_, lsn)| lsn + 4 * PAGE)
            .max();
        last.map_or(0, |lsn| lsn.next_multiple_of(PAGE))
    }

    /// Fails unless `found` is what the log of `owner` may hold.
    fn judge(&self, owner: u8, found: &[(u64, Id)]) {
        assert!(found.is_sorted_by(|a, b| a.0 < b.0), "not in log order");
        let found: BTreeMap<u64, Id> = found.iter().copied().collect();
        for ((_, lsn), id) in self.acked.iter().filter(|((of, _), _)| *of == owner) {
            if !self.disk.contains_key(&(owner, *lsn)) {
                let there = found.get(lsn);
                assert_eq!(there, Some(id), "the acknowledged record at {lsn} is lost");
            }
        }
        let on_disk = (self.disk.iter())
            .filter(|((of, _), _)| *of == owner)
            .map(|((_, lsn), id)| (*lsn, *id));
        let mut everything: BTreeMap<Id, u64> = BTreeMap::new();
        for (lsn, id) in on_disk.chain(found) {
            assert_eq!(id.owner, owner, "a record of another owner");
            assert!(self.attempted.contains(&id), "{id:?} was never appended");
            let twice = everything.insert(id, lsn).filter(|other| *other != lsn);
            assert_eq!(twice, None, "{id:?} is there twice");
        }
        // A writer appends one record after the other: no record without the one before.
        let mut before: Option<Id> = None;
        for id in everything.into_keys() {
            let expected = before
                .filter(|b| (b.session, b.writer) == (id.session, id.writer))
                .map_or(0, |b| b.index + 1);
            assert_eq!(id.index, expected, "the record before {id:?} is missing");
            before = Some(id);
        }
    }
}

/// The owner's uuid.
fn uuid(owner: u8) -> Uuid {
    Uuid::from_u128(0xC0DE + u128::from(owner))
}

/// Opens the pool on `sim`.
pub fn open(sim: &Arc<SimMedia>) -> Pool {
    PoolOptions::new()
        .open_on("sim", sim.clone())
        .expect("the pool opens")
}

fn ids(recovered: &Recovered) -> Vec<(u64, Id)> {
    recovered
        .records()
        .map(|record| {
            assert_eq!(record.header.kind, KIND);
            (record.header.lsn, Id::of(record.payload))
        })
        .collect()
}

/// Claims the lane of `owner` and judges what it holds.
pub fn claim(pool: &Pool, owner: u8, known: &Known, buffers: u16) -> (Lane, Vec<(u64, Id)>) {
    let options = ClaimOptions::new()
        .segments(buffers)
        .start(known.behind(owner));
    let (lane, recovered) = pool.claim(uuid(owner), &options).expect("claiming");
    let found = ids(&recovered);
    known.judge(owner, &found);
    (lane, found)
}

/// What one session does.
#[derive(Clone, Copy)]
pub struct Plan {
    pub session: u16,
    pub writers: u64,
    pub records_each: u64,
}

/// Runs a session of every owner on `sim`: claims, judges, appends from several threads, drains,
/// and closes. Everything is noted; `known` is what was promised before.
pub fn session(sim: &Arc<SimMedia>, known: &Known, ledger: &Ledger, rng: &mut Rng, plan: Plan) {
    let pool = open(sim);
    thread::scope(|scope| {
        for owner in OWNERS {
            let mut rng = Rng(rng.next());
            let buffers = 1 + rng.below(3) as u16;
            let (lane, found) = claim(&pool, owner, known, buffers);
            ledger.promise(sim, Promise::Recovered(owner, found));
            scope.spawn(move || own_session(sim, lane, owner, ledger, &mut rng, plan));
        }
    });
}

fn own_session(sim: &SimMedia, lane: Lane, owner: u8, ledger: &Ledger, rng: &mut Rng, plan: Plan) {
    let has_drain = !rng.chance(4);
    if !has_drain {
        lane.set_stalled("there is no drain".into());
    }
    thread::scope(|scope| {
        for _ in 0..if has_drain { 1 + rng.below(2) } else { 0 } {
            let mut rng = Rng(rng.next());
            let lane = &lane;
            scope.spawn(move || drain(sim, lane, owner, ledger, &mut rng));
        }
        let writers: Vec<_> = (0..1 + rng.below(plan.writers) as u8)
            .map(|writer| {
                let mut rng = Rng(rng.next());
                let lane = &lane;
                scope.spawn(move || write(sim, lane, (owner, writer), ledger, &mut rng, plan))
            })
            .collect();
        for writer in writers {
            writer.join().unwrap();
        }
        if has_drain && rng.chance(2) {
            lane.wait_drained(lane.seal()).unwrap();
        }
        lane.close();
    });
    if rng.chance(2) {
        // Gives the lane back if everything is drained; keeps it otherwise.
        let _ = lane.remove();
    }
}

fn write(
    sim: &SimMedia,
    lane: &Lane,
    (owner, writer): (u8, u8),
    ledger: &Ledger,
    rng: &mut Rng,
    plan: Plan,
) {
    // On a disk, what was appended and is not committed yet.
    let mut appended = Vec::new();
    for index in 0..plan.records_each as u32 {
        let most = if rng.chance(3) {
            lane.payload_max()
        } else {
            150
        };
        let length = Id::BYTES as u64 + rng.below((most - Id::BYTES) as u64);
        let id = Id {
            owner,
            writer,
            session: plan.session,
            index,
            length: length as u32,
        };
        ledger.attempted.lock().unwrap().insert(id);
        let payload = id.payload();
        let cut = rng.below(length) as usize;
        let parts = [IoSlice::new(&payload[..cut]), IoSlice::new(&payload[cut..])];
        match lane.append(KIND, &parts) {
            Ok(lsn) => appended.push((lsn, id)),
            Err(AppendError::Stalled(_)) => return,
            Err(other) => panic!("{other}"),
        }
        if !lane.needs_commit() || rng.chance(2) {
            let (last, _) = appended[appended.len() - 1];
            lane.commit(last + 1).unwrap();
            for (lsn, id) in appended.drain(..) {
                ledger.promise(sim, Promise::Acked(owner, lsn, id));
            }
        }
        if rng.chance(6) {
            lane.seal();
        }
    }
}

fn drain(sim: &SimMedia, lane: &Lane, owner: u8, ledger: &Ledger, rng: &mut Rng) {
    while let Some(sealed) = lane.take_sealed(Duration::from_secs(60)) {
        if rng.chance(4) {
            continue; // the disk refused; the segment comes back
        }
        let header = SegmentHeader::decode(sealed.bytes()).expect("a segment's header");
        assert_eq!(header.start, sealed.start());
        let records = RecordWalk::new(sealed.bytes(), header, lane.epoch())
            .map(|record| (record.header.lsn, Id::of(record.payload)))
            .collect();
        ledger.promise(sim, Promise::Drained(owner, records));
        if !rng.chance(8) {
            sealed.release(); // otherwise it is drained once more
        }
    }
}
