//! The guest's parts for PostgreSQL: the server's program, and a data directory that is made here,
//! once.

use crate::{Failure, boots::archive};
use forebay_bench::{
    postgres::server::{self, Launch, Server},
    sql::User,
};
use forebay_guest::initramfs::Initramfs;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// What is written to, and how many transactions there were; and what makes the data directory
/// small.
const STATEMENTS: [&str; 8] = [
    "CREATE EXTENSION amcheck",
    "CREATE SCHEMA lab",
    "CREATE TABLE lab.kv (k BYTEA PRIMARY KEY, v BYTEA)",
    "CREATE TABLE lab.transactions (n BIGINT)",
    "INSERT INTO lab.transactions VALUES (0)",
    "UPDATE pg_database SET datistemplate = false",
    "DROP DATABASE template0",
    "DROP DATABASE template1",
];

/// The files, to be unpacked behind those that every guest has. The server looks for its own by its
/// place, so they are where Debian has them.
pub fn guest(home: &Path) -> Result<Initramfs, Failure> {
    let mut guest = Initramfs::default();
    let program = server::program("postgres")?.canonicalize()?;
    let of = |level| program.ancestors().nth(level);
    let (Some(version), Some(usr)) = (of(2), of(5)) else {
        return Err(format!("{} is not where Debian has it", program.display()).into());
    };
    let number = version.file_name().unwrap_or_default().to_string_lossy();
    let own = format!("lib/postgresql/{number}");
    guest.add_stripped(&program, home, &format!("/usr/{own}/bin/postgres"))?;
    for name in [
        format!("share/postgresql/{number}/timezonesets/Default"),
        format!("{own}/lib/amcheck.so"),
    ] {
        let path = usr.join(&name);
        let read = fs::read(&path).map_err(|e| format!("reading {}: {e}", path.display()))?;
        guest.add(Path::new("/usr").join(name), read);
    }
    guest.add_program(Path::new("/usr/bin/setpriv"), "/lab/setpriv")?;
    guest.add("/lab/postgres.tgz", fs::read(data_directory(home)?)?);
    Ok(guest)
}

/// An archive of a data directory with the tables, checksums, and segments of the log that are
/// small: one is begun every second.
fn data_directory(home: &Path) -> Result<PathBuf, Failure> {
    let dir = home.join("postgres");
    if let Some(user) = User::unprivileged()? {
        user.let_in(home)?;
    }
    let launch = Launch::new(&dir)?;
    server::create(&launch, &["--data-checksums", "--wal-segsize=1"])?;
    let running = Server::start(&launch)?;
    for statement in STATEMENTS {
        running.sql(statement)?;
    }
    running.stop()?;
    // initdb wrote this machine's time zone there, of which the guest has no files.
    fs::write(launch.data().join("postgresql.conf"), "")?;
    archive(&dir, home.join("postgres.tgz"))
}
