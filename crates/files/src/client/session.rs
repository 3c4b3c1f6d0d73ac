//! The session: this process as a member of the run. The lane, the shared page, the connection to
//! the supervisor.

use super::{
    address::SupervisorAddress,
    call_depth::interrupted,
    config::{CONFIG, ClientConfig},
    file_size_limit,
    fork_local::ForkLocal,
    membership, private_fds,
    private_memory::{self, MemoryUse},
};
use crate::{
    absorbed::FileKey,
    log::{ENDED, LaneLog},
    record::silence,
    shared::{LOOK, SharedPage, Stamp},
    sys,
    wire::{self, ClientRequest, SupervisorAnswer},
};
use forebay_pool::{
    Lsn, Member, MonotonicTime, Pool, PoolError, PoolErrorKind, PoolOptions, with_room,
};
use rustix::io::Errno;
use std::{
    ffi::OsString,
    fmt::Display,
    os::{
        fd::{AsFd, BorrowedFd, IntoRawFd},
        unix::ffi::OsStringExt,
    },
    sync::{Mutex, OnceLock, atomic::Ordering::Relaxed},
    time::Duration,
};
use uuid::Uuid;

/// This process's session.
pub(super) struct MemberSession {
    pub(super) page: SharedPage,
    /// This process's number in the run.
    pub(super) number: u32,
    pub(super) lane: Member,
    /// Device and inode of the pool.
    pool_file: (u64, u64),
    boot: Uuid,
    /// Held between a question and its answer. The last lock.
    asking: Mutex<()>,
}

/// This process's way into the run.
#[derive(Default)]
struct RunJoining {
    /// Held by who does it.
    lock: Mutex<()>,
    session: OnceLock<MemberSession>,
}

static JOINING: ForkLocal<RunJoining> = ForkLocal::new(RunJoining::default);

/// Begins the state that each process has anew.
pub(super) fn prepare() {
    JOINING.get();
}

/// In a forked child: it has none.
pub(super) fn renew() {
    JOINING.renew();
}

/// The session, if this process has one. Neither allocates nor locks.
#[inline]
pub(super) fn there() -> Option<&'static MemberSession> {
    JOINING.existing()?.session.get()
}

/// The session, if this process is a member; a child of one becomes one now.
#[inline]
pub(super) fn current() -> Option<&'static MemberSession> {
    match there() {
        Some(session) => Some(session),
        None if membership::is_to_join() => join_anew(),
        None => None,
    }
}

/// True once any file was absorbed, here or by who handed down a descriptor of it.
#[inline]
#[must_use]
pub fn is_absorbing() -> bool {
    there().is_some() || membership::has_files() || membership::has_inherited()
}

#[cold]
fn join_anew() -> Option<&'static MemberSession> {
    if interrupted() || sys::in_vforked_child() {
        return None;
    }
    let config = CONFIG.get()?;
    match begin(&config.address) {
        Ok(session) => Some(session),
        Err(why) => {
            let what = format!("a child of the program stays plain: {why}");
            sys::complain_repeated(&what, &what);
            membership::note_refused();
            None
        }
    }
}

/// The session, which begins now if it has not: before a file is opened, so that the supervisor
/// knows for a member who opens it. None if this process cannot be a member.
pub(super) fn member(config: &ClientConfig) -> Option<&'static MemberSession> {
    if !membership::may_join() {
        return None;
    }
    current().or_else(|| {
        let begun = begin(&config.address).map_err(|why| {
            membership::give_up();
            membership::stays_plain_for(why);
        });
        begun.ok()
    })
}

/// The session; it begins now if it has not and the file asked about, which is looked at then, may
/// be absorbed.
pub(super) fn follower(
    config: &ClientConfig,
    may_be_absorbed: impl FnOnce() -> bool,
) -> Option<&'static MemberSession> {
    current().or_else(|| {
        let may_join = config.any_absorbed() && !interrupted() && !sys::in_vforked_child();
        (may_join && may_be_absorbed()).then(|| member(config))?
    })
}

/// The session; begins it if there is none.
pub(super) fn begin(address: &SupervisorAddress) -> Result<&'static MemberSession, String> {
    // A handler that jumped out of this would leave the allocator as it is just then.
    let _masked = sys::mask();
    let joining = JOINING.get();
    let _joins = joining.lock.lock();
    if let Some(session) = joining.session.get() {
        return Ok(session);
    }
    let session =
        with_room(|| membership::ask_to_join().and_then(|()| MemberSession::begin(address)))?;
    let session = joining.session.get_or_init(|| session);
    membership::note_joined();
    Ok(session)
}

type OnPool = Box<dyn Fn(Pool) -> Pool + Send + Sync>;

/// A laboratory's layer for the pool.
static ON_POOL: OnceLock<OnPool> = OnceLock::new();

/// Has this process use the pool that `layer` makes of its own ([`Pool::on_layer`]): a laboratory's
/// wish, which is heard once, before the first file is absorbed.
pub fn on_pool(layer: impl Fn(Pool) -> Pool + Send + Sync + 'static) {
    let _ = ON_POOL.set(Box::new(layer));
}

/// The failure, and a likely remedy.
fn with_remedy(what: impl Display, errno: Errno) -> String {
    let remedy = match errno {
        Errno::CONNREFUSED => {
            ". It has ended; or this process is in another network namespace (PrivateNetwork=, a container), from which no abstract socket is reached: let it share forebay's"
        }
        Errno::MFILE => ". Raise the process's limit on open files (ulimit -n, LimitNOFILE=)",
        Errno::AGAIN => {
            ". The process locks all of its memory: raise its limit on that (ulimit -l, LimitMEMLOCK=)"
        }
        Errno::NOMEM => {
            ". Raise the process's limit on memory (ulimit -v, LimitAS=), by the pool's size at least"
        }
        _ => "",
    };
    format!("{what}: {errno}{remedy}")
}

/// The same of a pool's error.
fn of_pool(error: &PoolError) -> String {
    let PoolErrorKind::Io { doing, source } = &error.kind else {
        return error.to_string();
    };
    let what = format!("pool {}: {doing}", error.path.display());
    with_remedy(what, sys::errno_of(source))
}

/// The reason that a process can be no member which does not see the memory that the run shares.
const NOT_MAPPED: &str = "the run's shared memory cannot be mapped. Either this process is in a sandbox or container with its own /dev/shm and network namespace: let it \
share one of them with forebay. Or its memory is limited: raise that limit (ulimit -v)";

impl MemberSession {
    fn begin(address: &SupervisorAddress) -> Result<Self, String> {
        let is_mapped = |has: fn(&ClientConfig) -> bool| match CONFIG.get().is_some_and(has) {
            true => Ok(()),
            false => Err(NOT_MAPPED.to_owned()),
        };
        is_mapped(|config| config.order.is_some())?;
        let lost = |errno: Errno| with_remedy("the supervisor does not answer", errno);
        let (socket, answer, fds) = address.ask_welcome().map_err(lost)?;
        let SupervisorAnswer::Welcome { pool, member, boot } = answer else {
            return Err(match answer {
                SupervisorAnswer::Refused { reason } => reason,
                other => format!("the supervisor answers {other:?}"),
            });
        };
        // Of another version there is none either, and that has been said.
        is_mapped(|config| config.table.is_some())?;
        let mut fds = fds.into_iter();
        let (Some(pool_fd), Some(lane), Some(page)) = (fds.next(), fds.next(), fds.next()) else {
            return Err("the supervisor sent no pool".to_owned());
        };
        let memory = file_size_limit::checked(fds.next(), &pool_fd)?;
        let of_page = |errno: Errno| with_remedy("the shared page", errno);
        let page = SharedPage::map(page.as_fd()).map_err(of_page)?;
        // As the pool is. A forked child, which may become another user, maps both anew when it is
        // a member.
        sys::keep_from_children(page.memory()).map_err(of_page)?;
        sys::keep_from_dumps(page.memory());
        // The pool is mapped by this number: it does not move before.
        let ([socket, pool_fd], stays) = private_fds::adopt(socket, pool_fd);
        let mapped = memory.as_ref().map_or(pool_fd.as_fd(), AsFd::as_fd);
        let pool_file = sys::stat_of(mapped).map_err(|e| format!("the pool: {e}"))?;
        let joined = PoolOptions::new()
            .open_shared(OsString::from_vec(pool), pool_fd.into(), memory)
            .and_then(|pool| {
                let pool = match ON_POOL.get() {
                    Some(layer) => layer(pool),
                    None => pool,
                };
                pool.join(lane.as_fd(), member)
            })
            .map(|lane| lane.asking(asks_in_vain));
        let lane = joined.map_err(|e| of_pool(&e)).and_then(|lane| {
            let memories = [lane.state_memory(), lane.posts_memory()];
            let mut kept = memories.into_iter().filter(|memory| !memory.is_empty());
            kept.try_for_each(sys::keep_from_children)
                .map_err(|e| format!("the lane: {e}"))
                .map(|()| lane)
        });
        let lane = lane.inspect_err(|_| private_fds::unset())?;
        drop(stays);
        // From now on it is where `private_fds` says.
        let _ = socket.into_raw_fd();
        private_memory::keep(MemoryUse::Page, page.memory());
        private_memory::keep(MemoryUse::Lane, lane.state_memory());
        private_memory::keep(MemoryUse::Pool, lane.pool_memory());
        private_memory::keep(MemoryUse::Posts, lane.posts_memory());
        Ok(Self {
            page,
            number: member,
            lane,
            pool_file: (pool_file.st_dev, pool_file.st_ino),
            boot,
            asking: Mutex::default(),
        })
    }

    /// Returns when everything that was logged below `lsn` is durable: at once, but for a pool on a
    /// disk.
    ///
    /// # Errors
    /// [`ENDED`]: a sync has to be a real one.
    #[inline]
    pub(super) fn commit(&self, lsn: Lsn) -> Result<(), Errno> {
        if !self.lane.needs_commit() || self.lane.is_committed(lsn) {
            return Ok(());
        }
        // All others wait for who leads a commit: no handler may jump away from it, nor wait for it
        // above it.
        let _masked = sys::mask();
        // The pool's descriptor has its number meanwhile, which may be another than the last time.
        let stays = private_fds::connection();
        self.lane.moved(stays.pool());
        let begun = MonotonicTime::now();
        self.lane.commit(lsn).map_err(|_| ENDED)?;
        self.page.commits.add(begun.elapsed());
        Ok(())
    }

    /// A file that changes so long after its last record was changed later, for a replay.
    pub(super) fn silence(&self) -> Duration {
        silence(self.lane.needs_commit())
    }

    /// The same for everything that was logged before.
    pub(super) fn commit_all(&self) -> Result<(), Errno> {
        match self.lane.needs_commit() {
            true => self.commit(self.lane.end().map_err(|_| ENDED)?),
            false => Ok(()),
        }
    }

    /// The lane, to log by.
    #[inline]
    pub(super) fn log(&self) -> LaneLog<'_> {
        LaneLog {
            lane: &self.lane,
            page: &self.page,
            boot: *self.boot.as_bytes(),
            is_orphan,
        }
    }

    /// True if the supervisor is dead, as the kernel says. Costs a load.
    #[inline]
    pub(super) fn is_orphan(&self) -> bool {
        is_orphan()
    }

    /// The number and state of the file, if the run absorbs it. Neither allocates nor locks.
    pub(super) fn find(&self, key: FileKey) -> Option<(usize, Stamp)> {
        let number = CONFIG.get()?.table.as_ref()?.number_of(key)?;
        Some((number, self.page.absorbed_as(number, key)?))
    }

    /// Asks the supervisor to sync and follow a file: its number and generation. `EBUSY` if it
    /// refuses, `EIO` if the file must not be written to.
    pub(super) fn register(
        &self,
        fd: BorrowedFd<'_>,
        path: Vec<u8>,
    ) -> Result<(usize, u32), Errno> {
        match self.ask(&ClientRequest::Register { path }, &[fd])? {
            SupervisorAnswer::Absorb { file, generation } => {
                let number = usize::try_from(file).map_err(|_| Errno::PROTO)?;
                Ok((number, generation))
            }
            SupervisorAnswer::Unheard { reason } => {
                let what = format!("a file cannot be opened for writing: {reason}");
                sys::complain_repeated(&what, &what);
                Err(Errno::IO)
            }
            // It knows that the file is plain here.
            _ => Err(Errno::BUSY),
        }
    }

    /// Has the file made plain, for all processes. Without any lock of it.
    ///
    /// # Errors
    /// What the lane has of it cannot be synced: it must not be changed past the lane.
    pub(super) fn retire(&self, number: usize, generation: u32) -> Result<(), Errno> {
        let file = u32::try_from(number).map_err(|_| Errno::INVAL)?;
        self.ask_done(number, &ClientRequest::Retire { file, generation })
    }

    /// A process has written over the shared page's state of a file: nothing is logged any more, of
    /// any file, and this one is plain when this returns. Without any lock of it.
    ///
    /// # Errors
    /// What the lane has cannot be synced.
    #[cold]
    pub(super) fn give_up_lane(&self, number: usize, generation: u32) -> Result<(), Errno> {
        self.lane.abandon();
        self.retire(number, generation)
    }

    /// Has the lane's records of a file that could not be synced written again.
    ///
    /// # Errors
    /// It still cannot be synced.
    pub(super) fn repair(&self, number: usize) -> Result<(), Errno> {
        let file = u32::try_from(number).map_err(|_| Errno::INVAL)?;
        self.ask_done(number, &ClientRequest::Repair { file })
    }

    /// Returns when the lane has room for a write of `bytes` bytes, or has ended. Without any lock
    /// of a file: one that could not be synced is to be written again meanwhile, which is asked
    /// for.
    ///
    /// # Errors
    /// That of a file that still cannot be synced.
    #[cold]
    pub(super) fn wait_for_room(&self, bytes: usize) -> Result<(), Errno> {
        self.page.waits.fetch_add(1, Relaxed);
        let begun = MonotonicTime::now();
        let mut failed = Ok(());
        loop {
            let seen = self.lane.prepared();
            // The child of a signal handler's fork above this is no member, and begins anew.
            let is_ours = there().is_some_and(|session| std::ptr::eq(session, self));
            if !is_ours {
                return Ok(());
            }
            if self.log().has_room(bytes) || self.is_orphan() {
                self.page.waited.add(begun.elapsed());
                return Ok(());
            }
            // Only now: the lane may have grown while that was tried.
            failed?;
            match self.page.failing_file() {
                Some(number) => failed = self.repair(number),
                None => self.lane.wait(seen, LOOK),
            }
        }
    }

    fn ask_done(&self, number: usize, request: &ClientRequest) -> Result<(), Errno> {
        match self.ask(request, &[]) {
            Ok(SupervisorAnswer::Done) => Ok(()),
            Ok(SupervisorAnswer::Failed { errno }) => Err(Errno::from_raw_os_error(errno)),
            Ok(_) => Err(Errno::IO),
            // What it died of is no error of the file's.
            Err(_) if self.is_orphan() => self.settle(number),
            Err(errno) => Err(errno),
        }
    }

    /// `ENOTCONN` if the supervisor does not answer: what it dies of is no answer.
    fn ask(
        &self,
        request: &ClientRequest,
        fds: &[BorrowedFd<'_>],
    ) -> Result<SupervisorAnswer, Errno> {
        let lost = |_| {
            wait_for_death();
            Errno::NOTCONN
        };
        let _asking = self.asking.lock();
        wire::send(private_fds::connection().as_fd(), request, fds).map_err(lost)?;
        let received = private_fds::answered()
            .and_then(|socket| wire::receive::<SupervisorAnswer>(socket.as_fd()));
        received.map(|(answer, _)| answer).map_err(lost)
    }

    /// Tells the supervisor something that has no answer. If it is gone, it need not know.
    pub(super) fn tell(&self, request: &ClientRequest) {
        let _ = wire::send(private_fds::connection().as_fd(), request, &[]);
    }

    /// False in a process that has become another user, or another process, in the middle of a
    /// call: the session's mappings are gone.
    pub(super) fn is_current(&self) -> bool {
        there().is_some_and(|session| std::ptr::eq(session, self))
    }

    /// The process has no right to the pool any more, nor to the memory that the run's processes
    /// share. They are not in its memory from now on, and a reference into them leads to zeros. The
    /// session is not the process's any more.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn unmap(&self) -> Result<(), Errno> {
        private_memory::OF_SESSION
            .into_iter()
            .for_each(private_memory::forget);
        sys::unmap_file(self.pool_file.0, self.pool_file.1)?;
        sys::stand_in(self.page.memory())?;
        sys::stand_in(self.lane.state_memory())
    }
}

/// The connection ends a moment before the kernel says of what.
fn wait_for_death() {
    for _ in 0..50 {
        if is_orphan() {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A wait for the pool's owner is in vain: it is gone, or this process has left, or has become
/// another one, and has other memory where it asked.
fn asks_in_vain() -> bool {
    is_orphan() || there().is_none()
}

/// True if the supervisor is dead.
#[inline]
fn is_orphan() -> bool {
    let table = CONFIG.get().and_then(|config| config.table.as_ref());
    table.is_some_and(|table| !table.is_alive())
}
