//! Programs of a run that are no server, such as those of a state transfer, never have the cache.

use crate::{
    common::{FOREBAY, Ran, databases::Strike},
    world::{World, fill, has_flushed, sum},
};
use std::{fs, process::Command, thread, time::Duration};

/// A shell that is run with the cache, and is what was run: it uses no page file itself.
fn shell(world: &World, script: &str) -> Ran {
    let mut command = Command::new(FOREBAY);
    command.args(["run", "--profile", "mariadb", "--flash"]);
    command.arg(world.flash()).args(["--", "sh", "-c", script]);
    command.current_dir(world.launch.data());
    command.env("FOREBAY_RUN_DIR", world.sandbox.file("run"));
    Ran::of(command.output().unwrap())
}

/// A data directory of which the cache has nothing any more.
fn flushed() -> Option<World> {
    let world = World::new()?;
    let server = world.start();
    fill(&server);
    server.stop().unwrap();
    world.flush().ok();
    Some(world)
}

/// Promise (flash-run): A program that is no server, such as a state transfer that the server
/// starts, never has the cache, and gets page files only once the cache was flushed.
#[test]
fn a_program_that_is_no_server_gets_only_flushed_page_files() {
    let Some((world, mut server)) = World::filled() else {
        return;
    };
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
        let said =
            refused.contains("is refused to") && refused.contains("forebay flash flush --flash");
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

#[test]
fn a_running_server_keeps_page_files_from_other_programs() {
    let Some(world) = flushed() else { return };
    let [has, goes_on] = ["has", "goes-on"].map(|name| world.launch.data().join(name));
    let script = "bash -c '
        exec 3<stock/s.ibd && exec 4<stock/s.ibd && : >has
        until test -e goes-on; do sleep 0.01; done
        exec 5<stock/s.ibd'";
    let refused = thread::scope(|scope| {
        let program = scope.spawn(|| shell(&world, script));
        while !has.exists() && !program.is_finished() {
            thread::sleep(Duration::from_millis(10));
        }
        assert!(has.exists(), "{}", program.join().unwrap().stderr);
        let server = world.start();
        fs::write(&goes_on, "").unwrap();
        let refused = program.join().unwrap().stderr;
        server.stop().unwrap();
        refused
    });
    assert!(refused.contains("a server has its pages"), "{refused}");
}

#[test]
fn programs_that_are_no_server_may_read_at_the_same_time() {
    let Some(world) = flushed() else { return };
    let script = "for n in 1 2 3 4 5 6 7 8; do cp stock/s.ibd ../copy$n & done; wait";
    let said = shell(&world, script).ok().stderr;
    assert!(!said.contains("refused"), "{said}");
    let table = fs::read(world.launch.data().join("stock/s.ibd")).unwrap();
    for n in 1..=8 {
        let copy = fs::read(world.launch.dir.join(format!("copy{n}"))).unwrap();
        assert!(copy == table, "copy {n}");
    }
}
