//! Copying and checksumming at once: each byte is loaded to a register, and stored and checksummed
//! from there.
//!
//! The checksum is a remainder of the message as a polynomial over GF(2). *Folding* replaces the
//! message's front by bytes of the same remainder, further back, with two carry-less
//! multiplications a 16 bytes ("Fast CRC Computation for Generic Polynomials Using PCLMULQDQ",
//! Intel 2009). What is left at the end, four registers, is summed as ordinary bytes.

use crate::checksum::Checksum;
use std::arch::{asm, x86_64 as x86};

/// The instructions that load bytes once, store and checksum them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::persist) enum Folds {
    /// 256 bytes at a time.
    Avx512,
    /// 64 bytes at a time.
    Sse,
    /// The processor has no carry-less multiplication.
    None,
}

/// x^n modulo the polynomial of CRC-32C, the lowest degree in the highest bit, as folding wants it.
const fn power(n: usize) -> i64 {
    let mut remainder: u32 = 1;
    let mut i = 0;
    while i < n {
        let carry = remainder >> 31;
        remainder = (remainder << 1) ^ (carry * 0x1EDC_6F41);
        i += 1;
    }
    (remainder.reverse_bits() as i64) << 1
}

/// The two factors that carry 16 bytes over `bytes` bytes: for their second half and their first.
const fn factors(bytes: usize) -> (i64, i64) {
    (power(bytes * 8 - 32), power(bytes * 8 + 32))
}

impl Folds {
    pub(in crate::persist) fn detect() -> Self {
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("vpclmulqdq") {
            Self::Avx512
        } else if is_x86_feature_detected!("pclmulqdq") && is_x86_feature_detected!("sse4.1") {
            Self::Sse
        } else {
            Self::None
        }
    }

    /// Bytes that [`copy`](Self::copy) takes at a time; 0 if it cannot.
    #[inline]
    pub(in crate::persist) fn step(self) -> usize {
        match self {
            Self::Avx512 => 256,
            Self::Sse => 64,
            Self::None => 0,
        }
    }

    /// Copies `bytes` bytes, a positive multiple of [`step`](Self::step), past the caches, each
    /// loaded once, and continues `sum` over them.
    ///
    /// # Safety
    /// As [`Stores::copy`](super::Stores::copy); but others may be writing to `from`.
    #[inline]
    pub(in crate::persist) unsafe fn copy(
        self,
        to: *mut u8,
        from: *const u8,
        bytes: usize,
        sum: &mut Checksum,
    ) {
        // SAFETY: passed on unchanged; the variant is only made by `detect`.
        unsafe {
            match self {
                Self::Avx512 => fold_avx512(to, from, bytes, sum),
                Self::Sse => fold_sse(to, from, bytes, sum),
                Self::None => {}
            }
        }
    }
}

/// # Safety
/// As [`Folds::copy`].
#[target_feature(enable = "avx512f,vpclmulqdq")]
unsafe fn fold_avx512(to: *mut u8, from: *const u8, bytes: usize, sum: &mut Checksum) {
    const STEP: usize = 256;
    const FACTORS: (i64, i64) = factors(STEP);
    // Loads the line at `at` and stores it.
    let copy = |at: usize| {
        let line: x86::__m512i;
        // SAFETY: `at + 64 <= bytes`; the store's address is 64-byte aligned. The load is an
        // instruction of ours, so that there is one: the compiler knows nothing about the memory
        // that it could load once more, or assume to be unchanged.
        unsafe {
            asm!("vmovdqu64 {}, [{}]", out(zmm_reg) line, in(reg) from.add(at), options(nostack, preserves_flags, readonly));
            x86::_mm512_stream_si512(to.add(at).cast(), line);
        }
        line
    };
    let factors = x86::_mm512_set4_epi64(FACTORS.0, FACTORS.1, FACTORS.0, FACTORS.1);
    let mut folded = [copy(0), copy(64), copy(128), copy(192)];
    let state = x86::_mm512_zextsi128_si512(x86::_mm_cvtsi32_si128(sum.state().cast_signed()));
    folded[0] = x86::_mm512_xor_si512(folded[0], state);
    for at in (STEP..bytes).step_by(STEP) {
        for (i, fold) in folded.iter_mut().enumerate() {
            let line = copy(at + i * 64);
            let front = x86::_mm512_clmulepi64_epi128::<0x00>(*fold, factors);
            let back = x86::_mm512_clmulepi64_epi128::<0x11>(*fold, factors);
            *fold = x86::_mm512_ternarylogic_epi64::<0x96>(front, back, line);
        }
    }
    // SAFETY: four registers of 64 bytes are 256 bytes.
    let left: [u8; STEP] = unsafe { std::mem::transmute(folded) };
    *sum = Checksum::of_state(0);
    sum.add(&left);
}

/// # Safety
/// As [`Folds::copy`].
#[target_feature(enable = "sse4.1,pclmulqdq")]
unsafe fn fold_sse(to: *mut u8, from: *const u8, bytes: usize, sum: &mut Checksum) {
    const STEP: usize = 64;
    const FACTORS: (i64, i64) = factors(STEP);
    // Loads the quarter of a line at `at` and stores it.
    let copy = |at: usize| {
        let quarter: x86::__m128i;
        // SAFETY: as in `fold_avx512`, with 16 bytes.
        unsafe {
            asm!("movdqu {}, [{}]", out(xmm_reg) quarter, in(reg) from.add(at), options(nostack, preserves_flags, readonly));
            x86::_mm_stream_si128(to.add(at).cast(), quarter);
        }
        quarter
    };
    let factors = x86::_mm_set_epi64x(FACTORS.0, FACTORS.1);
    let mut folded = [copy(0), copy(16), copy(32), copy(48)];
    let state = x86::_mm_cvtsi32_si128(sum.state().cast_signed());
    folded[0] = x86::_mm_xor_si128(folded[0], state);
    for at in (STEP..bytes).step_by(STEP) {
        for (i, fold) in folded.iter_mut().enumerate() {
            let quarter = copy(at + i * 16);
            let front = x86::_mm_clmulepi64_si128::<0x00>(*fold, factors);
            let back = x86::_mm_clmulepi64_si128::<0x11>(*fold, factors);
            *fold = x86::_mm_xor_si128(x86::_mm_xor_si128(front, back), quarter);
        }
    }
    // SAFETY: four registers of 16 bytes are 64 bytes.
    let left: [u8; STEP] = unsafe { std::mem::transmute(folded) };
    *sum = Checksum::of_state(0);
    sum.add(&left);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crc32c;

    /// Promise: as `a_buffer_changing_during_its_append_makes_a_whole_record`.
    #[test]
    fn each_way_of_folding_copies_and_sums_as_bytes_are_summed() {
        let source: Vec<u8> = (0..9000u32).map(|i| ((i * i) >> 3) as u8).collect();
        let mut ways = vec![Folds::Sse, Folds::detect()];
        ways.retain(|way| way.step() > 0);
        for way in ways {
            for (at, bytes) in [(0, 256), (1, 512), (7, 1024), (63, 4096), (5, 8192)] {
                let mut memory = vec![Line([0; 64]); bytes / 64];
                let mut sum = Checksum::new();
                sum.add(b"before");
                // SAFETY: both are valid for `bytes` bytes, and `memory` is aligned; the variants
                // are this processor's.
                let copied = unsafe {
                    way.copy(
                        memory.as_mut_ptr().cast(),
                        source[at..].as_ptr(),
                        bytes,
                        &mut sum,
                    );
                    super::super::fence();
                    std::slice::from_raw_parts(memory.as_ptr().cast::<u8>(), bytes)
                };
                let from = &source[at..at + bytes];
                assert_eq!(copied, from);
                sum.add(b"behind");
                assert_eq!(sum.value(), crc32c([&b"before"[..], from, b"behind"]));
            }
        }
    }

    #[derive(Clone)]
    #[repr(align(64))]
    struct Line(#[expect(dead_code, reason = "room")] [u8; 64]);
}
