//! The thread that looks whether a writer is the pool's writer still. docs/legs.md, "What is lost
//! when".
//!
//! It asks all live legs at once, every [`HEARTBEAT`], and does nothing else: an answer takes about
//! twice a link's limit at most, so who takes the pool over knows by when it was noticed.

use super::{
    group::LegGroup,
    superblock::{LEG_DATA, LegRecord},
};
use std::{
    io,
    sync::{Arc, mpsc},
    time::Duration,
};

/// How often it looks.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// Until the group is closed.
pub(super) fn beat(group: &Arc<LegGroup>) {
    loop {
        {
            let mut state = group.state.lock();
            if state.stopping || state.over.is_some() {
                return;
            }
            // Whatever wakes it: it may look more often.
            group.beaten.wait_for(&mut state, HEARTBEAT);
        }
        look(group);
    }
}

/// Looks whether the live legs say what this writer wrote to them.
fn look(group: &Arc<LegGroup>) {
    let (record, links) = {
        let state = group.state.lock();
        let Some(ledger) = &state.ledger else { return };
        (*ledger.record(), state.links(ledger.live()))
    };
    let (told, heard) = mpsc::channel();
    for (number, (_, link)) in links.iter().enumerate() {
        let told = told.clone();
        let then = move |answer: io::Result<Vec<u8>>| drop(told.send((number, answer)));
        link.read_then(0, LEG_DATA as usize, then);
    }
    drop(told);
    for (number, answer) in heard {
        let (leg, link) = &links[number];
        let found = match answer {
            Ok(start) => LegRecord::newest(&start, *leg),
            Err(e) => {
                group.leg_failed(*leg, link, &e.to_string());
                continue;
            }
        };
        match found {
            Some(found) if found.writer == record.writer => {}
            Some(found) if found.is_newer_than(&record) => return group.end_for(&found),
            _ => group.leg_failed(*leg, link, "it has not what was written to it"),
        }
    }
}
