//! A connection to a MariaDB server, in MySQL's protocol: text queries of a user without a
//! password. What tests and the power-cut lab talk to servers with, since each must know of every
//! statement whether it was acknowledged.

use crate::sql::Client;
use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
};

pub use crate::sql::Columns as Row;

/// `CLIENT_LONG_PASSWORD`, `CLIENT_PROTOCOL_41`, `CLIENT_TRANSACTIONS`, `CLIENT_SECURE_CONNECTION`,
/// `CLIENT_MULTI_STATEMENTS`, `CLIENT_MULTI_RESULTS`, `CLIENT_PLUGIN_AUTH`.
const CAPABILITIES: u32 = 1 | 0x200 | 0x2000 | 0x8000 | 0x1_0000 | 0x2_0000 | 0x8_0000;
/// `SERVER_MORE_RESULTS_EXISTS`: another statement's result follows.
const MORE_RESULTS: u16 = 8;
/// utf8mb4.
const CHARACTER_SET: u8 = 45;
/// A packet that is longer is followed by its rest.
const PACKET_MAX: usize = 0xFF_FFFF;
const COM_QUERY: u8 = 3;
const OK: u8 = 0;
const EOF: u8 = 0xFE;
const ERROR: u8 = 0xFF;

/// A connection.
pub struct Connection {
    stream: UnixStream,
    sequence: u8,
}

/// As root, who has no password.
impl Client for Connection {
    fn connect(socket: &Path) -> io::Result<Self> {
        let mut connection = Self {
            stream: UnixStream::connect(socket)?,
            sequence: 0,
        };
        let greeting = connection.receive()?;
        if greeting.first() == Some(&ERROR) {
            return Err(refused(&greeting));
        }
        let mut answer = CAPABILITIES.to_le_bytes().to_vec();
        answer.extend((PACKET_MAX as u32).to_le_bytes());
        answer.push(CHARACTER_SET);
        answer.extend([0; 23]);
        // No password.
        answer.extend(b"root\0\0mysql_native_password\0");
        connection.send(&answer)?;
        loop {
            let said = connection.receive()?;
            match said.first() {
                Some(&OK) => return Ok(connection),
                // It wants another kind of password; there is none.
                Some(&EOF) => connection.send(&[])?,
                _ => return Err(refused(&said)),
            }
        }
    }

    fn query(&mut self, statement: &str) -> io::Result<Vec<Row>> {
        self.sequence = 0;
        let mut message = vec![COM_QUERY];
        message.extend(statement.as_bytes());
        self.send(&message)?;
        let mut rows = Vec::new();
        while self.result(&mut rows)? & MORE_RESULTS != 0 {}
        Ok(rows)
    }
}

impl Connection {
    /// The events of a binary log, as `SHOW BINLOG EVENTS` has them. After a crash the last one may
    /// be cut off, which the server calls an error: the events before it are given all the same.
    ///
    /// # Errors
    /// I/O errors.
    pub fn binary_log(&mut self, name: &str) -> io::Result<Vec<Row>> {
        self.sequence = 0;
        let mut message = vec![COM_QUERY];
        message.extend(format!("SHOW BINLOG EVENTS IN '{name}'").as_bytes());
        self.send(&message)?;
        let mut rows = Vec::new();
        match self.result(&mut rows) {
            Err(e) if e.kind() != io::ErrorKind::Other => Err(e),
            Err(e) if !e.to_string().contains("Wrong offset or I/O error") => Err(e),
            _ => Ok(rows),
        }
    }

    /// Adds the rows of one statement; gives the server's status.
    fn result(&mut self, rows: &mut Vec<Row>) -> io::Result<u16> {
        let head = self.receive()?;
        match head.first() {
            Some(&OK) => return status_of_ok(&head).ok_or_else(|| refused(&head)),
            Some(&ERROR) | None => return Err(refused(&head)),
            Some(_) => {}
        }
        // The columns' names and types.
        while !is_end(&self.receive()?) {}
        loop {
            let packet = self.receive()?;
            if let (true, [_, _, _, low, high, ..]) = (is_end(&packet), &packet[..]) {
                return Ok(u16::from_le_bytes([*low, *high]));
            }
            if packet.first() == Some(&ERROR) {
                return Err(refused(&packet));
            }
            rows.push(row(&packet).ok_or_else(|| refused(&packet))?);
        }
    }

    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let mut rest = message;
        loop {
            let (now, later) = rest.split_at(rest.len().min(PACKET_MAX));
            let mut packet = (now.len() as u32).to_le_bytes()[..3].to_vec();
            packet.push(self.sequence);
            packet.extend(now);
            self.stream.write_all(&packet)?;
            self.sequence = self.sequence.wrapping_add(1);
            rest = later;
            if now.len() < PACKET_MAX {
                return Ok(());
            }
        }
    }

    fn receive(&mut self) -> io::Result<Vec<u8>> {
        let mut message = Vec::new();
        loop {
            let mut head = [0; 4];
            self.stream.read_exact(&mut head)?;
            let [a, b, c, sequence] = head;
            self.sequence = sequence.wrapping_add(1);
            let bytes = u32::from_le_bytes([a, b, c, 0]) as usize;
            let from = message.len();
            message.resize(from + bytes, 0);
            self.stream.read_exact(&mut message[from..])?;
            if bytes < PACKET_MAX {
                return Ok(message);
            }
        }
    }
}

/// The packet that ends a list.
fn is_end(packet: &[u8]) -> bool {
    packet.first() == Some(&EOF) && packet.len() < 9
}

fn refused(packet: &[u8]) -> io::Error {
    // After the kind, the error's number.
    let text = String::from_utf8_lossy(packet.get(3..).unwrap_or(packet)).into_owned();
    io::Error::other(format!("the server says: {text}"))
}

/// What the server says of itself in the packet of a statement that succeeded, behind two numbers.
fn status_of_ok(packet: &[u8]) -> Option<u16> {
    let rest = number(number(packet.get(1..)?)?.1)?.1;
    Some(u16::from_le_bytes(rest.get(..2)?.try_into().ok()?))
}

/// A number of the protocol, of one to nine bytes, and what follows it. 0 also for NULL.
fn number(packet: &[u8]) -> Option<(u64, &[u8])> {
    let (&first, rest) = packet.split_first()?;
    let bytes = match first {
        0xFB => return Some((0, rest)),
        0xFC => 2,
        0xFD => 3,
        0xFE => 8,
        short => return Some((short.into(), rest)),
    };
    let mut number = [0; 8];
    number[..bytes].copy_from_slice(rest.get(..bytes)?);
    Some((u64::from_le_bytes(number), &rest[bytes..]))
}

/// A row's columns, each with its length before it.
fn row(mut packet: &[u8]) -> Option<Row> {
    let mut columns = Row::new();
    while let Some(first) = packet.first() {
        let is_null = *first == 0xFB;
        let (bytes, rest) = number(packet)?;
        let bytes = usize::try_from(bytes).ok()?;
        columns.push(match is_null {
            true => None,
            false => Some(rest.get(..bytes)?.to_vec()),
        });
        packet = rest.get(bytes..)?;
    }
    Some(columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_text_of_any_length_and_null() {
        let mut packet = vec![1, b'7', 0xFB, 0xFC, 0x2C, 1];
        packet.extend([b'x'; 300]);
        let expected = vec![Some(b"7".to_vec()), None, Some(vec![b'x'; 300])];
        assert_eq!(row(&packet), Some(expected));
        assert_eq!(row(&[5, b'x']), None);
    }
}
