//! Methods of [`Media`](super::Media) that forward to a part of the medium: its mapping, the open
//! file that holds its locks, its note of failed writes, or the medium that it stands before.

/// Writes such methods into an implementation of [`Media`](crate::media::Media).
///
/// `mapping FIELD` has those on memory, but `stream`; `locks FIELD` those on locks and on the open
/// file; `failures FIELD` those on writes that failed. `medium FIELD then NOTED` has what every
/// medium has, of another one that is slowed down or made more durable: what is stored is stored
/// there, and then the function NOTED is called with the parts and the bytes to skip.
#[macro_export]
#[doc(hidden)]
macro_rules! forward_media {
    (mapping $($memory:ident).+) => {
        fn bytes(&self) -> u64 {
            self.$($memory).+.bytes() as u64
        }

        fn memory(&self) -> ::std::ops::Range<usize> {
            self.$($memory).+.memory()
        }

        $crate::forward_media!(stream_once $($memory).+);

        fn fence(&self) {
            self.$($memory).+.fence();
        }

        fn load(&self, offset: u64, to: &mut [u8]) {
            self.$($memory).+.load(offset, to);
        }

        fn prepare(&self, offset: u64, bytes: u64, write: bool) -> ::std::io::Result<()> {
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            self.$($memory).+.populate(offset, bytes, write)
        }

        $crate::forward_media!(slice $($memory).+);
    };
    (locks $file:ident) => {
        fn descriptor(&self) -> Option<::std::os::fd::BorrowedFd<'_>> {
            Some(self.$file.fd())
        }

        fn moved(&self, to: ::std::os::fd::RawFd) {
            self.$file.moved(to);
        }

        fn abandon(&self) {
            self.$file.abandon();
        }

        fn share(&self, sharing: $crate::media::DescriptorSharing) -> ::std::io::Result<()> {
            self.$file.share(sharing)
        }

        fn lock(&self, lock: u32, wait: bool) -> ::std::io::Result<()> {
            self.$file.lock(lock, wait)
        }

        fn is_free(&self, lock: u32) -> ::std::io::Result<bool> {
            self.$file.is_free(lock)
        }

        unsafe fn leave(&self, lock: u32) {
            self.$file.leave(lock);
        }

        unsafe fn unlock(&self, lock: u32) {
            self.$file.unlock(lock);
        }
    };
    (failures $failed:ident) => {
        fn check(&self) -> ::std::io::Result<()> {
            self.$failed.check()
        }

        fn try_again(&self) {
            self.$failed.forget();
        }
    };
    (medium $inner:ident then $noted:ident) => {
        fn bytes(&self) -> u64 {
            self.$inner.bytes()
        }

        fn memory(&self) -> ::std::ops::Range<usize> {
            self.$inner.memory()
        }

        unsafe fn stream(&self, offset: u64, parts: &[::std::io::IoSlice<'_>], skip: usize) {
            // SAFETY: the caller's promise is the same.
            unsafe { self.$inner.stream(offset, parts, skip) };
            self.$noted(parts, skip);
        }

        $crate::forward_media!(stream_once $inner then $noted);

        fn prepare(&self, offset: u64, bytes: u64, write: bool) -> ::std::io::Result<()> {
            self.$inner.prepare(offset, bytes, write)
        }

        $crate::forward_media!(slice $inner);

        fn descriptor(&self) -> Option<::std::os::fd::BorrowedFd<'_>> {
            self.$inner.descriptor()
        }

        fn lock(&self, lock: u32, wait: bool) -> ::std::io::Result<()> {
            self.$inner.lock(lock, wait)
        }

        unsafe fn leave(&self, lock: u32) {
            // SAFETY: the caller's promise is the same.
            unsafe { self.$inner.leave(lock) };
        }

        unsafe fn unlock(&self, lock: u32) {
            // SAFETY: the caller's promise is the same.
            unsafe { self.$inner.unlock(lock) };
        }
    };
    (stream_once $($to:ident).+ $(then $noted:ident)?) => {
        unsafe fn stream_once(
            &self,
            offset: u64,
            parts: &[::std::io::IoSlice<'_>],
            skip: usize,
            sum: &mut $crate::Checksum,
        ) {
            // SAFETY: the caller's promise is the same.
            unsafe { self.$($to).+.stream_once(offset, parts, skip, sum) };
            $(self.$noted(parts, skip);)?
        }
    };
    (slice $($to:ident).+) => {
        unsafe fn slice(&self, offset: u64, bytes: usize) -> &[u8] {
            // SAFETY: the caller's promise is the same.
            unsafe { self.$($to).+.slice(offset, bytes) }
        }
    };
}
