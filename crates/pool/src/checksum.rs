//! CRC-32C (Castagnoli), the checksum of every structure in the pool and the log.

use crc_fast::{CrcAlgorithm, Digest};

/// A CRC-32C over bytes that come one piece after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checksum(u32);

impl Checksum {
    /// Of no bytes yet.
    #[inline]
    #[must_use]
    pub fn new() -> Self {
        Self(!0)
    }

    /// Continues it over `bytes`.
    #[inline]
    pub fn add(&mut self, bytes: &[u8]) {
        let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, self.0.into());
        digest.update(bytes);
        #[expect(clippy::cast_possible_truncation, reason = "the algorithm has 32 bits")]
        let crc = digest.finalize() as u32;
        self.0 = !crc;
    }

    /// The checksum of all bytes so far.
    #[inline]
    #[must_use]
    pub fn value(self) -> u32 {
        !self.0
    }

    /// The register behind the checksum: the remainder of all bytes so far, the lowest degree in the highest bit.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    pub(crate) fn state(self) -> u32 {
        self.0
    }

    /// With this register.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    pub(crate) fn of_state(state: u32) -> Self {
        Self(state)
    }
}

impl Default for Checksum {
    fn default() -> Self {
        Self::new()
    }
}

/// CRC-32C of the concatenation of `parts`.
#[must_use]
pub fn crc32c<T: AsRef<[u8]>>(parts: impl IntoIterator<Item = T>) -> u32 {
    crc32c_seeded(&[], parts.into_iter())
}

/// CRC-32C of `seed` and the concatenation of `parts`.
#[inline]
pub(crate) fn crc32c_seeded<T: AsRef<[u8]>>(seed: &[u8], parts: impl Iterator<Item = T>) -> u32 {
    let mut sum = Checksum::new();
    sum.add(seed);
    for part in parts {
        sum.add(part.as_ref());
    }
    sum.value()
}

#[cfg(test)]
mod tests {
    use super::crc32c;

    #[test]
    fn the_checksum_is_castagnolis_and_does_not_depend_on_the_cuts() {
        // RFC 3720, appendix B.4.
        assert_eq!(crc32c([&[0u8; 32][..]]), 0x8A91_36AA);
        assert_eq!(crc32c([&[0xFFu8; 32][..]]), 0x62A8_AB43);
        assert_eq!(crc32c([&b"1234"[..], b"", b"56789"]), 0xE306_9283);
    }
}
