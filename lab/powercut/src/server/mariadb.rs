//! A MariaDB server with a binary log, which is compared with InnoDB after a cut.

use crate::{
    Failure,
    sql::{Dialect, hex, text},
};
use forebay_bench::{mariadb::client::Connection, sql::Client};

impl Dialect for Connection {
    fn literal(bytes: &[u8]) -> String {
        format!("x'{}'", hex(bytes))
    }

    fn put(key: &str, value: &str) -> String {
        format!("REPLACE INTO lab.kv VALUES ({key}, {value})")
    }

    fn value(text: Vec<u8>) -> Result<Vec<u8>, Failure> {
        Ok(text)
    }

    fn check(&mut self, last: u64) -> Result<(), Failure> {
        check_table(self)?;
        check_binary_log(self, last)
    }
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

/// The newest binary log that has transactions must have them without a gap, and end with the last
/// one that InnoDB has: each is in both or in neither.
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
