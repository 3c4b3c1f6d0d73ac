//! Answers requests by the table, from processes that cannot connect or need not: they ask that a
//! file be made plain. docs/files-membership.md, "Other writers".

use super::SupervisorState;
use crate::absorbed::{FileKey, FileQuestion};
use forebay_pool::MonotonicTime;
use parking_lot::Mutex;
use std::{
    sync::{Arc, atomic::Ordering::Acquire},
    thread,
    time::Duration,
};

/// Interval of looks if a process has rung, or the supervisor stops.
const LOOK: Duration = Duration::from_millis(100);
/// Interval of looks at the questions, also if none rings.
const LOOK_AT_ALL: Duration = Duration::from_secs(1);

/// Answers until the supervisor stops. Each file is let go of in a thread of its own: that may wait
/// for a member, or a disk.
pub(super) fn run(shared: &Arc<SupervisorState>) {
    let begun: Arc<Mutex<Vec<FileKey>>> = Arc::default();
    let (mut heard, mut looked) = (None, MonotonicTime::now());
    while !shared.stopping.load(Acquire) {
        let seen = shared.table.bell();
        // As many as there are files are looked at.
        let is_time = heard != Some(seen) || looked.elapsed() >= LOOK_AT_ALL;
        if is_time {
            (heard, looked) = (Some(seen), MonotonicTime::now());
        }
        let questions = if is_time {
            shared.table.questions()
        } else {
            Vec::new()
        };
        for (file, question) in questions {
            let mut busy = begun.lock();
            if busy.contains(&file) {
                // Once that is answered, this may be asked still.
                heard = None;
                continue;
            }
            busy.push(file);
            drop(busy);
            let (its, list) = (Arc::clone(shared), Arc::clone(&begun));
            let work = move || answer(&its, &list, file, question);
            let thread = thread::Builder::new().name("asked".into());
            if thread.spawn(work).is_err() {
                answer(shared, &begun, file, question);
            }
        }
        shared.table.wait_for_questions(seen, LOOK);
    }
}

fn answer(
    shared: &SupervisorState,
    begun: &Mutex<Vec<FileKey>>,
    file: FileKey,
    question: FileQuestion,
) {
    shared.let_go(file);
    shared.table.answer(&question);
    begun.lock().retain(|one| *one != file);
}
