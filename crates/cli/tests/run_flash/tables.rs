//! Tables that are truncated, dropped, altered, renamed or imported stay so after a kill, and in
//! the files after a flush.

use crate::{
    common::databases::Strike,
    world::{World, fill, sound, sum},
};
use forebay_bench::{
    mariadb::{client::Connection, server::Server},
    sql::Client,
};
use std::{fs, path::Path, thread, time::Duration};

/// What an undo tablespace is made with, and truncated to.
const UNDO_BYTES: u64 = 10 << 20;
/// Three of them, which are truncated when they have grown.
const UNDO: [&str; 3] = [
    "--innodb-undo-tablespaces=3",
    "--innodb-max-undo-log-size=10M",
    "--innodb-undo-log-truncate=1",
];

/// The longest undo tablespace in a data directory.
fn undo_bytes(data: &Path) -> u64 {
    let each = (1..=3).map(|number| data.join(format!("undo00{number}")));
    each.map(|path| fs::metadata(path).unwrap().len())
        .max()
        .unwrap()
}

/// Has an undo tablespace grow, and waits until the server has truncated it.
fn truncate_undo(server: &Server, data: &Path) {
    // Three versions of 20,000 rows in one transaction's undo log: some 20 MB.
    server
        .sql(
            "CREATE TABLE w (n INT); INSERT INTO w VALUES (0); SET GLOBAL innodb_purge_rseg_truncate_frequency = 1; START TRANSACTION; \
             UPDATE s SET v = REPEAT('x', 300); UPDATE s SET v = REPEAT('y', 300); UPDATE s SET v = REPEAT('u', 300); COMMIT",
            "stock",
        )
        .unwrap();
    for _ in 0..1200 {
        let truncations = "SHOW GLOBAL STATUS LIKE 'Innodb_undo_truncations'";
        let said = server.sql(truncations, "").unwrap();
        if !said.trim().ends_with("\t0") && undo_bytes(data) == UNDO_BYTES {
            return;
        }
        // Has the server look whether there is something to purge.
        server.sql("UPDATE w SET n = n + 1", "stock").unwrap();
        thread::sleep(Duration::from_millis(100));
    }
    panic!("an undo tablespace stays long: {}", server.output());
}

/// Transactions that change what `sum` sees, and are not committed as long as these connections
/// are: of each undo tablespace some pages.
fn uncommitted(server: &Server) -> Vec<Connection> {
    let begun = (0..6).map(|number| {
        let mut connection = Connection::connect(server.socket()).unwrap();
        connection.query("START TRANSACTION").unwrap();
        // Apart from each other, so that none waits for a row of another one.
        let [first, last] = [1, 2000].map(|row| number * 3000 + row);
        let update = "UPDATE stock.s SET k = k + 1 WHERE id BETWEEN";
        connection
            .query(&format!("{update} {first} AND {last}"))
            .unwrap();
        connection
    });
    begun.collect()
}

/// Promise (flash-run): Truncated, dropped, altered and renamed tables stay so after a kill, and so
/// do the rollbacks of an undo tablespace that the server truncated.
/// Promise: as `a_run_says_that_doublewrite_may_be_off_unless_it_is`.
#[test]
fn truncated_dropped_and_altered_tables_stay_so_after_a_kill() {
    let Some(mut world) = World::new() else {
        return;
    };
    // Undo tablespaces are made only after a shutdown that has left nothing to purge.
    (world.launch.options).push("--innodb-fast-shutdown=0".to_owned());
    world.plain().unwrap().stop().unwrap();
    world.launch.options.pop();
    world.launch.options.extend(UNDO.map(str::to_owned));
    let mut server = world.start();
    fill(&server);
    server
        .sql(
            "CREATE TABLE t LIKE s; INSERT INTO t SELECT * FROM s; CREATE TABLE d LIKE s; INSERT INTO d SELECT * FROM s LIMIT 9000; \
             CREATE TABLE a LIKE s; INSERT INTO a SELECT * FROM s LIMIT 9000; CREATE TABLE r LIKE s; INSERT INTO r SELECT * FROM s LIMIT 500; \
             CREATE TABLE z (id INT PRIMARY KEY, v VARCHAR(300)) ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=8; INSERT INTO z SELECT id, v FROM s LIMIT 5000; \
             CREATE TABLE p (id INT PRIMARY KEY, v VARCHAR(300)) PAGE_COMPRESSED=1; INSERT INTO p SELECT id, v FROM s LIMIT 5000; \
             TRUNCATE TABLE t; INSERT INTO t SELECT * FROM s LIMIT 100; DROP TABLE d; CREATE TABLE d LIKE s; INSERT INTO d SELECT * FROM s LIMIT 50; \
             ALTER TABLE a ADD COLUMN n INT DEFAULT 7, ALGORITHM=COPY; RENAME TABLE r TO q; ALTER TABLE q ADD INDEX (v), ALGORITHM=INPLACE",
            "stock",
        )
        .unwrap();
    truncate_undo(&server, &world.launch.data());
    server
        .sql("DELETE FROM s WHERE id % 2 = 0", "stock")
        .unwrap();
    let before = sum(&server);
    let uncommitted = uncommitted(&server);
    let said = server.output();
    for table in ["/z.ibd stays plain", "/p.ibd stays plain"] {
        assert!(said.contains(table), "{table}: {said}");
    }
    let of_undo = |line: &str| line.starts_with("forebay:") && line.contains("/undo00");
    assert!(!said.lines().any(of_undo), "one is plain: {said}");
    Strike::Database.strike(server.server(), server.outer(), || {});
    server.wait().unwrap();
    drop(uncommitted);
    let checked = |server: &Server| {
        assert_eq!(sum(server), before);
        for table in ["t", "d", "a", "q", "z", "p", "s"] {
            sound(server, &format!("stock.{table}"));
        }
        let counts = server.sql(
            "SELECT COUNT(*) FROM t; SELECT COUNT(*) FROM d; SELECT COUNT(*), SUM(n) FROM a; SELECT COUNT(*) FROM q; SELECT COUNT(*) FROM s WHERE v LIKE 'uu%'",
            "stock",
        );
        assert_eq!(counts.unwrap(), "100\n50\n9000\t63000\n500\n10000\n");
    };
    let server = world.start();
    checked(&server);
    server.stop().unwrap();
    world.flush().ok();
    let server = world.plain().unwrap();
    checked(&server);
    server.stop().unwrap();
}

#[test]
fn an_imported_table_is_read_as_copied_in_also_after_a_kill() {
    let Some(world) = World::new() else { return };
    let server = world.plain().unwrap();
    fill(&server);
    let before = sum(&server);
    let data = world.launch.data();
    // The lock that is left by the connection's end is not needed: nothing writes.
    server
        .sql("FLUSH TABLES stock.s FOR EXPORT; SYSTEM cp DATA/stock/s.ibd DATA/stock/s.cfg DATA/..; UNLOCK TABLES".replace("DATA", data.to_str().unwrap()).as_str(), "")
        .unwrap();
    server.stop().unwrap();
    let mut server = world.start();
    assert!(
        server
            .output()
            .contains("on the same file system as the data"),
        "{}",
        server.output()
    );
    server
        .sql(
            "UPDATE s SET k = 0; CREATE TABLE i LIKE s; ALTER TABLE i DISCARD TABLESPACE",
            "stock",
        )
        .unwrap();
    for kind in ["ibd", "cfg"] {
        let to = data.join("stock").join(format!("i.{kind}"));
        fs::copy(data.join("..").join(format!("s.{kind}")), to).unwrap();
    }
    server
        .sql("ALTER TABLE i IMPORT TABLESPACE", "stock")
        .unwrap();
    let imported = |server: &Server| {
        let rows = server
            .sql("SELECT COUNT(*), SUM(k) FROM stock.i", "")
            .unwrap();
        assert_eq!(rows.trim(), before);
        sound(server, "stock.i");
        sound(server, "stock.s");
    };
    imported(&server);
    Strike::Database.strike(server.server(), server.outer(), || {});
    server.wait().unwrap();
    let server = world.start();
    imported(&server);
    server.stop().unwrap();
    world.flush().ok();
    let server = world.plain().unwrap();
    imported(&server);
    server.stop().unwrap();
}

/// Promise (flash-run): A table that is exported is copied from its file as the server has it.
#[test]
fn an_exported_tables_file_is_copied_as_the_server_has_it() {
    let Some((world, server)) = World::filled() else {
        return;
    };
    server.sql("UPDATE stock.s SET k = k + 1", "").unwrap();
    let before = sum(&server);
    server
        .sql("SET GLOBAL innodb_max_dirty_pages_pct = 0", "")
        .unwrap();
    world.until("flash has newer pages", |status| status["dirty_pages"] != 0);
    let mut holder = Connection::connect(server.socket()).unwrap();
    holder.query("FLUSH TABLES stock.s FOR EXPORT").unwrap();
    // By a process that knows nothing of the cache.
    let data = world.launch.data().join("stock");
    for kind in ["ibd", "cfg"] {
        let name = format!("s.{kind}");
        fs::copy(data.join(&name), world.launch.dir.join(&name)).unwrap();
    }
    drop(holder);
    server.sql("UPDATE stock.s SET k = 0", "").unwrap();
    server.stop().unwrap();
    world.flush().ok();
    let server = world.plain().unwrap();
    server
        .sql(
            "CREATE TABLE i LIKE s; ALTER TABLE i DISCARD TABLESPACE",
            "stock",
        )
        .unwrap();
    for kind in ["ibd", "cfg"] {
        let from = world.launch.dir.join(format!("s.{kind}"));
        fs::copy(from, data.join(format!("i.{kind}"))).unwrap();
    }
    let rows = "ALTER TABLE stock.i IMPORT TABLESPACE; SELECT COUNT(*), SUM(k) FROM stock.i";
    assert_eq!(server.sql(rows, "").unwrap().trim(), before);
    sound(&server, "stock.i");
    server.stop().unwrap();
}

/// The cache has 256 places, and no other table is closed that could make way.
///
/// Promise (flash-run): A table that finds no place in the cache is refused, and not left
/// unprotected.
#[test]
fn a_table_that_finds_no_place_in_the_cache_is_refused() {
    let Some(mut world) = World::new() else {
        return;
    };
    let options = [
        "--innodb-open-files=600",
        "--table-open-cache=600",
        "--open-files-limit=4096",
    ];
    (world.launch.options).extend(options.map(str::to_owned));
    let server = world.start();
    server.sql("CREATE DATABASE many", "").unwrap();
    let mut made = 0;
    let refused = loop {
        let create = format!("CREATE TABLE many.t{made} (id INT PRIMARY KEY) SELECT 1 AS id");
        match server.sql(&create, "") {
            Ok(_) => made += 1,
            Err(why) => break why.to_string(),
        }
        assert!(made < 300, "all tables are made: {}", server.output());
    };
    assert!(made > 200, "{made} tables, then {refused}");
    let said = server.output();
    assert!(
        said.contains("The server is told that too many files are open"),
        "{refused}: {said}"
    );
    assert!(!said.contains("stays plain"), "{said}");
    // The others are there, and one that is dropped makes way.
    server.sql("DROP TABLE many.t0, many.t1", "").unwrap();
    server
        .sql("CREATE TABLE many.more (id INT PRIMARY KEY)", "")
        .unwrap();
    server.stop().unwrap();
    let server = world.start();
    let last = format!("many.t{}", made - 1);
    sound(&server, &last);
    server.stop().unwrap();
}
