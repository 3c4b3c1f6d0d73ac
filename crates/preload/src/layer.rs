//! The seam for a laboratory: its layer between a program and its files, absent from the library
//! that ships.
//!
//! A [`FileLayer`] hears of the calls on descriptors that it says it [sees](FileLayer::seen), and
//! of memory that it [guards](guard_memory); what it does then, waiting for instance, is its own.
//! The call itself is made first and is what it always is. A library that is built on this one
//! [installs](install) its layer in a constructor that runs before this one's; libforebay.so has
//! none, and each hook pays one relaxed load to know that. Which descriptors a layer sees is a
//! table and not a question to it: loads, and no call.
//!
//! The hooks are in the libraries of a laboratory the very same ones, not built with other
//! features: what is tested there is what ships.

pub(crate) use crate::installed_layer::{guards_memory, is_there, sees};
pub use crate::{
    installed_layer::{FileEvent, FileLayer, NameAt, guard_memory, install},
    memory::is_readable,
};

use crate::{
    call_context::{checked, is_client},
    client_call::tell_client,
    installed_layer::{layer, layer_of},
};
use forebay_files::client;
use libc::c_int;
use rustix::io::Errno;

/// An operation on a descriptor that a layer sees, which has begun.
#[derive(Clone, Copy)]
pub(crate) struct BegunOperation {
    layer: &'static dyn FileLayer,
    fd: c_int,
    at: u64,
}

/// Begins an operation on `fd`; none if no layer sees it.
#[inline]
pub(crate) fn begin(fd: c_int) -> Option<BegunOperation> {
    let layer = layer_of(fd)?;
    let at = layer.begin(fd);
    Some(BegunOperation { layer, fd, at })
}

impl BegunOperation {
    /// Tells the outcome. Not a cancellation point, and leaves errno alone.
    pub(crate) fn done(self, what: FileEvent) {
        tell_client(|| self.layer.done(self.fd, self.at, what));
    }
}

pub(crate) fn start() {
    if let Some(layer) = layer() {
        tell_client(|| layer.start());
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

/// See [`FileLayer::refuses_mapping`]. The client's own mappings are not asked about.
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
    from: NameAt<'_>,
    to: NameAt<'_>,
    real: impl FnOnce() -> Result<(), Errno>,
) -> Result<(), Errno> {
    match layer() {
        Some(layer) => once(real, |real| layer.rename(from, to, real)),
        None => real(),
    }
}

/// Unlinks a file by `real`. To be called inside the client.
pub(crate) fn unlink(
    name: NameAt<'_>,
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

/// See [`FileLayer::touch`].
pub(crate) fn touch(address: usize, bytes: usize) {
    if let Some(layer) = layer().filter(|_| guards_memory()) {
        layer.touch(address, bytes);
    }
}

/// See [`FileLayer::release`].
pub(crate) fn release(address: usize, bytes: usize) {
    if let Some(layer) = layer().filter(|_| guards_memory()) {
        layer.release(address, bytes);
    }
}
