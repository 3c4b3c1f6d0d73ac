//! A database server in the same guest, reached by its socket: every change is made by a transaction that also counts.

use crate::{Change, Engine, Failure};
use forebay_bench::sql::{Client, Columns};
use std::{
    cell::RefCell,
    path::Path,
    thread,
    time::{Duration, Instant},
};

/// How long the server may take to begin, in an emulated machine and with a recovery.
const PATIENCE: Duration = Duration::from_secs(150);

/// How a server's SQL has what the lab says.
pub trait Dialect: Client {
    /// Bytes, whatever they are.
    fn literal(bytes: &[u8]) -> String;

    /// A statement that gives a key a value.
    fn put(key: &str, value: &str) -> String;

    /// A value as it comes.
    fn value(text: Vec<u8>) -> Result<Vec<u8>, Failure>;

    /// What the transaction of this number does beside, if anything; begins with a semicolon.
    fn beside(_number: u64) -> String {
        String::new()
    }

    /// What is done before it, in a transaction of its own or none, if anything.
    fn before(_number: u64) -> Option<String> {
        None
    }

    /// Whether the tables are sound, and what else must have the last transaction has it.
    fn check(&mut self, last: u64) -> Result<(), Failure>;
}

/// A connection to the server.
pub struct Sql<C> {
    connection: RefCell<C>,
    /// Transactions so far.
    count: u64,
}

impl<C: Dialect> Sql<C> {
    /// Waits for the server with this socket, and checks what it has, if `verify` says so.
    pub fn open(socket: &Path, verify: bool) -> Result<Self, Failure> {
        let begun = Instant::now();
        let mut connection = loop {
            match C::connect(socket) {
                Ok(connection) => break connection,
                Err(e) if begun.elapsed() > PATIENCE => return Err(e.into()),
                Err(_) => thread::sleep(Duration::from_millis(50)),
            }
        };
        let rows = connection.query("SELECT n FROM lab.transactions")?;
        let count = text(&rows, 0, 0).parse()?;
        if verify {
            connection.check(count)?;
        }
        Ok(Self {
            connection: RefCell::new(connection),
            count,
        })
    }
}

impl<C: Dialect> Sql<C> {
    /// Has the server end in order.
    pub fn end(&mut self) -> Result<(), Failure> {
        self.connection.get_mut().query("SHUTDOWN")?;
        Ok(())
    }
}

impl<C: Dialect> Engine for Sql<C> {
    fn apply(&mut self, changes: Vec<Change>) -> Result<(), Failure> {
        if let Some(before) = C::before(self.count + 1) {
            self.connection.get_mut().query(&before)?;
        }
        let mut statements = "BEGIN".to_owned();
        for (key, value) in changes {
            let key = C::literal(&key);
            statements += "; ";
            statements += &match value {
                Some(value) => C::put(&key, &C::literal(&value)),
                None => format!("DELETE FROM lab.kv WHERE k = {key}"),
            };
        }
        self.count += 1;
        let count = self.count;
        statements += &C::beside(count);
        statements += &format!("; UPDATE lab.transactions SET n = {count}; COMMIT");
        self.connection.get_mut().query(&statements)?;
        Ok(())
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        let question = format!("SELECT v FROM lab.kv WHERE k = {}", C::literal(key));
        let mut rows = self.connection.borrow_mut().query(&question)?;
        let value = rows.pop().and_then(|mut row| row.pop()).flatten();
        value.map(C::value).transpose()
    }

    fn count(&self) -> Result<u64, Failure> {
        let rows = self
            .connection
            .borrow_mut()
            .query("SELECT COUNT(*) FROM lab.kv")?;
        Ok(text(&rows, 0, 0).parse()?)
    }
}

/// Two hexadecimal digits for each byte.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A column of a row as text; none and NULL are empty.
pub fn text(rows: &[Columns], row: usize, column: usize) -> String {
    let found = rows.get(row).and_then(|row| row.get(column)?.as_deref());
    String::from_utf8_lossy(found.unwrap_or_default()).into_owned()
}
