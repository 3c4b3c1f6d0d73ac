//! A process that is killed while it puts: the next opening has every put that returned.

use forebay_pool::PoolOptions;
use forebay_store::{ScanRange, StoreOptions};
use std::io::{BufRead, BufReader};
use std::{env, path::Path, process};

fn put_forever(dir: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let pool = PoolOptions::new().open(dir.join("pool"))?;
    let store = StoreOptions::new().open(dir.join("data"), &pool)?;
    for number in 0u32.. {
        store.put(&number.to_be_bytes(), b"value")?;
        println!("{number}"); // it is durable
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if let Some(dir) = env::args_os().nth(1) {
        return put_forever(Path::new(&dir));
    }
    let dir = tempfile::tempdir()?;
    let options = PoolOptions::new().emulated(true);
    let pool = options.create(dir.path().join("pool"))?;
    let mut writer = process::Command::new(env::current_exe()?);
    let mut writer = writer
        .arg(dir.path())
        .stdout(process::Stdio::piped())
        .spawn()?;
    let told = BufReader::new(writer.stdout.take().ok_or("no output")?);
    let last: usize = told.lines().nth(9_999).ok_or("it ended")??.parse()?;
    writer.kill()?;
    writer.wait()?;
    let store = StoreOptions::new().open(dir.path().join("data"), &pool)?;
    let found = store.scan(ScanRange::all().keys_only())?.count();
    assert!(found > last);
    println!("killed after put {last}; {found} puts are there");
    Ok(())
}
