//! A database server in the same guest, reached by its socket: every change is made by a
//! transaction that also counts.

use crate::{Change, Engine, Failure, patience};
use forebay_bench::sql::{Client, Columns};
use std::{
    cell::RefCell,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

const PAUSE: Duration = Duration::from_millis(50);

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
    socket: PathBuf,
    /// The server's processes are made to die, by a failpoint, and others come in their place.
    dies: bool,
    /// Transactions so far.
    count: u64,
}

impl<C: Dialect> Sql<C> {
    /// Waits for the server with this socket, and checks what it has, if `verify` says so.
    pub fn open(socket: &Path, verify: bool) -> Result<Self, Failure> {
        let mut server = Self {
            connection: RefCell::new(connect(socket)?),
            socket: socket.to_owned(),
            dies: std::env::var_os("LAB_DIES").is_some(),
            count: 0,
        };
        server.count = server.transactions()?;
        if verify {
            // Of one that dies meanwhile nothing has been shown.
            while let Err(e) = server.connection.get_mut().check(server.count) {
                if !server.dies || server.connection.get_mut().query("SELECT 1").is_ok() {
                    return Err(e);
                }
                *server.connection.get_mut() = connect(socket)?;
            }
        }
        Ok(server)
    }

    /// How many transactions the database has.
    fn transactions(&self) -> Result<u64, Failure> {
        let rows = self.query("SELECT n FROM lab.transactions")?;
        Ok(text(&rows, 0, 0).parse()?)
    }

    /// Asks, and asks again if the server dies.
    fn query(&self, question: &str) -> Result<Vec<Columns>, Failure> {
        let begun = Instant::now();
        loop {
            match self.connection.borrow_mut().query(question) {
                Err(_) if self.dies && begun.elapsed() < patience() => {}
                done => return Ok(done?),
            }
            thread::sleep(PAUSE);
            self.connection.replace(connect(&self.socket)?);
        }
    }

    /// Carries out the transaction of this number. If the server dies of it, the next one either
    /// has it or not, and all before it.
    fn carry_out(&self, number: u64, statements: &str) -> Result<(), Failure> {
        let begun = Instant::now();
        loop {
            match self.connection.borrow_mut().query(statements) {
                Err(_) if self.dies && begun.elapsed() < patience() => {}
                done => return Ok(done.map(drop)?),
            }
            self.connection.replace(connect(&self.socket)?);
            match self.transactions()? {
                found if found == number => return Ok(()),
                found if found + 1 == number => {}
                found => {
                    return Err(format!(
                        "LOST without a power cut: a process died, and of {} transactions that were acknowledged {found} are there",
                        number - 1
                    )
                    .into());
                }
            }
        }
    }
}

/// Waits for the server.
fn connect<C: Client>(socket: &Path) -> Result<C, Failure> {
    let begun = Instant::now();
    loop {
        match C::connect(socket) {
            Ok(connection) => return Ok(connection),
            Err(e) if begun.elapsed() > patience() => return Err(e.into()),
            Err(_) => thread::sleep(PAUSE),
        }
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
            self.query(&before)?;
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
        self.carry_out(count, &statements)
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        let question = format!("SELECT v FROM lab.kv WHERE k = {}", C::literal(key));
        let mut rows = self.query(&question)?;
        let value = rows.pop().and_then(|mut row| row.pop()).flatten();
        value.map(C::value).transpose()
    }

    fn count(&self) -> Result<u64, Failure> {
        let rows = self.query("SELECT COUNT(*) FROM lab.kv")?;
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
