//! Pages that go around flash: however many versions flash has of them, and whatever fails on the way.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use forebay_flash::WritePolicy;
use std::ops::ControlFlow;
use support::{
    Rng,
    devices::World,
    machine::{Machine, options},
};

/// Versions of one page, more than a record of the lane has room for.
const VERSIONS: u64 = 300;

#[test]
fn a_page_with_any_number_of_versions_on_flash_goes_around_it_whenever_the_power_fails() {
    let machine = Machine::new(400, &options());
    for version in 1..=VERSIONS {
        machine.write(1, version);
        machine.sync();
    }
    let _ = machine.cache.flush(|_| ControlFlow::Continue(())).unwrap();
    let before = machine.world.points();
    machine.cache.set_policy(WritePolicy::Around);
    machine.write(1, VERSIONS + 1);
    machine.sync();
    assert_eq!(machine.home(1), VERSIONS + 1);
    let points: Vec<usize> = (before..machine.world.points()).collect();
    machine.world.cut(&points, &mut Rng(3), |found, _, _| {
        let found = Machine::open(World::new(found), &options());
        // And once more, from the checkpoint that the first opening has written.
        let found = Machine::open(World::new(found.world.live()), &options());
        assert_eq!(found.cache.stats().dirty_pages, 0, "an older one is back");
        let version = found.read(1);
        assert!(version >= VERSIONS, "it is {version}");
        assert_eq!(found.home(1), version, "the cache has another one");
    });
}
