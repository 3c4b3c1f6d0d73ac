//! A connection to a Redis server, for clients that remember what they were promised: requests may
//! be in flight while answers are waited for, for a while only.

pub use redis_protocol::resp2::types::OwnedFrame as Reply;

use redis_protocol::resp2::decode::decode;
use std::{
    io::{self, Read, Write},
    net::TcpStream,
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

/// Nothing is waited for longer than this.
const PATIENCE: Duration = Duration::from_secs(30);

/// That a reply is no answer to what was asked.
#[must_use]
pub fn unexpected(reply: &Reply) -> io::Error {
    io::Error::other(format!("the server answered {reply:?}"))
}

/// True if a reply is the status `OK`.
#[must_use]
pub fn is_ok(reply: &Reply) -> bool {
    matches!(reply, Reply::SimpleString(text) if text == b"OK")
}

/// Expects that.
///
/// # Errors
/// What it is instead.
pub fn expect_ok(reply: Reply) -> io::Result<()> {
    match is_ok(&reply) {
        true => Ok(()),
        false => Err(unexpected(&reply)),
    }
}

/// A connection to a server on this machine.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    input: Vec<u8>,
    /// Bytes of `input` that were replies already.
    used: usize,
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Connection {
    /// Connects to the server on `port`.
    ///
    /// # Errors
    /// I/O errors.
    pub fn new(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self {
            stream,
            input: Vec::new(),
            used: 0,
        })
    }

    /// Sends a command and waits for the answer.
    ///
    /// # Errors
    /// I/O errors: then it is not known whether the command was carried out.
    pub fn command(&mut self, words: &[&[u8]]) -> io::Result<Reply> {
        self.send(words)?;
        self.receive()
    }

    /// The same with the words of a line.
    ///
    /// # Errors
    /// As [`command`](Self::command).
    pub fn line(&mut self, line: &str) -> io::Result<Reply> {
        let words: Vec<&[u8]> = line.split_whitespace().map(str::as_bytes).collect();
        self.command(&words)
    }

    /// Sends a command.
    ///
    /// # Errors
    /// I/O errors.
    pub fn send(&mut self, words: &[&[u8]]) -> io::Result<()> {
        let mut message = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            message.extend(format!("${}\r\n", word.len()).as_bytes());
            message.extend(*word);
            message.extend(b"\r\n");
        }
        self.stream.write_all(&message)
    }

    /// Waits for the next answer.
    ///
    /// # Errors
    /// I/O errors.
    pub fn receive(&mut self) -> io::Result<Reply> {
        self.reply(PATIENCE)?
            .ok_or_else(|| io::ErrorKind::TimedOut.into())
    }

    /// The next answer; none if it has not come within `wait`, and then it may come later.
    ///
    /// # Errors
    /// I/O errors, the end of the connection among them.
    pub fn reply(&mut self, wait: Duration) -> io::Result<Option<Reply>> {
        loop {
            let read = decode(&self.input[self.used..]);
            let read = read.map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
            if let Some((reply, bytes)) = read {
                self.used += bytes;
                return Ok(Some(reply));
            }
            self.input.drain(..self.used);
            self.used = 0;
            self.stream.set_read_timeout(Some(wait))?;
            let mut buffer = [0; 16 << 10];
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => self.input.extend(&buffer[..read]),
                Err(e) => match e.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => return Ok(None),
                    // With a limit of time the kernel begins no wait anew after a signal.
                    io::ErrorKind::Interrupted => {}
                    _ => return Err(e),
                },
            }
        }
    }

    /// A field of `INFO section`.
    ///
    /// # Errors
    /// I/O errors, `NotFound` if there is no such field.
    pub fn info(&mut self, section: &str, field: &str) -> io::Result<String> {
        let Reply::BulkString(text) = self.command(&[b"INFO", section.as_bytes()])? else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        String::from_utf8_lossy(&text)
            .lines()
            .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))
            .map(|value| value.trim().to_owned())
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}
