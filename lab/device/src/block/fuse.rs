//! A FUSE file system that is one file: what the kernel asks of it goes to whoever has its bytes
//! ([`FileBytes`]).
//!
//! As much of the protocol as one file takes (linux/fuse.h, 7.31). Several threads serve, so
//! requests wait side by side.

use super::FileBytes;
use std::{
    fs::File,
    io::{self, Read, Write},
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

/// Bytes of a write at most.
const WRITE_BYTES_MAX: usize = 1 << 20;
/// Bytes of a request's head, and of what stands before its data, at most.
const HEAD_BYTES: usize = 40;
const BUFFER_BYTES: usize = WRITE_BYTES_MAX + 4096;

/// What the kernel asks.
mod ask {
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const FLUSH: u32 = 25;
    pub const INIT: u32 = 26;
    pub const INTERRUPT: u32 = 36;
    pub const BATCH_FORGET: u32 = 42;
}

/// Milliseconds that it may take to be mounted. Before, a read says `EPERM`.
const MOUNTED_AFTER_MS: u32 = 30_000;

const EPERM: i32 = 1;
const ENOENT: i32 = 2;
const EINTR: i32 = 4;
const EIO: i32 = 5;
const EAGAIN: i32 = 11;
const ENOSYS: i32 = 38;

/// A served file.
pub(super) struct Served {
    /// The connection to the kernel.
    pub kernel: File,
    /// The bytes.
    pub bytes: Arc<dyn FileBytes>,
    /// Requests that wait at once.
    pub threads: usize,
}

/// Serves it until it is unmounted: then these threads end.
///
/// # Errors
/// No thread can be had.
pub(super) fn serve(served: Served) -> io::Result<Vec<JoinHandle<()>>> {
    let served = Arc::new(served);
    let one = |_| {
        let served = Arc::clone(&served);
        let thread = thread::Builder::new().name("device".to_owned());
        thread.spawn(move || served.serve())
    };
    (0..served.threads).map(one).collect()
}

impl Served {
    fn serve(&self) {
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut unmounted = 0..MOUNTED_AFTER_MS;
        loop {
            let read = match (&self.kernel).read(&mut buffer) {
                Ok(read) => read,
                Err(error) => match error.raw_os_error() {
                    Some(EPERM) if unmounted.next().is_some() => {
                        thread::sleep(Duration::from_millis(1));
                        continue;
                    }
                    // The one that asked is gone.
                    Some(ENOENT | EINTR | EAGAIN) => continue,
                    _ => return,
                },
            };
            let request = buffer.get(..read).unwrap_or_default();
            let (Some(what), Some(unique)) = (u32_at(request, 4), u64_at(request, 8)) else {
                return;
            };
            let body = request.get(HEAD_BYTES..).unwrap_or_default();
            let answer = match what {
                ask::FORGET | ask::BATCH_FORGET | ask::INTERRUPT => continue,
                _ => self.answer(what, body),
            };
            let (error, data) = match answer {
                Ok(data) => (0, data),
                Err(error) => (-error.raw_os_error().unwrap_or(EIO), Vec::new()),
            };
            let mut message = Vec::with_capacity(16 + data.len());
            message.extend((16 + data.len() as u32).to_ne_bytes());
            message.extend(error.to_ne_bytes());
            message.extend(unique.to_ne_bytes());
            message.extend(data);
            // The one that asked may be gone.
            let _ = (&self.kernel).write(&message);
        }
    }

    fn answer(&self, what: u32, body: &[u8]) -> io::Result<Vec<u8>> {
        let short = || io::Error::from_raw_os_error(EIO);
        match what {
            ask::INIT => Ok(greeting(self.threads)),
            ask::GETATTR => Ok(self.attributes()),
            // Past the page cache: the file system that lies in this file has one.
            ask::OPEN => Ok(words(&[0, 0, 1, 0])),
            ask::READ => {
                let (offset, bytes) = place(body).ok_or_else(short)?;
                let mut data = vec![0; bytes.min(WRITE_BYTES_MAX)];
                self.bytes.read(offset, &mut data)?;
                Ok(data)
            }
            ask::WRITE => {
                let (offset, bytes) = place(body).ok_or_else(short)?;
                let data = body.get(40..40 + bytes).ok_or_else(short)?;
                self.bytes.write(offset, data)?;
                Ok(words(&[bytes as u32, 0]))
            }
            ask::FSYNC => self.bytes.sync().map(|()| Vec::new()),
            ask::FLUSH | ask::RELEASE => Ok(Vec::new()),
            _ => Err(io::Error::from_raw_os_error(ENOSYS)),
        }
    }

    /// How long they hold, and the file's attributes.
    fn attributes(&self) -> Vec<u8> {
        const REGULAR: u32 = 0o100_600;
        const FOREVER_S: u64 = 1 << 30;
        let size = self.bytes.size();
        let longs = [FOREVER_S, 0, 1, size, size / 512, 0, 0, 0];
        let mut out: Vec<u8> = longs.iter().flat_map(|long| long.to_ne_bytes()).collect();
        let (mode, links, block) = (REGULAR, 1, 4096);
        out.extend(words(&[0, 0, 0, mode, links, 0, 0, 0, block, 0]));
        out
    }
}

/// The answer to the kernel's greeting.
fn greeting(threads: usize) -> Vec<u8> {
    const ASYNC_READ: u32 = 1;
    const BIG_WRITES: u32 = 1 << 5;
    const ASYNC_DIO: u32 = 1 << 15;
    const PARALLEL: u32 = 1 << 18;
    const MAX_PAGES: u32 = 1 << 22;
    let flags = ASYNC_READ | BIG_WRITES | ASYNC_DIO | PARALLEL | MAX_PAGES;
    let waiting = (threads as u32) << 16 | threads as u32;
    let pages = WRITE_BYTES_MAX as u32 / 4096;
    let max = WRITE_BYTES_MAX as u32;
    words(&[
        7, 31, max, flags, waiting, max, 1, pages, 0, 0, 0, 0, 0, 0, 0, 0,
    ])
}

/// Where a request to read or write is, and how long.
fn place(body: &[u8]) -> Option<(u64, usize)> {
    Some((u64_at(body, 8)?, u32_at(body, 16)? as usize))
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_ne_bytes(word))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let long = bytes.get(at..at + 8)?.try_into().ok()?;
    Some(u64::from_ne_bytes(long))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_have_the_length_that_the_kernel_expects() {
        struct Nothing;
        impl FileBytes for Nothing {
            fn size(&self) -> u64 {
                1 << 20
            }
            fn read(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
                Ok(())
            }
            fn write(&self, _: u64, _: &[u8]) -> io::Result<()> {
                Ok(())
            }
            fn sync(&self) -> io::Result<()> {
                Ok(())
            }
        }
        assert_eq!(greeting(2).len(), 64);
        let served = Served {
            kernel: File::open("/dev/null").unwrap(),
            bytes: Arc::new(Nothing),
            threads: 2,
        };
        assert_eq!(served.attributes().len(), 104);
        assert_eq!(served.answer(ask::OPEN, &[]).unwrap().len(), 16);
        assert!(served.answer(ask::READ, &[0; 12]).is_err());
    }
}
