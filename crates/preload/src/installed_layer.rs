//! The trait of a layer, and the layer that is installed.

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

/// The name of a file as a call has it: a directory's descriptor, or `AT_FDCWD`, and a path.
pub type NameAt<'a> = (c_int, &'a CStr);

/// A call that changed the file of a descriptor, or read from it, with success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileEvent {
    /// So many bytes were read, at an offset or, without one, at the position, which is behind them
    /// now.
    Read {
        /// Its offset in the file.
        offset: Option<u64>,
        /// Bytes.
        bytes: usize,
    },
    /// So many bytes were written, as above.
    Wrote {
        /// Its offset in the file.
        offset: Option<u64>,
        /// Bytes.
        bytes: usize,
        /// Those of `pwritev2`.
        flags: c_int,
    },
    /// The kernel synced the file, or the directory. Not said of an absorbed file's sync, which the
    /// pool makes unnecessary.
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
        /// Its offset in the file.
        offset: u64,
        /// Bytes.
        bytes: u64,
    },
    /// The file was mapped.
    Mapped {
        /// Its address in memory.
        address: usize,
        /// Bytes.
        bytes: usize,
        /// Its offset in the file.
        offset: u64,
        /// `PROT_…`.
        protection: c_int,
        /// `MAP_…`.
        flags: c_int,
    },
}

/// A laboratory's layer between a program and its files. All methods may be called by several
/// threads at once, and by signal handlers. Unless they say otherwise they are called as the client
/// is: the thread cannot be cancelled, and its errno is kept. What is not implemented does nothing.
pub trait FileLayer: Sync {
    /// The library has started, in this process: descriptors that it has already are not said by
    /// [`opened`](Self::opened).
    fn start(&self) {}

    /// This process is a forked child. Nothing but async-signal-safe work is allowed.
    fn forked(&self) {}

    /// A word for each descriptor, by its number, which is not 0 if the layer is to hear of its
    /// calls. Asked for once; the layer changes the words.
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

    /// Flags that the program opened `fd` with and the kernel does not know of. Nothing is kept or
    /// restored around it.
    fn hidden_flags(&self, _fd: c_int) -> c_int {
        0
    }

    /// Something is about to be done to `fd`, which the layer sees: gives a value for
    /// [`done`](Self::done), for instance the time. Nothing is kept or restored around it.
    fn begin(&self, _fd: c_int) -> u64 {
        0
    }

    /// Hears that an operation which [began](Self::begin) was done.
    fn done(&self, _fd: c_int, _begun: u64, _what: FileEvent) {}

    /// True if a shared mapping of `fd`, which the layer sees, fails with `EOPNOTSUPP`. The
    /// arguments are those of `mmap`.
    fn refuses_mapping(&self, _fd: c_int, _protection: c_int, _flags: c_int) -> bool {
        false
    }

    /// Renames a file by `real`.
    ///
    /// # Errors
    /// That of `real`.
    fn rename(
        &self,
        _from: NameAt<'_>,
        _to: NameAt<'_>,
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
        _name: NameAt<'_>,
        real: &mut dyn FnMut() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        real()
    }

    /// The kernel is about to be given `bytes` bytes at `address` to read; said once [memory is
    /// guarded](guard_memory). Nothing is kept or restored around these two.
    fn touch(&self, _address: usize, _bytes: usize) {}

    /// Hears that the program is about to change a mapping there: it must be as the program made
    /// it.
    fn release(&self, _address: usize, _bytes: usize) {}
}

/// A layer, and the table of what it sees.
#[derive(Clone, Copy)]
struct InstalledLayer {
    layer: &'static dyn FileLayer,
    seen: &'static [AtomicU16],
}

static IS_THERE: AtomicBool = AtomicBool::new(false);
static INSTALLED: OnceLock<InstalledLayer> = OnceLock::new();

/// See [`guard_memory`].
static GUARDS_MEMORY: AtomicBool = AtomicBool::new(false);

/// Puts a layer under the program, for good. To be called before this library's constructor runs:
/// by one with a priority, in the same library. False if there is one.
pub fn install(layer: &'static dyn FileLayer) -> bool {
    let seen = layer.seen();
    let is_first = INSTALLED.set(InstalledLayer { layer, seen }).is_ok();
    IS_THERE.store(true, Relaxed);
    is_first
}

/// From now on memory of the program may be inaccessible because of the layer, until it is touched
/// or released: it is asked before that is given to the kernel, or mapped anew.
pub fn guard_memory() {
    GUARDS_MEMORY.store(true, Release);
}

#[inline]
fn installed() -> Option<&'static InstalledLayer> {
    if !IS_THERE.load(Relaxed) {
        return None;
    }
    INSTALLED.get()
}

#[inline]
pub(crate) fn layer() -> Option<&'static dyn FileLayer> {
    installed().map(|installed| installed.layer)
}

/// The layer, if it hears of the calls on `fd`.
#[inline]
pub(crate) fn layer_of(fd: c_int) -> Option<&'static dyn FileLayer> {
    layer().filter(|_| sees(fd))
}

/// True if there is a layer, which has to see each open, and all I/O.
#[inline]
pub(crate) fn is_there() -> bool {
    IS_THERE.load(Relaxed)
}

/// True if a layer hears of the calls on `fd`.
#[inline]
pub(crate) fn sees(fd: c_int) -> bool {
    let word = |installed: &InstalledLayer| {
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

/// This process is a forked child.
pub(crate) fn forked() {
    if let Some(layer) = layer() {
        layer.forked();
    }
}
