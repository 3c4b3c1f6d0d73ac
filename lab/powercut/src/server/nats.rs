//! A NATS server in the same guest, reached by its port: each change is a message of JetStream's.
//!
//! Two streams have each change. `kv` keeps the last message of a key, in blocks of 4 MB: the
//! server copies what is left of a block into another once half of it is gone. `recent` keeps the
//! last 128 kB in blocks of 32 kB, which the server makes, shortens and unlinks all the time; now
//! and then all of it goes at once, or all but a few. A change is acknowledged when both streams
//! have acknowledged it.
//!
//! What NATS drops from the front of a stream, by the limit of bytes, may be there again after a
//! power cut; what a purge removes is marked as removed, one by one. So there may be a gap before
//! the first message that a purge kept, and the subject of that one says so.

use crate::{Change, Engine, Failure, patience};
use forebay_bench::nats::client::{Connection, Limits, Stored, Wanted};
use std::{
    cell::RefCell,
    collections::BTreeMap,
    thread,
    time::{Duration, Instant},
};

const PAUSE: Duration = Duration::from_millis(50);

const KV: &str = "kv";
const RECENT: &str = "recent";
const RECENT_BYTES: u64 = 128_000;

/// So many changes later `recent` is shortened to a few messages, and so many later emptied.
const SHORTENED_EVERY: u64 = 90;
const EMPTIED_EVERY: u64 = 400;
const KEPT: u64 = 5;

/// Behind the key of a message that is the first one after a purge, or may be.
const FIRST: &str = "~first";

/// What a message begins with.
const SET: u8 = b'S';
const DELETED: u8 = b'D';

/// A connection to it.
pub struct Nats {
    connection: RefCell<Connection>,
    changes: u64,
}

impl Nats {
    /// Waits until the NATS with this port serves, and compares its streams.
    pub fn open(port: u16) -> Result<Self, Failure> {
        let begun = Instant::now();
        let mut connection = loop {
            match ready(port) {
                Ok(connection) => break connection,
                Err(e) if begun.elapsed() > patience() => return Err(e.into()),
                Err(_) => thread::sleep(PAUSE),
            }
        };
        compare(&mut connection)?;
        Ok(Self {
            connection: RefCell::new(connection),
            changes: 0,
        })
    }
}

/// A connection to a server that has both streams.
fn ready(port: u16) -> std::io::Result<Connection> {
    let mut connection = Connection::new(port)?;
    let last_of_each = Limits {
        per_subject: Some(1),
        bytes: None,
    };
    let small_blocks = Limits {
        per_subject: None,
        bytes: Some(RECENT_BYTES),
    };
    connection.make_stream(KV, last_of_each)?;
    connection.make_stream(RECENT, small_blocks)?;
    Ok(connection)
}

/// All messages that a stream has, in order. An error if it says that it has another number.
fn messages(connection: &mut Connection, stream: &str) -> Result<Vec<Stored>, Failure> {
    let (mut all, mut next) = (Vec::new(), 1);
    while let Some(message) = connection.message(stream, Wanted::From(next))? {
        next = message.number + 1;
        all.push(message);
    }
    let state = connection.state(stream)?;
    if state.messages != all.len() as u64 {
        let found = all.len();
        return Err(format!("{stream}: {state:?}, and {found} can be read").into());
    }
    Ok(all)
}

/// A key, by a message's subject.
fn key(message: &Stored) -> &str {
    let key = message.subject.split_once('.').map_or("", |(_, key)| key);
    key.split('~').next().unwrap_or_default()
}

/// The first message that lacks those before it, and that no purge made the first one, with the one
/// before.
fn gap(messages: &[Stored]) -> Option<(u64, u64)> {
    let gap_of = |pair: &[Stored]| match pair {
        [before, message] => {
            let follows = before.number + 1 == message.number;
            let is_legal = follows || message.subject.ends_with(FIRST);
            (!is_legal).then_some((before.number, message.number))
        }
        _ => None,
    };
    messages.windows(2).find_map(gap_of)
}

/// The change that follows so many others is the first one that a purge keeps, or the first one
/// after a purge of all.
fn is_first(changes: u64) -> bool {
    let shortened_after = changes + KEPT;
    changes.is_multiple_of(EMPTIED_EVERY)
        || (shortened_after.is_multiple_of(SHORTENED_EVERY)
            && !shortened_after.is_multiple_of(EMPTIED_EVERY))
}

/// True if `recent` ends with the change that is the last of `kv`, but for what came to `recent`
/// alone: a cut may leave one such change, and the next boot's first one is marked. Or if `recent`
/// was emptied since.
fn ends_alike(recent: &[Stored], last: &Stored) -> bool {
    let mut may_be_alone = true;
    for message in recent.iter().rev() {
        if key(message) == key(last) && message.payload == last.payload {
            return true;
        }
        if !may_be_alone {
            return false;
        }
        may_be_alone = message.subject.ends_with(FIRST);
    }
    may_be_alone
}

/// Everything of `recent` stands there without a gap, but for what was to go, and its end is that
/// of `kv`: a change goes to `recent` first.
fn compare(connection: &mut Connection) -> Result<(), Failure> {
    let recent = messages(connection, RECENT)?;
    if let Some((before, number)) = gap(&recent) {
        return Err(format!("{RECENT}: {} is missing before {number}", before + 1).into());
    }
    let Some(last) = messages(connection, KV)?.pop() else {
        return Ok(());
    };
    match ends_alike(&recent, &last) {
        true => Ok(()),
        false => Err(format!(
            "{RECENT} ends at {:?} and {KV} at message {}, {}",
            recent.last().map(|message| (message.number, key(message))),
            last.number,
            key(&last)
        )
        .into()),
    }
}

impl Engine for Nats {
    fn apply(&mut self, changes: Vec<Change>) -> Result<(), Failure> {
        let connection = self.connection.get_mut();
        for (key, value) in changes {
            let key = String::from_utf8(key)?;
            let payload = match value {
                Some(value) => [&[SET], &value[..]].concat(),
                None => vec![DELETED],
            };
            let mark = if is_first(self.changes) { FIRST } else { "" };
            connection.publish(&format!("{RECENT}.{key}{mark}"), &payload)?;
            connection.publish(&format!("{KV}.{key}"), &payload)?;
            self.changes += 1;
            if self.changes.is_multiple_of(EMPTIED_EVERY) {
                connection.purge(RECENT, 0)?;
            } else if self.changes.is_multiple_of(SHORTENED_EVERY) {
                connection.purge(RECENT, KEPT)?;
            }
        }
        Ok(())
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        let subject = format!("{KV}.{}", std::str::from_utf8(key)?);
        let mut connection = self.connection.borrow_mut();
        let found = connection.message(KV, Wanted::LastOf(&subject))?;
        Ok(found.and_then(|message| value(&message)))
    }

    fn count(&self) -> Result<u64, Failure> {
        let all = messages(&mut self.connection.borrow_mut(), KV)?;
        let last: BTreeMap<&str, &Stored> = all.iter().map(|it| (key(it), it)).collect();
        let there = last.values().filter(|message| value(message).is_some());
        Ok(there.count() as u64)
    }
}

/// The value that a message gave its key.
fn value(message: &Stored) -> Option<Vec<u8>> {
    message.payload.strip_prefix(&[SET]).map(<[u8]>::to_vec)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn messages_may_be_missing_only_before_what_a_purge_kept() {
        let gap_of = |numbers: &[(u64, &str)]| {
            let of = |&(number, mark): &(u64, &str)| Stored {
                subject: format!("recent.key:{number}{mark}"),
                number,
                payload: Vec::new(),
            };
            gap(&numbers.iter().map(of).collect::<Vec<_>>())
        };
        assert_eq!(gap_of(&[]), None);
        assert_eq!(gap_of(&[(7, ""), (8, "")]), None);
        assert_eq!(gap_of(&[(7, ""), (9, "")]), Some((7, 9)));
        assert_eq!(gap_of(&[(7, FIRST), (9, "")]), Some((7, 9)));
        assert_eq!(gap_of(&[(7, ""), (9, FIRST)]), None);
    }

    #[test]
    fn each_boot_may_leave_a_change_in_the_first_stream_alone() {
        let of = |name: &str| Stored {
            subject: format!("recent.{name}"),
            number: 1,
            payload: name.split('~').next().unwrap().into(),
        };
        let ends = |recent: &[&str]| {
            let recent: Vec<Stored> = recent.iter().map(|name| of(name)).collect();
            ends_alike(&recent, &of("last"))
        };
        assert!(ends(&["before", "last"]) && ends(&["last", "alone"]));
        assert!(ends(&["last", "alone", "next~first"]));
        assert!(ends(&[]) && ends(&["emptied~first"]));
        assert!(!ends(&["last", "alone", "another"]));
        assert!(!ends(&["last", "alone", "another", "next~first"]));
        assert!(!ends(&["before", "alone"]) && !ends(&["before"]));
    }

    #[test]
    fn messages_that_a_purge_leaves_first_are_known_before() {
        let first: Vec<u64> = (0..410).filter(|&changes| is_first(changes)).collect();
        // The purge after 360 changes keeps the five from the one behind 355 on.
        assert_eq!(first, [0, 85, 175, 265, 355, 400]);
    }
}
