//! aarch64: ordinary copies, `dc cvap` (or `dc cvac`) per line, `dsb sy`.
#![expect(unsafe_code, reason = "cache instructions")]

use super::LINE;
use crate::checksum::Checksum;
use std::arch::asm;

/// Copying and checksumming at once: here the two take turns, a
/// [`CopyBuffer`](super::load_once::CopyBuffer) each, since a copy goes through the cache anyway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Folds;

impl Folds {
    pub(super) fn detect() -> Self {
        Self
    }

    /// Bytes that [`copy`](Self::copy) takes at a time: it cannot.
    #[inline]
    pub(super) fn step(self) -> usize {
        0
    }

    /// Copies nothing.
    ///
    /// # Safety
    /// None is needed.
    #[inline]
    pub(super) unsafe fn copy(self, _: *mut u8, _: *const u8, _: usize, _: &mut Checksum) {}
}

/// Storing of bytes: copied, then cleaned line by line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stores(Flushes);

impl Stores {
    pub(super) fn detect() -> Self {
        Self(Flushes::detect())
    }

    pub(super) fn name(self) -> &'static str {
        match self.0 {
            Flushes::Persistence => "stores + dc cvap + dsb sy",
            Flushes::Coherency => "stores + dc cvac + dsb sy",
        }
    }

    /// Copies `bytes`, a multiple of 64.
    ///
    /// # Safety
    /// Both ranges are valid for `bytes` and do not overlap.
    #[inline]
    pub(super) unsafe fn copy(self, to: *mut u8, from: *const u8, bytes: usize) {
        // SAFETY: the caller's promise; each flushed line lies in the written range.
        unsafe {
            std::ptr::copy_nonoverlapping(from, to, bytes);
            for at in (0..bytes).step_by(LINE) {
                self.0.line(to.add(at));
            }
        }
    }
}

/// The instruction that writes a line back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flushes {
    /// To the point of persistence (ARMv8.2 DPB).
    Persistence,
    /// To the point of coherency: all there is before ARMv8.2; durable where the memory
    /// controller is inside the power-fail domain.
    Coherency,
}

impl Flushes {
    pub(super) fn detect() -> Self {
        if std::arch::is_aarch64_feature_detected!("dpb") {
            Self::Persistence
        } else {
            Self::Coherency
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Persistence => "dc cvap",
            Self::Coherency => "dc cvac",
        }
    }

    /// # Safety
    /// `line` is mapped; the variant was detected on this processor.
    #[inline]
    pub(super) unsafe fn line(self, line: *const u8) {
        // SAFETY: cleaning a mapped line changes no memory. `dc cvap` is spelled as the system
        // instruction it encodes, so that assemblers for the base architecture take it.
        unsafe {
            match self {
                Self::Persistence => {
                    asm!("sys #3, c7, c12, #1, {}", in(reg) line, options(nostack, preserves_flags));
                }
                Self::Coherency => {
                    asm!("dc cvac, {}", in(reg) line, options(nostack, preserves_flags));
                }
            }
        }
    }
}

/// Orders and completes this thread's stores and flushes.
#[inline]
pub(super) fn fence() {
    // SAFETY: a barrier.
    unsafe { asm!("dsb sy", options(nostack, preserves_flags)) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise (pool): The pool uses `dc cvap` on aarch64 where the kernel announces it, and `dc
    /// cvac` elsewhere.
    #[test]
    fn dc_cvap_is_used_if_the_kernel_announces_it_and_dc_cvac_else() {
        const HWCAP_DCPOP: u64 = 1 << 16;
        // SAFETY: reads the process's auxiliary vector.
        let announced = unsafe { libc::getauxval(libc::AT_HWCAP) } & HWCAP_DCPOP != 0;
        let flushes = Flushes::detect();
        assert_eq!(flushes == Flushes::Persistence, announced);
        assert_eq!(
            flushes.name(),
            if announced { "dc cvap" } else { "dc cvac" }
        );
        assert!(Stores::detect().name().contains(flushes.name()));
    }
}
