//! x86-64: non-temporal stores by the widest vector, `clwb`/`clflushopt`/`clflush`, `sfence`.
#![expect(unsafe_code, reason = "vector stores and cache instructions")]

use std::arch::{asm, x86_64 as x86};

mod copy_checksum;
pub(super) use copy_checksum::Folds;

/// The instructions that store bytes past the caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stores {
    Avx512,
    Avx,
    Sse2,
}

impl Stores {
    pub(super) fn detect() -> Self {
        if is_x86_feature_detected!("avx512f") {
            Self::Avx512
        } else if is_x86_feature_detected!("avx") {
            Self::Avx
        } else {
            Self::Sse2
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Avx512 => "non-temporal 64-byte stores (avx512f vmovntdq) + sfence",
            Self::Avx => "non-temporal 32-byte stores (avx vmovntdq) + sfence",
            Self::Sse2 => "non-temporal 16-byte stores (sse2 movntdq) + sfence",
        }
    }

    /// Copies `bytes`, a multiple of 64.
    ///
    /// # Safety
    /// `to` is 64-byte aligned; both ranges are valid for `bytes` and do not overlap; the
    /// variant was detected on this processor.
    #[inline]
    pub(super) unsafe fn copy(self, to: *mut u8, from: *const u8, bytes: usize) {
        // SAFETY: passed on unchanged; the variant is only made by `detect`.
        unsafe {
            match self {
                Self::Avx512 => copy_avx512(to, from, bytes),
                Self::Avx => copy_avx(to, from, bytes),
                Self::Sse2 => copy_sse2(to, from, bytes),
            }
        }
    }
}

/// # Safety
/// As [`Stores::copy`].
#[target_feature(enable = "avx512f")]
unsafe fn copy_avx512(to: *mut u8, from: *const u8, bytes: usize) {
    for at in (0..bytes).step_by(64) {
        // SAFETY: `at + 64 <= bytes`; the store's address is 64-byte aligned.
        unsafe {
            let line = x86::_mm512_loadu_si512(from.add(at).cast());
            x86::_mm512_stream_si512(to.add(at).cast(), line);
        }
    }
}

/// # Safety
/// As [`Stores::copy`].
#[target_feature(enable = "avx")]
unsafe fn copy_avx(to: *mut u8, from: *const u8, bytes: usize) {
    for at in (0..bytes).step_by(32) {
        // SAFETY: `at + 32 <= bytes`; the store's address is 32-byte aligned.
        unsafe {
            let half = x86::_mm256_loadu_si256(from.add(at).cast());
            x86::_mm256_stream_si256(to.add(at).cast(), half);
        }
    }
}

/// # Safety
/// As [`Stores::copy`].
unsafe fn copy_sse2(to: *mut u8, from: *const u8, bytes: usize) {
    for at in (0..bytes).step_by(16) {
        // SAFETY: `at + 16 <= bytes`; the store's address is 16-byte aligned.
        unsafe {
            let quarter = x86::_mm_loadu_si128(from.add(at).cast());
            x86::_mm_stream_si128(to.add(at).cast(), quarter);
        }
    }
}

/// The instruction that writes back a line of ordinary stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flushes {
    Clwb,
    ClflushOpt,
    Clflush,
}

impl Flushes {
    pub(super) fn detect() -> Self {
        // Leaf 7: EBX bit 24 is clwb, bit 23 clflushopt (Intel SDM, "CPUID"). std does not name
        // them.
        let leaf = if x86::__cpuid(0).eax >= 7 {
            x86::__cpuid_count(7, 0).ebx
        } else {
            0
        };
        if leaf & (1 << 24) != 0 {
            Self::Clwb
        } else if leaf & (1 << 23) != 0 {
            Self::ClflushOpt
        } else {
            Self::Clflush
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Clwb => "clwb",
            Self::ClflushOpt => "clflushopt",
            Self::Clflush => "clflush",
        }
    }

    /// # Safety
    /// `line` is mapped; the variant was detected on this processor.
    #[inline]
    pub(super) unsafe fn line(self, line: *const u8) {
        // SAFETY: the instructions change no memory and fault on unmapped addresses only.
        unsafe {
            match self {
                Self::Clwb => asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags)),
                Self::ClflushOpt => {
                    asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags));
                }
                Self::Clflush => x86::_mm_clflush(line),
            }
        }
    }
}

/// Orders and completes this thread's stores and flushes.
#[inline]
pub(super) fn fence() {
    // SAFETY: a barrier; every x86-64 processor has it.
    unsafe { x86::_mm_sfence() };
}
