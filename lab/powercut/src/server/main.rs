//! The server inside the guest: the embedded store, a program with log files, or a MariaDB,
//! PostgreSQL, etcd or NATS server beside it, behind a socket.
//!
//! Redis's protocol, as guest/server.c: SET, DEL, GET, DBSIZE and BATCH (`S key value` or `D key`
//! again and again), one client at a time, one command after the other, each acknowledged once it
//! is durable.

mod etcd;
mod logs;
mod mariadb;
mod nats;
mod postgres;
mod sql;
mod store;
mod wide;

use sql::{Dialect, Sql};
use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::ExitCode,
    time::Duration,
};

/// Anything that ends the server, in words.
pub type Failure = Box<dyn std::error::Error>;

/// A change of a transaction: a key, and its new value unless it is deleted.
pub type Change = (Vec<u8>, Option<Vec<u8>>);

/// What is served.
pub trait Engine {
    /// All of them or none, durable when it returns.
    fn apply(&mut self, changes: Vec<Change>) -> Result<(), Failure>;
    /// A key's value.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Failure>;
    /// How many keys there are, by looking at all of them.
    fn count(&self) -> Result<u64, Failure>;
}

/// How long a server may take to begin, with a recovery: longer in an emulated machine.
pub fn patience() -> Duration {
    let told = std::env::var("LAB_PATIENCE_S").ok();
    let told = told.and_then(|told| told.parse().ok());
    Duration::from_secs(told.unwrap_or(150))
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["store", dir, pool, verify] => {
            store::EmbeddedStore::open(Path::new(dir), Path::new(pool), verify == "trust")
                .and_then(|store| serve(Box::new(store)))
        }
        ["mariadb-flash", socket, verify] => beside::<wide::Wide>(socket, verify),
        ["mariadb", socket, verify] => beside::<forebay_bench::mariadb::client::Connection>(socket, verify),
        ["postgres", socket, verify] => beside::<forebay_bench::postgres::client::Connection>(socket, verify),
        ["etcd", port] => port
            .parse()
            .map_err(Failure::from)
            .and_then(etcd::Etcd::open)
            .and_then(|etcd| serve(Box::new(etcd))),
        ["nats", port] => port
            .parse()
            .map_err(Failure::from)
            .and_then(nats::Nats::open)
            .and_then(|nats| serve(Box::new(nats))),
        ["logs", dir] => logs::Logs::open(Path::new(dir)).and_then(|logs| serve(Box::new(logs))),
        _ => Err(
            "usage: forebay-lab-server store DIR POOL verify|trust, mariadb|mariadb-flash|postgres SOCKET verify|trust|end, etcd|nats PORT, or logs DIR".into(),
        ),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("forebay-lab-server: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn beside<C: Dialect + 'static>(socket: &str, verify: &str) -> Result<(), Failure> {
    let mut server = Sql::<C>::open(Path::new(socket), verify != "trust")?;
    match verify {
        // It was checked, and that is all.
        "end" => server.end(),
        _ => serve(Box::new(server)),
    }
}

fn serve(mut engine: Box<dyn Engine>) -> Result<(), Failure> {
    let listener = TcpListener::bind(("0.0.0.0", 6379))?;
    loop {
        let (client, _) = listener.accept()?;
        client.set_nodelay(true)?;
        let mut input = BufReader::new(client.try_clone()?);
        // An error of the connection ends the client, one of the engine the server.
        while let Ok(words) = command(&mut input) {
            handle_request(engine.as_mut(), words, &client)?;
        }
    }
}

fn handle_request(
    engine: &mut dyn Engine,
    words: Vec<Vec<u8>>,
    mut client: &TcpStream,
) -> Result<(), Failure> {
    let mut words = words.into_iter();
    let name = words.next().unwrap_or_default().to_ascii_uppercase();
    let mut answer = Vec::new();
    let changes = match (&name[..], words.next()) {
        (b"DBSIZE", None) => {
            write!(answer, ":{}\r\n", engine.count()?)?;
            None
        }
        (b"GET", Some(key)) => {
            match engine.get(&key)? {
                None => answer.extend(b"$-1\r\n"),
                Some(value) => {
                    write!(answer, "${}\r\n", value.len())?;
                    answer.extend(value);
                    answer.extend(b"\r\n");
                }
            }
            None
        }
        (b"SET", Some(key)) => Some(vec![(key, words.next())]),
        (b"DEL", Some(key)) => Some(vec![(key, None)]),
        (b"BATCH", mut kind) => {
            let mut changes = Vec::new();
            while let (Some(letter), Some(key)) = (kind, words.next()) {
                let value = if letter == b"S" { words.next() } else { None };
                changes.push((key, value));
                kind = words.next();
            }
            Some(changes)
        }
        _ => {
            answer.extend(b"-ERR unknown command\r\n");
            None
        }
    };
    if let Some(changes) = changes {
        engine.apply(changes)?;
        answer.extend(b"+OK\r\n");
    }
    // The client may be gone.
    let _ = client.write_all(&answer);
    Ok(())
}

/// The next command's words.
fn command(input: &mut impl BufRead) -> io::Result<Vec<Vec<u8>>> {
    let count = number(input, b'*')?;
    (0..count)
        .map(|_| {
            let mut word = vec![0; number(input, b'$')? + 2];
            input.read_exact(&mut word)?;
            word.truncate(word.len() - 2);
            Ok(word)
        })
        .collect()
}

fn number(input: &mut impl BufRead, kind: u8) -> io::Result<usize> {
    let mut line = Vec::new();
    input.take(32).read_until(b'\n', &mut line)?;
    let wrong = || io::Error::from(io::ErrorKind::InvalidData);
    let digits = line.strip_prefix(&[kind]).ok_or_else(wrong)?;
    let text = std::str::from_utf8(digits).map_err(|_| wrong())?;
    text.trim_end().parse().map_err(|_| wrong())
}
