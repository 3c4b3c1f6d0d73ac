//! The client that stands outside the guest and keeps what was acknowledged.

use crate::{Failure, machine::Machine};
use forebay_bench::redis::resp::{Connection, Reply};
use serde::Serialize;
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// What the server must hold.
#[derive(Default)]
pub struct Acknowledged {
    /// By key: the number of its value; `None` once it was deleted.
    values: BTreeMap<u64, Option<u64>>,
    /// What was sent and not answered: either may be.
    in_flight: Option<(u64, Option<u64>)>,
    next: u64,
    /// Acknowledged commands.
    pub count: u64,
}

/// What a server was found to hold.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Verdict {
    /// Keys whose acknowledged value is not there.
    pub lost: u64,
    /// Keys with a value that was never sent, or that should not be there.
    pub wrong: u64,
    /// Keys looked for.
    pub keys: u64,
}

/// Bytes of a value: mostly short, now and then long.
fn value(seed: u64, number: u64) -> Vec<u8> {
    let mut state = (seed ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let bytes = match next() % 20 {
        0 => 4000 + next() % 5000,
        _ => 10 + next() % 300,
    };
    (0..bytes)
        .map(|_| b'a' + (next() >> 40) as u8 % 26)
        .collect()
}

/// Keys that are written again and again.
const KEYS: u64 = 2000;

/// Waits until the guest's server answers.
pub fn connect(machine: &mut Machine) -> Result<Connection, Failure> {
    let port = machine.port;
    machine.wait(Duration::from_secs(120), |_| {
        let mut connection = Connection::new(port).ok()?;
        matches!(connection.line("DBSIZE"), Ok(Reply::Number(_))).then_some(connection)
    })
}

impl Acknowledged {
    /// Sends one command and waits for its answer. An error means that the power is gone.
    fn step(&mut self, connection: &mut Connection, seed: u64) -> std::io::Result<()> {
        let number = self.next;
        self.next += 1;
        let mixed = (seed ^ number).wrapping_mul(0xD134_2543_DE82_EF95) >> 33;
        let key = mixed % KEYS;
        let new = (!(mixed / KEYS).is_multiple_of(12)).then_some(number);
        let name = format!("key:{key}").into_bytes();
        self.in_flight = Some((key, new));
        let reply = match new {
            Some(number) => connection.command(&[b"SET", &name, &value(seed, number)])?,
            None => connection.command(&[b"DEL", &name])?,
        };
        if matches!(reply, Reply::Error(_)) {
            return Err(std::io::Error::other(format!("{reply:?}")));
        }
        self.in_flight = None;
        self.values.insert(key, new);
        self.count += 1;
        Ok(())
    }

    /// Writes for so long.
    pub fn write(
        &mut self,
        connection: &mut Connection,
        seed: u64,
        time: Duration,
    ) -> Result<(), Failure> {
        let until = Instant::now() + time;
        while Instant::now() < until {
            self.step(connection, seed)?;
        }
        Ok(())
    }

    /// Sends one more command, and waits for nothing.
    pub fn leave_in_flight(&mut self, connection: &mut Connection, seed: u64) {
        let number = self.next;
        self.next += 1;
        let key = number % KEYS;
        let name = format!("key:{key}").into_bytes();
        // The power goes in any case.
        let _ = connection.send(&[b"SET", &name, &value(seed, number)]);
        self.in_flight = Some((key, Some(number)));
    }

    /// Compares all that was ever written with what the server has, and takes its answer for what was in flight.
    pub fn compare(&mut self, connection: &mut Connection, seed: u64) -> Result<Verdict, Failure> {
        let mut verdict = Verdict::default();
        for key in 0..KEYS {
            let name = format!("key:{key}").into_bytes();
            let Reply::Bytes(found) = connection.command(&[b"GET", &name])? else {
                return Err("a GET was not answered with a value".into());
            };
            let acknowledged = self.values.get(&key).copied().flatten();
            let is = |number: Option<u64>| found == number.map(|number| value(seed, number));
            verdict.keys += 1;
            if is(acknowledged) {
                continue;
            }
            match self.in_flight {
                Some((in_flight, new)) if in_flight == key && is(new) => {
                    self.values.insert(key, new);
                }
                _ => match &found {
                    None => verdict.lost += 1,
                    // An older value: something was lost. Any other was never sent.
                    Some(found) if (0..self.next).any(|number| value(seed, number) == *found) => {
                        verdict.lost += 1
                    }
                    Some(_) => verdict.wrong += 1,
                },
            }
        }
        self.in_flight = None;
        Ok(verdict)
    }
}
