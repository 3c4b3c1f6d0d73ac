//! Transactions of several threads, whose history is checked afterwards.
//!
//! Each transaction appends its number to the values of some keys, and reads others, by key and by
//! range. So the last value of a key tells in which order it was written, and what a transaction
//! read tells what it came behind and what it came before. Serialisable is a history without a
//! circle of these ("list-append", as in Kingsbury's and Alvaro's Elle).

use crate::common::{Bench, Rng, VARIANTS, tiny, within};
use forebay_store::{Durability, ScanRange, Store, StoreError, Transaction, Value};
use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    thread,
    time::Duration,
};

const THREADS: u64 = 4;
const KEYS: u64 = 8;
const TRANSACTIONS: u32 = 250;

fn key(number: u64) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

fn numbers(value: Option<&[u8]>) -> Vec<u32> {
    let words = value.unwrap_or_default().chunks(4);
    words
        .map(|word| u32::from_le_bytes(word.try_into().unwrap()))
        .collect()
}

/// A committed transaction: the lists that it read before it wrote to them.
struct Committed {
    number: u32,
    read: BTreeMap<Vec<u8>, Vec<u32>>,
}

/// One transaction's reads and writes.
fn work(
    tx: &mut Transaction<'_>,
    number: u32,
    rng: &mut Rng,
) -> Result<BTreeMap<Vec<u8>, Vec<u32>>, StoreError> {
    let (mut read, mut own) = (BTreeMap::new(), Vec::new());
    for _ in 0..2 + rng.below(3) {
        let at = rng.below(KEYS);
        match rng.below(4) {
            0 => {
                // All keys from that one on, or two of them. Those that are not there are seen too.
                let all = rng.chance(2);
                let range = ScanRange::new(key(at)..key(KEYS));
                let pairs: Result<Vec<_>, _> =
                    tx.scan(range)?.take(if all { 99 } else { 2 }).collect();
                let pairs: BTreeMap<_, _> = pairs?.into_iter().collect();
                let seen_to = match all {
                    true => key(KEYS),
                    false => pairs.keys().next_back().cloned().unwrap_or(key(KEYS)),
                };
                for key in (at..KEYS)
                    .map(key)
                    .filter(|key| *key <= seen_to && !own.contains(key))
                {
                    let value = pairs.get(&key).map(|value: &Value| &**value);
                    read.insert(key, numbers(value));
                }
            }
            1 => {
                let found = tx.get(&key(at))?;
                if !own.contains(&key(at)) {
                    read.insert(key(at), numbers(found.as_deref()));
                }
            }
            _ if own.contains(&key(at)) => {}
            _ => {
                let found = tx.get(&key(at))?;
                read.insert(key(at), numbers(found.as_deref()));
                let list = [found.as_deref().unwrap_or_default(), &number.to_le_bytes()].concat();
                tx.put(&key(at), &list)?;
                own.push(key(at));
            }
        }
        if rng.chance(8) {
            thread::yield_now();
        }
    }
    Ok(read)
}

/// What comes before what, by the lists in the end and the lists that were read.
fn orders(history: &[Committed], last: &BTreeMap<Vec<u8>, Vec<u32>>) -> Vec<(u32, u32)> {
    let mut before = Vec::new();
    for list in last.values() {
        before.extend(list.windows(2).map(|pair| (pair[0], pair[1])));
    }
    for Committed { number, read } in history {
        for (key, seen) in read {
            let list = last.get(key).map_or(&[][..], Vec::as_slice);
            assert!(list.starts_with(seen), "{number} read {seen:?} of {list:?}");
            before.extend(seen.last().map(|writer| (*writer, *number)));
            let next = list.get(seen.len()).filter(|next| *next != number);
            before.extend(next.map(|writer| (*number, *writer)));
        }
    }
    before
}

/// Those that are in a circle, or behind one.
fn circle(history: &[Committed], before: &[(u32, u32)]) -> Vec<u32> {
    let mut behind: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    let mut waits: BTreeMap<u32, usize> = history.iter().map(|tx| (tx.number, 0)).collect();
    for (first, second) in before {
        behind.entry(*first).or_default().push(*second);
        *waits
            .get_mut(second)
            .expect("a transaction that was committed") += 1;
    }
    let mut free: Vec<u32> = waits
        .iter()
        .filter(|(_, n)| **n == 0)
        .map(|(tx, _)| *tx)
        .collect();
    while let Some(tx) = free.pop() {
        waits.remove(&tx);
        for next in behind.remove(&tx).unwrap_or_default() {
            let left = waits.get_mut(&next).expect("it waits for this one");
            *left -= 1;
            if *left == 0 {
                free.push(next);
            }
        }
    }
    waits.into_keys().collect()
}

/// Promise (store): Transactions are serialisable, whatever runs at the same time.
#[test]
fn a_history_of_several_threads_has_no_circle() {
    let seed = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64 >> 8;
    println!("seed {seed}");
    for (round, variant) in (0..).zip([Durability::DOUBLE, Durability::NoSync]) {
        within(
            Duration::from_secs(120),
            "transactions of threads",
            move || {
                let bench = Bench::new();
                let store = bench.open(&tiny(variant).space_amplification_max(1.2));
                let (numbered, conflicts, done) =
                    (AtomicU32::new(1), AtomicU32::new(0), AtomicBool::new(false));
                let (store, numbered, conflicts, done) = (&store, &numbered, &conflicts, &done);
                let run = |thread: u64| {
                    let mut rng = Rng(seed + 100 * round + thread);
                    let mut history = Vec::new();
                    while history.len() < TRANSACTIONS as usize {
                        let number = numbered.fetch_add(1, Relaxed);
                        let mut tx = store.begin().unwrap();
                        let read = work(&mut tx, number, &mut rng).unwrap();
                        match tx.commit() {
                            Ok(()) => history.push(Committed { number, read }),
                            Err(StoreError::Conflict { .. }) => {
                                conflicts.fetch_add(1, Relaxed);
                            }
                            Err(error) => panic!("{error}"),
                        }
                    }
                    history
                };
                let history: Vec<Committed> = thread::scope(|scope| {
                    let threads: Vec<_> =
                        (0..THREADS).map(|n| scope.spawn(move || run(n))).collect();
                    // Beside them, what moves values: garbage and its collection.
                    scope.spawn(|| {
                        for i in 0u32.. {
                            if done.load(Relaxed) {
                                break;
                            }
                            store.put(&[b'z', (i % 50) as u8], &[7; 2000]).unwrap();
                            if i % 500 == 499 {
                                store.gc().unwrap();
                            }
                        }
                    });
                    let joined = threads
                        .into_iter()
                        .flat_map(|thread| thread.join().unwrap())
                        .collect();
                    done.store(true, Relaxed);
                    joined
                });
                let pairs = store.prefix("key ").unwrap().map(Result::unwrap);
                let last = pairs
                    .map(|(key, value)| (key, numbers(Some(&value))))
                    .collect();
                let before = orders(&history, &last);
                assert_eq!(circle(&history, &before), Vec::<u32>::new(), "seed {seed}");
                println!("{variant}: {} refused", conflicts.load(Relaxed));
                assert!(conflicts.load(Relaxed) > 0, "they never met");
            },
        );
    }
}

#[test]
fn a_circle_in_a_history_is_found() {
    let tx = |number, read: &[(u64, &[u32])]| Committed {
        number,
        read: read
            .iter()
            .map(|(at, seen)| (key(*at), seen.to_vec()))
            .collect(),
    };
    // A write skew: each read what the other wrote to.
    let last = BTreeMap::from([(key(0), vec![1]), (key(1), vec![2])]);
    let history = [tx(1, &[(0, &[]), (1, &[])]), tx(2, &[(0, &[]), (1, &[])])];
    assert_eq!(circle(&history, &orders(&history, &last)), [1, 2]);
    let history = [tx(1, &[(0, &[]), (1, &[])]), tx(2, &[(0, &[1]), (1, &[])])];
    assert_eq!(
        circle(&history, &orders(&history, &last)),
        Vec::<u32>::new()
    );
}

/// Promise: as `a_history_of_several_threads_has_no_circle`.
#[test]
fn money_that_is_transferred_stays_the_same() {
    const ACCOUNTS: u64 = 6;
    for variant in VARIANTS {
        let bench = Bench::new();
        let store = bench.open(&tiny(variant));
        let account = |number: u64| format!("account {number}").into_bytes();
        for number in 0..ACCOUNTS {
            store.increment(&account(number), 100).unwrap();
        }
        let sum = |pairs: Vec<(Vec<u8>, Value)>| -> i64 {
            let balances = pairs.iter().map(|(_, value)| (**value).try_into().unwrap());
            balances.map(i64::from_le_bytes).sum()
        };
        let transfer = |store: &Store, from: u64, to: u64, amount: i64| {
            store.transaction(|tx| {
                let balance = |value: Option<Value>| {
                    value.map_or(0, |value| i64::from_le_bytes((*value).try_into().unwrap()))
                };
                let (left, right) = (
                    balance(tx.get(&account(from))?),
                    balance(tx.get(&account(to))?),
                );
                if left < amount || from == to {
                    return Ok(());
                }
                match left - amount {
                    // An empty account goes, and comes again.
                    0 => tx.delete(&account(from))?,
                    rest => tx.put(&account(from), &rest.to_le_bytes())?,
                }
                tx.put(&account(to), &(right + amount).to_le_bytes())
            })
        };
        thread::scope(|scope| {
            for seed in 0..3 {
                let (store, transfer) = (&store, &transfer);
                scope.spawn(move || {
                    let mut rng = Rng(seed);
                    for _ in 0..150 {
                        let (from, to) = (rng.below(ACCOUNTS), rng.below(ACCOUNTS));
                        transfer(store, from, to, 1 + rng.below(60) as i64).unwrap();
                    }
                });
            }
            scope.spawn(|| {
                for _ in 0..100 {
                    let tx = store.begin().unwrap();
                    let pairs = tx.prefix("account ").unwrap().map(Result::unwrap).collect();
                    assert_eq!(sum(pairs), 100 * ACCOUNTS as i64, "{variant}");
                }
            });
        });
        drop(store);
        let store = bench.open(&tiny(variant));
        let pairs = store
            .prefix("account ")
            .unwrap()
            .map(Result::unwrap)
            .collect();
        assert_eq!(sum(pairs), 100 * ACCOUNTS as i64, "{variant}");
    }
}
