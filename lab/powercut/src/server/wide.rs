//! A MariaDB server that works on more than its buffer pool holds: every transaction also adds one
//! to rows all over a table of 10 MiB, so page after page is read and written again, and now and
//! then a file comes and goes.

use crate::{
    Failure,
    sql::{Dialect, text},
};
use forebay_bench::{
    mariadb::client::Connection,
    sql::{Client, Columns},
};
use std::{io, path::Path};

/// Rows of `lab.wide`, two to a page, numbered from 1.
const ROWS: u64 = 1200;
/// Rows that a transaction adds one to. They are spread so that each is another page.
const ROWS_CHANGED: u64 = 32;
/// A file comes or goes before every such transaction.
const FILES_EVERY: u64 = 4;

/// A connection to it.
pub struct Wide(Connection);

impl Client for Wide {
    fn connect(socket: &Path) -> io::Result<Self> {
        Connection::connect(socket).map(Self)
    }

    fn query(&mut self, statement: &str) -> io::Result<Vec<Columns>> {
        self.0.query(statement)
    }
}

impl Dialect for Wide {
    fn literal(bytes: &[u8]) -> String {
        Connection::literal(bytes)
    }

    fn put(key: &str, value: &str) -> String {
        Connection::put(key, value)
    }

    fn value(text: Vec<u8>) -> Result<Vec<u8>, Failure> {
        Connection::value(text)
    }

    fn beside(number: u64) -> String {
        let first = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let rows = (0..ROWS_CHANGED).map(|n| (first + n * (ROWS / ROWS_CHANGED)) % ROWS + 1);
        let rows: Vec<String> = rows.map(|row| row.to_string()).collect();
        let rows = rows.join(", ");
        format!("; UPDATE lab.wide SET n = n + 1 WHERE id IN ({rows})")
    }

    fn before(number: u64) -> Option<String> {
        if !number.is_multiple_of(FILES_EVERY) {
            return None;
        }
        // No table is dropped: a power cut may leave that half done, with Forebay or without
        // (README.md).
        let statement = match number / FILES_EVERY % 3 {
            0 => "TRUNCATE TABLE lab.fleeting",
            1 => "INSERT INTO lab.fleeting SELECT * FROM lab.wide WHERE id <= 40",
            _ => "ALTER TABLE lab.fleeting FORCE",
        };
        Some(statement.to_owned())
    }

    fn check(&mut self, last: u64) -> Result<(), Failure> {
        let tables = self.query(
            "SELECT CONCAT('`', table_schema, '`.`', table_name, '`') FROM information_schema.tables WHERE engine = 'InnoDB'",
        )?;
        for table in 0..tables.len() {
            let name = text(&tables, table, 0);
            let rows = self.query(&format!("CHECK TABLE {name} EXTENDED"))?;
            let said = text(&rows, rows.len().saturating_sub(1), 3);
            if said != "OK" {
                return Err(format!("CHECK TABLE {name}: {said}").into());
            }
        }
        let sums = self.query("SELECT COUNT(*), SUM(n) FROM lab.wide")?;
        let found = [0, 1].map(|column| text(&sums, 0, column));
        let right = [ROWS, last * ROWS_CHANGED].map(|number| number.to_string());
        if found != right {
            return Err(format!(
                "after {last} transactions lab.wide has {found:?} rows and additions, and should have {right:?}"
            )
            .into());
        }
        self.0.check(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_changes_as_many_different_rows_as_are_counted() {
        for number in 1..500 {
            let statement = Wide::beside(number);
            let list = statement.split(['(', ')']).nth(1).unwrap();
            let mut rows: Vec<u64> = list.split(", ").map(|row| row.parse().unwrap()).collect();
            rows.sort_unstable();
            rows.dedup();
            assert_eq!(rows.len() as u64, ROWS_CHANGED);
            assert!(rows.iter().all(|row| (1..=ROWS).contains(row)));
        }
    }
}
