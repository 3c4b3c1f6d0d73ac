//! [`Timed`]: any medium, slowed down to a device profile by busy waiting.

use super::{Media, Profile, Survives};
use std::{
    hint, io,
    io::IoSlice,
    os::fd::BorrowedFd,
    sync::Arc,
    time::{Duration, Instant},
};

/// A medium whose accesses take as long as a [`Profile`] says.
pub struct Timed {
    inner: Arc<dyn Media>,
    profile: Profile,
}

impl Timed {
    /// Slows `inner` down to `profile`.
    pub fn new(inner: Arc<dyn Media>, profile: Profile) -> Self {
        Self { inner, profile }
    }
}

fn wait(cost: Duration) {
    if cost.is_zero() {
        return;
    }
    let start = Instant::now();
    while start.elapsed() < cost {
        hint::spin_loop();
    }
}

#[expect(unsafe_code, reason = "implements the trait's unsafe slice")]
impl Media for Timed {
    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }

    fn survives(&self) -> Survives {
        self.inner.survives()
    }

    fn describe(&self) -> String {
        format!("{}, slowed to {}", self.inner.describe(), self.profile.name)
    }

    fn stream(&self, offset: u64, parts: &[IoSlice<'_>], skip: usize) {
        self.inner.stream(offset, parts, skip);
        let bytes: usize = parts.iter().map(|p| p.len()).sum();
        wait(self.profile.write_cost(bytes.saturating_sub(skip)));
    }

    fn fence(&self) {
        self.inner.fence();
    }

    fn load(&self, offset: u64, to: &mut [u8]) {
        self.inner.load(offset, to);
        wait(self.profile.read_cost(to.len()));
    }

    fn charge_read(&self, bytes: usize) {
        wait(self.profile.read_cost(bytes));
    }

    unsafe fn slice(&self, offset: u64, bytes: usize) -> &[u8] {
        // SAFETY: the caller's promise is the same.
        unsafe { self.inner.slice(offset, bytes) }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.descriptor()
    }

    fn lock(&self, lock: u32, wait: bool) -> io::Result<()> {
        self.inner.lock(lock, wait)
    }

    fn unlock(&self, lock: u32) {
        self.inner.unlock(lock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::media::Sim;

    #[test]
    fn a_timed_medium_takes_at_least_its_profiles_time_and_keeps_the_bytes() {
        let pcm = Profile::named("pcm").unwrap();
        let timed = Timed::new(Arc::new(Sim::new(4096)), pcm);
        let start = Instant::now();
        for _ in 0..100 {
            timed.stream(0, &[IoSlice::new(b"water")], 0);
        }
        timed.fence();
        assert!(start.elapsed() >= 100 * pcm.write_cost(5));
        let mut got = [0; 5];
        timed.load(0, &mut got);
        assert_eq!(&got, b"water");
        assert!(timed.describe().contains("pcm"));
    }
}
