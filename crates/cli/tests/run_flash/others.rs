//! Programs of a run that are no server, such as those of a state transfer, never have the cache.

use crate::{
    common::{FOREBAY, Ran, databases::Strike},
    world::{World, fill, has_flushed, sum},
};
use std::{fs, process::Command};

/// A shell that is run with the cache, and is what was run: it uses no page file itself.
fn shell(world: &World, script: &str) -> Ran {
    let mut command = Command::new(FOREBAY);
    command.args(["run", "--profile", "mariadb", "--flash"]);
    command.arg(world.flash()).args(["--", "sh", "-c", script]);
    command.current_dir(world.launch.data());
    command.env("FOREBAY_RUN_DIR", world.sandbox.file("run"));
    Ran::of(command.output().unwrap())
}

#[test]
fn a_program_that_is_no_server_gets_page_files_only_after_the_cache_was_flushed() {
    let Some(world) = World::new() else { return };
    let mut server = world.start();
    fill(&server);
    let expected = sum(&server);
    Strike::Both.strike(server.server(), server.outer(), || {});
    let _ = server.wait();

    let table = world.launch.data().join("stock/s.ibd");
    let before = fs::read(&table).unwrap();
    for script in [
        "dd if=/dev/zero of=ibdata1 bs=16k count=1 conv=notrunc",
        "dd if=/dev/zero of=stock/s.ibd bs=16k count=1",
        "truncate -s 0 stock/s.ibd",
        "rm -f stock/s.ibd",
        "rm -f forebay.guard; test -e forebay.guard",
        "mv stock/s.ibd stock/r.ibd",
        "cp stock/s.ibd copy.ibd",
    ] {
        let refused = shell(&world, script).stderr;
        let said = refused.contains("is refused to") && refused.contains("forebay flush --flash");
        assert!(said, "{script}: {refused}");
        assert!(fs::read(&table).unwrap() == before, "{script}");
    }
    let server = world.start();
    assert_eq!(sum(&server), expected);
    server.stop().unwrap();

    world.flush().ok();
    // As rsync does it: the table is written over, and no process of these has the cache.
    let copied = shell(&world, "cp stock/s.ibd ../copy && cp ../copy stock/s.ibd");
    let said = copied.ok().stderr;
    assert!(said.contains("uses page files as they are"), "{said}");
    let server = world.start();
    assert_eq!(sum(&server), expected);
    has_flushed(&world, server, &expected);
}
