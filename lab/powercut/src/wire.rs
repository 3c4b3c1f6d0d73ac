//! A connection to the guest's server, in Redis's protocol. Nothing here waits for long: the power may go at any moment.

use std::{
    io::{self, Read, Write},
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

/// A connection.
pub struct Wire {
    stream: TcpStream,
    input: Vec<u8>,
    /// Bytes of `input` that were replies already.
    used: usize,
}

/// How long a server may keep the bytes of a request waiting.
const SEND_MAX: Duration = Duration::from_secs(20);

impl Wire {
    /// Connects to this machine's `port`.
    pub fn connect(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(SEND_MAX))?;
        Ok(Self {
            stream,
            input: Vec::new(),
            used: 0,
        })
    }

    /// Sends a command.
    pub fn send(&mut self, words: &[&[u8]]) -> io::Result<()> {
        let mut message = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            message.extend(format!("${}\r\n", word.len()).as_bytes());
            message.extend(*word);
            message.extend(b"\r\n");
        }
        self.stream.write_all(&message)
    }

    /// The next reply; `None` if there is none within `wait`. An end of the connection is an error.
    pub fn reply(&mut self, wait: Duration) -> io::Result<Option<Reply>> {
        loop {
            let mut at = self.used;
            if let Some(reply) = parse(&self.input, &mut at)? {
                self.used = at;
                return Ok(Some(reply));
            }
            self.input.drain(..self.used);
            self.used = 0;
            self.stream.set_read_timeout(Some(wait))?;
            let mut buffer = [0; 64 << 10];
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => self.input.extend(&buffer[..read]),
                Err(e)
                    if matches!(
                        e.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                    ) =>
                {
                    return Ok(None);
                }
                Err(e) => return Err(e),
            }
        }
    }
}

fn wrong(what: &[u8]) -> io::Error {
    let what = String::from_utf8_lossy(what).into_owned();
    io::Error::new(io::ErrorKind::InvalidData, format!("no reply: {what:?}"))
}

/// One reply at `at`, which moves behind it; `None` if it is not whole yet.
fn parse(input: &[u8], at: &mut usize) -> io::Result<Option<Reply>> {
    let rest = &input[*at..];
    let Some(end) = rest.windows(2).position(|two| two == b"\r\n") else {
        return Ok(None);
    };
    let line = &rest[..end];
    let Some((kind, text)) = line.split_first() else {
        return Err(wrong(line));
    };
    let text = String::from_utf8_lossy(text).into_owned();
    let number = || text.parse::<i64>().map_err(|_| wrong(line));
    let behind = *at + end + 2;
    let reply = match kind {
        b'+' => Reply::Status(text),
        b'-' => Reply::Error(text),
        b':' => Reply::Number(number()?),
        b'$' => {
            let Ok(length) = usize::try_from(number()?) else {
                *at = behind;
                return Ok(Some(Reply::Bytes(None)));
            };
            let Some(bytes) = input.get(behind..behind + length + 2) else {
                return Ok(None);
            };
            *at = behind + length + 2;
            return Ok(Some(Reply::Bytes(Some(bytes[..length].to_vec()))));
        }
        b'*' => {
            let mut several = Vec::new();
            let mut next = behind;
            for _ in 0..number()? {
                match parse(input, &mut next)? {
                    Some(reply) => several.push(reply),
                    None => return Ok(None),
                }
            }
            *at = next;
            return Ok(Some(Reply::Several(several)));
        }
        _ => return Err(wrong(line)),
    };
    *at = behind;
    Ok(Some(reply))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_read_however_they_are_cut_in_pieces() {
        let text = b"+OK\r\n-ERR no\r\n:7\r\n$3\r\na\r\n\r\n$-1\r\n*2\r\n+OK\r\n:1\r\n";
        let mut at = 0;
        let mut replies = Vec::new();
        for end in 0..=text.len() {
            while let Some(reply) = parse(&text[..end], &mut at).unwrap() {
                replies.push(reply);
            }
        }
        let expected = [
            Reply::Status("OK".into()),
            Reply::Error("ERR no".into()),
            Reply::Number(7),
            Reply::Bytes(Some(b"a\r\n"[..3].to_vec())),
            Reply::Bytes(None),
            Reply::Several(vec![Reply::Status("OK".into()), Reply::Number(1)]),
        ];
        assert_eq!(replies, expected);
        assert!(parse(b"hello\r\n", &mut 0).is_err());
    }
}
