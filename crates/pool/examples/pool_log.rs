//! A log in a pool: append, read, recover, and drain to a file.

use forebay_pool::{ClaimOptions, PoolOptions, Uuid};
use std::{fs::File, io::IoSlice, os::unix::fs::FileExt, time::Duration};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let pool = PoolOptions::new()
        .segment_size(1 << 20)
        .emulated(true)
        .create(dir.path().join("pool"))?;
    let owner = Uuid::new_v4(); // who the log belongs to: keep it, to claim the log again

    let claim = ClaimOptions::new().segments(2).label("an example");
    let (lane, _) = pool.claim(owner, &claim)?;
    for event in ["started", "paid", "shipped"] {
        lane.append(1, &[IoSlice::new(event.as_bytes())])?; // durable when this returns
    }
    drop(lane); // or a crash

    let (lane, recovered) = pool.claim(owner, &claim)?;
    for record in recovered.records() {
        println!("{} {}", record.header.lsn, record.payload.escape_ascii());
    }
    drop(recovered);

    let file = File::create(dir.path().join("log"))?;
    let end = lane.seal();
    while let Some(sealed) = lane.take_sealed(Duration::ZERO) {
        file.write_all_at(sealed.bytes(), sealed.start())?;
        file.sync_all()?;
        sealed.release(); // its segment of the pool is free again
    }
    lane.wait_drained(end)?;
    println!("drained up to {end}");
    Ok(())
}
