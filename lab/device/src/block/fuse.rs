//! A FUSE file system that is one file: what the kernel asks of it goes to bytes in memory, and is
//! answered when the device says that it is done.
//!
//! As much of the protocol as one file takes (linux/fuse.h, 7.31). Several threads serve, so
//! requests wait for the device side by side, as its channels allow.

use crate::{Devices, FileKey, Mode, clock};
use std::{
    fs::File,
    io::{self, Read, Write},
    os::unix::fs::FileExt,
    sync::Arc,
    thread,
    time::Duration,
};

/// Requests that wait at once: as many as any profile has channels of use to one file system.
const THREADS: usize = 16;
/// Bytes of a write at most.
const WRITE_BYTES_MAX: usize = 1 << 20;
/// Bytes of a request's head, and of what stands before its data, at most.
const HEAD_BYTES: usize = 40;
const BUFFER_BYTES: usize = WRITE_BYTES_MAX + 4096;

/// The one file: the root of the file system.
const FILE: FileKey = FileKey::new(0, 1);
const DEVICE: usize = 0;

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
    pub bytes: File,
    /// How many there are.
    pub size: u64,
    /// The one device.
    pub devices: Devices,
}

/// Serves it until it is unmounted.
///
/// # Errors
/// No thread can be had.
pub(super) fn serve(served: Served) -> io::Result<()> {
    let served = Arc::new(served);
    for _ in 0..THREADS {
        let served = Arc::clone(&served);
        let thread = thread::Builder::new().name("device".to_owned());
        thread.spawn(move || served.serve())?;
    }
    Ok(())
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
            ask::INIT => Ok(greeting()),
            ask::GETATTR => Ok(self.attributes()),
            // Past the page cache: the file system that lies in this file has one.
            ask::OPEN => Ok(words(&[0, 0, 1, 0])),
            ask::READ => {
                let (offset, bytes) = place(body).ok_or_else(short)?;
                let mut data = vec![0; bytes.min(WRITE_BYTES_MAX)];
                self.bytes.read_exact_at(&mut data, offset)?;
                self.wait(|device, now| {
                    device.read(FILE, offset, data.len() as u64, PAST_MEMORY, now)
                });
                Ok(data)
            }
            ask::WRITE => {
                let (offset, bytes) = place(body).ok_or_else(short)?;
                let data = body.get(40..40 + bytes).ok_or_else(short)?;
                self.bytes.write_all_at(data, offset)?;
                self.wait(|device, now| device.write(FILE, offset, bytes as u64, PAST_MEMORY, now));
                Ok(words(&[bytes as u32, 0]))
            }
            ask::FSYNC => {
                // What waits is the device's alone: its cache is flushed, and nothing else.
                self.wait(|device, now| device.sync(FILE, 0, true, now));
                Ok(Vec::new())
            }
            ask::FLUSH | ask::RELEASE => Ok(Vec::new()),
            _ => Err(io::Error::from_raw_os_error(ENOSYS)),
        }
    }

    /// Waits until the device is done with what it is asked for.
    fn wait(&self, request: impl FnOnce(&crate::Device<'_>, u64) -> u64) {
        if let Some(device) = self.devices.get(DEVICE) {
            clock::wait_until(request(&device, clock::now_ns()));
        }
    }

    /// How long they hold, and the file's attributes.
    fn attributes(&self) -> Vec<u8> {
        const REGULAR: u32 = 0o100_600;
        const FOREVER_S: u64 = 1 << 30;
        let longs = [FOREVER_S, 0, 1, self.size, self.size / 512, 0, 0, 0];
        let mut out: Vec<u8> = longs.iter().flat_map(|long| long.to_ne_bytes()).collect();
        let (mode, links, block) = (REGULAR, 1, 4096);
        out.extend(words(&[0, 0, 0, mode, links, 0, 0, 0, block, 0]));
        out
    }
}

/// The device's own time: what is in memory is in that of the file system above.
const PAST_MEMORY: Mode = Mode {
    direct: true,
    synced: false,
};

/// The answer to the kernel's greeting.
fn greeting() -> Vec<u8> {
    const ASYNC_READ: u32 = 1;
    const BIG_WRITES: u32 = 1 << 5;
    const ASYNC_DIO: u32 = 1 << 15;
    const PARALLEL: u32 = 1 << 18;
    const MAX_PAGES: u32 = 1 << 22;
    let flags = ASYNC_READ | BIG_WRITES | ASYNC_DIO | PARALLEL | MAX_PAGES;
    let waiting = (THREADS as u32) << 16 | THREADS as u32;
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
        assert_eq!(greeting().len(), 64);
        let served = Served {
            kernel: File::open("/dev/null").unwrap(),
            bytes: File::open("/dev/null").unwrap(),
            size: 1 << 20,
            devices: Devices::create(Vec::new()).unwrap(),
        };
        assert_eq!(served.attributes().len(), 104);
        assert_eq!(served.answer(ask::OPEN, &[]).unwrap().len(), 16);
        assert!(served.answer(ask::READ, &[0; 12]).is_err());
    }
}
