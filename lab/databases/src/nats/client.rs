//! A connection to NATS that publishes to a JetStream stream and waits for the acknowledgement, and
//! that reads, shortens and empties streams.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::TcpStream,
    time::Duration,
};

/// Nothing is waited for longer than this.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where answers to this connection go. A connection gets no other's: the server's names of them
/// are its own.
const INBOX: &str = "_INBOX";

/// What a stream keeps; of it go the oldest messages.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// Messages of each subject; none means all.
    pub per_subject: Option<u64>,
    /// Bytes; none means all. The server's blocks are of at most 32,000 bytes if these are at most
    /// 128,000.
    pub bytes: Option<u64>,
}

/// What a stream is asked for.
#[derive(Clone, Copy, Debug)]
pub enum Wanted<'a> {
    /// The message with this number.
    Number(u64),
    /// The first with this number or a later one.
    From(u64),
    /// A subject's last one.
    LastOf(&'a str),
}

/// A message of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Where it was published to.
    pub subject: String,
    /// Its place in the stream, from 1.
    pub number: u64,
    /// What was published.
    pub payload: Vec<u8>,
}

/// What a stream has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamState {
    /// The first message's number.
    pub first: u64,
    /// The number of the last one that there was.
    pub last: u64,
    /// How many there are.
    pub messages: u64,
}

/// A connection to a server on this machine.
pub struct Connection {
    stream: TcpStream,
    input: BufReader<TcpStream>,
    inbox: String,
    asked: u64,
}

impl Connection {
    /// Connects to the server on `port`.
    ///
    /// # Errors
    /// I/O errors, and what the server refuses.
    pub fn new(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let input = BufReader::new(stream.try_clone()?);
        // No other connection of this machine has the same port at the same time.
        let own_port = stream.local_addr()?.port();
        let inbox = format!("{INBOX}.{}.{own_port}", std::process::id());
        let mut connection = Self {
            stream,
            input,
            inbox,
            asked: 0,
        };
        let hello = format!(
            "CONNECT {{\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":true,\
             \"lang\":\"rust\",\"version\":\"0\",\"protocol\":1}}\r\nSUB {}.* 1\r\nPING\r\n",
            connection.inbox
        );
        connection.stream.write_all(hello.as_bytes())?;
        while connection.line()? != "PONG" {}
        Ok(connection)
    }

    /// Makes a stream of this name, of all subjects below it, in files. One that is there already
    /// and is the same is left as it is.
    ///
    /// # Errors
    /// I/O errors, and what the server refuses.
    pub fn make_stream(&mut self, name: &str, limits: Limits) -> io::Result<()> {
        let limit = |limit: Option<u64>| limit.map_or(json!(-1), |limit| json!(limit));
        let config = json!({
            "name": name,
            "subjects": [format!("{name}.*")],
            "retention": "limits",
            "storage": "file",
            "num_replicas": 1,
            "discard": "old",
            "max_msgs": -1,
            "max_bytes": limit(limits.bytes),
            "max_msgs_per_subject": limit(limits.per_subject),
            "max_consumers": -1,
            "max_age": 0,
        });
        self.ask(&format!("STREAM.CREATE.{name}"), &config)
            .map(drop)
    }

    /// Publishes to a subject of a stream, and waits until the server has it. The message's number
    /// in the stream.
    ///
    /// # Errors
    /// I/O errors: then it is not known whether it was published; and what the server refuses.
    pub fn publish(&mut self, subject: &str, payload: &[u8]) -> io::Result<u64> {
        let answer = self.request(subject, payload)?;
        answered(&answer, NUMBER)?;
        number_after(&answer, NUMBER).ok_or_else(|| refused(&answer))
    }

    /// A message of a stream; none if it has no such one.
    ///
    /// # Errors
    /// I/O errors, and what the server refuses.
    pub fn message(&mut self, stream: &str, wanted: Wanted<'_>) -> io::Result<Option<Stored>> {
        let asked = match wanted {
            Wanted::Number(number) => json!({ "seq": number }),
            Wanted::From(number) => json!({ "seq": number, "next_by_subj": ">" }),
            Wanted::LastOf(subject) => json!({ "last_by_subj": subject }),
        };
        let answer = match self.ask(&format!("STREAM.MSG.GET.{stream}"), &asked) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            answer => answer?,
        };
        let stored = || {
            let message = answer.get("message")?;
            // An empty one has no data.
            let data = message.get("data").map_or(Some(""), Value::as_str)?;
            Some(Stored {
                subject: message.get("subject")?.as_str()?.to_owned(),
                number: message.get("seq")?.as_u64()?,
                payload: STANDARD.decode(data).ok()?,
            })
        };
        stored()
            .map(Some)
            .ok_or_else(|| refused(&answer.to_string()))
    }

    /// What a stream has.
    ///
    /// # Errors
    /// I/O errors, and that there is no such stream.
    pub fn state(&mut self, stream: &str) -> io::Result<StreamState> {
        let answer = self.ask(&format!("STREAM.INFO.{stream}"), &json!({}))?;
        let number = |name: &str| answer.get("state")?.get(name)?.as_u64();
        let state = || {
            Some(StreamState {
                first: number("first_seq")?,
                last: number("last_seq")?,
                messages: number("messages")?,
            })
        };
        state().ok_or_else(|| refused(&answer.to_string()))
    }

    /// Removes a message of a stream.
    ///
    /// # Errors
    /// I/O errors, and that there is no such message.
    pub fn remove(&mut self, stream: &str, number: u64) -> io::Result<()> {
        // Otherwise the server writes over it as well.
        let asked = json!({ "seq": number, "no_erase": true });
        self.ask(&format!("STREAM.MSG.DELETE.{stream}"), &asked)
            .map(drop)
    }

    /// Removes all messages of a stream but the last `keep`.
    ///
    /// # Errors
    /// I/O errors, and what the server refuses.
    pub fn purge(&mut self, stream: &str, keep: u64) -> io::Result<()> {
        self.ask(&format!("STREAM.PURGE.{stream}"), &json!({ "keep": keep }))
            .map(drop)
    }

    /// Asks JetStream. What it does not have is [`io::ErrorKind::NotFound`].
    fn ask(&mut self, what: &str, words: &Value) -> io::Result<Value> {
        const NOT_FOUND: u64 = 404;
        let text = self.request(&format!("$JS.API.{what}"), words.to_string().as_bytes())?;
        let answer: Value = serde_json::from_str(&text).map_err(|_| refused(&text))?;
        match answer.get("error") {
            None => Ok(answer),
            Some(error) if error.get("code").and_then(Value::as_u64) == Some(NOT_FOUND) => {
                Err(io::Error::new(io::ErrorKind::NotFound, refused(&text)))
            }
            Some(_) => Err(refused(&text)),
        }
    }

    /// Sends a request; the answer's payload.
    fn request(&mut self, subject: &str, payload: &[u8]) -> io::Result<String> {
        self.asked += 1;
        let answers_to = format!("{}.{}", self.inbox, self.asked);
        let mut message = format!("PUB {subject} {answers_to} {}\r\n", payload.len()).into_bytes();
        message.extend(payload);
        message.extend(b"\r\n");
        self.stream.write_all(&message)?;
        loop {
            let line = self.line()?;
            let mut words = line.split(' ');
            let kind = words.next();
            if !matches!(kind, Some("MSG" | "HMSG")) {
                continue;
            }
            // The last word is how long it is, with its head.
            let bytes = words.clone().next_back().and_then(|word| word.parse().ok());
            let mut text = vec![0; bytes.ok_or_else(|| refused(&line))?];
            self.input.read_exact(&mut text)?;
            self.line()?;
            // An answer to a request that was given up may come late.
            if words.next() == Some(&answers_to) {
                return Ok(String::from_utf8_lossy(&text).into_owned());
            }
        }
    }

    /// The next line, without its end. What the server asks meanwhile is answered.
    fn line(&mut self) -> io::Result<String> {
        loop {
            let mut line = String::new();
            if self.input.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let line = line.trim_end_matches(['\r', '\n']);
            match line {
                "PING" => self.stream.write_all(b"PONG\r\n")?,
                _ if line.starts_with("-ERR") => return Err(refused(line)),
                _ => return Ok(line.to_owned()),
            }
        }
    }
}

/// What stands before a message's number.
const NUMBER: &str = r#""seq":"#;

/// An answer that has this, and no error.
fn answered(answer: &str, wanted: &str) -> io::Result<()> {
    match answer.contains(wanted) && !answer.contains(r#""error":"#) {
        true => Ok(()),
        false => Err(refused(answer)),
    }
}

fn refused(answer: &str) -> io::Error {
    let said = answer.trim();
    io::Error::new(io::ErrorKind::InvalidData, format!("NATS answered {said}"))
}

/// The number behind the first `before`.
fn number_after(text: &str, before: &str) -> Option<u64> {
    let (_, after) = text.split_once(before)?;
    let digits: String = after
        .trim_start()
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acknowledgement_has_a_number_and_no_error() {
        let answer = r#"{"stream":"s","seq":42}"#;
        assert!(answered(answer, NUMBER).is_ok());
        assert_eq!(number_after(answer, NUMBER), Some(42));
        let full = r#"{"error":{"code":503,"description":"no room"},"stream":"s","seq":0}"#;
        assert!(answered(full, NUMBER).is_err());
        assert!(answered("NATS/1.0 503\r\n\r\n", NUMBER).is_err());
    }
}
