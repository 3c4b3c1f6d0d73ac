//! The thread that looks whether a writer is the pool's writer still. docs/legs.md, "What is lost
//! when".
//!
//! It asks all live legs at once, every [`HEARTBEAT`], and does nothing else. What it finds renews
//! the writer's lease (`lease`): who takes the pool over knows by when the last one has ended.

use super::{
    group::LegGroup,
    lease::LeaseMoment,
    superblock::{LEG_DATA, LegRecord},
};
use std::{
    io,
    sync::{Arc, mpsc},
    time::Duration,
};

/// Interval of its looks.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// Interval until it looks again if a leg did not give the answer that it has to.
const AGAIN: Duration = Duration::from_millis(10);

/// Until the group is closed.
pub(super) fn beat(group: &Arc<LegGroup>) {
    let mut pause = HEARTBEAT;
    loop {
        {
            let mut state = group.state.lock();
            if state.stopping || state.over.is_some() {
                return;
            }
            // Whatever wakes it: it may look more often.
            group.beaten.wait_for(&mut state, pause);
        }
        let begun = LeaseMoment::now();
        let is_confirmed = look(group);
        pause = if is_confirmed { HEARTBEAT } else { AGAIN };
        if let Some(lease) = group.lease.get().filter(|_| is_confirmed) {
            lease.renew(begun);
            // Who waited for that.
            group.tell(group.state.lock(), Vec::new());
        }
    }
}

/// Looks whether the live legs say what this writer wrote to them, and whether those that join say
/// nothing else: true if all do.
fn look(group: &Arc<LegGroup>) -> bool {
    let (record, live, legs, links) = {
        let state = group.state.lock();
        let Some(ledger) = &state.ledger else {
            return false;
        };
        let (live, legs) = (ledger.live(), ledger.looked_at());
        (*ledger.record(), live, legs, state.links(legs))
    };
    let (told, heard) = mpsc::channel();
    for (number, (_, link)) in links.iter().enumerate() {
        let told = told.clone();
        let then = move |answer: io::Result<Vec<u8>>| drop(told.send((number, answer)));
        link.read_then(0, LEG_DATA as usize, then);
    }
    drop(told);
    let mut confirmed = 0;
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
            Some(found) if found.writer == record.writer => confirmed += 1,
            Some(found) if found.is_newer_than(&record) => {
                group.end_for(&found);
                return false;
            }
            // Its superblocks were erased, and the first record is on its way.
            None if !live.has(*leg) => confirmed += 1,
            _ => group.leg_failed(*leg, link, "it has not what was written to it"),
        }
    }
    !legs.is_empty() && confirmed == legs.count()
}
