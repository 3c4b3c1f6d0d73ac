//! Bytes a second: what keeps the limits, and what does not wait for them.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use forebay_flash::{ResizedCache, Watermarks};
use std::{ops::ControlFlow, sync::mpsc, thread, time::Duration};
use support::{
    machine::{GROUP, Machine},
    model::PAGE,
    session::bytes_for,
};

#[test]
fn steps_keep_to_the_limit_and_slotless_writers_do_not_wait() {
    let machine = Machine::with(100, |options| {
        options.watermarks = Watermarks { low: 0, high: 0 };
        options.home_bytes_per_second = 4 * PAGE as u64;
    });
    for n in 0..60u32 {
        machine.write(n, 1);
    }
    machine.sync();
    assert!(
        machine.cache.step().unwrap().freed > 0,
        "a second's worth is there at first"
    );
    assert_eq!(machine.cache.step().unwrap().freed, 0, "it is overdrawn");
    // All slots are needed: they come free at once.
    for n in 100..300u32 {
        machine.write(n, 1);
    }
    assert!(machine.cache.stats().home_pages > 100);
    machine.cache.set_limits(0, 0);
    while machine.cache.step().unwrap().more {}
    assert!(machine.cache.stats().slots_used < u64::from(GROUP));
}

#[test]
fn what_is_above_the_limit_towards_flash_goes_around_it() {
    let machine = Machine::with(100, |options| options.flash_bytes_per_second = PAGE as u64);
    let before = machine.cache.stats().flash_bytes;
    for n in 0..80u32 {
        machine.write(n, u64::from(n) + 1);
        machine.sync();
    }
    let stats = machine.cache.stats();
    assert!(stats.flash_bytes - before < 40 * PAGE as u64, "{stats:?}");
    assert!(stats.around_pages > 40, "{stats:?}");
    for n in 0..80u32 {
        assert_eq!(machine.read(n), u64::from(n) + 1);
    }
}

/// What came of a resize that has to wait for the limit once its first batch is home, and how far
/// it said to be each time. `waiting` is done then; if it does not help, the limit is lifted in the
/// end.
fn limited(
    machine: &Machine,
    waiting: fn(&Machine) -> ControlFlow<()>,
) -> (ResizedCache, Vec<u64>) {
    const LONG: Duration = Duration::from_secs(30);
    let (done, is_done) = mpsc::channel();
    thread::scope(|scope| {
        let resize = scope.spawn(move || {
            let mut said = Vec::new();
            let resized = machine.cache.resize(bytes_for(70), |progress| {
                said.push(progress.done);
                match said.len() {
                    3 => waiting(machine),
                    _ => ControlFlow::Continue(()),
                }
            });
            done.send(()).unwrap();
            (resized.unwrap(), said)
        });
        let ended = is_done.recv_timeout(LONG);
        machine.cache.set_limits(0, 0);
        ended.expect("it waits, and does nothing else");
        resize.join().unwrap()
    })
}

#[test]
fn a_resize_that_waits_for_the_limit_says_so_and_may_be_stopped() {
    let machine = Machine::with(200, |options| options.home_bytes_per_second = 1);
    machine.fill(100);
    let group = u64::from(GROUP);
    let (stopped, said) = limited(&machine, |_| ControlFlow::Break(()));
    assert_eq!((stopped.complete, stopped.pages), (false, group));
    assert_eq!(said, [0, group, group]);
    machine.cache.set_limits(1, 0);
    let (resized, said) = limited(&machine, |machine| {
        machine.cache.set_limits(0, 0);
        ControlFlow::Continue(())
    });
    assert!(resized.complete && resized.pages > group, "{resized:?}");
    assert_eq!(said[..3], [0, group, group]);
}
