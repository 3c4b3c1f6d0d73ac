//! `--flash`: page files of a run behind a flash cache. Making it, saying what is in it, and what
//! is left in it at the end.

mod running;
mod unregistered_runs;

pub use self::running::{NotedRun, RunningCaches};

use super::{program::RunProgram, run_dir::run_dir};
use crate::{failure::Failure, flash::flush, size, standard_error::complain};
use clap::Args;
use forebay_files::policy::{self, PolicyConfig};
use forebay_innodb::{
    CacheOccupancy, CacheStatus, ENV_FLASH, ENV_FLASH_PROGRAM, ENV_FLASH_RUN, ENV_FLASH_STATUS,
    SetupError, status_of,
};
use forebay_pool::disks::BackingStore;
use std::{
    ffi::OsString,
    fs, io,
    os::fd::AsFd,
    path::{Path, PathBuf},
};
use uuid::Uuid;

/// The profile whose page files are known.
const PROFILE: &str = "mariadb";

/// The options of a flash cache.
#[derive(Args)]
pub struct FlashOptions {
    /// Put a flash cache in this file, on a faster disk than the page files (mariadb)
    ///
    /// Pages that the database writes go there, in large writes, and to their files later. The
    /// metadata is beside it, in PATH.lane. On the disk of the files nothing gets faster: the
    /// server's log says so when it takes such a cache into use, also one on another partition or
    /// volume of that disk. The cache's settings are those of forebay flash create or forebay flash
    /// set.
    #[arg(long, value_name = "PATH")]
    flash: Option<PathBuf>,
    /// Size of the flash cache: it is made if it is not there, and resized, staying warm, if it is.
    /// Leave this out of a unit: each start would resize the cache
    #[arg(long, value_name = "SIZE", value_parser = size::parse_positive, requires = "flash")]
    flash_size: Option<u64>,
}

/// The flash cache of a run.
pub struct RunCache {
    path: PathBuf,
    /// The program that is run.
    program: PathBuf,
    /// The run, to `forebay status`.
    run: Uuid,
    /// The one that the cache was in when the run began.
    epoch: u32,
}

impl FlashOptions {
    /// True if there is to be a flash cache.
    pub fn is_wanted(&self) -> bool {
        self.flash.is_some()
    }

    /// Makes the cache, if need be, or looks at it; tells its contents.
    pub fn prepare(
        &self,
        program: &RunProgram,
        profile: Option<&str>,
        config: &PolicyConfig,
    ) -> Result<Option<RunCache>, Failure> {
        let Some(path) = &self.flash else {
            return Ok(None);
        };
        check_profile(program, profile, config)?;
        forebay_innodb::check_arguments(program.arguments()).map_err(Failure::Usage)?;
        let warm = match (fs::symlink_metadata(path), self.flash_size) {
            (Err(e), Some(bytes)) if e.kind() == io::ErrorKind::NotFound => {
                forebay_innodb::create(path, bytes)?
            }
            (Err(e), None) if e.kind() == io::ErrorKind::NotFound => {
                return Err(Failure::Usage(format!(
                    "there is no flash cache {}. If there was one, its file system may not be mounted: mount it. If it is to be made, say how large: --flash-size 20GiB",
                    path.display()
                )));
            }
            (Ok(_), Some(bytes)) if is_new_device(path) => forebay_innodb::create(path, bytes)?,
            (_, Some(wanted)) => resized(path, wanted)?,
            (_, None) => forebay_innodb::retry_in_use(|| forebay_innodb::look(path))?,
        };
        let path = forebay_innodb::CacheLocation::of(path)?.flash().to_owned();
        announce(&path, warm, program.arguments());
        Ok(Some(RunCache {
            path,
            program: program.real().to_owned(),
            run: Uuid::new_v4(),
            epoch: warm.epoch,
        }))
    }
}

/// Only of one database it is known which files are page files, and that it stands the loss of
/// pages that it did not sync.
fn check_profile(
    program: &RunProgram,
    profile: Option<&str>,
    config: &PolicyConfig,
) -> Result<(), Failure> {
    let chosen = policy::choose(policy::PolicyRequest {
        programs: &program.names(),
        profile,
        config,
        absorb: &[],
    });
    match chosen {
        Ok(policy) if policy.profile == PROFILE => Ok(()),
        _ => Err(Failure::Usage(format!(
            "a flash cache is for MariaDB: of another program it is not known which files hold pages. If {} starts a MariaDB server, say --profile {PROFILE}",
            program.name().to_string_lossy()
        ))),
    }
}

/// True of a device, or a link to one, that has no metadata beside it.
fn is_new_device(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    let is_device = fs::metadata(path).is_ok_and(|meta| meta.file_type().is_block_device());
    let lane = forebay_innodb::pool_of(path);
    is_device && fs::symlink_metadata(lane).is_err()
}

/// A cache that is there gets the size that was asked for, with what is in it.
fn resized(path: &Path, wanted: u64) -> Result<CacheOccupancy, Failure> {
    let resize = || forebay_innodb::resize_found(path, wanted, &[], flush::progress());
    let (before, resized) = forebay_innodb::retry_in_use(resize)?;
    let now = resized.now;
    if now.slots != before.slots {
        complain!(
            "forebay: flash cache {}: {} now, room for {} pages instead of {}; {} pages are still in it, and {} were written to the files",
            path.display(),
            size::show(wanted),
            now.slots,
            before.slots,
            now.pages,
            resized.pages
        );
    }
    Ok(now)
}

fn announce(path: &Path, warm: CacheOccupancy, arguments: &[OsString]) {
    complain!(
        "forebay: flash cache {}: {} pages of its {} slots, of them {} newer than in the files",
        path.display(),
        warm.pages,
        warm.slots,
        warm.dirty
    );
    if fs::File::open(path).is_ok_and(|file| !BackingStore::of(file.as_fd()).memory.is_empty()) {
        complain!(
            "forebay: the flash cache {} is in memory: a power cut takes it, and with it the pages that only it has. Put it on a disk",
            path.display()
        );
    }
    if !forebay_innodb::names_doublewrite(arguments) {
        complain!(
            "forebay: once the server's log says that page files go through the flash cache, no page of theirs is torn: innodb_doublewrite=0 is safe then, and saves half of \
             the writes. Keep it on if that log says that page files stay plain, or if tables are page-compressed, or have a KEY_BLOCK_SIZE"
        );
    }
}

impl RunCache {
    /// The variables that the program's environment must have beside its own.
    pub fn environment(&self) -> Vec<(OsString, OsString)> {
        vec![
            (ENV_FLASH.into(), self.path.clone().into()),
            (ENV_FLASH_RUN.into(), self.run.to_string().into()),
            (ENV_FLASH_PROGRAM.into(), self.program.clone().into()),
            (ENV_FLASH_STATUS.into(), status_of(&self.path).into()),
        ]
    }

    /// Names this run's cache to `forebay status` from now on.
    pub fn begin(&self) -> Result<NotedRun, Failure> {
        NotedRun::begin(&run_dir()?, &self.path, self.run)
    }

    /// Gives its server's status whenever it is called. None while none says it.
    pub fn watch(&self) -> impl Fn() -> Option<CacheStatus> + Send + Sync + use<> {
        let (status, run) = (status_of(&self.path), self.run);
        move || CacheStatus::of_run(&status, run).filter(CacheStatus::is_current)
    }

    /// Tells its remaining contents after the program's end, and with `explain` its work.
    pub fn finish(&self, explain: bool) {
        let said = || CacheStatus::of_run(&status_of(&self.path), self.run);
        if explain && let Some(status) = said() {
            status
                .lines()
                .iter()
                .for_each(|line| complain!("forebay: {line}"));
        }
        match forebay_innodb::look(&self.path) {
            Ok(CacheOccupancy { epoch, .. }) if epoch == self.epoch => complain!(
                "forebay: no server has used the flash cache {} in this run. If one was up, its page files were read and written as without it, and nothing protected them from being \
                 torn. Unless a line above says why, it had not got the library: it is started by sudo or env -i, or its file has capabilities",
                self.path.display()
            ),
            Ok(CacheOccupancy { dirty: 0, .. }) => {}
            Ok(warm) => complain!(
                "forebay: {0} pages are newer in the flash cache {1} than in the files. Go on with --flash {1}; before the server is started without: forebay flash flush --flash {1}",
                warm.dirty,
                self.path.display()
            ),
            // A server in the background has it.
            Err(error) if error.is_in_use() => {}
            Err(error) => complain!("forebay: {error}"),
        }
    }
}

impl From<SetupError> for Failure {
    fn from(error: SetupError) -> Self {
        Self::Failed(error.to_string())
    }
}
