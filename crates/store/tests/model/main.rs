//! The store does what a `BTreeMap` does, whatever else happens to it in between.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "../common/mod.rs"]
mod common;
mod steps;
mod world;

use common::{Bench, within};
use proptest::{prelude::*, test_runner::FileFailurePersistence};
use std::time::Duration;
use steps::{WAYS, step};
use world::{Model, Open, World, options};

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 20,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        max_shrink_iters: 200,
        ..ProptestConfig::default()
    })]
    /// Promise (store): A deleted key never comes back, and the collector loses no live value,
    /// whatever happens beside it.
    #[test]
    fn a_store_does_what_a_map_does(
        variant in 0u8..WAYS,
        steps in proptest::collection::vec(step(), 20..120),
    ) {
        within(Duration::from_secs(120), "a sequence of operations", move || {
            let bench = Bench::with_room(48, 64 << 10);
            let mut world = World {
                store: Some(bench.open(&options(variant))),
                bench,
                model: Model::new(),
                open: Open::default(),
                queued: 0,
            };
            for step in steps {
                world.take(step);
            }
            world.reopen(variant, variant % 2 == 0);
            let report = world.store.unwrap().verify().unwrap();
            prop_assert_eq!(report.problems, Vec::<String>::new());
            Ok(())
        })?;
    }
}
