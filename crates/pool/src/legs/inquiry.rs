//! Reads every leg's superblock before any is trusted; error texts if none is.

use super::{
    address::LegAddress,
    complete_legs::{ChosenLegs, LegAnswer, LegRefusal},
    group_state::LegSeat,
    ledger::next_term,
    link::{ANSWER_LIMIT, LegLink, is_blank},
    mask::LegMask,
    pool_file::LegsFile,
    superblock::{LEG_DATA, LegRecord},
};
use crate::{failpoint, stack::quiet_thread};
use std::{
    io,
    sync::{Arc, mpsc},
    thread,
};
use uuid::Uuid;

/// The first record of a writer that found `chosen`, newer than whatever the legs have.
pub(super) fn next_record(chosen: &ChosenLegs, seats: &[LegSeat]) -> LegRecord {
    let seen = seats.iter().filter_map(|seat| seat.newest);
    let newest = seen
        .map(|it| it.generation)
        .fold(chosen.record.generation, u64::max);
    LegRecord {
        writer: Uuid::new_v4(),
        boot: boot_id(),
        generation: next_term(newest),
        set: chosen.complete,
        closed: false,
        announced: false,
        ..chosen.record
    }
}

/// Asks every leg at once for its records.
pub(super) fn ask_all(file: &LegsFile) -> (Vec<LegAnswer>, Vec<LegSeat>) {
    let ask = |leg: usize| {
        let found = begin(&file.legs[leg], file.insecure).map(|(link, start)| {
            let [newest, counting] =
                [LegRecord::newest, LegRecord::counting].map(|of| of(&start, leg));
            (link, newest, counting)
        });
        let (link, why, answer, newest) = match found {
            Err(e) => (None, Some(e.to_string()), LegAnswer::Silent, None),
            Ok((link, newest, counting)) => match believed(file, &link, counting) {
                Ok(record) => (Some(link), None, LegAnswer::Record(record), newest),
                Err(why) => (Some(link), Some(why), LegAnswer::Empty, None),
            },
        };
        (
            answer,
            LegSeat {
                link,
                why,
                newest: newest.filter(|it| it.identity == file.identity),
                ..LegSeat::default()
            },
        )
    };
    thread::scope(|scope| {
        let asked: Vec<_> = (0..file.legs.len())
            .map(|leg| scope.spawn(move || ask(leg)))
            .collect();
        let nothing = || (LegAnswer::Silent, LegSeat::default());
        asked
            .into_iter()
            .map(|it| it.join().unwrap_or_else(|_| nothing()))
            .unzip()
    })
}

/// Connects to a leg, and reads its superblocks.
fn begin(address: &LegAddress, insecure: bool) -> io::Result<(Arc<LegLink>, Vec<u8>)> {
    let address = address.clone();
    let is_disk = address.is_disk();
    let read = move || {
        let link = LegLink::connect(&address, insecure)?;
        link.read_start().map(|start| (link, start))
    };
    if !is_disk {
        return read();
    }
    // A disk that hangs holds who asks it for as long as it does.
    let (told, heard) = mpsc::channel();
    let reading = quiet_thread("forebay-leg", move || drop(told.send(read())))?;
    let limit = failpoint::limit("leg-answer", ANSWER_LIMIT);
    let Ok(answer) = heard.recv_timeout(limit) else {
        let seconds = limit.as_secs_f32();
        return Err(io::Error::other(format!(
            "the disk does not answer in {seconds} seconds"
        )));
    };
    // Who only looks at a pool has a single thread again.
    let _ = reading.join();
    answer
}

/// A leg's answer, if it is this pool's.
fn believed(
    file: &LegsFile,
    link: &LegLink,
    found: Option<LegRecord>,
) -> Result<LegRecord, String> {
    let Some(record) = found else {
        return Err(
            "it is empty: its machine or its server was started anew, or it is another disk"
                .to_owned(),
        );
    };
    if record.identity != file.identity {
        return Err(format!("it has another pool ({})", record.identity));
    }
    if record.legs != file.legs.len() {
        return Err(format!(
            "it is of a pool with {} legs, and the file names {}",
            record.legs,
            file.legs.len()
        ));
    }
    if record.pool_bytes != file.bytes {
        return Err(format!(
            "it has a pool of {} bytes, and the file says {}",
            record.pool_bytes, file.bytes
        ));
    }
    let needed = record.pool_bytes.saturating_add(LEG_DATA);
    if link.export().bytes < needed {
        return Err(format!(
            "it has {} bytes, and {needed} are needed",
            link.export().bytes
        ));
    }
    Ok(record)
}

pub(super) fn check_empty(link: &LegLink, bytes: u64, force: bool) -> io::Result<()> {
    let needed = bytes + LEG_DATA;
    let found = link.export().bytes;
    if found < needed {
        return Err(io::Error::other(format!(
            "it has {found} bytes, and a pool of {bytes} takes {needed}: make the export larger, or the pool smaller (--size)"
        )));
    }
    if is_blank(&link.read_start()?) || force {
        return Ok(());
    }
    Err(io::Error::other(
        "it holds data, a pool's or other. If nothing of that is needed, give it up (--force); otherwise name another export",
    ))
}

pub(super) fn refusal(file: &LegsFile, seats: &[LegSeat], why: &LegRefusal) -> io::Error {
    let named = |legs: LegMask| {
        let word = |leg: usize| {
            let why = seats[leg].why.as_deref().unwrap_or("no answer");
            format!("{} ({why})", file.legs[leg])
        };
        legs.legs().map(word).collect::<Vec<_>>().join(", ")
    };
    let all = LegMask::all(file.legs.len());
    io::Error::other(match why {
        LegRefusal::NoPool { silent } if silent.is_empty() => format!(
            "no leg has the pool: {}. Its records are lost; the files keep their own bytes. Make a new pool",
            named(all)
        ),
        LegRefusal::NoPool { .. } => {
            format!(
                "no leg that answers has the pool: {}. Start the others, and try again",
                named(all)
            )
        }
        LegRefusal::Missing {
            missing,
            generation,
        } => format!(
            "{} has or had perhaps newer records than the legs that answer (generation {generation}). Make it answer. If it, or its memory, is lost for good, say so: \
             forebay recover --pool FILE --lost-leg URL; records that only that leg had are lost then",
            named(*missing)
        ),
        LegRefusal::TwoWriters { generation } => format!(
            "two machines took the pool over at once (generation {generation}). Stop the programs on both, make sure which legs one of them wrote, \
             and give the others up: forebay recover --pool FILE --lost-leg URL, with their servers stopped"
        ),
    })
}

/// The boot that this machine is in.
pub(super) fn boot_id() -> Uuid {
    let told = failpoint::boot_id().map(str::to_owned);
    let text = told.or_else(|| std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok());
    text.and_then(|text| Uuid::parse_str(text.trim()).ok())
        .unwrap_or_else(Uuid::new_v4)
}
