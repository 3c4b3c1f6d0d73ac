//! [`Epochs`]: the time of its owner's use that a cache is from.

/// Numbers that an owner draws anew each time that it begins to use the cache, and keeps beside the
/// homes as well. If both are not from the same time, one of them was put back from a copy. Zero
/// stands for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Epochs {
    /// The one that the cache is in.
    pub current: u32,
    /// The one that is about to begin: the owner may have noted it already.
    pub next: u32,
}

impl Epochs {
    /// True if an owner's note, `epoch`, is of the same time.
    #[must_use]
    pub fn is(&self, epoch: u32) -> bool {
        epoch == self.current || self.next != 0 && epoch == self.next
    }

    /// The note made before the owner, which has noted `noted`, begins the epoch `next`. An owner
    /// that was cut before may have noted what was next then, so that is what counts, whatever the
    /// cache was in.
    #[must_use]
    pub fn about_to_begin(next: u32, noted: u32) -> Self {
        Self {
            current: noted,
            next,
        }
    }

    /// The note made when the owner has noted `epoch`.
    #[must_use]
    pub fn begun(epoch: u32) -> Self {
        Self {
            current: epoch,
            next: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise (flash-run): A cache and its data directory go together, however many starts are cut
    /// one after the other.
    #[test]
    fn cache_and_owner_share_an_epoch_wherever_starts_are_cut() {
        for cuts in 0..4_u32.pow(4) {
            let (mut cache, mut noted) = (Epochs::begun(1), 1);
            for start in 0..4 {
                let steps = cuts / 4_u32.pow(start) % 4;
                let next = start + 2;
                if steps > 0 {
                    cache = Epochs::about_to_begin(next, noted);
                }
                assert!(cache.is(noted), "{cuts}: {cache:?}, {noted}");
                if steps > 1 {
                    noted = next;
                }
                assert!(cache.is(noted), "{cuts}: {cache:?}, {noted}");
                if steps > 2 {
                    cache = Epochs::begun(next);
                }
                assert!(cache.is(noted), "{cuts}: {cache:?}, {noted}");
            }
        }
    }
}
