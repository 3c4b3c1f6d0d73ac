//! A full disk: puts are refused while what is kept in [reserve](crate::log) is used by deletes and
//! by the collector.

use super::Shared;
use crate::error::StoreError;
use std::io;

/// Why a put is refused while deletes are taken.
pub(super) const FULL: &str =
    "no space left on the disk, but for deletes and for the collection of garbage";

impl Shared {
    /// Refuses what needs room that is kept for those who make some. One load.
    #[inline]
    pub(super) fn check_room(&self) -> Result<(), StoreError> {
        match self.log.reserve().is_short() {
            false => Ok(()),
            true => self.check_reserve(),
        }
    }

    /// The same, once it has looked whether there is room again.
    #[cold]
    fn check_reserve(&self) -> Result<(), StoreError> {
        let reserve = self.log.reserve();
        reserve.try_again();
        if !reserve.is_short() {
            return Ok(());
        }
        Err(match self.tail.lane() {
            Some(_) => StoreError::Stalled {
                reason: FULL.to_owned(),
            },
            None => StoreError::io("writing", self.log.dir())(io::Error::new(
                io::ErrorKind::StorageFull,
                FULL,
            )),
        })
    }
}
