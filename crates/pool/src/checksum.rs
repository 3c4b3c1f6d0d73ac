//! CRC-32C (Castagnoli), the checksum of every structure in the pool and the log.

/// CRC-32C of the concatenation of `parts`.
#[must_use]
pub fn crc32c<T: AsRef<[u8]>>(parts: impl IntoIterator<Item = T>) -> u32 {
    crc32c_seeded(&[], parts.into_iter())
}

/// CRC-32C of `seed` and the concatenation of `parts`.
#[inline]
pub(crate) fn crc32c_seeded<T: AsRef<[u8]>>(seed: &[u8], parts: impl Iterator<Item = T>) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    digest.update(seed);
    for part in parts {
        digest.update(part.as_ref());
    }
    #[expect(clippy::cast_possible_truncation, reason = "the algorithm has 32 bits")]
    let crc = digest.finalize() as u32;
    crc
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
