//! The anomalies by which isolation levels are told apart, by their names in Adya's thesis and in
//! Martin Kleppmann's Hermitage: none of them happens.

use crate::{
    common::{Bench, VARIANTS, tiny},
    conflict,
};
use forebay_store::{ScanRange, Store, Transaction};

/// Has `test` meet a store with the keys 1 (10) and 2 (20), in every variant.
fn with_two_keys(test: impl Fn(&Store)) {
    for variant in VARIANTS {
        let bench = Bench::new();
        let store = bench.open(&tiny(variant));
        store.put("1", "10").unwrap();
        store.put("2", "20").unwrap();
        test(&store);
    }
}

fn get(tx: &Transaction<'_>, key: &str) -> u32 {
    let value = tx.get(key).unwrap().expect("the key is there");
    std::str::from_utf8(&value).unwrap().parse().unwrap()
}

fn put(tx: &mut Transaction<'_>, key: &str, value: u32) {
    tx.put(key, value.to_string().as_bytes()).unwrap();
}

/// All keys with the values that `of` takes.
fn find(tx: &Transaction<'_>, of: impl Fn(u32) -> bool) -> Vec<(Vec<u8>, u32)> {
    let pairs = tx.scan(ScanRange::all()).unwrap().map(Result::unwrap);
    let parsed = pairs.map(|(key, value)| {
        let text = std::str::from_utf8(&value).unwrap();
        (key, text.parse().unwrap())
    });
    parsed.filter(|(_, value)| of(*value)).collect()
}

fn values(store: &Store) -> [u32; 2] {
    let tx = store.begin().unwrap();
    [get(&tx, "1"), get(&tx, "2")]
}

/// Promise (store): Of two transactions that write the same keys, all of one is on top of all of
/// the other.
#[test]
fn g0_dirty_writes_do_not_mix() {
    with_two_keys(|store| {
        let (mut t1, mut t2) = (store.begin().unwrap(), store.begin().unwrap());
        put(&mut t1, "1", 11);
        put(&mut t2, "1", 12);
        put(&mut t1, "2", 21);
        t1.commit().unwrap();
        assert_eq!(values(store), [11, 21]);
        put(&mut t2, "2", 22);
        t2.commit().unwrap();
        assert_eq!(values(store), [12, 22]);
    });
}

/// Promise (store): A transaction sees nothing of another one before that is committed.
#[test]
fn g1_writes_not_committed_are_not_read() {
    with_two_keys(|store| {
        // G1a: an aborted read. G1b: an intermediate read.
        let (mut t1, t2) = (store.begin().unwrap(), store.begin().unwrap());
        put(&mut t1, "1", 101);
        assert_eq!(get(&t2, "1"), 10);
        assert_eq!(store.get("1").unwrap().unwrap(), "10");
        drop(t1);
        assert_eq!((get(&t2, "1"), get(&store.begin().unwrap(), "1")), (10, 10));
        let mut t1 = store.begin().unwrap();
        put(&mut t1, "1", 101);
        assert_eq!(get(&store.begin().unwrap(), "1"), 10);
        put(&mut t1, "1", 11);
        t1.commit().unwrap();
        assert_eq!((get(&t2, "1"), get(&store.begin().unwrap(), "1")), (10, 11));
    });
}

#[test]
fn g1c_information_does_not_flow_in_a_circle() {
    with_two_keys(|store| {
        let (mut t1, mut t2) = (store.begin().unwrap(), store.begin().unwrap());
        put(&mut t1, "1", 11);
        put(&mut t2, "2", 22);
        assert_eq!((get(&t1, "2"), get(&t2, "1")), (20, 10));
        t1.commit().unwrap();
        assert_eq!(conflict(t2.commit()), b"1");
        assert_eq!(values(store), [11, 20]);
    });
}

#[test]
fn otv_an_observed_transaction_does_not_vanish() {
    with_two_keys(|store| {
        let (mut t1, mut t2) = (store.begin().unwrap(), store.begin().unwrap());
        put(&mut t1, "1", 11);
        put(&mut t1, "2", 19);
        put(&mut t2, "1", 12);
        t1.commit().unwrap();
        let t3 = store.begin().unwrap();
        assert_eq!(get(&t3, "1"), 11);
        put(&mut t2, "2", 18);
        assert_eq!(get(&t3, "2"), 19);
        t2.commit().unwrap();
        assert_eq!((get(&t3, "2"), get(&t3, "1")), (19, 11));
    });
}

#[test]
fn pmp_a_predicate_finds_the_same_twice() {
    with_two_keys(|store| {
        let mut t1 = store.begin().unwrap();
        assert_eq!(find(&t1, |value| value == 30), []);
        store.put("3", "30").unwrap();
        assert_eq!(find(&t1, |value| value % 3 == 0), []);
        put(&mut t1, "none is thirty", 1);
        assert_eq!(conflict(t1.commit()), b"3");
        store.delete("3").unwrap();
        // The same, with what the predicate finds being written.
        let (mut t1, mut t2) = (store.begin().unwrap(), store.begin().unwrap());
        for (key, value) in find(&t1, |_| true) {
            t1.put(&key, (value + 10).to_string().as_bytes()).unwrap();
        }
        for (key, _) in find(&t2, |value| value == 20) {
            t2.delete(&key).unwrap();
        }
        t1.commit().unwrap();
        assert_eq!(conflict(t2.commit()), b"1");
        assert_eq!(values(store), [20, 30]);
    });
}

/// Promise (store): No update is lost between transactions, nor between one and a plain put.
#[test]
fn p4_no_update_is_lost() {
    with_two_keys(|store| {
        let (mut t1, mut t2) = (store.begin().unwrap(), store.begin().unwrap());
        for tx in [&mut t1, &mut t2] {
            let value = get(tx, "1");
            put(tx, "1", value + 1);
        }
        t1.commit().unwrap();
        assert_eq!(conflict(t2.commit()), b"1");
        let mut t3 = store.begin().unwrap();
        let value = get(&t3, "1");
        put(&mut t3, "1", value + 1);
        store.put("1", "50").unwrap();
        assert_eq!(conflict(t3.commit()), b"1");
        assert_eq!(values(store), [50, 20]);
    });
}

/// Promise (store): All reads of a transaction are of one moment.
#[test]
fn g_single_reads_are_of_one_moment() {
    with_two_keys(|store| {
        let (mut t1, mut t2) = (store.begin().unwrap(), store.begin().unwrap());
        assert_eq!(get(&t1, "1"), 10);
        put(&mut t2, "1", 12);
        put(&mut t2, "2", 18);
        t2.commit().unwrap();
        assert_eq!(get(&t1, "2"), 20);
        // What depends on the old moment is not written.
        for (key, _) in find(&t1, |value| value == 20) {
            t1.delete(&key).unwrap();
        }
        assert_eq!(conflict(t1.commit()), b"1");
        assert_eq!(values(store), [12, 18]);
    });
}

/// Promise (store): Two transactions that each write what the other has read are not both
/// committed (write skew), and the error names the key.
#[test]
fn g2_item_write_skew_is_refused() {
    with_two_keys(|store| {
        let (mut t1, mut t2) = (store.begin().unwrap(), store.begin().unwrap());
        for tx in [&t1, &t2] {
            assert_eq!((get(tx, "1"), get(tx, "2")), (10, 20));
        }
        put(&mut t1, "1", 11);
        put(&mut t2, "2", 21);
        t1.commit().unwrap();
        let refused = t2.commit();
        let said = refused.as_ref().unwrap_err().to_string();
        assert!(said.contains("the key \"1\" was changed"), "{said}");
        assert_eq!(conflict(refused), b"1");
        assert_eq!(values(store), [11, 20]);
    });
}

/// Promise (store): A transaction is not committed if a key came into a range that it has scanned,
/// left it, or was changed there (phantoms).
#[test]
fn g2_a_phantom_is_refused() {
    with_two_keys(|store| {
        let (mut t1, mut t2) = (store.begin().unwrap(), store.begin().unwrap());
        for tx in [&t1, &t2] {
            assert_eq!(find(tx, |value| value % 3 == 0), []);
        }
        put(&mut t1, "3", 30);
        put(&mut t2, "4", 42);
        t1.commit().unwrap();
        assert_eq!(conflict(t2.commit()), b"3");
        assert!(!store.contains_key("4").unwrap());
    });
}

/// The read-only transaction anomaly of Fekete, O'Neil and O'Neil, on two accounts.
///
/// Promise (store): A transaction that only reads sees a state that all others together passed
/// through.
#[test]
fn a_read_only_transaction_sees_a_serial_state() {
    with_two_keys(|store| {
        store.put("1", "0").unwrap();
        store.put("2", "0").unwrap();
        let mut withdraws = store.begin().unwrap();
        assert_eq!((get(&withdraws, "1"), get(&withdraws, "2")), (0, 0));
        let mut deposits = store.begin().unwrap();
        let balance = get(&deposits, "2");
        put(&mut deposits, "2", balance + 20);
        deposits.commit().unwrap();
        let reports = store.begin().unwrap();
        assert_eq!((get(&reports, "1"), get(&reports, "2")), (0, 20));
        reports.commit().unwrap();
        // With a fee, for it saw both accounts empty: the report says that it came after the other.
        put(&mut withdraws, "1", 11);
        assert_eq!(conflict(withdraws.commit()), b"2");
    });
    // The same with a scan, and a third one between the two.
    with_two_keys(|store| {
        let mut t1 = store.begin().unwrap();
        assert_eq!(find(&t1, |_| true).len(), 2);
        store.transaction(|tx| tx.put("2", "25")).unwrap();
        let t3 = store.begin().unwrap();
        assert_eq!(find(&t3, |_| true)[1].1, 25);
        t3.commit().unwrap();
        put(&mut t1, "1", 0);
        assert_eq!(conflict(t1.commit()), b"2");
    });
}

#[test]
fn a_detached_transaction_keeps_what_it_read_and_wrote() {
    with_two_keys(|store| {
        let mut t1 = store.begin().unwrap();
        assert_eq!(get(&t1, "1"), 10);
        put(&mut t1, "2", 22);
        let (t1, t2) = (t1.detach(), store.begin().unwrap().detach());
        // It may go to another thread.
        let t1 = std::thread::spawn(move || t1).join().unwrap();
        store.put("1", "11").unwrap();
        let t1 = store.resume(t1).unwrap();
        assert_eq!((get(&t1, "1"), get(&t1, "2")), (10, 22));
        assert_eq!(conflict(t1.commit()), b"1");
        let mut t2 = store.resume(t2).unwrap();
        put(&mut t2, "2", 23);
        t2.commit().unwrap();
        assert_eq!(values(store), [11, 23]);
    });
}
