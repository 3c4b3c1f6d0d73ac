//! A client of our own, for what redis-benchmark does not do: mixes of SETs and GETs, and loading
//! distinct keys.
//!
//! One thread serves all connections, each with one request in flight, as redis-benchmark does: it
//! waits until answers have come, takes the time of each, and sends the next request on the same
//! connection.

use crate::{
    contest::Sample,
    data::{Random, fresh_seed},
    histogram::Latencies,
    redis::resp::{Connection, Reply, expect_ok},
};
use rustix::{
    event::{PollFd, PollFlags, poll},
    time::Timespec,
};
use std::{io, time::Instant};

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
const PATIENCE: Timespec = Timespec {
    tv_sec: 60,
    tv_nsec: 0,
};

/// A connection, and when its request was sent.
struct Client {
    connection: Connection,
    sent: Instant,
}

impl Mix {
    /// Runs it against the server on `port`.
    ///
    /// # Errors
    /// I/O errors, and answers that are none to what was asked.
    pub fn run(&self, port: u16) -> io::Result<Sample> {
        let mut random = Random::new(fresh_seed());
        let mut value = vec![0; usize::try_from(self.value_bytes).unwrap_or(usize::MAX)];
        random.fill(&mut value);
        let client = |_| {
            Ok(Client {
                connection: Connection::new(port)?,
                sent: Instant::now(),
            })
        };
        let clients = (0..self.clients.max(1)).map(client);
        let mut clients = clients.collect::<io::Result<Vec<_>>>()?;
        let mut latencies = Latencies::default();
        let (mut sent, mut done) = (0, 0);
        let start = Instant::now();
        for client in clients.iter_mut().take(self.requests as usize) {
            self.send(client, &mut random, &value)?;
            sent += 1;
        }
        while done < self.requests {
            for at in ready(&clients)? {
                let client = &mut clients[at];
                // What has begun to come is all there in a moment.
                match client.connection.receive()? {
                    Reply::BulkString(_) | Reply::Null => {}
                    reply => expect_ok(reply)?,
                }
                latencies.record(client.sent.elapsed().as_nanos() as u64);
                done += 1;
                if sent < self.requests {
                    self.send(client, &mut random, &value)?;
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

    fn send(&self, client: &mut Client, random: &mut Random, value: &[u8]) -> io::Result<()> {
        let key = key(random.below(self.keys));
        let is_set = random.below(self.sets + self.gets) < self.sets;
        client.sent = Instant::now();
        match is_set {
            true => client.connection.send(&[b"SET", key.as_bytes(), value]),
            false => client.connection.send(&[b"GET", key.as_bytes()]),
        }
    }
}

/// Key number `number`. All are of one length, so that pairs are.
pub fn key(number: u64) -> String {
    format!("key:{number:012}")
}

/// Clients that something has come for.
fn ready(clients: &[Client]) -> io::Result<Vec<usize>> {
    let connections = clients.iter().map(|client| &client.connection);
    let mut fds: Vec<PollFd<'_>> = connections
        .map(|connection| PollFd::new(connection, PollFlags::IN))
        .collect();
    match rustix::io::retry_on_intr(|| poll(&mut fds, Some(&PATIENCE)))? {
        0 => Err(io::ErrorKind::TimedOut.into()),
        _ => {
            let has = |at: &usize| !fds[*at].revents().is_empty();
            Ok((0..fds.len()).filter(has).collect())
        }
    }
}

/// Sets keys `from` up to `to` (not included) to values of `value_bytes` bytes, many in flight.
///
/// # Errors
/// I/O errors, and answers other than `OK`.
pub fn load(connection: &mut Connection, from: u64, to: u64, value_bytes: u64) -> io::Result<()> {
    const IN_FLIGHT: u64 = 200;
    let mut value = vec![0; usize::try_from(value_bytes).unwrap_or(usize::MAX)];
    let mut random = Random::new(from);
    for number in from..to {
        random.fill(&mut value);
        connection.send(&[b"SET", key(number).as_bytes(), &value])?;
        if number - from >= IN_FLIGHT {
            expect_ok(connection.receive()?)?;
        }
    }
    (from..to.min(from + IN_FLIGHT)).try_for_each(|_| expect_ok(connection.receive()?))
}
