//! A flush that is killed has brought home what it said, and the next one does the rest.

use crate::{
    common::{Ran, build_library},
    world::{World, sound, sum},
};
use std::os::unix::process::ExitStatusExt;

/// The number that a text has after `before`, and before `after`.
fn number(text: &str, before: &str, after: &str) -> u64 {
    let (_, rest) = text.split_once(before).unwrap();
    let (number, _) = rest.split_once(after).unwrap();
    number.parse().unwrap()
}

/// Promise (flash-run): A flush that is killed has brought home the pages that it reported, the
/// guard stays, and the next flush does the rest.
#[test]
fn a_killed_flush_has_said_how_far_it_is_and_the_next_ends_it() {
    let Some((world, server)) = World::filled() else {
        return;
    };
    let before = sum(&server);
    server.stop().unwrap();
    let dirty = forebay_innodb::look(&world.flash()).unwrap().dirty;
    assert!(dirty > 100, "{dirty}");

    build_library("killed_saying", world.sandbox.path());
    let mut command = world.sandbox.command("flash flush --flash flash");
    command.env("LD_PRELOAD", world.sandbox.file("killed_saying.so"));
    let output = command.output().unwrap();
    assert_eq!(output.status.signal(), Some(9), "{output:?}");
    let killed = Ran::of(output);
    assert_eq!(killed.text(), "");
    let done = number(&killed.stderr, "forebay: ", " of ");
    let said = format!("forebay: {done} of {dirty} pages\n");
    assert_eq!(killed.stderr, said);
    assert!(0 < done && done < dirty, "{said}");

    let left = forebay_innodb::look(&world.flash()).unwrap().dirty;
    assert_eq!(left, dirty - done);
    assert!(world.plain().is_err(), "the guard was lifted");
    let flushed = world.flush().ok().text();
    assert_eq!(number(&flushed, "flash: ", " pages"), left);
    let server = world.plain().unwrap();
    assert_eq!(sum(&server), before);
    sound(&server, "stock.s");
    server.stop().unwrap();
}
