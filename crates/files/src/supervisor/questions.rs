//! Answers requests by the table, from processes that cannot connect or need not: they ask that a
//! file be made plain. docs/files-membership.md, "Other writers".

use super::SupervisorState;
use crate::absorbed::{FileKey, FileQuestion};
use parking_lot::Mutex;
use std::{
    sync::{Arc, atomic::Ordering::Acquire},
    thread,
    time::Duration,
};

/// How often to look, also if no process rings.
const LOOK: Duration = Duration::from_millis(100);

/// Answers until the supervisor stops. Each file is let go of in a thread of its own: that may wait
/// for a member, or a disk.
pub(super) fn run(shared: &Arc<SupervisorState>) {
    let begun: Arc<Mutex<Vec<FileKey>>> = Arc::default();
    while !shared.stopping.load(Acquire) {
        let seen = shared.table.bell();
        for (file, question) in shared.table.questions() {
            let mut busy = begun.lock();
            if busy.contains(&file) {
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
