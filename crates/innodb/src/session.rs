//! The cache of this process: opened with the first page file, kept until the process ends.
//!
//! Pages come in only once the system tablespace is open and [guarded](crate::guard), which is
//! before InnoDB opens any other. What the cache has is read through it from the first moment.

mod system_tablespace;
mod unregistered;

pub(crate) use unregistered::UnregisteredFile;

use crate::{
    complain::{complain, complain_once},
    control::remove_socket,
    descriptor::reopen,
    environment::{self, SessionEnvironment},
    flash_place::{FlashIdentity, FlashPlace},
    home::Homes,
    identity::KnownFile,
    settings::{Settings, settings_of},
    setup::{CacheLocation, SetupError, retry_in_use},
    status::{CacheStatus, RecentWindow, ResizeProgress},
};
use forebay_flash::{Cache, CacheOptions, CachedFile, FlashError, WritePolicy};
use forebay_pool::with_room;
use parking_lot::Mutex;
use rustix::{fd::BorrowedFd, io::Errno};
use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    time::Duration,
};
use uuid::Uuid;

static SESSION: OnceLock<CacheSession> = OnceLock::new();
/// Held while the session is begun; why it could not be, once that was tried.
static BEGINNING: Mutex<Option<()>> = Mutex::new(None);
/// This is the child of a process with a session: its descriptors are page files, and the cache is
/// its parent's.
static FORKED: AtomicBool = AtomicBool::new(false);

pub(crate) fn set_forked() {
    if SESSION.get().is_some() {
        FORKED.store(true, Relaxed);
    }
}

#[inline]
pub(crate) fn is_forked() -> bool {
    FORKED.load(Relaxed)
}

/// The cache of this process, and its files.
pub(crate) struct CacheSession {
    pub(crate) cache: Cache,
    pub(crate) homes: Arc<Homes>,
    place: CacheLocation,
    /// Of the flash file that is open.
    identity: FlashIdentity,
    /// Device and inode of the control socket's file; held while it is made or removed.
    pub(crate) named_socket: Mutex<Option<(u64, u64)>>,
    status: Option<PathBuf>,
    run: Uuid,
    /// The settings at the last look at its settings file.
    kept: Mutex<Settings>,
    /// The progress of a resize, while one is under way.
    resizing: Mutex<Option<ResizeProgress>>,
    /// The process ends: no command is listened to any more.
    ended: AtomicBool,
    /// Held while a file is opened, closed for good, or renamed: the list of known files changes.
    pub(crate) opening: Mutex<()>,
    registered: Mutex<HashMap<forebay_flash::Identity, Arc<CachedFile>>>,
    /// The system tablespace is guarded: pages may come in.
    active: AtomicBool,
    /// The data directory is being made.
    making: AtomicBool,
}

/// The session, if there is one already.
#[inline]
pub(crate) fn current() -> Option<&'static CacheSession> {
    SESSION.get()
}

/// The session, begun if need be.
///
/// # Errors
/// `EBUSY` if another process has the cache, `EIO` if it cannot be opened; both are said.
pub(crate) fn begin() -> Result<&'static CacheSession, Errno> {
    match SESSION.get() {
        Some(session) => Ok(session),
        // A session is large, and so is what opens a cache: the thread's stack may be small.
        None => with_room(begin_now),
    }
}

fn begin_now() -> Result<&'static CacheSession, Errno> {
    let settings = environment::of_server().ok_or(Errno::IO)?;
    let mut tried = BEGINNING.lock();
    if let Some(session) = SESSION.get() {
        return Ok(session);
    }
    if tried.is_some() {
        return Err(Errno::IO);
    }
    match CacheSession::open(settings) {
        Ok(session) => Ok(SESSION.get_or_init(|| session)),
        Err(error) => {
            *tried = Some(());
            complain(&format!(
                "{error}. No page file is opened in this process: its pages may be older than those in the cache"
            ));
            Err(if error.is_in_use() {
                Errno::BUSY
            } else {
                Errno::IO
            })
        }
    }
}

impl CacheSession {
    fn open(settings: &SessionEnvironment) -> Result<Self, SetupError> {
        let homes = Arc::new(Homes::new());
        let place = CacheLocation::of(&settings.flash)?;
        let kept = Settings::kept(place.flash()).unwrap_or_else(|e| {
            let path = settings_of(place.flash());
            complain(&format!(
                "{}: {e}. Until it is right, pages go to their files at every sync (policy through). Remove it, and set it anew with forebay flash set",
                path.display()
            ));
            // Whatever it said, this loses nothing if the flash is lost.
            Settings {
                policy: Some(WritePolicy::Through),
                ..Settings::default()
            }
        });
        let options = kept.over(&CacheOptions::default());
        let ((cache, opened), identity) = retry_in_use(|| {
            let flash = place.open_flash()?;
            let identity = FlashIdentity::of(&flash)
                .map_err(|e| SetupError::io_of_cache("looking at", place.flash())(e.into()))?;
            Ok((place.open_in(flash, &homes, &options)?, identity))
        })?;
        for mended in opened.mended {
            complain(&format!(
                "flash cache {}: {mended}",
                settings.flash.display()
            ));
        }
        let files = cache.files();
        let registered = files.into_iter().map(|file| (file.id().identity, file));
        Ok(Self {
            registered: Mutex::new(registered.collect()),
            cache,
            homes,
            place,
            identity,
            named_socket: Mutex::default(),
            status: settings.status.clone(),
            run: settings.run,
            kept: Mutex::new(kept),
            resizing: Mutex::default(),
            ended: AtomicBool::new(false),
            opening: Mutex::new(()),
            active: AtomicBool::new(false),
            making: AtomicBool::new(false),
        })
    }

    /// One with this cache, that says in this file how it is.
    #[cfg(test)]
    pub(crate) fn said_in(status: &Path, flash: &Path) -> Self {
        let environment = SessionEnvironment {
            flash: flash.to_owned(),
            status: Some(status.to_owned()),
            run: Uuid::nil(),
        };
        Self::open(&environment).unwrap()
    }

    /// True once pages may come in.
    pub(crate) fn is_active(&self) -> bool {
        self.active.load(Acquire)
    }

    /// A page file was opened, and no system tablespace before it.
    pub(crate) fn say_unserved(&self) {
        if !self.making.load(Relaxed) {
            complain_once(
                "page files are opened before the system tablespace, ibdata1: they stay plain, and nothing protects their pages from being torn. Keep innodb_doublewrite on, or \
                 call the system tablespace ibdata1 (innodb_data_file_path)",
            );
        }
    }

    /// The file of this identity, if the cache knows it.
    pub(crate) fn known(&self, identity: forebay_flash::Identity) -> Option<Arc<CachedFile>> {
        self.registered.lock().get(&identity).cloned()
    }

    /// All that the cache knows.
    pub(crate) fn known_files(&self) -> Vec<Arc<CachedFile>> {
        self.registered.lock().values().cloned().collect()
    }

    /// Registers a file that is open as `fd`, with its home.
    pub(crate) fn register(
        &self,
        fd: BorrowedFd<'_>,
        known: &KnownFile,
        path: &Path,
    ) -> Result<Arc<CachedFile>, UnregisteredFile> {
        let home = reopen(fd, true)?;
        let name = path.to_string_lossy();
        let file = self.cache.register(known.identity, &name)?;
        self.homes.attach(file.id(), home);
        let of = known.identity;
        self.registered.lock().insert(of, Arc::clone(&file));
        Ok(file)
    }

    /// The file is gone: the cache has nothing of it any more.
    pub(crate) fn forget(&self, file: &CachedFile) -> Result<(), FlashError> {
        self.cache.drop_file(file)?;
        self.registered.lock().remove(&file.id().identity);
        Ok(())
    }

    /// The file is changed past the cache from now on, and has everything: the copies that may have
    /// pages of it are given up too. Its home stays open.
    pub(crate) fn let_go(&self, file: &CachedFile) -> Result<(), FlashError> {
        // No checkpoint waits for what was written past the cache to a file that it does not know
        // any more.
        self.cache.sync(file)?;
        self.cache.let_go(file)?;
        self.registered.lock().remove(&file.id().identity);
        Ok(())
    }

    /// Takes the settings that are kept for the cache from now on; gives those in force. A file
    /// that is gone says nothing: what it said may have been chosen for safety.
    ///
    /// # Errors
    /// In words; all stays as it is.
    pub(crate) fn follow_settings(&self) -> Result<Settings, String> {
        let read = self.hold_place();
        let read = read.and_then(|place| Settings::read(place.flash()));
        let read = read.map_err(|e| {
            let path = settings_of(self.place.flash());
            format!("{}: {e}. All stays as it is", path.display())
        })?;
        let mut before = self.kept.lock();
        if let Some(kept) = read.filter(|kept| *kept != *before) {
            let now = kept.over(&CacheOptions::default());
            self.cache.set_policy(now.policy);
            self.cache.set_contents(now.contents);
            self.cache.set_watermarks(now.watermarks);
            self.cache
                .set_limits(now.home_bytes_per_second, now.flash_bytes_per_second);
            let said = serde_json::to_string(&kept).unwrap_or_default();
            complain(&format!("the flash cache is set anew: {said}"));
            *before = kept;
        }
        Ok(Settings::of(&self.cache.options()))
    }

    /// The flash file.
    pub(crate) fn flash(&self) -> &Path {
        self.place.flash()
    }

    /// Its directory, if the path still leads to the file that is open.
    ///
    /// # Errors
    /// It does not; what the operating system says.
    pub(crate) fn hold_place(&self) -> io::Result<FlashPlace> {
        FlashPlace::hold(self.place.flash(), self.identity)
    }

    /// Sets the progress of a resize, if one is under way.
    pub(crate) fn set_resizing(&self, far: Option<ResizeProgress>) {
        *self.resizing.lock() = far;
    }

    /// True once the process ends.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Acquire)
    }

    /// No command is listened to from now on.
    pub(crate) fn end(&self) {
        const PATIENCE: Duration = Duration::from_secs(1);
        self.ended.store(true, Release);
        // What is left is replaced by the next server.
        if let Some(mut named) = self.named_socket.try_lock_for(PATIENCE)
            && let (Some(file), Ok(place)) = (named.take(), self.hold_place())
        {
            remove_socket(place.flash(), file);
        }
    }

    pub(crate) fn write_status(&self, windows: Vec<RecentWindow>) {
        let Some(path) = &self.status else { return };
        // At the end of the process two threads say it: one after the other, and the newest last.
        let resizing = self.resizing.lock();
        let mut status = CacheStatus::of(&self.cache.stats(), windows);
        status.run = self.run;
        status.flash = self.place.flash().display().to_string();
        status.cache = self.cache.owner();
        status.trouble = self.cache.flash_trouble();
        status.flash_pays = self.cache.flash_pays();
        status.written_only = status.flash_pays && !self.cache.flash_pays_for_reads();
        status.settings = Settings::of(&self.cache.options());
        status.resizing = *resizing;
        // No page depends on it.
        if let Err(e) = status.write(path) {
            complain_once(&format!(
                "{}: {e}. forebay status does not see this server's use of the flash cache: let its user write to that file",
                path.display()
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::{self, fixtures::made_cache};
    use std::thread;

    #[test]
    fn a_server_waits_at_its_start_while_its_cache_is_inspected() {
        let (_dir, flash) = made_cache(8 << 20);
        let environment = SessionEnvironment {
            flash: flash.clone(),
            status: None,
            run: Uuid::nil(),
        };
        let homes = Arc::new(Homes::new());
        let looks = CacheLocation::of(&flash)
            .unwrap()
            .open(&homes, &CacheOptions::default());
        let looks = looks.unwrap();
        thread::scope(|scope| {
            let starts = scope.spawn(|| CacheSession::open(&environment).map(drop));
            // A tenth of how long it waits.
            thread::sleep(Duration::from_millis(100));
            drop(looks);
            starts.join().unwrap().unwrap();
        });
    }

    /// Promise (flash): A settings file that is damaged when a server starts stands for policy
    /// `through`.
    #[test]
    fn a_start_with_damaged_settings_writes_through() {
        let dir = tempfile::tempdir().unwrap();
        let (flash, status) = (dir.path().join("f"), dir.path().join("s"));
        setup::create(&flash, 8 << 20).unwrap();
        let policy = || {
            CacheSession::said_in(&status, &flash)
                .cache
                .options()
                .policy
        };
        assert_eq!(policy(), WritePolicy::Back);
        std::fs::write(settings_of(&flash), "{").unwrap();
        assert_eq!(policy(), WritePolicy::Through);
    }
}
