//! Server and supervisor are killed under load, again and again: what was acknowledged is there, no
//! page is torn, and the cache goes on warm.

use crate::{
    common::{
        databases::{Strike, moment, random, small_pool},
        mariadb::{check, make_table},
        writers::{Writer, check_strike},
    },
    world::{World, churn, fill, sound},
};
use forebay_bench::mariadb::client::Connection;
use std::{
    sync::atomic::{AtomicBool, AtomicU64},
    thread,
};

/// Kills `strikes` times under load; each start goes on with what is in the cache.
fn storm(name: &str, strikes: usize, world: &World) {
    let mut random = random(name);
    let mut writers = Writer::several(3, &mut random);
    for number in 0..strikes {
        let mut server = world.start();
        match number {
            0 => {
                make_table(&server);
                fill(&server);
            }
            _ => {
                let said = server.output();
                assert!(!said.contains("flash: 0 pages"), "not warm: {said}");
                check(&server, &mut writers);
                sound(&server, "stock.s");
            }
        }
        let strike = Strike::number(number);
        let (done, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
        let wait = moment(&mut random, 1500);
        thread::scope(|scope| {
            for writer in &mut writers {
                scope.spawn(|| writer.write::<Connection>(server.socket(), &done, &acknowledged));
            }
            scope.spawn(|| churn(&server, &done));
            thread::sleep(wait);
            strike.strike(server.server(), server.outer(), || {});
        });
        let status = server.wait().unwrap();
        let name = format!("{name}, strike {number}");
        check_strike(&name, strike, status, &acknowledged, &writers);
    }
    let server = world.start();
    check(&server, &mut writers);
    sound(&server, "stock.s");
    server.stop().unwrap();
    // What is in the cache is in the files, too, when it was flushed.
    world.flush().ok();
    let server = world.plain().unwrap();
    check(&server, &mut writers);
    sound(&server, "stock.s");
    server.stop().unwrap();
}

/// Promise (flash-run): Everything that the server acknowledged is there after SIGKILL of the
/// server, the supervisor or both, and the cache goes on warm.
#[test]
fn no_acknowledged_row_is_lost_or_page_torn_whoever_is_killed() {
    if let Some(world) = World::new() {
        storm("killed", 4, &world);
    }
}

/// Promise (flash-run): A kill loses nothing acknowledged with the redo log and the binary log in a
/// pool either.
#[test]
fn nothing_acknowledged_is_lost_with_the_redo_log_in_a_pool() {
    let pool = small_pool();
    let Some(mut world) = World::new() else {
        return;
    };
    let pool = pool.path().to_str().unwrap();
    world.create("--contents all");
    world.launch.wrapper = world.wrapper(&["--pool", pool]);
    storm("with a pool", 3, &world);
}
