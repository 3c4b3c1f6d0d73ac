//! A connection to NATS that publishes to a JetStream stream and waits for the acknowledgement.

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

    /// Makes a stream of this name, of all subjects below it, in files.
    ///
    /// # Errors
    /// I/O errors, and what the server refuses.
    pub fn make_stream(&mut self, name: &str) -> io::Result<()> {
        let config = format!(
            r#"{{"name":"{name}","subjects":["{name}.*"],"retention":"limits","storage":"file","num_replicas":1,"discard":"old","max_msgs":-1,"max_bytes":-1,"max_consumers":-1,"max_age":0}}"#
        );
        let answer = self.request(&format!("$JS.API.STREAM.CREATE.{name}"), config.as_bytes())?;
        answered(&answer, r#""config""#)
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

    /// The payload of the message with this number of a stream, as the server encodes it (base64).
    ///
    /// # Errors
    /// I/O errors, and that there is no such message.
    pub fn message(&mut self, stream: &str, number: u64) -> io::Result<String> {
        let asked = format!(r#"{{"seq":{number}}}"#);
        let answer = self.request(
            &format!("$JS.API.STREAM.MSG.GET.{stream}"),
            asked.as_bytes(),
        )?;
        const DATA: &str = r#""data":""#;
        answered(&answer, DATA)?;
        let after = answer.split_once(DATA).map(|(_, after)| after);
        let data = after.and_then(|after| after.split('"').next());
        data.map(str::to_owned).ok_or_else(|| refused(&answer))
    }

    /// The number of the last message of a stream.
    ///
    /// # Errors
    /// I/O errors, and that there is no such stream.
    pub fn last(&mut self, stream: &str) -> io::Result<u64> {
        let answer = self.request(&format!("$JS.API.STREAM.INFO.{stream}"), b"")?;
        number_after(&answer, r#""last_seq":"#).ok_or_else(|| refused(&answer))
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
