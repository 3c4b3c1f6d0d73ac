//! A file's key.

/// A file as the devices know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileKey(u64);

impl FileKey {
    /// The file with this device number and inode.
    #[must_use]
    pub const fn new(dev: u64, ino: u64) -> Self {
        Self(mixed(mixed(dev) ^ ino) | 1)
    }

    /// The key as a word, to be kept where there is only room for one.
    #[must_use]
    pub const fn to_word(self) -> u64 {
        self.0
    }

    /// The key that [`to_word`](Self::to_word) gave.
    #[must_use]
    pub const fn of_word(word: u64) -> Self {
        Self(word)
    }

    /// A place in the file, as the queue knows it.
    pub(super) fn place(self, offset: u64) -> u64 {
        self.0.wrapping_add(offset)
    }
}

/// SplitMix64's finaliser.
pub(super) const fn mixed(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
