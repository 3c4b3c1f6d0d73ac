//! Flash that fails, and pages that are damaged on it: nothing is lost or torn, and the server
//! never gets an older page.

use crate::{
    common::databases::Strike,
    world::{World, fill, has_flushed, sound, sum},
};
use rustix::process::Signal;
use std::fs;

#[test]
fn a_page_damaged_on_flash_is_named_and_no_older_one_served() {
    let Some((world, server)) = World::filled() else {
        return;
    };
    server.stop().unwrap();
    // The slots; the headers and the checkpoints are in front of them.
    let flip = || {
        let mut flash = fs::read(world.flash()).unwrap();
        let slots = flash.len() / 8;
        flash[slots..].iter_mut().for_each(|byte| *byte ^= 1);
        fs::write(world.flash(), flash).unwrap();
    };
    flip();
    let said = world.refused();
    assert!(said.contains("is damaged in the flash cache"), "{said}");
    world.flush().fails(1, &["are damaged in the flash cache"]);
    assert!(world.plain().is_err(), "the guard was lifted");
    flip();
    let server = world.start();
    sound(&server, "stock.s");
    server.stop().unwrap();
}

/// Promise (flash-run): The cache goes around flash that takes no pages, and uses it again when it
/// does: a kill meanwhile loses nothing acknowledged and tears no page.
#[test]
fn a_kill_while_flash_takes_no_page_loses_and_tears_nothing() {
    let Some(world) = World::breakable() else {
        return;
    };
    let mut server = world.start();
    fill(&server);
    world.sandbox.fail("flash-write");
    let update = "UPDATE stock.s SET k = k + 1";
    let updated = server.sql(update, "");
    assert!(updated.is_ok(), "{updated:?}: {}", server.output());
    world.says(&server, "are written to their files at once");
    server
        .sql("UPDATE stock.s SET k = k + 1 WHERE id % 3 = 0", "")
        .unwrap();
    let before = sum(&server);
    world.until("everything is home", |status| {
        status["dirty_pages"] == 0 && status["around_pages"].as_u64() > Some(100)
    });
    let status = world.forebay("status");
    assert!(
        status.text().contains("Pages go straight to the files"),
        "{}",
        status.text()
    );
    // The exit status says that something is wrong.
    status.fails(1, &[]);
    Strike::Database.strike(server.server(), server.outer(), || {});
    server.wait().unwrap();
    // Still broken, and then not any more.
    let server = world.start();
    assert_eq!(sum(&server), before);
    sound(&server, "stock.s");
    server.sql("UPDATE stock.s SET k = k + 1", "").unwrap();
    world.says(&server, "are written to their files at once");
    world.sandbox.mend("flash-write");
    // A commit tries it again, ten seconds after the last one that failed.
    world.until("pages go to flash", |_| {
        server.sql("UPDATE stock.s SET k = k + 1", "").unwrap();
        server
            .output()
            .contains("the flash cache takes pages again")
    });
    let before = sum(&server);
    server
        .sql("UPDATE stock.s SET k = k + 1 WHERE id % 7 = 0", "")
        .unwrap();
    sound(&server, "stock.s");
    let after = sum(&server);
    assert_ne!(before, after);
    has_flushed(&world, server, &after);
}

/// Promise (flash-run): A page that flash cannot give is named, and the server never gets an older
/// one.
#[test]
fn a_page_flash_cannot_give_is_named_and_ends_the_server() {
    let Some(world) = World::breakable() else {
        return;
    };
    let server = world.start();
    fill(&server);
    server.sql("UPDATE stock.s SET k = 7", "").unwrap();
    server.stop().unwrap();
    world.sandbox.fail("flash-read");
    world.sandbox.fail("flash-write");
    // A checkpoint of the metadata must be read, before anything else.
    let said = world.refused();
    assert!(
        said.contains("flash") && !said.contains("ready for connections"),
        "{said}"
    );
    world.sandbox.mend("flash-read");
    world.sandbox.mend("flash-write");

    let mut server = world.start();
    world.sandbox.fail("flash-read");
    world.sandbox.fail("flash-write");
    let dirty = world.status()["dirty_pages"].as_u64().unwrap();
    assert!(dirty > 0, "{}", world.status());
    server
        .sql("UPDATE stock.s SET v = 'x' WHERE id = 1", "")
        .ok();
    // Whatever it still answers is right.
    for id in (1..20_000).step_by(1117) {
        match server.sql(&format!("SELECT k FROM stock.s WHERE id = {id}"), "") {
            Ok(found) => assert_eq!(found.trim(), "7", "of {id}"),
            Err(_) => break,
        }
    }
    server.server().signal(Signal::KILL);
    let _ = server.wait();
    let said = fs::read_to_string(world.launch.dir.join("server.out")).unwrap();
    assert!(
        said.contains("could not be read from flash, nor can anything else"),
        "{said}"
    );
    world.sandbox.mend("flash-read");
    world.sandbox.mend("flash-write");

    let server = world.start();
    let rows = server.sql("SELECT COUNT(*) FROM stock.s WHERE k = 7", "");
    assert_eq!(rows.unwrap().trim(), "20000");
    sound(&server, "stock.s");
    server.stop().unwrap();
}
