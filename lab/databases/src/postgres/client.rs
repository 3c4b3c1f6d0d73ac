//! A connection to a PostgreSQL server, in its protocol, version 3: text queries of a user without
//! a password. What tests and the power-cut lab talk to servers with, since each must know of every
//! statement whether it was acknowledged.

use crate::sql::{Client, Columns};
use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
};

/// The superuser, who is made with the data directory.
pub const SUPERUSER: &str = "postgres";
/// The database that every data directory has.
pub const DATABASE: &str = "postgres";

/// Version 3.0 of the protocol.
const VERSION: u32 = 3 << 16;
/// A message that says to be longer is not believed.
const MESSAGE_MAX: usize = 1 << 30;

/// A connection.
pub struct Connection {
    stream: UnixStream,
}

/// A message of the server: its kind and its body.
type Message = (u8, Vec<u8>);

impl Client for Connection {
    fn connect(socket: &Path) -> io::Result<Self> {
        let mut connection = Self {
            stream: UnixStream::connect(socket)?,
        };
        let mut hello = VERSION.to_be_bytes().to_vec();
        for word in ["user", SUPERUSER, "database", DATABASE, ""] {
            hello.extend(word.as_bytes());
            hello.push(0);
        }
        connection.stream.write_all(&with_length(&hello))?;
        // It asks for no password (`trust`), and tells settings that are of no use here.
        connection.until_ready()?;
        Ok(connection)
    }

    fn query(&mut self, statement: &str) -> io::Result<Vec<Columns>> {
        let mut message = vec![b'Q'];
        message.extend(with_length(&[statement.as_bytes(), b"\0"].concat()));
        self.stream.write_all(&message)?;
        self.until_ready()
    }
}

impl Connection {
    /// The rows that it says until it is ready for the next query.
    fn until_ready(&mut self) -> io::Result<Vec<Columns>> {
        let mut rows = Vec::new();
        let mut refused = None;
        loop {
            match self.receive() {
                Ok((b'Z', _)) => break,
                Ok((b'E', body)) => drop(refused.get_or_insert_with(|| refusal(&body))),
                Ok((b'D', body)) => rows.push(row(&body).ok_or_else(|| refusal(&body))?),
                Ok((b'R', body)) if body != [0; 4] => {
                    return Err(io::Error::other("the server asks for a password"));
                }
                // Tags, notices, settings, names of columns.
                Ok(_) => {}
                // What ends a connection comes as an error before its end.
                Err(e) => return Err(refused.unwrap_or(e)),
            }
        }
        refused.map_or(Ok(rows), Err)
    }

    fn receive(&mut self) -> io::Result<Message> {
        let mut head = [0; 5];
        self.stream.read_exact(&mut head)?;
        let [kind, a, b, c, d] = head;
        let bytes = u32::from_be_bytes([a, b, c, d]) as usize;
        let body = bytes
            .checked_sub(4)
            .filter(|bytes| *bytes < MESSAGE_MAX)
            .ok_or(io::ErrorKind::InvalidData)?;
        let mut body = vec![0; body];
        self.stream.read_exact(&mut body)?;
        Ok((kind, body))
    }
}

/// A body behind its length, which counts itself.
fn with_length(body: &[u8]) -> Vec<u8> {
    let bytes = body.len() as u32 + 4;
    [&bytes.to_be_bytes()[..], body].concat()
}

/// An error of the server: fields, each with a letter before it; `M` is the text, `C` its code. One
/// that ends the connection because the server ends tells nothing of the statement, as a broken
/// connection tells nothing.
fn refusal(body: &[u8]) -> io::Error {
    let field = |letter: u8| {
        let field = body.split(|byte| *byte == 0);
        let mut field = field.filter(|field| field.first() == Some(&letter));
        String::from_utf8_lossy(
            field
                .next()
                .unwrap_or_default()
                .get(1..)
                .unwrap_or_default(),
        )
        .into_owned()
    };
    let text = format!("the server says: {} ({})", field(b'M'), field(b'C'));
    // Class 57: admin_shutdown, crash_shutdown, cannot_connect_now.
    match field(b'C').starts_with("57P0") {
        true => io::Error::new(io::ErrorKind::ConnectionAborted, text),
        false => io::Error::other(text),
    }
}

/// A row's columns, each with its length before it, which is -1 for NULL.
fn row(body: &[u8]) -> Option<Columns> {
    let (count, mut rest) = body.split_first_chunk::<2>()?;
    let mut columns = Columns::new();
    for _ in 0..u16::from_be_bytes(*count) {
        let (bytes, behind) = rest.split_first_chunk::<4>()?;
        let Ok(bytes) = usize::try_from(i32::from_be_bytes(*bytes)) else {
            columns.push(None);
            rest = behind;
            continue;
        };
        columns.push(Some(behind.get(..bytes)?.to_vec()));
        rest = behind.get(bytes..)?;
    }
    Some(columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_text_and_null() {
        let body = [&[0, 3, 0, 0, 0, 1, b'7'][..], &[0xFF; 4], &[0, 0, 0, 0]].concat();
        let expected = vec![Some(b"7".to_vec()), None, Some(Vec::new())];
        assert_eq!(row(&body), Some(expected));
        assert_eq!(row(&[0, 1, 0, 0, 0, 9, b'x']), None);
    }

    #[test]
    fn an_error_tells_what_the_server_said_and_its_end_is_none() {
        let refused = refusal(b"SERROR\0C42P01\0Mrelation \"t\" does not exist\0\0");
        assert_eq!(refused.kind(), io::ErrorKind::Other);
        assert_eq!(
            refused.to_string(),
            "the server says: relation \"t\" does not exist (42P01)"
        );
        let ended = refusal(b"SFATAL\0C57P02\0Mterminating connection\0\0");
        assert_eq!(ended.kind(), io::ErrorKind::ConnectionAborted);
    }
}
