//! Asking that a file be made plain without a connection: by the table. docs/files-membership.md,
//! "Other writers".

use super::{config::ClientConfig, lookup::FileKey};
use crate::absorbed::QuestionOutcome;
use forebay_pool::MonotonicTime;
use rustix::{fs::Timespec, io::Errno};
use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

/// Interval of looks for the answer.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 500_000,
};

impl ClientConfig {
    /// Asks by the table, and waits for the answer. None if this process cannot ask so, or there is
    /// none for so long, or there is no supervisor. Neither allocates nor locks.
    pub(super) fn ask_by_table(&self, file: FileKey, limit: Duration) -> Option<QuestionOutcome> {
        let (table, asking) = (self.table.as_ref()?, self.asking.as_ref()?);
        let Some(question) = asking.ask(table, file) else {
            return Some(QuestionOutcome::Anew);
        };
        let begun = MonotonicTime::now();
        while begun.elapsed() < limit && table.is_alive() {
            match table.heard(file, &question) {
                QuestionOutcome::NotYet => drop(rustix::thread::nanosleep(&LOOK)),
                heard => return Some(heard),
            }
        }
        None
    }
}

/// Says once why the supervisor of a file that is to be made plain does not hear of it.
pub(super) fn complain_once(refused: Option<Errno>) {
    static COMPLAINED: AtomicBool = AtomicBool::new(false);
    if COMPLAINED.swap(true, Relaxed) {
        return;
    }
    let why = match refused {
        None | Some(Errno::AGAIN) => "forebay run does not answer. Is it stopped?".to_owned(),
        Some(errno) => format!(
            "this process cannot reach forebay run ({errno}): it has another network, or may make no connection (a filter, Landlock, its limit of descriptors), and may \
             not write to the run's table. Have it open its logs before, as the user of forebay run; or give it logs of its own"
        ),
    };
    crate::sys::complain(&format!(
        "a file that another process of this run absorbs cannot be written to: {why}"
    ));
}
