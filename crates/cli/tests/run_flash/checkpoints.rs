//! InnoDB's checkpoints: before one is written every page is durable that was written before,
//! whatever has the log. Here a program makes the calls of a server, so that it dies right behind
//! one of them.

use crate::common::{Ran, Sandbox, databases::small_pool};
use std::{fs, path::Path, process::Command};

const PAGE_BYTES: usize = 16 << 10;
/// What a page is written with, and in which place.
const WRITTEN: u8 = b'p';
const AT: usize = 5 * PAGE_BYTES;

/// A server's three files, opened, and a page that is written and not synced.
const BEGIN: &str = "import errno, mmap, os, resource, signal\n\
     system, table, log = [os.open('data/' + name, os.O_RDWR) for name in ('ibdata1', 't.ibd', 'ib_logfile0')]\n\
     os.pwrite(table, b'p' * 16384, 5 * 16384)\n";

/// A data directory: page 0 of its tablespaces says that pages are of 16 KiB and whole.
fn data() -> Sandbox {
    let sandbox = Sandbox::on_disk();
    fs::create_dir(sandbox.file("data")).unwrap();
    let mut tablespace = vec![0; 16 * PAGE_BYTES];
    tablespace[0] = 1;
    tablespace[54..58].copy_from_slice(&0x15u32.to_be_bytes());
    for (name, bytes) in [
        ("data/ibdata1", &tablespace),
        ("data/t.ibd", &tablespace),
        ("data/ib_logfile0", &vec![0; 1 << 20]),
    ] {
        fs::write(sandbox.file(name), bytes).unwrap();
    }
    sandbox
}

/// The interpreter itself: a `python3` may be a script that executes it, and another program than
/// the one that was run is no server.
fn python() -> String {
    let mut command = Command::new("python3");
    command.args(["-c", "import sys; print(sys.executable, end='')"]);
    Ran::of(command.output().unwrap()).ok().text()
}

/// Runs a server that begins so, and goes on with `script`; with `pool` its log is absorbed.
fn serve(sandbox: &Sandbox, pool: Option<&Path>, script: &str) -> Ran {
    let line = "run --profile mariadb --flash flash --flash-size 16MiB";
    let mut command = sandbox.command(line);
    if let Some(pool) = pool {
        command.arg("--pool").arg(pool);
    }
    command.args(["--", &python(), "-c", &format!("{BEGIN}{script}")]);
    command.env("FOREBAY_RUN_DIR", sandbox.file("run"));
    let ran = Ran::of(command.output().unwrap());
    let is_behind = ran.stderr.contains("page files go through the flash cache");
    assert!(is_behind, "{}", ran.stderr);
    ran
}

/// The bytes of one of its files from `at` on.
fn found(sandbox: &Sandbox, name: &str, at: usize, bytes: usize) -> Vec<u8> {
    fs::read(sandbox.file(name)).unwrap()[at..][..bytes].to_vec()
}

/// Promise (flash-run): A checkpoint of InnoDB is durable only after every page that it passes,
/// also one whose write ended while the page files were being synced.
#[test]
fn pages_are_durable_before_a_checkpoint_not_before_log_records() {
    let pool = small_pool();
    for pool in [None, Some(pool.path())] {
        // The log's header, its two checkpoints, and its first record.
        for (place, is_durable) in [(0, true), (4096, true), (8192, true), (12288, false)] {
            let sandbox = data();
            let script = format!(
                "os.pwrite(log, b'c' * 512, {place})\n\
                 os.kill(os.getpid(), signal.SIGKILL)"
            );
            let ran = serve(&sandbox, pool, &script);
            assert_eq!(ran.code, Some(137), "{}", ran.stderr);
            sandbox.run("flash flush --flash flash").ok();
            let expected = if is_durable { WRITTEN } else { 0 };
            let page = found(&sandbox, "data/t.ibd", AT, PAGE_BYTES);
            assert!(page == [expected; PAGE_BYTES], "{place}, {pool:?}");
        }
    }
}

/// Neither flash nor the table's file takes it.
///
/// Promise (flash-run): InnoDB writes no checkpoint while a page that it passes cannot be made
/// durable, and none through a mapping.
#[test]
fn no_checkpoint_is_written_while_a_page_cannot_be_made_durable() {
    let sandbox = data();
    // The log's beginning is below this limit, and the page's place is not.
    let script = "resource.setrlimit(resource.RLIMIT_FSIZE, (65536, resource.RLIM_INFINITY))\n\
         try:\n\
         \x20   os.pwrite(log, b'c' * 512, 4096)\n\
         except OSError as error:\n\
         \x20   assert error.errno == errno.EIO, error\n\
         else:\n\
         \x20   raise SystemExit('a checkpoint was written')";
    serve(&sandbox, None, script).ok();
    let checkpoint = found(&sandbox, "data/ib_logfile0", 4096, 512);
    assert!(checkpoint == [0; 512], "a checkpoint is there");
}

/// What is written to memory has no page made durable before it.
///
/// Promise: as `no_checkpoint_is_written_while_a_page_cannot_be_made_durable`.
#[test]
fn the_log_can_be_mapped_for_reading_and_not_for_writing() {
    let sandbox = data();
    let script = "try:\n\
         \x20   mmap.mmap(log, 4096)\n\
         except OSError as error:\n\
         \x20   assert error.errno == errno.EOPNOTSUPP, error\n\
         else:\n\
         \x20   raise SystemExit('the log was mapped')\n\
         mmap.mmap(log, 4096, prot=mmap.PROT_READ)\n\
         mmap.mmap(log, 4096, flags=mmap.MAP_PRIVATE)\n\
         other = os.open('data/other', os.O_RDWR | os.O_CREAT)\n\
         os.ftruncate(other, 4096)\n\
         mmap.mmap(other, 4096)";
    serve(&sandbox, None, script).ok();
}
