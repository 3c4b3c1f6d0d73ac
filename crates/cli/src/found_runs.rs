//! Sentences for `forebay status` and `forebay top` on runs that do not answer, and on the
//! directory in which runs were looked for.

use crate::users::SystemUser;
use forebay_files::supervisor::{OrphanedRun, RunScope, WaitingPool};
use std::path::Path;

/// The place in which runs were looked for, in words.
pub fn looked(dir: &Path, whose: RunScope) -> String {
    let user = SystemUser::numbered(rustix::process::geteuid().as_raw()).name;
    let (of, elsewhere) = match whose {
        RunScope::All => ("of all users".to_owned(), ""),
        RunScope::Directory => (
            format!("of {user}, begun with FOREBAY_RUN_DIR={}", dir.display()),
            ". Without FOREBAY_RUN_DIR all of this user's are listed",
        ),
        RunScope::User if user == "root" => (
            format!("of {user}"),
            ". A database's run is its own user's: forebay status --all lists those, too",
        ),
        RunScope::User => (
            format!("of {user}"),
            ". A database's run is its own user's: as root, forebay status --all lists those, too",
        ),
    };
    format!(
        "nothing runs under forebay: looked for runs {of}, by their notes in {}, their tables in /dev/shm and their sockets in this network namespace{elsewhere}\n",
        dir.display()
    )
}

/// Of a run that lost its supervisor.
pub fn orphaned(run: &OrphanedRun) -> String {
    let named = run.processes.iter();
    let named: Vec<String> = named
        .map(|(pid, program)| format!("{program} (process {pid})"))
        .collect();
    let pool = match &run.pool {
        Some(pool) => format!(", with the pool {}", pool.display()),
        None => String::new(),
    };
    format!(
        "WITHOUT FOREBAY: {}{pool}: its forebay was killed, so each sync is a real one. Restart it \
         under forebay run when convenient\n",
        named.join(", ")
    )
}

/// A sentence on the records that a run left in a pool.
pub fn waiting(pool: &WaitingPool) -> String {
    let holds = match pool.records {
        Some(records) => format!("holds {records} records"),
        None => "may hold records, and cannot be looked into,".to_owned(),
    };
    let path = pool.pool.display();
    format!(
        "WAITING: the pool {path} {holds} of a run that was cut off. Start its program under \
         forebay run with this pool, or: forebay recover --pool {path}\n"
    )
}

/// Of a supervisor that does not say how it is doing.
pub fn silent(pid: u32) -> String {
    format!(
        "forebay {pid} does not answer: it is stopped, in another network namespace, or of another version. If it is stopped, programs that open its logs may wait: kill -CONT {pid}"
    )
}
