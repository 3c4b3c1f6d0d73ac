//! Measures what two designs would cost that Forebay does not have: an owner mark on each absorbed
//! file, and signals that are blocked while a call is absorbed. docs/files-limits.md, "Designs
//! that were measured", says what came of it.
//!
//!     cargo run --release -p forebay-bench --example prototypes -- DIR
//!
//! Files are made in DIR, and removed. The variants of a design take turns; figures are medians.

use nix::sys::signal::SigSet;
use rustix::fs::{XattrFlags, fremovexattr, fsetxattr, fsync};
use std::{
    error::Error,
    fs::File,
    os::unix::fs::FileExt,
    path::Path,
    time::{Duration, Instant},
};

/// Files that are marked.
const FILES: usize = 200;
/// As long as a pool's, a lane's and a boot's numbers.
const MARK: [u8; 48] = [7; 48];
const NAME: &str = "user.forebay.owner";
/// Calls between two looks at the clock, and how often.
const CALLS: u32 = 10_000;
const TURNS: usize = 51;
/// A record of a database's log.
const RECORD: [u8; 100] = [7; 100];

fn main() -> Result<(), Box<dyn Error>> {
    let parent = std::env::args_os().nth(1).ok_or("usage: prototypes DIR")?;
    let dir = tempfile::tempdir_in(parent)?;
    marks(dir.path())?;
    signals(dir.path())
}

/// A log is made and synced. Then it is marked durably, and at last the mark is removed durably.
fn marks(dir: &Path) -> Result<(), Box<dyn Error>> {
    let mut took = [const { Vec::new() }; 3];
    for number in 0..FILES {
        let path = dir.join(format!("{number}.log"));
        let file = File::create(&path)?;
        file.write_all_at(&RECORD, 0)?;
        let steps: [&dyn Fn() -> rustix::io::Result<()>; 3] = [
            &|| fsync(&file),
            &|| fsetxattr(&file, NAME, &MARK, XattrFlags::empty()).and_then(|()| fsync(&file)),
            &|| fremovexattr(&file, NAME).and_then(|()| fsync(&file)),
        ];
        for (step, took) in steps.iter().zip(&mut took) {
            let begun = Instant::now();
            step()?;
            took.push(begun.elapsed());
        }
        std::fs::remove_file(&path)?;
    }
    let [made, marked, removed] = took.map(median);
    println!("a log of {} bytes: synced {made:.1?}", RECORD.len());
    println!("its mark: made durable {marked:.1?}, removed durably {removed:.1?}");
    Ok(())
}

/// The write of a record to the kernel, without and with signals blocked around it.
fn signals(dir: &Path) -> Result<(), Box<dyn Error>> {
    let file = File::create(dir.join("log"))?;
    let write = || file.write_all_at(&RECORD, 0);
    let blocked = || {
        let before = SigSet::all().thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK)?;
        let written = write();
        before.thread_set_mask()?;
        written
    };
    let mut took = [const { Vec::new() }; 2];
    for _ in 0..TURNS {
        let variants: [&dyn Fn() -> std::io::Result<()>; 2] = [&write, &blocked];
        for (variant, took) in variants.iter().zip(&mut took) {
            let begun = Instant::now();
            for _ in 0..CALLS {
                variant()?;
            }
            took.push(begun.elapsed() / CALLS);
        }
    }
    let [plain, masked] = took.map(median);
    println!("a write of {} bytes to the kernel: {plain:?}", RECORD.len());
    println!("with signals blocked around it: {masked:?}");
    Ok(())
}

fn median(mut took: Vec<Duration>) -> Duration {
    took.sort();
    took[took.len() / 2]
}
