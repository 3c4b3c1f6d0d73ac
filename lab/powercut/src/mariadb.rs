//! The guest's parts for MariaDB: the server's program, and a data directory that is made here,
//! once.

use crate::{Failure, boots::archive};
use forebay_bench::mariadb::server::{self, Launch, Server};
use forebay_guest::{initramfs::Initramfs, mariadb::add_server};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// What is written to, how many transactions there were, and what is larger than a buffer pool.
const TABLES: &str = "CREATE DATABASE lab; \
    CREATE TABLE lab.kv (k VARBINARY(100) PRIMARY KEY, v MEDIUMBLOB) ENGINE=InnoDB; \
    CREATE TABLE lab.transactions (n BIGINT) ENGINE=InnoDB; \
    INSERT INTO lab.transactions VALUES (0); \
    CREATE TABLE lab.wide (id INT PRIMARY KEY, n BIGINT NOT NULL, v VARBINARY(8000)) ENGINE=InnoDB; \
    INSERT INTO lab.wide SELECT seq, 0, REPEAT('x', 7000) FROM lab.seq_1_to_1200; \
    CREATE TABLE lab.fleeting (id INT, n BIGINT NOT NULL, v VARBINARY(8000)) ENGINE=InnoDB";

/// The undo tablespace that has it grows to 25 MiB.
const LARGE_TRANSACTION: &str = "START TRANSACTION; UPDATE lab.wide SET v = REPEAT('y', 7000); \
    UPDATE lab.wide SET v = REPEAT('x', 7000); COMMIT";

/// The files, to be unpacked behind those that every guest has.
pub fn guest(home: &Path) -> Result<Initramfs, Failure> {
    let mut guest = Initramfs::default();
    add_server(&mut guest, home)?;
    guest.add_program(&server::program("innochecksum")?, "/lab/innochecksum")?;
    guest.add("/lab/mariadb.tgz", fs::read(data_directory(home)?)?);
    Ok(guest)
}

/// An archive of a data directory with the tables, undo tablespaces that a server would truncate,
/// and a redo log that is small: it wraps round in seconds, and is unpacked at once.
fn data_directory(home: &Path) -> Result<PathBuf, Failure> {
    let dir = home.join("mariadb");
    fs::create_dir(&dir)?;
    let mut launch = Launch::new(&dir)?;
    server::create(&launch.data())?;
    // What lies in a doublewrite buffer, innochecksum takes for damaged pages.
    launch.options = ["--innodb-fast-shutdown=0", "--innodb-doublewrite=0"]
        .map(str::to_owned)
        .to_vec();
    // Undo tablespaces are made only after an end that has left nothing to purge.
    Server::start(&launch)?.stop()?;
    let more = ["--innodb-log-file-size=4M", "--innodb-undo-tablespaces=2"];
    launch.options.extend(more.map(str::to_owned));
    let running = Server::start(&launch)?;
    running.sql(TABLES, "")?;
    // One for each of the undo tablespaces, which take turns.
    for _ in 0..2 {
        running.sql(LARGE_TRANSACTION, "")?;
    }
    running.stop()?;
    archive(&dir, home.join("mariadb.tgz"))
}
