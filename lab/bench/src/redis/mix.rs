//! A client of our own, for what redis-benchmark does not do: mixes of SETs and GETs, and loading distinct keys.
//!
//! One thread serves all connections, each with one request in flight, as redis-benchmark does: it waits until answers have come, takes
//! the time of each, and sends the next request on the same connection.

use super::resp::{Connection, Reply};
use crate::{
    BenchError,
    contest::Sample,
    data::{Random, fresh_seed},
    histogram::Latencies,
};
use rustix::event::{PollFd, PollFlags, poll};
use std::{
    io::{self, Read, Write},
    net::TcpStream,
    path::Path,
    time::{Duration, Instant},
};

/// A mix of SETs and GETs of keys `key:N`.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// Requests.
    pub requests: u64,
    /// Bytes of a value.
    pub value_bytes: u64,
    /// Connections.
    pub clients: u64,
    /// Keys that are chosen from at random; [`load`] them first.
    pub keys: u64,
    /// So many SETs …
    pub sets: u64,
    /// … to so many GETs.
    pub gets: u64,
}

/// Nothing is waited for longer than this.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connection and what is in flight on it.
struct Client {
    stream: TcpStream,
    received: Vec<u8>,
    sent: Instant,
}

impl Mix {
    /// Runs it against the server on `port`.
    ///
    /// # Errors
    /// I/O errors, and answers that are none to what was asked.
    pub fn run(&self, port: u16) -> Result<Sample, BenchError> {
        self.drive(port)
            .map_err(BenchError::io("talking to", Path::new("the server")))
    }

    fn drive(&self, port: u16) -> io::Result<Sample> {
        let mut random = Random::new(fresh_seed());
        let mut value = vec![0; usize::try_from(self.value_bytes).unwrap_or(usize::MAX)];
        random.fill(&mut value);
        let mut clients = (0..self.clients.max(1))
            .map(|_| {
                let stream = TcpStream::connect(("127.0.0.1", port))?;
                stream.set_nodelay(true)?;
                Ok(Client {
                    stream,
                    received: Vec::new(),
                    sent: Instant::now(),
                })
            })
            .collect::<io::Result<Vec<_>>>()?;
        let mut latencies = Latencies::new();
        let (mut sent, mut done) = (0, 0);
        let start = Instant::now();
        for client in clients
            .iter_mut()
            .take(usize::try_from(self.requests).unwrap_or(usize::MAX))
        {
            client.send(&self.request(&mut random, &value))?;
            sent += 1;
        }
        while done < self.requests {
            for at in ready(&clients)? {
                let client = &mut clients[at];
                if !client.receive()? {
                    continue;
                }
                latencies.record(client.sent.elapsed().as_nanos() as u64);
                done += 1;
                if sent < self.requests {
                    client.send(&self.request(&mut random, &value))?;
                    sent += 1;
                }
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        Ok(Sample {
            ops_per_s: done as f64 / seconds,
            latency: latencies.percentiles(),
            ..Sample::default()
        })
    }

    fn request(&self, random: &mut Random, value: &[u8]) -> Vec<u8> {
        let key = key(random.below(self.keys));
        if random.below(self.sets + self.gets) < self.sets {
            encode(&[b"SET", key.as_bytes(), value])
        } else {
            encode(&[b"GET", key.as_bytes()])
        }
    }
}

/// Key number `number`. All are of one length, so that pairs are.
#[must_use]
pub fn key(number: u64) -> String {
    format!("key:{number:012}")
}

fn encode(words: &[&[u8]]) -> Vec<u8> {
    let mut message = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        message.extend(format!("${}\r\n", word.len()).as_bytes());
        message.extend(*word);
        message.extend(b"\r\n");
    }
    message
}

impl Client {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        self.received.clear();
        self.sent = Instant::now();
        self.stream.write_all(message)
    }

    /// Takes what has come. True if the answer is complete.
    fn receive(&mut self) -> io::Result<bool> {
        let mut chunk = [0; 16 << 10];
        let bytes = self.stream.read(&mut chunk)?;
        if bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.received.extend(&chunk[..bytes]);
        is_complete(&self.received)
    }
}

/// Whether the answer to a SET or GET is all there.
fn is_complete(answer: &[u8]) -> io::Result<bool> {
    let wrong = |what: &str| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("the server answered {what}"),
        )
    };
    let Some(line) = answer.iter().position(|byte| *byte == b'\n') else {
        return Ok(false);
    };
    let head = String::from_utf8_lossy(&answer[..line])
        .trim_end()
        .to_owned();
    match head.split_at_checked(1) {
        Some(("+", "OK")) => Ok(true),
        Some(("$", length)) => {
            let length: i64 = length.parse().map_err(|_| wrong(&head))?;
            Ok(length < 0 || answer.len() as i64 >= line as i64 + 1 + length + 2)
        }
        _ => Err(wrong(&head)),
    }
}

/// Clients that something has come for.
fn ready(clients: &[Client]) -> io::Result<Vec<usize>> {
    let mut fds: Vec<PollFd<'_>> = clients
        .iter()
        .map(|client| PollFd::new(&client.stream, PollFlags::IN))
        .collect();
    let patience = rustix::time::Timespec {
        tv_sec: PATIENCE.as_secs() as i64,
        tv_nsec: 0,
    };
    loop {
        match poll(&mut fds, Some(&patience)) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => break,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let has = fds
        .iter()
        .enumerate()
        .filter(|(_, fd)| !fd.revents().is_empty());
    Ok(has.map(|(at, _)| at).collect())
}

/// Sets keys `from` up to `to` (not included) to values of `value_bytes` bytes, many in flight.
///
/// # Errors
/// I/O errors, and answers other than `OK`.
pub fn load(connection: &mut Connection, from: u64, to: u64, value_bytes: u64) -> io::Result<()> {
    const IN_FLIGHT: u64 = 200;
    let mut value = vec![0; usize::try_from(value_bytes).unwrap_or(usize::MAX)];
    let mut random = Random::new(from);
    let (mut sent, mut done) = (from, from);
    while done < to {
        let batch = (to - sent).min(IN_FLIGHT);
        for _ in 0..batch {
            random.fill(&mut value);
            connection.send(&[b"SET", key(sent).as_bytes(), &value])?;
            sent += 1;
        }
        while done < sent {
            match connection.receive()? {
                reply if reply.is_ok() => done += 1,
                Reply::Error(error) => return Err(io::Error::other(error)),
                other => return Err(io::Error::other(format!("the server answered {other:?}"))),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_complete_when_its_last_byte_has_come() {
        for (answer, complete) in [
            ("", false),
            ("+OK\r", false),
            ("+OK\r\n", true),
            ("$5\r\nwat", false),
            ("$5\r\nwater\r", false),
            ("$5\r\nwater\r\n", true),
            ("$-1\r\n", true),
            ("$0\r\n\r\n", true),
        ] {
            assert_eq!(
                is_complete(answer.as_bytes()).unwrap(),
                complete,
                "{answer:?}"
            );
        }
        assert!(is_complete(b"-ERR no\r\n").is_err());
    }
}
