//! The stage of a row: a server on a copy of the loaded data directory, its devices, its flash
//! cache and its pool.

use super::case::{Case, Ground};
use crate::{
    BenchError,
    contest::{Around, FOREBAY, PLAIN},
    mariadb::server::{Server, said_by},
    paper::{
        lab::Lab,
        template::{self, Template},
    },
    place::HERE,
    processes::output,
    scratch::{disk_bytes, memory_dir},
};
use forebay_innodb::{CacheStatus, status_of};
use std::{ffi::OsString, fs, path::Path, process::Command};

const MIB: u64 = 1 << 20;
/// The buffer pool's part of the data, as in the paper.
const POOL_PART: u64 = 50;
/// InnoDB takes no less for pages of 16 KiB.
const POOL_MIN_MIB: u64 = 6;
/// MySQL 5.6 has a redo log of 96 MiB, a hundredth of the paper's data. Of less data it is that
/// part, but not below this.
const LOG_MIN_MIB: u64 = 16;
/// The buffer pool of servers that load and check.
const ROOM_MIB: u64 = 512;
/// The paper's connections.
pub(super) const CLIENTS: u64 = 16;

/// What all rows have in common.
pub(super) struct Stage<'a> {
    pub lab: &'a Lab<'a>,
    template: Template,
    /// Bytes of the tables.
    pub data_bytes: u64,
}

/// How a row's server ends before it is started again.
#[derive(Clone, Copy)]
pub(super) enum End {
    /// In order: the next one has nothing to recover.
    ShutDown,
    /// By SIGKILL.
    Killed,
    /// By SIGKILL; what its flash cache has goes home before the next one starts, with an empty
    /// one.
    KilledAndEmptied,
}

/// A row's server.
pub(super) struct Standing {
    pub case: Case,
    on: template::Standing,
}

impl Standing {
    pub fn server(&self) -> &Server {
        &self.on.server
    }

    /// The flash cache as it is; nothing without one.
    pub fn flash(&self) -> Option<CacheStatus> {
        let cache = self.on.dir.path().join("flash/cache");
        CacheStatus::read(&status_of(&cache)).ok()
    }

    /// A figure of InnoDB's status.
    pub fn innodb(&self, of: &str) -> Result<u64, BenchError> {
        let query = format!("SHOW GLOBAL STATUS LIKE 'Innodb_{of}'");
        let told = self.server().sql(&query, "")?;
        let figure = told.split_whitespace().nth(1);
        figure
            .and_then(|figure| figure.parse().ok())
            .ok_or_else(|| BenchError::Child(format!("(mariadb) {query}: {told:?}")))
    }

    /// How often the queue on flash has turned; none without one.
    pub fn turns(&self) -> Option<f64> {
        self.flash().as_ref().map(turns_of)
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
        let mut options = options(ROOM_MIB, LOG_MIN_MIB, false);
        // What a crash would lose is loaded again; of an option that is there twice the later
        // counts.
        let not_synced = [
            "--innodb-flush-log-at-trx-commit=0",
            "--innodb-flush-method=nosync",
        ];
        options.extend(not_synced.map(str::to_owned));
        let template = Template::load(scratch.join("template"), options, prepare)?;
        let data_bytes = disk_bytes(&template.tables());
        Ok(Self {
            lab,
            template,
            data_bytes,
        })
    }

    /// The loaded directory, in which the data directory lies.
    pub fn loaded(&self) -> &Path {
        self.template.dir()
    }

    /// Bytes of so many percent of the data, in whole MiB.
    pub fn flash_bytes(&self, percent: u64) -> u64 {
        (self.data_bytes * percent / 100).next_multiple_of(MIB)
    }

    /// A server's options in a row.
    pub fn options(&self, doublewrite: bool) -> Vec<String> {
        options(self.pool_mib(), self.log_mib(), doublewrite)
    }

    /// Those of one that has room.
    pub fn options_with_room(&self) -> Vec<String> {
        options(ROOM_MIB, self.log_mib(), false)
    }

    fn pool_mib(&self) -> u64 {
        (self.data_bytes / POOL_PART)
            .div_ceil(MIB)
            .max(POOL_MIN_MIB)
    }

    fn log_mib(&self) -> u64 {
        (self.data_bytes / 100).div_ceil(MIB).max(LOG_MIN_MIB)
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
        let Ground { data, flash, .. } = case.ground;
        // An emulated device only adds to what a call takes.
        let memory = memory_dir();
        let parent = if data == HERE { self.lab.dir } else { &memory };
        let on = self.template.start(&["data"], parent, |dir| {
            let (data_dir, flash_dir) = (dir.join("data"), dir.join("flash"));
            fs::create_dir(&flash_dir).map_err(BenchError::io("creating", &flash_dir))?;
            let devices: Vec<(&Path, &str)> = match &**data {
                HERE => Vec::new(),
                _ if data == flash => vec![(dir, data)],
                _ => vec![(&data_dir, data), (&flash_dir, flash)],
            };
            let around = self.around(case, dir, &devices, case.variant.redo_in_pool)?;
            Ok((around, self.options(case.variant.doublewrite)))
        })?;
        Ok(Standing { case, on })
    }

    /// Makes the cache of a row that has one, unless it is there.
    fn create_cache(&self, case: Case, dir: &Path) -> Result<(), BenchError> {
        let cache = dir.join("flash/cache");
        let Some([contents, policy]) = &case.variant.flash else {
            return Ok(());
        };
        if cache.exists() {
            return Ok(());
        }
        let mib = self.flash_bytes(case.percent) / MIB;
        let mut command = Command::new(self.lab.forebay);
        command.args(["flash", "create", "--contents", contents]);
        command.args(["--policy", policy, "--flash"]).arg(cache);
        command.arg(format!("{mib}MiB"));
        said_by("forebay flash create", output(&mut command)?).map(drop)
    }

    /// What stands around a row's server.
    fn around(
        &self,
        case: Case,
        dir: &Path,
        devices: &[(&Path, &str)],
        in_pool: bool,
    ) -> Result<Around, BenchError> {
        let mode = if in_pool { FOREBAY } else { PLAIN };
        let mut flash: Vec<(&'static str, OsString)> = Vec::new();
        if case.variant.flash.is_some() {
            self.create_cache(case, dir)?;
            flash.push(("--flash", dir.join("flash/cache").into()));
        }
        let lab = self.lab;
        lab.in_setting(mode.into(), &lab.pools(), |setting| {
            setting.around(devices, flash, dir.join("run"))
        })
    }

    /// Ends a row's server and starts it again, and says how long the start took, seconds.
    pub fn restarted(&self, standing: Standing, end: End) -> Result<(Standing, f64), BenchError> {
        let Standing { case, on } = standing;
        let emptied = |dir: &Path| {
            let flash = dir.join("flash");
            let mut command = Command::new(self.lab.forebay);
            command
                .args(["flash", "flush", "--flash"])
                .arg(flash.join("cache"));
            command.env("FOREBAY_RUN_DIR", dir.join("run"));
            said_by("forebay flash flush", output(&mut command)?)?;
            fs::remove_dir_all(&flash)
                .and_then(|()| fs::create_dir(&flash))
                .map_err(BenchError::io("emptying", &flash))?;
            self.create_cache(case, dir)
        };
        let (on, seconds) = on.restarted(|server, dir| match end {
            End::ShutDown => server.stop().map(drop),
            End::Killed => server.kill(),
            End::KilledAndEmptied => server.kill().and_then(|()| emptied(dir)),
        })?;
        Ok((Standing { case, on }, seconds))
    }

    /// Ends a row's server, and has its database checked on one that has room, and no emulated
    /// device.
    pub fn end(
        &self,
        standing: Standing,
        check: impl FnOnce(&Server) -> Result<(), BenchError>,
    ) -> Result<(), BenchError> {
        let Standing { case, on } = standing;
        let mut launch = on.server.launch().clone();
        on.server.stop()?;
        let around = self.around(case, on.dir.path(), &[], false)?;
        launch.stand_in(&around);
        launch.options = self.options_with_room();
        let server = Server::start(&launch)?;
        check(&server)?;
        server.stop().map(drop)
    }
}

/// How often the queue has turned.
pub(super) fn turns_of(flash: &CacheStatus) -> f64 {
    (flash.enqueued + flash.admitted + flash.second_chances) as f64 / flash.slots.max(1) as f64
}

/// What all servers have. Rings would pass the emulated devices by; without, an I/O thread has one
/// request in flight, so there are as many as an array can take.
fn options(pool_mib: u64, log_mib: u64, doublewrite: bool) -> Vec<String> {
    // The page cleaner keeps so many pages free: 1,024 of the paper's 12,800. As many of a small
    // pool would leave it nothing to keep pages in.
    let free_pages = (pool_mib * MIB / (16 << 10) * 8 / 100).clamp(100, 1536);
    let all = format!(
        "--innodb-lru-scan-depth={free_pages} \
         --innodb-buffer-pool-size={pool_mib}M --innodb-buffer-pool-chunk-size=1M \
         --innodb-log-file-size={log_mib}M --innodb-doublewrite={} \
         --innodb-flush-method=O_DIRECT --innodb-flush-log-at-trx-commit=1 \
         --innodb-use-native-aio=0 --innodb-read-io-threads=16 --innodb-write-io-threads=16 \
         --innodb-io-capacity=2000 --innodb-io-capacity-max=10000 \
         --innodb-buffer-pool-dump-at-shutdown=0 --innodb-buffer-pool-load-at-startup=0",
        u8::from(doublewrite)
    );
    all.split_whitespace().map(str::to_owned).collect()
}
