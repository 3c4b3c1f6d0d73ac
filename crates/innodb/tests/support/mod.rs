//! A server's process that uses page files by way of a cache, and is killed at its end.
#![allow(dead_code, reason = "each test uses some of it")]

use forebay_innodb::{ENV_FLASH, ENV_FLASH_RUN, ENV_FLASH_STATUS, PAGE_BYTES, Settings};
use rustix::{
    fd::{AsFd, AsRawFd},
    fs::OFlags,
    io::Errno,
    process::{Pid, Signal, kill_process},
};
use std::{
    ffi::{CString, OsString},
    fs::{self, File, OpenOptions},
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    process::{Child, Command},
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// Names the directory to the process that is a server.
const ENV_DIR: &str = "FOREBAY_TEST_PAGES_DIR";
pub const PAGES: usize = 16;
/// The run that the server is in.
pub const RUN: &str = "0d8c2f0e-5b3a-4a6e-9d5e-6f1f4a1f7b11";
/// Where the server says how its cache is.
pub const STATUS: &str = "status";

/// A data directory with a table, and a flash cache beside it.
pub struct World {
    pub dir: TempDir,
    /// The cache's name in it.
    flash: OsString,
}

/// A server's process that has opened its page files.
pub struct Server {
    pub table: File,
    pub path: PathBuf,
    pub dir: PathBuf,
    pub system: File,
}

/// Page 0 says that pages are of 16 KiB and whole.
pub fn blank_file(bytes: usize) -> Vec<u8> {
    let mut file = vec![0; bytes];
    file[0] = 1;
    file[54..58].copy_from_slice(&0x15u32.to_be_bytes());
    file
}

pub fn page(byte: u8) -> Vec<u8> {
    vec![byte; PAGE_BYTES]
}

impl World {
    /// Runs `server` as the test `name` in a process that knows the cache, and kills it: what is
    /// left behind. None in that process itself.
    pub fn after(name: &str, settings: &str, server: fn(Server)) -> Option<Self> {
        Self::after_with("flash".into(), name, settings, server)
    }

    /// The same with a cache that is called `flash`.
    pub fn after_with(
        flash: OsString,
        name: &str,
        settings: &str,
        server: fn(Server),
    ) -> Option<Self> {
        if let Some(dir) = std::env::var_os(ENV_DIR) {
            forebay_innodb::start();
            server(Server::start(Path::new(&dir)));
            // As SIGKILL: nothing is synced at the end.
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
                .unwrap();
        }
        let world = Self::made(flash);
        world.run(name, settings);
        Some(world)
    }

    fn made(flash: OsString) -> Self {
        let world = Self {
            dir: TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap(),
            flash,
        };
        let data = world.dir.path().join("data");
        fs::create_dir(&data).unwrap();
        for name in ["ibdata1", "t.ibd"] {
            fs::write(data.join(name), blank_file(PAGES * PAGE_BYTES)).unwrap();
        }
        forebay_innodb::create(&world.flash(), 8 << 20).unwrap();
        world
    }

    /// A world for servers that run while a test commands them. None in the process of one, which
    /// does this with its server, and is killed in the end.
    pub fn commanded(server: fn(&Server)) -> Option<Self> {
        if let Some(dir) = std::env::var_os(ENV_DIR) {
            forebay_innodb::start();
            server(&Server::start(Path::new(&dir)));
            // Longer than any test takes.
            std::thread::sleep(Duration::from_secs(300));
            std::process::exit(1);
        }
        Some(Self::made("flash".into()))
    }

    /// Starts the server of the test `name`, with this failpoint: once it listens.
    pub fn begin(&self, name: &str, failpoint: &str) -> RunningServer {
        let socket = self.dir.path().join("flash.control");
        let left = fs::symlink_metadata(&socket).map(|meta| meta.ino()).ok();
        let mut command = self.command(name);
        let process = command.env("FOREBAY_FAILPOINT", failpoint).spawn();
        let server = RunningServer(process.unwrap());
        let begun = Instant::now();
        while fs::symlink_metadata(&socket).map(|meta| meta.ino()).ok() == left {
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "it does not listen"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        server
    }

    fn command(&self, name: &str) -> Command {
        // A write above the limit of a file's size fails, and does not end it.
        let mut command = Command::new("sh");
        command
            .args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""])
            .arg(std::env::current_exe().unwrap())
            .args([name, "--exact", "--nocapture"])
            .env(ENV_DIR, self.dir.path())
            .env("FOREBAY_TEST_FAULTS", self.dir.path().join("faults"))
            .env(ENV_FLASH, self.flash())
            .env(ENV_FLASH_RUN, RUN)
            .env(ENV_FLASH_STATUS, self.dir.path().join(STATUS));
        command
    }

    /// Runs the server of this test in what was left behind.
    pub fn run(&self, name: &str, settings: &str) {
        let settings: Settings = serde_json::from_str(settings).unwrap();
        settings.keep(&self.flash()).unwrap();
        let ran = self.command(name).output().unwrap();
        use std::os::unix::process::ExitStatusExt;
        let killed = ran.status.signal() == Some(9);
        assert!(killed, "{ran:?}");
    }

    pub fn flash(&self) -> PathBuf {
        self.dir.path().join(&self.flash)
    }

    pub fn flush(&self) {
        let flushed = forebay_innodb::flush(&self.flash(), &[], &[], |_| {
            std::ops::ControlFlow::Continue(())
        });
        assert!(flushed.unwrap().complete);
    }

    /// What the table's file has.
    pub fn home(&self, number: usize) -> Vec<u8> {
        let bytes = fs::read(self.dir.path().join("data/t.ibd")).unwrap();
        bytes[number * PAGE_BYTES..][..PAGE_BYTES].to_vec()
    }
}

/// A server's process that runs. It is killed at the end.
pub struct RunningServer(Child);

impl RunningServer {
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    /// Kills it, or waits for what was killed.
    pub fn end(self) {
        drop(self);
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Server {
    fn start(dir: &Path) -> Self {
        let open = |name: &str, flags| {
            let path = dir.join("data").join(name);
            let mut options = OpenOptions::new();
            let file = options.read(true).write(true).custom_flags(flags);
            let file = file.open(&path).unwrap();
            forebay_innodb::opened(file.as_fd(), path.as_os_str().as_bytes(), OFlags::RDWR)
                .unwrap();
            (file, path)
        };
        let (system, _) = open("ibdata1", 0);
        let (table, path) = open("t.ibd", 0);
        Self {
            table,
            path,
            dir: dir.to_owned(),
            system,
        }
    }

    pub fn write(&self, number: usize, byte: u8) {
        let at = (number * PAGE_BYTES) as u64;
        let table = self.table.as_fd();
        let written = forebay_innodb::write(table, &page(byte), at, &mut |_, _| Err(Errno::NXIO));
        assert_eq!(written, Ok(PAGE_BYTES), "it went past the cache");
    }

    /// Cuts the table off, or makes it longer.
    pub fn set_pages(&self, pages: usize) {
        let bytes = (pages * PAGE_BYTES) as u64;
        let truncate = &mut || rustix::fs::ftruncate(&self.table, bytes);
        forebay_innodb::truncate(self.table.as_raw_fd(), bytes, truncate).unwrap();
    }

    pub fn sync(&self) {
        let fd = self.table.as_raw_fd();
        forebay_innodb::sync(fd, &mut || Ok(())).unwrap();
    }

    /// What the program reads.
    pub fn read(&self, number: usize) -> u8 {
        let mut to = page(0);
        let at = (number * PAGE_BYTES) as u64;
        let read = forebay_innodb::read(self.table.as_raw_fd(), &mut to, at, &mut |to, at| {
            Ok(self.table.read_at(to, at).unwrap())
        });
        assert_eq!(read, Ok(PAGE_BYTES));
        assert!(to.iter().all(|byte| *byte == to[0]), "a torn page");
        to[0]
    }

    /// Waits until the table's file itself has this page.
    pub fn until_home_has(&self, number: usize, byte: u8) {
        const PATIENCE: Duration = Duration::from_secs(60);
        let (begun, mut found) = (Instant::now(), page(0));
        while found != page(byte) {
            assert!(
                begun.elapsed() < PATIENCE,
                "page {number} is not written home"
            );
            let at = (number * PAGE_BYTES) as u64;
            self.table.read_exact_at(&mut found, at).unwrap();
        }
    }

    pub fn path(&self) -> CString {
        CString::new(self.path.as_os_str().as_bytes()).unwrap()
    }
}
