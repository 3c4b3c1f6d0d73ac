//! [`Epochs`]: which of the times that an owner has used the cache it is from.

/// Numbers that an owner draws anew each time that it begins to use the cache, and keeps beside the homes as well: if both are not from the same time,
/// one of them was put back from a copy. Zero stands for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Epochs {
    /// The one that the cache is in.
    pub current: u32,
    /// The one that is about to begin: the owner may have noted it already.
    pub next: u32,
}

impl Epochs {
    /// True if what an owner has noted, `epoch`, is of the same time.
    #[must_use]
    pub fn is(&self, epoch: u32) -> bool {
        epoch == self.current || self.next != 0 && epoch == self.next
    }
}
