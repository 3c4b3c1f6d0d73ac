//! A MariaDB server in the same guest, with a binary log. Every change is made by a transaction that also counts, so that InnoDB and the binary log can be
//! compared after a cut.

use crate::{Change, Engine, Failure};
use forebay_bench::{
    mariadb::client::{Connection, Row},
    sql::Client,
};
use std::{
    cell::RefCell,
    path::Path,
    thread,
    time::{Duration, Instant},
};

/// How long the server may take to begin, in an emulated machine and with a recovery.
const PATIENCE: Duration = Duration::from_secs(150);

/// A connection to the server.
pub struct MariaDb {
    connection: RefCell<Connection>,
    /// Transactions so far.
    count: u64,
}

impl MariaDb {
    /// Waits for the server with this socket, and finds out whether table, redo log and binary log agree, if `verify` says so.
    pub fn open(socket: &Path, verify: bool) -> Result<Self, Failure> {
        let begun = Instant::now();
        let mut connection = loop {
            match Connection::connect(socket) {
                Ok(connection) => break connection,
                Err(e) if begun.elapsed() > PATIENCE => return Err(e.into()),
                Err(_) => thread::sleep(Duration::from_millis(50)),
            }
        };
        let rows = connection.query("SELECT n FROM lab.transactions")?;
        let count = text(&rows, 0, 0).parse()?;
        if verify {
            check_table(&mut connection)?;
            check_binary_log(&mut connection, count)?;
        }
        Ok(Self {
            connection: RefCell::new(connection),
            count,
        })
    }
}

impl Engine for MariaDb {
    fn apply(&mut self, changes: Vec<Change>) -> Result<(), Failure> {
        let mut statements = "BEGIN".to_owned();
        for (key, value) in changes {
            let key = literal(&key);
            statements += &match value {
                Some(value) => format!("; REPLACE INTO lab.kv VALUES ({key}, {})", literal(&value)),
                None => format!("; DELETE FROM lab.kv WHERE k = {key}"),
            };
        }
        self.count += 1;
        let count = self.count;
        statements += &format!("; UPDATE lab.transactions SET n = {count}; COMMIT");
        self.connection.get_mut().query(&statements)?;
        Ok(())
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        let question = format!("SELECT v FROM lab.kv WHERE k = {}", literal(key));
        let mut rows = self.connection.borrow_mut().query(&question)?;
        Ok(rows.pop().and_then(|mut row| row.pop()).flatten())
    }

    fn count(&self) -> Result<u64, Failure> {
        let rows = self
            .connection
            .borrow_mut()
            .query("SELECT COUNT(*) FROM lab.kv")?;
        Ok(text(&rows, 0, 0).parse()?)
    }
}

/// Bytes as SQL has them, whatever they are.
fn literal(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold("x'".to_owned(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }) + "'"
}

fn text(rows: &[Row], row: usize, column: usize) -> String {
    let found = rows.get(row).and_then(|row| row.get(column)?.as_deref());
    String::from_utf8_lossy(found.unwrap_or_default()).into_owned()
}

fn check_table(connection: &mut Connection) -> Result<(), Failure> {
    for table in ["kv", "transactions"] {
        let rows = connection.query(&format!("CHECK TABLE lab.{table} EXTENDED"))?;
        let last = rows.len().saturating_sub(1);
        if text(&rows, last, 3) != "OK" {
            return Err(format!("CHECK TABLE lab.{table}: {}", text(&rows, last, 3)).into());
        }
    }
    Ok(())
}

/// The newest binary log that has transactions must have them without a gap, and end with the last one that InnoDB has: each is in both or in
/// neither.
fn check_binary_log(connection: &mut Connection, last: u64) -> Result<(), Failure> {
    let logs = connection.query("SHOW BINARY LOGS")?;
    for log in (0..logs.len()).rev() {
        let name = text(&logs, log, 0);
        let events = connection.binary_log(&name)?;
        let (mut open, mut committed) = (None, Vec::new());
        for event in 0..events.len() {
            match text(&events, event, 2).as_str() {
                "Gtid" => open = None,
                "Xid" => committed.extend(open.take()),
                _ => {
                    let info = text(&events, event, 5);
                    let counted = info.split_once("UPDATE lab.transactions SET n = ");
                    open = counted.and_then(|(_, n)| n.parse::<u64>().ok()).or(open);
                }
            }
        }
        let Some(&newest) = committed.last() else {
            continue;
        };
        if let Some(gap) = committed.windows(2).find(|two| two[0] + 1 != two[1]) {
            return Err(format!("{name} goes from transaction {} to {}", gap[0], gap[1]).into());
        }
        return match newest == last {
            true => Ok(()),
            false => {
                Err(format!("{name} ends with transaction {newest}, InnoDB with {last}").into())
            }
        };
    }
    match last {
        0 => Ok(()),
        _ => Err(format!("no binary log has a transaction, InnoDB has {last}").into()),
    }
}
