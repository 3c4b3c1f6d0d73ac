//! What a row runs on: a server on a copy of the loaded data directory, its devices, its flash cache and its pool.

use super::{ARRAY, CLIENTS, Ground, Lab, STEADY_SSD, Variant};
use crate::{
    BenchError,
    contest::{self, Around},
    mariadb::server::{self, Launch, Server, said_by},
    processes::output,
    scratch::{ScratchDir, disk_bytes, memory_dir, sync_file_system},
};
use forebay_pages::Status;
use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

const MIB: u64 = 1 << 20;
/// The buffer pool's part of the data, as in the paper.
const POOL_PART: u64 = 50;
/// InnoDB takes no less for pages of 16 KiB.
const POOL_MIN_MIB: u64 = 6;
/// MySQL 5.6 has a redo log of 96 MiB, a hundredth of the paper's data. Of less data it is that part, but not below this.
const LOG_MIN_MIB: u64 = 16;
/// Longer than a killed process takes to be gone.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a row is of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub variant: Variant,
    pub ground: Ground,
    /// Flash, in percent of the data.
    pub percent: u64,
}

/// What all rows have in common.
pub(super) struct Stage<'a> {
    pub lab: &'a Lab<'a>,
    template: PathBuf,
    /// Bytes of the tables.
    data_bytes: u64,
}

/// A row's server, and what it lies on.
pub(super) struct Standing {
    pub case: Case,
    launch: Launch,
    server: Option<Server>,
    _around: Around,
    dir: ScratchDir,
}

impl Standing {
    /// Its server.
    ///
    /// # Errors
    /// [`BenchError::Child`] while it is killed.
    pub fn server(&self) -> Result<&Server, BenchError> {
        let gone = || BenchError::Child("(mariadbd) does not run".to_owned());
        self.server.as_ref().ok_or_else(gone)
    }

    fn flash_dir(&self) -> PathBuf {
        self.dir.path().join("flash")
    }

    /// The flash cache as it is; nothing without one.
    pub fn flash(&self) -> Option<Status> {
        Status::read(&self.flash_dir().join("cache.status")).ok()
    }
}

impl<'a> Stage<'a> {
    /// Makes the data directory that each row gets a copy of: `prepare` makes the tables.
    pub fn load(
        lab: &'a Lab<'a>,
        scratch: &Path,
        prepare: impl FnOnce(&Server) -> Result<(), BenchError>,
    ) -> Result<Self, BenchError> {
        lab.note("loading the tables");
        let template = scratch.join("template");
        fs::create_dir(&template).map_err(BenchError::io("creating", &template))?;
        let mut launch = Launch::new(&template).map_err(BenchError::Config)?;
        server::create(&launch.data())?;
        launch.options = options(512, LOG_MIN_MIB, false);
        // What a crash would lose is loaded again.
        let unsafe_options = [
            "--innodb-flush-log-at-trx-commit=0",
            "--innodb-flush-method=nosync",
        ];
        let unsafe_options = unsafe_options.map(str::to_owned);
        launch
            .options
            .retain(|option| !option.contains("flush-method"));
        launch.options.extend(unsafe_options);
        let server = Server::start(&launch)?;
        prepare(&server)?;
        server.stop()?;
        let data_bytes = disk_bytes(&launch.data().join(server::DATABASE));
        let template = launch.data();
        Ok(Self {
            lab,
            template,
            data_bytes,
        })
    }

    fn pool_mib(&self) -> u64 {
        (self.data_bytes / POOL_PART)
            .div_ceil(MIB)
            .max(POOL_MIN_MIB)
    }

    fn log_mib(&self) -> u64 {
        (self.data_bytes / 100).div_ceil(MIB).max(LOG_MIN_MIB)
    }

    /// Bytes of the tables.
    pub fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    /// What all rows' servers have.
    pub fn describe(&self) -> String {
        format!(
            "{} MiB of tables, a buffer pool of {} MiB, a redo log of {} MiB; {CLIENTS} clients; MariaDB, pages of 16 KiB, O_DIRECT, each commit synced",
            self.data_bytes / MIB,
            self.pool_mib(),
            self.log_mib()
        )
    }

    /// Starts a row's server on a fresh copy.
    pub fn start(&self, case: Case) -> Result<Standing, BenchError> {
        let parent = match case.ground {
            Ground::Here => self.lab.dir.to_owned(),
            // An emulated device only adds to what a call takes.
            Ground::One(_) | Ground::Apart(_) => memory_dir(),
        };
        let parent = fs::create_dir_all(&parent)
            .and_then(|()| parent.canonicalize())
            .map_err(BenchError::io("finding", &parent))?;
        let dir = ScratchDir::new_in(&parent)?;
        let mut launch = Launch::new(dir.path()).map_err(BenchError::Config)?;
        server::copy(&self.template, &launch.data())?;
        let flash = dir.path().join("flash");
        fs::create_dir(&flash).map_err(BenchError::io("creating", &flash))?;
        sync_file_system(dir.path())?;
        let data = launch.data();
        let devices: Vec<(&Path, &str)> = match case.ground {
            Ground::One(profile) => vec![(dir.path(), profile)],
            Ground::Apart(profile) => vec![(&data, ARRAY), (&flash, profile)],
            Ground::Here => Vec::new(),
        };
        let around = self.around(case, dir.path(), &devices, true)?;
        launch.stand_in(&around);
        let doublewrite = case.variant == Variant::Original;
        launch.options = options(self.pool_mib(), self.log_mib(), doublewrite);
        let server = Some(Server::start(&launch)?);
        Ok(Standing {
            case,
            launch,
            server,
            _around: around,
            dir,
        })
    }

    /// What stands around a row's server.
    fn around(
        &self,
        case: Case,
        dir: &Path,
        devices: &[(&Path, &str)],
        with_pool: bool,
    ) -> Result<Around, BenchError> {
        let in_pool = with_pool && case.variant == Variant::DirtyAndRedo;
        let mode = match in_pool {
            true => contest::FOREBAY,
            false => contest::PLAIN,
        };
        let (contender, pools) = (mode.into(), self.lab.pools());
        let setting = self.lab.setting(&contender, &pools);
        let mut flash: Vec<(&'static str, OsString)> = Vec::new();
        if case.variant.has_flash() {
            let mib = (self.data_bytes * case.percent / 100).div_ceil(MIB);
            flash.extend([
                ("--flash", dir.join("flash/cache").into()),
                ("--flash-size", format!("{mib}MiB").into()),
            ]);
        }
        if case.variant == Variant::All {
            flash.push(("--flash-contents", "all".into()));
        }
        setting.around(devices, flash, dir.join("run"))
    }

    /// Kills the server, and what stands before it.
    pub fn kill(&self, standing: &mut Standing) -> Result<(), BenchError> {
        let Some(server) = standing.server.take() else {
            return Ok(());
        };
        let process = (**server.server()).clone();
        drop(server);
        match process.wait_gone(PATIENCE) {
            true => Ok(()),
            false => Err(BenchError::Child("(mariadbd) outlives SIGKILL".to_owned())),
        }
    }

    /// Starts a killed server again.
    pub fn restart(&self, standing: &mut Standing) -> Result<(), BenchError> {
        standing.server = Some(Server::start(&standing.launch)?);
        Ok(())
    }

    /// Takes the flash cache from a killed server, so that it starts with an empty one: everything in it goes home first.
    pub fn empty(&self, standing: &Standing) -> Result<(), BenchError> {
        let flash = standing.flash_dir();
        let mut command = Command::new(self.lab.forebay);
        command.arg("flush").arg("--flash").arg(flash.join("cache"));
        command.env("FOREBAY_RUN_DIR", standing.dir.path().join("run"));
        said_by("forebay flush", output(&mut command)?)?;
        fs::remove_dir_all(&flash)
            .and_then(|()| fs::create_dir(&flash))
            .map_err(BenchError::io("emptying", &flash))
    }

    /// Ends a row's server, and has its database checked on one that has room, and no emulated device.
    pub fn end(
        &self,
        mut standing: Standing,
        check: impl FnOnce(&Server) -> Result<(), BenchError>,
    ) -> Result<(), BenchError> {
        if let Some(server) = standing.server.take() {
            server.stop()?;
        }
        let around = self.around(standing.case, standing.dir.path(), &[], false)?;
        let mut launch = standing.launch.clone();
        launch.stand_in(&around);
        launch.options = options(512, self.log_mib(), false);
        let server = Server::start(&launch)?;
        check(&server)?;
        server.stop().map(drop)
    }

    /// How a row is called in progress.
    pub fn name(&self, case: Case) -> String {
        let ground = match case.ground {
            Ground::One(profile) => format!("all on {profile}"),
            Ground::Apart(profile) => format!("data on {ARRAY}, flash on {profile}"),
            Ground::Here => "all on this disk".to_owned(),
        };
        match case.variant.has_flash() {
            true => format!("{} ({} %), {ground}", case.variant.name(), case.percent),
            // It has no flash: what that would be on decides nothing, but that both profiles stand in the table.
            false if matches!(case.ground, Ground::Apart(STEADY_SSD)) => {
                format!("{}, {ground}, again", case.variant.name())
            }
            false => format!("{}, {ground}", case.variant.name()),
        }
    }
}

/// What all servers have. Rings would pass the emulated devices by; without, an I/O thread has one request in flight, so there are as many as an
/// array can take.
fn options(pool_mib: u64, log_mib: u64, doublewrite: bool) -> Vec<String> {
    // The page cleaner keeps so many pages free: 1,024 of the paper's 12,800. As many of a small pool would leave it nothing to keep pages in.
    let free_pages = (pool_mib * MIB / (16 << 10) * 8 / 100).clamp(100, 1536);
    vec![
        format!("--innodb-lru-scan-depth={free_pages}"),
        format!("--innodb-buffer-pool-size={pool_mib}M"),
        "--innodb-buffer-pool-chunk-size=1M".to_owned(),
        format!("--innodb-log-file-size={log_mib}M"),
        format!("--innodb-doublewrite={}", u8::from(doublewrite)),
        "--innodb-flush-method=O_DIRECT".to_owned(),
        "--innodb-flush-log-at-trx-commit=1".to_owned(),
        "--innodb-use-native-aio=0".to_owned(),
        "--innodb-read-io-threads=16".to_owned(),
        "--innodb-write-io-threads=16".to_owned(),
        "--innodb-io-capacity=2000".to_owned(),
        "--innodb-io-capacity-max=10000".to_owned(),
        "--innodb-buffer-pool-dump-at-shutdown=0".to_owned(),
        "--innodb-buffer-pool-load-at-startup=0".to_owned(),
    ]
}
