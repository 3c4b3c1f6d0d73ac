//! Removes the tables of dead runs that left nothing in a pool. docs/files-membership.md, "The
//! table of absorbed files".
//!
//! A table whose supervisor is dead says which files its lane has records of. As long as they wait
//! in a pool, whichever that is, it has to stay: by it another run knows that it must not absorb
//! those files.

use super::{
    SHARED_DIR, TableView,
    tables::{FoundTable, of_users},
};
use crate::{boot, pending_records, processes::NotedProcess, run_files::order_path};
use std::path::Path;
use uuid::Uuid;

/// Removes this user's tables whose supervisor is dead, whose clients are dead, and whose lane has
/// no record that is needed. Those of another boot, too: their processes may live, and have been
/// given another boot's id than this one.
pub(crate) fn clean_up(directory: &Path, boot: Uuid) {
    let user = rustix::process::geteuid().as_raw();
    for FoundTable { path, table } in of_users(directory, |owner| owner == user) {
        let is_needed = match table.is_of(boot) {
            true => !is_over(&table) || waits(&table),
            false => any_lives(&table) || has_pool(&table) && waits(&table),
        };
        if !is_needed {
            remove(&path);
        }
    }
}

/// Removes this user's tables of dead runs whose lane was in the pool at `pool`, which is given up.
pub(crate) fn give_up(pool: &Path) {
    let Ok(boot) = boot::id() else { return };
    let user = rustix::process::geteuid().as_raw();
    for FoundTable { path, table } in of_users(Path::new(SHARED_DIR), |owner| owner == user) {
        let is_its = (table.lane.place()).is_some_and(|place| place.path == pool);
        if is_its && table.is_of(boot) && is_over(&table) {
            remove(&path);
        }
    }
}

/// The table of the run that has this lane, in a pool of this user's: none if it is not where all
/// can see it. Any other user's but root's may say what it likes. None either if that run is over:
/// what has the lane then recovers it, or looks into it, and it may hold records of files that are
/// gone.
pub(crate) fn of_lane(owner: Uuid, user: u32) -> Option<TableView> {
    const ROOT: u32 = 0;
    let boot = boot::id().ok()?;
    let wanted = |by| [user, ROOT].contains(&by);
    let mut tables = of_users(Path::new(SHARED_DIR), wanted).into_iter();
    tables.find_map(|FoundTable { table, .. }| {
        let is_its = (table.lane.place()).is_some_and(|place| place.owner == owner);
        (is_its && table.is_of(boot) && !is_over(&table)).then_some(table)
    })
}

/// Removes a table, and what lies beside it.
fn remove(table: &Path) {
    let _ = std::fs::remove_file(table);
    let _ = std::fs::remove_file(order_path(table));
}

/// True if no process of the run is left that is known.
pub(crate) fn is_over(table: &TableView) -> bool {
    !table.is_alive() && table.living().is_empty()
}

/// True if one of the table's processes lives. Of another boot's the kernel has not cleared the
/// supervisor's.
fn any_lives(table: &TableView) -> bool {
    let supervisor = table.noted_supervisor();
    supervisor.is_some_and(NotedProcess::lives) || !table.living().is_empty()
}

/// True if there is something where the run's pool was.
fn has_pool(table: &TableView) -> bool {
    table.lane.place().is_some_and(|place| place.path.exists())
}

/// True if a recovery may still write to files what the lane has.
fn waits(table: &TableView) -> bool {
    let place = table.lane.place();
    let is_needed = !table.lane.is_settled() && table.any();
    is_needed && place.is_some_and(|place| pending_records::may_wait(&place))
}
