//! `forebay-lab run --media-profile`: a pool that is as slow as another memory.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{Ran, Sandbox, ZEROS};
use forebay_device::memory::Profile;
use forebay_pool::PoolOptions;
use std::{fs, time::Duration};

#[test]
fn a_pool_may_be_slowed_to_a_memory_for_measurements() {
    let sandbox = Sandbox::new();
    let pool = PoolOptions::new().size(6 << 20).segment_size(1 << 20);
    drop(pool.emulated(true).create(sandbox.file("p")).unwrap());
    let script =
        format!("start=$(date +%s%N); {ZEROS} slow.log 1 10000; echo $(($(date +%s%N) - start))");
    let mut command =
        sandbox.command("run --pool p --absorb *.log --media-profile gen-z-uc -- sh -c");
    command
        .arg(script)
        .env("FOREBAY_RUN_DIR", sandbox.file("run"));
    let ran = Ran::of(command.output().unwrap()).ok();
    assert!(ran.stderr.contains("slowed to gen-z-uc"), "{}", ran.stderr);
    let took_ns: u64 = ran.text().trim().parse().unwrap();
    // Each of the writes waits for as long as the profile says that such memory takes for a line at
    // least.
    let profile = Profile::named("gen-z-uc").unwrap();
    let least = 10_000 * profile.write_cost(64);
    assert!(
        Duration::from_nanos(took_ns) > least,
        "{took_ns} ns, and the profile says {least:?}"
    );
    assert_eq!(
        fs::metadata(sandbox.file("slow.log")).unwrap().len(),
        10_000
    );
    sandbox
        .run("run --pool p --media-profile tape --absorb x -- true")
        .fails(2, &["no such device", "xpoint-mm"]);
}
