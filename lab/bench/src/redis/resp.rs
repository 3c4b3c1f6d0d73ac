//! As much of Redis's protocol as a client needs that remembers what it was promised.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::TcpStream,
    time::Duration,
};

/// What a server answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A short text, as in `OK`.
    Status(String),
    /// An error's text.
    Error(String),
    /// A number.
    Number(i64),
    /// Bytes, or none.
    Bytes(Option<Vec<u8>>),
    /// Several replies.
    Several(Vec<Reply>),
}

impl Reply {
    /// True if it is the status `OK`.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        matches!(self, Self::Status(text) if text == "OK")
    }
}

/// A connection to a server on this machine.
#[derive(Debug)]
pub struct Connection(BufReader<TcpStream>);

impl Connection {
    /// Connects to the server on `port`. Nothing is waited for longer than half a minute.
    ///
    /// # Errors
    /// I/O errors.
    pub fn new(port: u16) -> io::Result<Self> {
        const PATIENCE: Duration = Duration::from_secs(30);
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self(BufReader::new(stream)))
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
        self.0.get_mut().write_all(&message)
    }

    /// Waits for the next answer.
    ///
    /// # Errors
    /// I/O errors.
    pub fn receive(&mut self) -> io::Result<Reply> {
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, "not Redis's protocol");
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.strip_suffix("\r\n").ok_or_else(wrong)?;
        let (kind, rest) = line.split_at_checked(1).ok_or_else(wrong)?;
        let number = || rest.parse::<i64>().map_err(|_| wrong());
        match kind {
            "+" => Ok(Reply::Status(rest.to_owned())),
            "-" => Ok(Reply::Error(rest.to_owned())),
            ":" => Ok(Reply::Number(number()?)),
            "$" => match usize::try_from(number()?) {
                Err(_) => Ok(Reply::Bytes(None)),
                Ok(length) => {
                    let mut bytes = vec![0; length + 2];
                    self.0.read_exact(&mut bytes)?;
                    bytes.truncate(length);
                    Ok(Reply::Bytes(Some(bytes)))
                }
            },
            "*" => {
                let count = number()?.max(0);
                (0..count)
                    .map(|_| self.receive())
                    .collect::<Result<_, _>>()
                    .map(Reply::Several)
            }
            _ => Err(wrong()),
        }
    }

    /// A field of `INFO section`.
    ///
    /// # Errors
    /// I/O errors, `NotFound` if there is no such field.
    pub fn info(&mut self, section: &str, field: &str) -> io::Result<String> {
        let Reply::Bytes(Some(text)) = self.command(&[b"INFO", section.as_bytes()])? else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        String::from_utf8_lossy(&text)
            .lines()
            .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))
            .map(|value| value.trim().to_owned())
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}
