//! More page files than a cache knows, or than a process may have open: as long as the server has
//! few of them open at a time, all go through the cache.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use forebay_innodb::PAGE_BYTES;
use rustix::{
    fd::{AsFd, AsRawFd},
    fs::OFlags,
    io::Errno,
    process::{Resource, Rlimit, getrlimit, setrlimit},
};
use std::{
    fs::{self, File, OpenOptions},
    os::unix::{ffi::OsStrExt, fs::FileExt},
    path::{Path, PathBuf},
};
use support::{PAGES, World, blank_file, page};

/// Beside the one that is there.
const TABLES: usize = 320;

fn table(dir: &Path, number: usize) -> PathBuf {
    dir.join("data").join(format!("many{number}.ibd"))
}

fn open(path: &Path) -> Result<File, Errno> {
    let file = OpenOptions::new().read(true).write(true).open(path);
    let file = file.map_err(|e| Errno::from_io_error(&e).unwrap())?;
    forebay_innodb::opened(file.as_fd(), path.as_os_str().as_bytes(), OFlags::RDWR)?;
    Ok(file)
}

fn close(file: File) {
    forebay_innodb::closing(file.as_raw_fd());
    drop(file);
}

/// What a table has in page 5.
fn content(number: usize) -> u8 {
    (number % 250 + 1) as u8
}

/// Makes tables, writes a page of each by the cache, and reads all of them again, a few open at a
/// time.
fn use_tables(dir: &Path) {
    let at = (5 * PAGE_BYTES) as u64;
    let mut few = Vec::new();
    for number in 0..TABLES {
        let path = table(dir, number);
        fs::write(&path, blank_file(PAGES * PAGE_BYTES)).unwrap();
        let file = open(&path).unwrap();
        let bytes = page(content(number));
        let written = forebay_innodb::write(file.as_fd(), &bytes, at, &mut |_, _| Err(Errno::NXIO));
        assert_eq!(
            written,
            Ok(PAGE_BYTES),
            "table {number} went past the cache"
        );
        forebay_innodb::sync(file.as_raw_fd(), &mut || Ok(())).unwrap();
        few.push(file);
        if few.len() == 4 {
            few.drain(..).for_each(close);
        }
    }
    for number in 0..TABLES {
        let file = open(&table(dir, number)).unwrap();
        let mut to = page(0);
        let read = forebay_innodb::read(file.as_raw_fd(), &mut to, at, &mut |to, at| {
            Ok(file.read_at(to, at).unwrap())
        });
        assert_eq!(read, Ok(PAGE_BYTES));
        assert!(to == page(content(number)), "table {number}");
        close(file);
    }
}

fn every_table_has_its_page(world: &World) {
    for number in 0..TABLES {
        let bytes = fs::read(table(world.dir.path(), number)).unwrap();
        let found = &bytes[5 * PAGE_BYTES..][..PAGE_BYTES];
        assert!(found == page(content(number)), "table {number}");
    }
}

/// Promise (flash-run): More tables than a cache knows, or a process has descriptors for, go
/// through the cache as long as few are open at a time.
#[test]
fn tables_beyond_the_caches_files_go_through_it_if_few_are_open() {
    let name = "tables_beyond_the_caches_files_go_through_it_if_few_are_open";
    let after = World::after(name, "{}", |server| use_tables(&server.dir));
    let Some(world) = after else { return };
    world.flush();
    every_table_has_its_page(&world);
}

/// Promise: as `tables_beyond_the_caches_files_go_through_it_if_few_are_open`.
#[test]
fn tables_beyond_the_descriptors_go_through_it_if_few_are_open() {
    let name = "tables_beyond_the_descriptors_go_through_it_if_few_are_open";
    let after = World::after(name, "{}", |server| {
        allow(100);
        use_tables(&server.dir);
    });
    let Some(world) = after else { return };
    world.flush();
    every_table_has_its_page(&world);
}

#[test]
fn the_system_tablespace_stays_though_the_server_has_closed_it() {
    let name = "the_system_tablespace_stays_though_the_server_has_closed_it";
    let after = World::after(name, "{}", |server| {
        close(server.system);
        use_tables(&server.dir);
    });
    let Some(world) = after else { return };
    assert!(world.dir.path().join("data/forebay.guard").exists());
    // It is found by the guard's tablespace, which is as it was when that is lifted.
    world.flush();
    every_table_has_its_page(&world);
    let system = fs::read(world.dir.path().join("data/ibdata1")).unwrap();
    assert!(system == blank_file(PAGES * PAGE_BYTES));
    assert!(!world.dir.path().join("data/forebay.guard").exists());
}

/// A page of a table that no process with the limit below may write to its file.
const FAR: u64 = 900 * PAGE_BYTES as u64;

/// Promise (flash-run): A table whose file takes no page keeps no other one from the cache.
#[test]
fn a_closed_table_that_takes_no_page_keeps_no_other_one_out() {
    let name = "a_closed_table_that_takes_no_page_keeps_no_other_one_out";
    let after = World::after(name, "{}", |server| {
        let path = server.dir.join("data/far.ibd");
        fs::write(&path, blank_file(PAGES * PAGE_BYTES)).unwrap();
        let file = open(&path).unwrap();
        file.set_len(FAR + PAGE_BYTES as u64).unwrap();
        let real = &mut |_: &[u8], _| Err(Errno::NXIO);
        let written = forebay_innodb::write(file.as_fd(), &page(7), FAR, real);
        assert_eq!(written, Ok(PAGE_BYTES));
        forebay_innodb::sync(file.as_raw_fd(), &mut || Ok(())).unwrap();
        close(file);
        // The flash file is shorter.
        limit(Resource::Fsize, 12 << 20);
        use_tables(&server.dir);
    });
    let Some(world) = after else { return };
    world.flush();
    every_table_has_its_page(&world);
    let far = File::open(world.dir.path().join("data/far.ibd")).unwrap();
    let mut found = page(0);
    far.read_exact_at(&mut found, FAR).unwrap();
    assert!(found == page(7));
}

/// Promise: as `a_table_that_finds_no_place_in_the_cache_is_refused`.
#[test]
fn a_server_with_too_many_tables_open_is_told_and_goes_on() {
    let name = "a_server_with_too_many_tables_open_is_told_and_goes_on";
    let after = World::after(name, "{}", |server| {
        let tables = 0..100;
        for number in tables.clone() {
            let path = table(&server.dir, number);
            fs::write(path, blank_file(PAGES * PAGE_BYTES)).unwrap();
        }
        allow(100);
        let mut open_ones = Vec::new();
        let refused =
            tables
                .into_iter()
                .find_map(|number| match open(&table(&server.dir, number)) {
                    Ok(file) => {
                        open_ones.push(file);
                        None
                    }
                    Err(errno) => Some((number, errno)),
                });
        let (number, errno) = refused.unwrap();
        assert_eq!(errno, Errno::MFILE);
        open_ones.drain(..4).for_each(close);
        close(open(&table(&server.dir, number)).unwrap());
    });
    let Some(world) = after else { return };
    world.flush();
}

/// So many descriptors, and no more.
fn allow(descriptors: u64) {
    limit(Resource::Nofile, descriptors);
}

fn limit(what: Resource, most: u64) {
    let limit = Rlimit {
        current: Some(most),
        ..getrlimit(what)
    };
    setrlimit(what, limit).unwrap();
}
