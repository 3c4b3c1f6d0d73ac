//! The ledger of sent and acknowledged writes: the memory of the client, which stands outside the
//! guest.
//!
//! One connection sends transactions in order, several at a time, and the server carries them out
//! in that order. So after a power cut the server must hold what was acknowledged and, of what was
//! not, the first so many transactions, each whole; no other state is right.

use forebay_random::Rng;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// Number of a write: each has its own, and its value begins with it.
pub type Number = u64;

/// Changes that happen together or not at all: keys, and the number of each's new value, or none
/// for a deletion.
pub type Transaction = Vec<(u64, Option<Number>)>;

/// What is written: how much, and how large.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Keys that are written again and again.
    pub keys: u64,
    /// Changes in a transaction at most.
    pub batch_max: u64,
    /// One value in so many is as long as `long`; one in 20 some kilobytes; the others are short.
    pub long_every: u64,
    /// Bytes of a long one.
    pub long: u64,
    /// Bytes of the short ones at most.
    pub short: u64,
}

/// The memory.
pub struct Ledger {
    seed: u64,
    shape: Shape,
    random: Rng,
    /// What was acknowledged, key by key.
    state: BTreeMap<u64, Number>,
    /// What was sent and not acknowledged, in order.
    in_flight: VecDeque<Transaction>,
    /// By number: the key that it was written to.
    keys: Vec<u64>,
    /// Acknowledged transactions.
    pub acknowledged: u64,
}

/// What a server was found to hold.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Verdict {
    /// Keys without their acknowledged value: an older one, or none.
    pub lost: u64,
    /// Keys with what was never written to them.
    pub wrong: u64,
    /// Each key alone is right, but no order of whole transactions leads there.
    pub torn: bool,
    /// Keys looked for.
    pub keys: u64,
    /// Transactions that were in flight, and how many of them were found.
    pub in_flight: u64,
    /// See `in_flight`.
    pub kept: u64,
}

impl Verdict {
    /// True if the server holds what it must.
    pub fn good(&self) -> bool {
        self.lost == 0 && self.wrong == 0 && !self.torn
    }
}

impl Ledger {
    /// An empty one.
    pub fn new(seed: u64, shape: Shape) -> Self {
        Self {
            seed,
            shape,
            random: Rng(seed),
            state: BTreeMap::new(),
            in_flight: VecDeque::new(),
            keys: Vec::new(),
            acknowledged: 0,
        }
    }

    /// Keys that may exist.
    pub fn keys(&self) -> u64 {
        self.shape.keys
    }

    /// Transactions that are in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// The next transaction, in flight from now on.
    pub fn next(&mut self) -> Transaction {
        let changes = match self.random.below(4) {
            0 => 1 + self.random.below(self.shape.batch_max),
            _ => 1,
        };
        let mut transaction = Transaction::new();
        for _ in 0..changes {
            let key = self.random.below(self.shape.keys);
            let deletes = self.random.below(12) == 0;
            transaction.retain(|(other, _)| *other != key);
            let number = (!deletes).then(|| {
                self.keys.push(key);
                self.keys.len() as Number - 1
            });
            transaction.push((key, number));
        }
        self.in_flight.push_back(transaction.clone());
        transaction
    }

    /// The oldest one in flight was acknowledged.
    pub fn acknowledge(&mut self) {
        if let Some(transaction) = self.in_flight.pop_front() {
            apply(&mut self.state, &transaction);
            self.acknowledged += 1;
        }
    }

    /// Bytes of a value.
    pub fn value(&self, number: Number) -> Vec<u8> {
        let mut random = Rng(self.seed ^ number.wrapping_mul(0x9E37_79B9));
        let bytes = if random.below(self.shape.long_every) == 0 {
            self.shape.long
        } else if random.below(20) == 0 {
            4000 + random.below(5000)
        } else {
            random.below(self.shape.short)
        };
        let mut value = format!("{number}:").into_bytes();
        while (value.len() as u64) < bytes {
            let letters = random.next().to_le_bytes().map(|byte| b'a' + byte % 26);
            value.extend(letters);
        }
        value
    }

    /// The write that a value belongs to, if it was ever sent for this key.
    fn number(&self, key: u64, value: &[u8]) -> Option<Number> {
        let digits = value.split(|&byte| byte == b':').next()?;
        let number: Number = std::str::from_utf8(digits).ok()?.parse().ok()?;
        let sent_to = *self.keys.get(usize::try_from(number).ok()?)?;
        (sent_to == key && self.value(number) == value).then_some(number)
    }

    /// Compares everything with what the server has after a cut, and goes on from there.
    pub fn compare(&mut self, found: &BTreeMap<u64, Vec<u8>>) -> Verdict {
        let mut verdict = Verdict {
            keys: self.shape.keys,
            in_flight: self.in_flight.len() as u64,
            ..Verdict::default()
        };
        let mut numbers = BTreeMap::new();
        for (&key, value) in found {
            match self.number(key, value) {
                Some(number) => drop(numbers.insert(key, number)),
                None => verdict.wrong += 1,
            }
        }
        let mut state = self.state.clone();
        let mut possible: BTreeMap<u64, Vec<Option<Number>>> = BTreeMap::new();
        let mut kept = (state == numbers).then_some(0);
        for (before, transaction) in self.in_flight.iter().enumerate() {
            apply(&mut state, transaction);
            for (key, number) in transaction {
                possible.entry(*key).or_default().push(*number);
            }
            if kept.is_none() && state == numbers {
                kept = Some(before as u64 + 1);
            }
        }
        if verdict.wrong == 0
            && let Some(kept) = kept
        {
            verdict.kept = kept;
            self.state = numbers;
            self.in_flight.clear();
            return verdict;
        }
        for key in 0..self.shape.keys {
            let number = numbers.get(&key).copied();
            let acknowledged = self.state.get(&key).copied();
            let in_flight = possible.get(&key).is_some_and(|all| all.contains(&number));
            if number != acknowledged
                && !in_flight
                && (number.is_some() || !found.contains_key(&key))
            {
                verdict.lost += 1;
            }
        }
        verdict.torn = verdict.lost == 0 && verdict.wrong == 0;
        verdict
    }
}

fn apply(state: &mut BTreeMap<u64, Number>, transaction: &Transaction) {
    for (key, number) in transaction {
        match number {
            Some(number) => drop(state.insert(*key, *number)),
            None => drop(state.remove(key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape {
        keys: 20,
        batch_max: 5,
        long_every: 50,
        long: 20_000,
        short: 100,
    };

    /// A ledger with acknowledged and unacknowledged transactions, and the states that are right.
    fn ledger() -> (Ledger, Vec<BTreeMap<u64, Vec<u8>>>) {
        let mut ledger = Ledger::new(3, SHAPE);
        for _ in 0..200 {
            ledger.next();
            ledger.acknowledge();
        }
        let mut state = ledger.state.clone();
        let mut states = vec![state.clone()];
        for _ in 0..10 {
            let transaction = ledger.next();
            apply(&mut state, &transaction);
            states.push(state.clone());
        }
        let with_values = |state: BTreeMap<u64, Number>| {
            state
                .into_iter()
                .map(|(key, number)| (key, ledger.value(number)))
                .collect()
        };
        let states = states.into_iter().map(with_values).collect();
        (ledger, states)
    }

    #[test]
    fn every_acknowledged_write_and_any_prefix_of_the_rest_is_right() {
        let (_, states) = ledger();
        for (kept, state) in states.iter().enumerate() {
            let (mut ledger, _) = ledger();
            let verdict = ledger.compare(state);
            assert!(verdict.good(), "{verdict:?}");
            assert!(verdict.kept <= kept as u64);
            assert!(ledger.compare(state).good(), "it goes on from there");
        }
    }

    #[test]
    fn a_missing_an_older_and_a_foreign_value_are_told() {
        let (mut ledger, states) = ledger();
        let untouched = |key: &u64| {
            ledger
                .in_flight
                .iter()
                .flatten()
                .all(|(other, _)| other != key)
        };
        let key = *states[0].keys().find(|key| untouched(key)).unwrap();
        let mut state = states[0].clone();
        state.remove(&key);
        assert_eq!(ledger.compare(&state).lost, 1);
        let older = ledger.keys.iter().position(|other| *other == key).unwrap() as Number;
        state.insert(key, ledger.value(older));
        let verdict = ledger.compare(&state);
        assert_eq!((verdict.lost, verdict.wrong), (1, 0));
        state.insert(key, b"17:nobody wrote this".to_vec());
        let verdict = ledger.compare(&state);
        assert_eq!((verdict.lost, verdict.wrong), (0, 1));
    }

    #[test]
    fn half_a_transaction_is_told() {
        let (mut ledger, states) = ledger();
        let at = ledger.in_flight.iter().position(|t| t.len() > 2).unwrap();
        let (key, number) = ledger.in_flight[at][0];
        let mut state = states[at].clone();
        match number {
            Some(number) => drop(state.insert(key, ledger.value(number))),
            None => drop(state.remove(&key)),
        }
        assert_ne!(state, states[at]);
        let verdict = ledger.compare(&state);
        assert!(verdict.torn, "{verdict:?}");
    }
}
