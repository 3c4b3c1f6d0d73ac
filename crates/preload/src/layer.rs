//! The seam for a laboratory: what it puts between a program and its files, and the library that ships does not have.
//!
//! A [`Layer`] hears of the calls on descriptors that it says it [sees](Layer::seen), and of memory that it [guards](guard_memory); what it
//! does then, waiting for instance, is its own. The call itself is made first and is what it always is. A library that is built on this one
//! [installs](install) its layer in a constructor that runs before this one's; libforebay.so has none, and each hook pays one relaxed load
//! to know that. Which descriptors a layer sees is a table and not a question to it: loads, and no call.
//!
//! The hooks are in the libraries of a laboratory the very same ones, not built with other features: what is tested there is what ships.

use crate::call_context::{checked, is_client, tell_client};
use forebay_files::client;
use libc::c_int;
use rustix::io::Errno;
use std::{
    ffi::CStr,
    sync::{
        OnceLock,
        atomic::{
            AtomicBool, AtomicU16,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
};

pub use crate::memory::is_readable;

/// The name of a file as a call has it: a directory's descriptor, or `AT_FDCWD`, and a path.
pub type Name<'a> = (c_int, &'a CStr);

/// What was done to the file of a descriptor, with success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// So many bytes were read, at an offset or, without one, at the position, which is behind them now.
    Read {
        /// Where in the file.
        offset: Option<u64>,
        /// Bytes.
        bytes: usize,
    },
    /// So many bytes were written, as above.
    Wrote {
        /// Where in the file.
        offset: Option<u64>,
        /// Bytes.
        bytes: usize,
        /// Those of `pwritev2`.
        flags: c_int,
    },
    /// The kernel synced the file, or the directory. Not said of an absorbed file's sync, which the pool makes unnecessary.
    Synced {
        /// As `fdatasync` does.
        data_only: bool,
    },
    /// The file got this size, bytes.
    Resized(u64),
    /// Room was made in the file, which may be longer by it.
    Allocated,
    /// The program needs these bytes no longer in memory (`POSIX_FADV_DONTNEED`).
    Dropped {
        /// Where in the file.
        offset: u64,
        /// Bytes.
        bytes: u64,
    },
    /// The file was mapped.
    Mapped {
        /// Where in memory.
        address: usize,
        /// Bytes.
        bytes: usize,
        /// Where in the file.
        offset: u64,
        /// `PROT_…`.
        protection: c_int,
        /// `MAP_…`.
        flags: c_int,
    },
}

/// What a laboratory puts between a program and its files. All methods may be called by several threads at once, and by signal handlers. Unless they say
/// otherwise they are called as the client is: the thread cannot be cancelled, and its errno is kept. What is not implemented does nothing.
pub trait Layer: Sync {
    /// The library has started, in this process: descriptors that it has already are not said by [`opened`](Self::opened).
    fn start(&self) {}

    /// This process is a forked child. Nothing but async-signal-safe work is allowed.
    fn forked(&self) {}

    /// A word for each descriptor, by its number, which is not 0 if the layer is to hear of what is done to it. Asked for once; the layer changes the words.
    fn seen(&self) -> &'static [AtomicU16];

    /// Opens a file by `real` with these flags, or with others.
    ///
    /// # Errors
    /// What the program is to be told.
    fn open(
        &self,
        flags: c_int,
        real: &mut dyn FnMut(c_int) -> Result<c_int, Errno>,
    ) -> Result<c_int, Errno> {
        real(flags)
    }

    /// `fd` was opened: absorbed already, if it is to be.
    fn opened(&self, _fd: c_int) {}

    /// `fd`, which the layer sees, is about to be closed.
    fn closing(&self, _fd: c_int) {}

    /// `to` is a duplicate of `from`, another descriptor; the layer sees one of them.
    fn duplicated(&self, _from: c_int, _to: c_int) {}

    /// Flags that the program opened `fd` with and the kernel does not know of. Nothing is kept or restored around it.
    fn hidden_flags(&self, _fd: c_int) -> c_int {
        0
    }

    /// Something is about to be done to `fd`, which the layer sees: what [`done`](Self::done) is to be given, for instance the time. Nothing is kept or
    /// restored around it.
    fn begin(&self, _fd: c_int) -> u64 {
        0
    }

    /// What [began](Self::begin) was done.
    fn done(&self, _fd: c_int, _begun: u64, _what: Done) {}

    /// Whether a shared mapping of `fd`, which the layer sees, fails with `EOPNOTSUPP`. The arguments are those of `mmap`.
    fn refuses_mapping(&self, _fd: c_int, _protection: c_int, _flags: c_int) -> bool {
        false
    }

    /// Renames a file by `real`.
    ///
    /// # Errors
    /// That of `real`.
    fn rename(
        &self,
        _from: Name<'_>,
        _to: Name<'_>,
        real: &mut dyn FnMut() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        real()
    }

    /// Unlinks a file by `real`.
    ///
    /// # Errors
    /// That of `real`.
    fn unlink(
        &self,
        _name: Name<'_>,
        real: &mut dyn FnMut() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        real()
    }

    /// The kernel is about to be given `bytes` bytes at `address` to read; said once [memory is guarded](guard_memory). Nothing is kept or restored
    /// around these two.
    fn touch(&self, _address: usize, _bytes: usize) {}

    /// What is mapped there is about to be changed by the program: it must be as the program made it.
    fn release(&self, _address: usize, _bytes: usize) {}
}

/// A layer, and the table of what it sees.
#[derive(Clone, Copy)]
struct Installed {
    layer: &'static dyn Layer,
    seen: &'static [AtomicU16],
}

static IS_THERE: AtomicBool = AtomicBool::new(false);
static INSTALLED: OnceLock<Installed> = OnceLock::new();

/// See [`guard_memory`].
static GUARDS_MEMORY: AtomicBool = AtomicBool::new(false);

/// Puts a layer under the program, for good. To be called before this library's constructor runs: by one with a priority, in the same library. False if there
/// is one.
pub fn install(layer: &'static dyn Layer) -> bool {
    let seen = layer.seen();
    let is_first = INSTALLED.set(Installed { layer, seen }).is_ok();
    IS_THERE.store(true, Relaxed);
    is_first
}

/// From now on memory of the program may be inaccessible because of the layer, until it is touched or released: it is asked before that is given to the kernel,
/// or mapped anew.
pub fn guard_memory() {
    GUARDS_MEMORY.store(true, Release);
}

#[inline]
fn installed() -> Option<&'static Installed> {
    if !IS_THERE.load(Relaxed) {
        return None;
    }
    INSTALLED.get()
}

fn layer() -> Option<&'static dyn Layer> {
    installed().map(|installed| installed.layer)
}

/// The layer, if it hears of what is done to `fd`.
fn layer_of(fd: c_int) -> Option<&'static dyn Layer> {
    layer().filter(|_| sees(fd))
}

/// True if there is a layer, which has to see what is opened, and all I/O.
#[inline]
pub(crate) fn is_there() -> bool {
    IS_THERE.load(Relaxed)
}

/// True if a layer hears of what is done to `fd`.
#[inline]
pub(crate) fn sees(fd: c_int) -> bool {
    let word = |installed: &Installed| {
        let word = installed.seen.get(usize::try_from(fd).ok()?)?;
        Some(word.load(Acquire))
    };
    installed().and_then(word).unwrap_or(0) != 0
}

/// See [`guard_memory`].
#[inline]
pub(crate) fn guards_memory() -> bool {
    GUARDS_MEMORY.load(Relaxed)
}

/// An operation on a descriptor that a layer sees, which has begun.
#[derive(Clone, Copy)]
pub(crate) struct Begun {
    layer: &'static dyn Layer,
    fd: c_int,
    at: u64,
}

/// Begins an operation on `fd`; none if no layer sees it.
#[inline]
pub(crate) fn begin(fd: c_int) -> Option<Begun> {
    let layer = layer_of(fd)?;
    let at = layer.begin(fd);
    Some(Begun { layer, fd, at })
}

impl Begun {
    /// What became of it. Not a cancellation point, and leaves errno alone.
    pub(crate) fn done(self, what: Done) {
        tell_client(|| self.layer.done(self.fd, self.at, what));
    }
}

pub(crate) fn start() {
    if let Some(layer) = layer() {
        tell_client(|| layer.start());
    }
}

pub(crate) fn forked() {
    if let Some(layer) = layer() {
        layer.forked();
    }
}

/// Opens a file by `real`. To be called inside the client.
pub(crate) fn open(flags: c_int, real: &mut impl FnMut(c_int) -> c_int) -> Result<c_int, Errno> {
    let mut real = |flags| checked(real(flags));
    match layer() {
        Some(layer) => layer.open(flags, &mut real),
        None => real(flags),
    }
}

pub(crate) fn opened(fd: c_int) {
    if let Some(layer) = layer() {
        tell_client(|| layer.opened(fd));
    }
}

pub(crate) fn closing(fd: c_int) {
    // A vforked child shares our memory, but not our descriptors.
    if let Some(layer) = layer_of(fd).filter(|_| !client::in_vforked_child()) {
        tell_client(|| layer.closing(fd));
    }
}

pub(crate) fn duplicated(from: c_int, to: c_int) {
    if from != to
        && let Some(layer) = layer_of(from).or_else(|| layer_of(to))
        && !client::in_vforked_child()
    {
        tell_client(|| layer.duplicated(from, to));
    }
}

pub(crate) fn hidden_flags(fd: c_int) -> c_int {
    layer().map_or(0, |layer| layer.hidden_flags(fd))
}

/// See [`Layer::refuses_mapping`]. The client's own mappings are not asked about.
pub(crate) fn refuses_mapping(fd: c_int, protection: c_int, flags: c_int) -> bool {
    let Some(layer) = layer_of(fd).filter(|_| !is_client()) else {
        return false;
    };
    let mut refused = false;
    tell_client(|| refused = layer.refuses_mapping(fd, protection, flags));
    refused
}

/// Renames a file by `real`. To be called inside the client.
pub(crate) fn rename(
    from: Name<'_>,
    to: Name<'_>,
    real: impl FnOnce() -> Result<(), Errno>,
) -> Result<(), Errno> {
    match layer() {
        Some(layer) => once(real, |real| layer.rename(from, to, real)),
        None => real(),
    }
}

/// Unlinks a file by `real`. To be called inside the client.
pub(crate) fn unlink(
    name: Name<'_>,
    real: impl FnOnce() -> Result<(), Errno>,
) -> Result<(), Errno> {
    match layer() {
        Some(layer) => once(real, |real| layer.unlink(name, real)),
        None => real(),
    }
}

/// Lends `real` to a layer, which can call it once.
fn once(
    real: impl FnOnce() -> Result<(), Errno>,
    lend: impl FnOnce(&mut dyn FnMut() -> Result<(), Errno>) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let mut real = Some(real);
    lend(&mut || real.take().map_or(Err(Errno::INVAL), |real| real()))
}

/// See [`Layer::touch`].
pub(crate) fn touch(address: usize, bytes: usize) {
    if let Some(layer) = layer().filter(|_| guards_memory()) {
        layer.touch(address, bytes);
    }
}

/// See [`Layer::release`].
pub(crate) fn release(address: usize, bytes: usize) {
    if let Some(layer) = layer().filter(|_| guards_memory()) {
        layer.release(address, bytes);
    }
}
