//! State that a forked child starts empty. Its parent's threads may have held the locks in it, and
//! its contents describe the parent.
#![expect(unsafe_code, reason = "a pointer to what is never freed")]

use std::{
    ptr,
    sync::atomic::{
        AtomicPtr,
        Ordering::{AcqRel, Acquire, Release},
    },
};

/// One for each process, which begins when it is asked for first.
pub(super) struct ForkLocal<T: Send + Sync + 'static> {
    current: AtomicPtr<T>,
    first: fn() -> T,
}

impl<T: Send + Sync + 'static> ForkLocal<T> {
    /// A state that `first` makes.
    pub(super) const fn new(first: fn() -> T) -> Self {
        Self {
            current: AtomicPtr::new(ptr::null_mut()),
            first,
        }
    }

    /// This process's, if it has asked for it before. Neither allocates nor locks.
    #[inline]
    pub(super) fn existing(&self) -> Option<&'static T> {
        // SAFETY: what is stored there is never freed.
        unsafe { self.current.load(Acquire).as_ref() }
    }

    /// This process's.
    #[inline]
    pub(super) fn get(&self) -> &'static T {
        self.existing().unwrap_or_else(|| self.begin())
    }

    #[cold]
    fn begin(&self) -> &'static T {
        let own: &'static mut T = Box::leak(Box::new((self.first)()));
        let none = ptr::null_mut();
        // Of two threads one is the first.
        let stored = self.current.compare_exchange(none, own, AcqRel, Acquire);
        // SAFETY: what is stored there is never freed.
        unsafe { &*stored.map_or_else(|first| first, |_| self.current.load(Acquire)) }
    }

    /// In a forked child: it begins anew when it is asked for first. Neither allocates nor locks.
    pub(super) fn renew(&self) {
        self.current.store(ptr::null_mut(), Release);
    }
}
