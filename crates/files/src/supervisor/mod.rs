//! The supervisor: the database's parent, which makes durable behind it what the pool made durable at once.
//!
//! It listens on a Unix socket for clients (processes of the database) and for those who look at it. Each client has a
//! thread that answers it (`guest`, `register`) and one that syncs its files (`drain`). What keeps a file from being absorbed twice is in
//! `accept` (who may say what), `elsewhere` (other runs) and `watch` (processes outside). When a client ends, however it ends, its lane is
//! recovered like any other ([`replay`](crate::replay)): same boot, so its files are synced.

mod accept;
mod charge;
mod drain;
mod elsewhere;
mod guest;
mod hold;
mod let_go;
mod notice;
mod register;
mod status;
mod watch;

pub use status::{FileStatus, GuestStatus, PlainFile, Status, status_of_running};
pub use watch::Outside;

use crate::{
    ENV_ABSORB, ENV_IO_URING, ENV_SOCKET, ENV_TABLE, ENV_TOKEN, FilesError, IO_URING_REFUSED,
    absorbed::{self, Table},
    boot, sys, wire,
};
use forebay_device::Devices;
use forebay_pool::Pool;
use guest::Guest;
use parking_lot::{Condvar, Mutex};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::{
    ffi::{OsStr, OsString},
    os::{fd::OwnedFd, unix::ffi::OsStringExt},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Release},
    },
    thread,
    time::{Duration, Instant},
};
use uuid::Uuid;

/// What a supervisor is to do.
#[derive(Clone, Debug)]
pub struct SupervisorOptions {
    /// `fnmatch` patterns of the files to absorb.
    pub patterns: Vec<String>,
    /// The database's attempts to make an `io_uring` fail with `ENOSYS`.
    pub refuse_io_uring: bool,
    /// Segments of each client's lane.
    pub buffers: u16,
    /// Where running supervisors leave a note of themselves, for [`status_of_running`].
    pub run_dir: PathBuf,
    /// The database in words, for status and labels.
    pub program: String,
    /// Emulated devices of directories: the supervisor's syncs of files there cost what they say.
    pub devices: Option<Arc<Devices>>,
}

/// What all threads of a supervisor share.
struct Shared {
    pool: Pool,
    options: SupervisorOptions,
    token: Uuid,
    boot: Uuid,
    started: Instant,
    /// Clients, also those that ended and are not recovered yet.
    guests: Mutex<Vec<Arc<Guest>>>,
    /// A client ended and was recovered, or a file is absorbed no longer.
    changed: Condvar,
    /// What is absorbed, for all to see.
    table: Table,
    /// Where those of other runs are.
    tables: elsewhere::Tables,
    /// Clients so far.
    holders: AtomicU64,
    /// Connections that have said nothing yet.
    silent: accept::Silent,
    /// Sees who opens what is absorbed.
    watch: watch::Watch,
    /// Files that a pattern names and that stay plain.
    plain: Mutex<Vec<PlainFile>>,
    /// Files of clients that ended.
    ended: Mutex<Vec<GuestStatus>>,
    stopping: AtomicBool,
}

/// A running supervisor.
pub struct Supervisor {
    shared: Arc<Shared>,
    socket_name: Vec<u8>,
    note: PathBuf,
}

impl Supervisor {
    /// Begins to listen. Lanes that earlier runs left are not its business: recover them first.
    ///
    /// # Errors
    /// Of the socket and of the note in the run directory.
    pub fn start(pool: Pool, options: SupervisorOptions) -> Result<Self, FilesError> {
        sys::ignore_lease_breaks();
        let socket_name = format!("forebay-{}", Uuid::new_v4()).into_bytes();
        let listening = || -> rustix::io::Result<OwnedFd> {
            let socket = rustix::net::socket_with(
                AddressFamily::UNIX,
                SocketType::SEQPACKET,
                SocketFlags::CLOEXEC,
                None,
            )?;
            rustix::net::bind(&socket, &SocketAddrUnix::new_abstract_name(&socket_name)?)?;
            rustix::net::listen(&socket, 128)?;
            Ok(socket)
        };
        let socket = listening().map_err(FilesError::errno("listening for the database"))?;
        let boot = boot::id()?;
        absorbed::clean_up(Path::new(absorbed::SHARED_DIR), boot);
        absorbed::clean_up(&options.run_dir, boot);
        status::make_run_dir(&options.run_dir)?;
        let table = Table::new(&options.run_dir, &socket_name, boot)
            .map_err(FilesError::errno("making the table of absorbed files"))?;
        let shared = Arc::new(Shared {
            pool,
            token: Uuid::new_v4(),
            boot,
            started: Instant::now(),
            guests: Mutex::default(),
            changed: Condvar::new(),
            table,
            tables: elsewhere::Tables::default(),
            holders: AtomicU64::new(0),
            silent: accept::Silent::default(),
            watch: watch::Watch::new(),
            plain: Mutex::default(),
            ended: Mutex::default(),
            stopping: AtomicBool::new(false),
            options,
        });
        let note = status::leave_note(&shared, &socket_name)?;
        let accepting = Arc::clone(&shared);
        thread::Builder::new()
            .name("accept".into())
            .spawn(move || accept::run(&accepting, &socket))
            .map_err(FilesError::io("starting a thread"))?;
        let watching = Arc::clone(&shared);
        thread::Builder::new()
            .name("watch".into())
            .spawn(move || watch::run(&watching))
            .map_err(FilesError::io("starting a thread"))?;
        Ok(Self {
            shared,
            socket_name,
            note,
        })
    }

    /// What the database's environment must have beside what it has: the library, and how to find this supervisor.
    #[must_use]
    pub fn environment(&self, library: &Path) -> Vec<(OsString, OsString)> {
        let mut environment = vec![
            preload(library),
            (
                ENV_SOCKET.into(),
                OsString::from_vec(self.socket_name.clone()),
            ),
            (ENV_TOKEN.into(), self.shared.token.to_string().into()),
            (ENV_TABLE.into(), self.shared.table.path.clone().into()),
            (
                ENV_ABSORB.into(),
                self.shared.options.patterns.join("\n").into(),
            ),
        ];
        if self.shared.options.refuse_io_uring {
            environment.push((ENV_IO_URING.into(), IO_URING_REFUSED.into()));
        }
        let devices = self.shared.options.devices.as_ref();
        environment.extend(devices.and_then(|devices| devices.environment()));
        environment
    }

    /// What becomes of processes outside the run that open an absorbed file for writing.
    #[must_use]
    pub fn outside(&self) -> Outside {
        self.shared.watch.outside()
    }

    /// What it is doing.
    #[must_use]
    pub fn status(&self) -> Status {
        self.shared.status()
    }

    /// After the database ended: waits until all its processes' lanes are recovered, and stops.
    ///
    /// # Errors
    /// If a lane could not be recovered: its records stay in the pool.
    pub fn finish(self) -> Result<Status, FilesError> {
        let mut guests = self.shared.guests.lock();
        while !guests.is_empty() {
            self.shared
                .changed
                .wait_for(&mut guests, Duration::from_millis(100));
        }
        drop(guests);
        self.shared.stopping.store(true, Release);
        // A last connection ends the wait for one.
        let _ = wire::connect(&self.socket_name, None);
        let status = self.shared.status();
        match status.guests.iter().find_map(|guest| guest.left.clone()) {
            Some(why) => Err(FilesError::Config(format!(
                "{why}. Its records stay in the pool; when the cause is remedied: forebay recover --pool {}",
                self.shared.pool.path().display()
            ))),
            None => Ok(status),
        }
    }
}

/// The environment variable by which the dynamic linker puts the library before the program's other libraries.
#[must_use]
pub fn preload(library: &Path) -> (OsString, OsString) {
    let mut preload = library.as_os_str().to_owned();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(OsStr::new(":"));
        preload.push(others);
    }
    ("LD_PRELOAD".into(), preload)
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.note);
        // Threads that end a little later have the table still.
        let _ = std::fs::remove_file(&self.shared.table.path);
    }
}
