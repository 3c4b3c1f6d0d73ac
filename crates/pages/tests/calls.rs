//! What a server's file functions promise of its page files, each in a process of its own that is killed at its end: what the kernel refuses changes
//! nothing, and what is acknowledged is durable.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use forebay_pages::{ENV_FLASH, ENV_FLASH_SETTINGS, PAGE_BYTES};
use rustix::{
    fd::{AsFd, AsRawFd},
    fs::CWD,
    io::Errno,
};
use std::{
    ffi::CString,
    fs::{self, File, OpenOptions},
    os::unix::{ffi::OsStrExt, fs::FileExt, fs::OpenOptionsExt},
    path::{Path, PathBuf},
    process::Command,
};
use tempfile::TempDir;

/// Names the directory to the process that is a server.
const ENV_DIR: &str = "FOREBAY_TEST_PAGES_DIR";
const PAGES: usize = 16;

/// A data directory with a table, and a flash cache beside it.
struct World {
    dir: TempDir,
}

/// A server's process that has opened its page files.
struct Server {
    table: File,
    path: PathBuf,
    _system: File,
}

/// Page 0 says that pages are of 16 KiB and whole.
fn blank_file(bytes: usize) -> Vec<u8> {
    let mut file = vec![0; bytes];
    file[0] = 1;
    file[54..58].copy_from_slice(&0x15u32.to_be_bytes());
    file
}

fn page(byte: u8) -> Vec<u8> {
    vec![byte; PAGE_BYTES]
}

impl World {
    /// Runs `server` as the test `name` in a process that knows the cache, and kills it: what is left behind. None in that process itself.
    fn after(name: &str, settings: &str, server: fn(Server)) -> Option<Self> {
        if let Some(dir) = std::env::var_os(ENV_DIR) {
            forebay_pages::start();
            server(Server::start(Path::new(&dir)));
            // As SIGKILL: nothing is synced at the end.
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
                .unwrap();
        }
        let world = Self {
            dir: TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap(),
        };
        let data = world.dir.path().join("data");
        fs::create_dir(&data).unwrap();
        for name in ["ibdata1", "t.ibd"] {
            fs::write(data.join(name), blank_file(PAGES * PAGE_BYTES)).unwrap();
        }
        forebay_pages::create(&world.flash(), 8 << 20).unwrap();
        let ran = Command::new(std::env::current_exe().unwrap())
            .args([name, "--exact", "--nocapture"])
            .env(ENV_DIR, world.dir.path())
            .env(ENV_FLASH, world.flash())
            .env(ENV_FLASH_SETTINGS, settings)
            .output()
            .unwrap();
        use std::os::unix::process::ExitStatusExt;
        let killed = ran.status.signal() == Some(9);
        assert!(killed, "{ran:?}");
        Some(world)
    }

    fn flash(&self) -> PathBuf {
        self.dir.path().join("flash")
    }

    fn flush(&self) {
        let flushed = forebay_pages::flush(&self.flash(), &[], &[], |_| {
            std::ops::ControlFlow::Continue(())
        });
        assert!(flushed.unwrap().complete);
    }

    /// What the table's file has.
    fn home(&self, number: usize) -> Vec<u8> {
        let bytes = fs::read(self.dir.path().join("data/t.ibd")).unwrap();
        bytes[number * PAGE_BYTES..][..PAGE_BYTES].to_vec()
    }
}

impl Server {
    fn start(dir: &Path) -> Self {
        let open = |name: &str, flags| {
            let path = dir.join("data").join(name);
            let mut options = OpenOptions::new();
            let file = options.read(true).write(true).custom_flags(flags);
            let file = file.open(&path).unwrap();
            forebay_pages::opened(file.as_fd(), path.as_os_str().as_bytes()).unwrap();
            (file, path)
        };
        let (system, _) = open("ibdata1", 0);
        let (table, path) = open("t.ibd", 0);
        Self {
            table,
            path,
            _system: system,
        }
    }

    fn write(&self, number: usize, byte: u8) {
        let at = (number * PAGE_BYTES) as u64;
        let table = self.table.as_fd();
        let written = forebay_pages::write(table, &page(byte), at, &mut |_, _| Err(Errno::NXIO));
        assert_eq!(written, Ok(PAGE_BYTES), "it went past the cache");
    }

    fn sync(&self) {
        let fd = self.table.as_raw_fd();
        forebay_pages::sync(fd, &mut || Ok(())).unwrap();
    }

    /// What the program reads.
    fn read(&self, number: usize) -> u8 {
        let mut to = page(0);
        let at = (number * PAGE_BYTES) as u64;
        let read = forebay_pages::read(self.table.as_raw_fd(), &mut to, at, &mut |to, at| {
            Ok(self.table.read_at(to, at).unwrap())
        });
        assert_eq!(read, Ok(PAGE_BYTES));
        assert!(to.iter().all(|byte| *byte == to[0]), "a torn page");
        to[0]
    }

    fn path(&self) -> CString {
        CString::new(self.path.as_os_str().as_bytes()).unwrap()
    }
}

#[test]
fn a_truncation_that_the_kernel_refuses_leaves_every_page_as_it_was() {
    let name = "a_truncation_that_the_kernel_refuses_leaves_every_page_as_it_was";
    let after = World::after(name, "{}", |server| {
        server.write(5, 50);
        server.sync();
        server.write(6, 60);
        let refuse = &mut || Err(Errno::PERM);
        let fd = server.table.as_raw_fd();
        let refused = forebay_pages::truncate(fd, 0, refuse);
        assert_eq!(refused, Err(Errno::PERM));
        assert_eq!((server.read(5), server.read(6)), (50, 60));
        server.write(7, 70);
        server.sync();
        let refused = forebay_pages::truncate_path(CWD, &server.path(), 0, refuse);
        assert_eq!(refused, Err(Errno::PERM));
        assert_eq!(server.read(7), 70);
    });
    let Some(world) = after else { return };
    world.flush();
    for (number, byte) in [(5, 50), (6, 60), (7, 70)] {
        assert_eq!(world.home(number), page(byte));
    }
}

#[test]
fn a_hole_that_the_kernel_does_not_punch_leaves_every_page_as_it_was() {
    let name = "a_hole_that_the_kernel_does_not_punch_leaves_every_page_as_it_was";
    let after = World::after(name, "{}", |server| {
        server.write(5, 50);
        server.sync();
        const PUNCH_AND_KEEP_SIZE: i32 = 3;
        let range = [5, 1].map(|pages| pages * PAGE_BYTES as u64);
        let fd = server.table.as_raw_fd();
        let refuse = &mut || Err(Errno::OPNOTSUPP);
        let refused = forebay_pages::allocate(fd, PUNCH_AND_KEEP_SIZE, range, refuse);
        assert_eq!(refused, Err(Errno::OPNOTSUPP));
        assert_eq!(server.read(5), 50);
    });
    let Some(world) = after else { return };
    world.flush();
    assert_eq!(world.home(5), page(50));
}

#[test]
fn a_file_that_was_to_be_truncated_and_could_not_be_opened_keeps_its_pages() {
    let name = "a_file_that_was_to_be_truncated_and_could_not_be_opened_keeps_its_pages";
    let after = World::after(name, "{}", |server| {
        server.write(5, 50);
        server.sync();
        // Before `open` with `O_TRUNC`; and then there is no descriptor left.
        forebay_pages::truncating(CWD, &server.path()).unwrap();
        assert_eq!(server.read(5), 50);
    });
    let Some(world) = after else { return };
    world.flush();
    assert_eq!(world.home(5), page(50));
}

#[test]
fn a_page_of_a_file_that_is_open_for_synchronous_writes_is_durable_when_it_is_written() {
    let name = "a_page_of_a_file_that_is_open_for_synchronous_writes_is_durable_when_it_is_written";
    let after = World::after(name, "{}", |server| {
        let mut options = OpenOptions::new();
        let flags = rustix::fs::OFlags::DSYNC.bits().cast_signed();
        let again = options.read(true).write(true).custom_flags(flags);
        let again = again.open(&server.path).unwrap();
        forebay_pages::opened(again.as_fd(), server.path.as_os_str().as_bytes()).unwrap();
        server.write(5, 50);
    });
    let Some(world) = after else { return };
    world.flush();
    assert_eq!(world.home(5), page(50));
}

#[test]
fn written_through_a_checkpoint_outlives_the_cache() {
    let name = "written_through_a_checkpoint_outlives_the_cache";
    let after = World::after(name, r#"{"policy":"through"}"#, |server| {
        server.write(5, 50);
        // The server syncs no file between the page and its checkpoint.
        forebay_pages::sync_all().unwrap();
    });
    let Some(world) = after else { return };
    fs::remove_file(world.flash()).unwrap();
    let given_up = forebay_pages::give_up(&[world.dir.path().join("data")]).unwrap();
    assert_eq!(given_up.lifted.len(), 1);
    assert_eq!(world.home(5), page(50));
}

#[test]
fn when_a_cache_is_lost_pages_that_were_torn_on_their_way_around_it_are_written_again() {
    let name = "when_a_cache_is_lost_pages_that_were_torn_on_their_way_around_it_are_written_again";
    let after = World::after(name, r#"{"policy":"around"}"#, |server| {
        server.write(5, 50);
        server.sync();
    });
    let Some(world) = after else { return };
    let data = world.dir.path().join("data");
    // The power failed in the middle of the page.
    let table = OpenOptions::new().write(true).open(data.join("t.ibd"));
    let half = (5 * PAGE_BYTES + PAGE_BYTES / 2) as u64;
    table.unwrap().write_all_at(&[0; 4096], half).unwrap();
    for left in ["flash", "flash.lane"] {
        fs::remove_file(world.dir.path().join(left)).unwrap();
    }
    let given_up = forebay_pages::give_up(std::slice::from_ref(&data)).unwrap();
    assert_eq!((given_up.pages, given_up.not_found), (1, 0));
    assert_eq!(world.home(5), page(50));
    assert!(!data.join("forebay.pages").exists());
}
