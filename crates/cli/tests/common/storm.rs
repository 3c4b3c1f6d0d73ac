//! A PostgreSQL server that is killed under load, again and again.

use super::{
    databases::{boot_anew, goes_on, moment, random},
    postgres::{STRIKES, SYNC_METHODS, check, make_table, set},
    writers::{Writer, all_write},
};
use forebay_bench::postgres::{
    client::Connection,
    server::{Launch, Server},
};
use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
};

/// Strikes so many times under load. With `other_boots`, every start believes that the machine was
/// booted anew, so that everything in the pool is written to the files again.
pub fn storm(name: &str, mut launch: Launch, strikes: usize, other_boots: bool) {
    let mut random = random(name);
    let mut writers = Writer::several(4, &mut random);
    for number in 0..strikes {
        if other_boots {
            boot_anew(&mut launch.environment, number);
        }
        let method = SYNC_METHODS[number % SYNC_METHODS.len()];
        set(&mut launch, "wal_sync_method", method);
        let mut server = Server::start(&launch).unwrap();
        match number {
            0 => make_table(&server),
            _ => check(&server, &mut writers),
        }
        let strike = STRIKES[number % STRIKES.len()];
        let (done, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
        let (wait, then) = (moment(&mut random, 800), moment(&mut random, 200));
        let mut is_stuck = false;
        thread::scope(|scope| {
            let until = (&done, &acknowledged);
            all_write::<Connection>(scope, &mut writers, server.socket(), until);
            let mut goes_on = || is_stuck |= !goes_on(&acknowledged);
            goes_on();
            thread::sleep(wait);
            strike.strike(&server, || {
                goes_on();
                thread::sleep(then);
            });
        });
        assert!(!is_stuck, "no transactions: {strike:?}");
        server.wait().unwrap();
        println!(
            "{name}, strike {number}, {strike:?}, {method}: {} acknowledged",
            acknowledged.load(Relaxed)
        );
        let refused: Vec<_> = writers.iter().filter_map(|w| w.refused.clone()).collect();
        assert!(refused.is_empty(), "{refused:?}");
    }
    let server = Server::start(&launch).unwrap();
    check(&server, &mut writers);
    server.stop().unwrap();
}
