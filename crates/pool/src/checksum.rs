//! CRC-32C (Castagnoli), the checksum of every structure in the pool and the log.
#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "an instruction that not every processor has")
)]

use crc_fast::{CrcAlgorithm, Digest};

/// So many bytes the processor's own instruction is fast enough for. It needs no stack, which may
/// be a small one: what a program's thread appends to the log comes here in pieces of no more.
#[cfg(target_arch = "x86_64")]
const SHORT: usize = 1024;

/// Continues a state over `bytes`.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn short(state: u32, bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u64};
    let (words, rest) = bytes.as_chunks::<8>();
    let state = words.iter().fold(u64::from(state), |state, word| {
        _mm_crc32_u64(state, u64::from_le_bytes(*word))
    });
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the instruction leaves 32 bits"
    )]
    let state = state as u32;
    rest.iter()
        .fold(state, |state, byte| _mm_crc32_u8(state, *byte))
}

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
        #[cfg(target_arch = "x86_64")]
        if bytes.len() <= SHORT && std::arch::is_x86_feature_detected!("sse4.2") {
            // SAFETY: the processor has the instruction.
            self.0 = unsafe { short(self.0, bytes) };
            return;
        }
        self.add_long(bytes);
    }

    /// The same of many, which needs some KiB of the stack.
    #[inline(never)]
    fn add_long(&mut self, bytes: &[u8]) {
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

    /// The register behind the checksum: the remainder of all bytes so far, the lowest degree in
    /// the highest bit.
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

    #[test]
    fn short_pieces_and_long_ones_have_the_same_checksum() {
        let bytes: Vec<u8> = (0..5000_u32).map(|n| (n * 7 + n / 256) as u8).collect();
        let whole = crc32c([&bytes]);
        for piece in [1, 7, 8, 9, 64, 1023, 1024, 1025, 4999] {
            assert_eq!(crc32c(bytes.chunks(piece)), whole, "{piece}");
        }
    }
}
