//! POSIX AIO, libaio and liburing.
//!
//! The first two name each descriptor when the work is submitted: its file is retired then. What
//! goes through an `io_uring` cannot be seen at all, so with the first one that is made the client
//! gives up, unless the profile has them refused. They are refused as well while a descriptor is
//! open that is to be synced with each write and the kernel does not know that.
#![expect(
    unsafe_code,
    reason = "exports C functions; reads their control blocks"
)]

use crate::{
    call_context::{FailedCall, errno, missing},
    client_call::{client, tell_client},
    handler::handlers,
    layer, memory, pages,
    retire::retire,
    ring,
};
use forebay_files::client;
use libc::{aiocb, c_int, c_long, c_uint, c_void, iocb, sigevent, size_t, ssize_t};

/// libaio's operations that write (`linux/aio_abi.h`).
const IOCB_CMD_PWRITE: u16 = 1;
const IOCB_CMD_PWRITEV: u16 = 8;
/// Those that sync.
const IOCB_CMD_FSYNC: u16 = 2;
const IOCB_CMD_FDSYNC: u16 = 3;
/// `RWF_DSYNC`, as a block has it.
const RWF_DSYNC: libc::__kernel_rwf_t = libc::RWF_DSYNC;

handlers! {
    fn aio_write(block: *mut aiocb) -> c_int;
    missing missing(-1);
    plain if !is_absorbed(block);
    else |real| match retire_block(block) {
        // SAFETY: our caller's argument.
        Ok(()) => unsafe { real(block) },
        Err(failed) => failed.with(-1),
    };

    fn aio_fsync(operation: c_int, block: *mut aiocb) -> c_int;
    missing missing(-1);
    plain if !is_absorbed(block);
    else |real| match retire_block(block) {
        // SAFETY: our caller's arguments.
        Ok(()) => unsafe { real(operation, block) },
        Err(failed) => failed.with(-1),
    };

    fn lio_listio(mode: c_int, blocks: *const *mut aiocb, count: c_int, event: *mut sigevent) -> c_int;
    missing missing(-1);
    plain if false;
    else |real| match retire_list(blocks, count) {
        Ok(()) => {
            // SAFETY: our caller's arguments.
            let result = unsafe { real(mode, blocks, count, event) };
            if result == 0
                && mode == libc::LIO_WAIT
                && let Err(failed) = each_write(blocks, count, sync_complete)
            {
                return failed.with(-1);
            }
            result
        }
        Err(failed) => failed.with(-1),
    };

    // By these the program learns that a write is complete: then it is durable as well, if the
    // program opened the file so.
    fn aio_error(block: *mut aiocb) -> c_int;
    missing missing(-1);
    plain if !is_absorbed(block);
    else |real| {
        // SAFETY: our caller's argument.
        let result = unsafe { real(block) };
        if result == 0
            && let Err(failed) = sync_complete(block)
        {
            return failed.number();
        }
        result
    };

    fn aio_return(block: *mut aiocb) -> ssize_t;
    missing missing(-1);
    plain if !is_absorbed(block);
    else |real| {
        // SAFETY: our caller's argument.
        let result = unsafe { real(block) };
        if result >= 0
            && let Err(failed) = sync_complete(block)
        {
            return failed.with(-1);
        }
        result
    };

    // The functions of libaio and liburing return the negative error number.
    fn io_submit(context: *mut c_void, count: c_long, blocks: *mut *mut iocb) -> c_int;
    missing -libc::ENOSYS;
    plain if false;
    else |real| match retire_submitted(count, blocks) {
        // SAFETY: our caller's arguments.
        Ok(()) => unsafe { real(context, count, blocks) },
        Err(failed) => -failed.number(),
    };

    fn io_setup(events: c_int, context: *mut *mut c_void) -> c_int;
    missing -libc::ENOSYS;
    plain if !is_refused();
    else |_real| missing(-libc::ENOSYS);

    fn io_uring_setup(entries: c_uint, parameters: *mut c_void) -> c_int;
    missing -libc::ENOSYS;
    plain if false;
    else |_real| make_ring(|| {
        // SAFETY: our caller's arguments.
        match unsafe { ring::announced(entries.into(), parameters.expose_provenance() as c_long) } {
            -1 => -errno(),
            made => made as c_int,
        }
    });

    fn io_uring_queue_init(entries: c_uint, ring: *mut c_void, flags: c_uint) -> c_int;
    missing -libc::ENOSYS;
    plain if false;
    else |real| make_ring(|| {
        // SAFETY: our caller's arguments.
        unsafe { real(entries, ring, flags) }
    });

    fn io_uring_queue_init_params(entries: c_uint, ring: *mut c_void, parameters: *mut c_void) -> c_int;
    missing -libc::ENOSYS;
    plain if false;
    else |real| make_ring(|| {
        // SAFETY: our caller's arguments.
        unsafe { real(entries, ring, parameters) }
    });

    fn io_uring_queue_init_mem(entries: c_uint, ring: *mut c_void, parameters: *mut c_void, buffer: *mut c_void, bytes: size_t) -> c_int;
    missing -libc::ENOSYS;
    plain if false;
    else |real| make_ring(|| {
        // SAFETY: our caller's arguments.
        unsafe { real(entries, ring, parameters, buffer, bytes) }
    });
}

/// Makes an `io_uring` by `real`, unless none may be made: nothing is absorbed from then on.
fn make_ring(real: impl FnOnce() -> c_int) -> c_int {
    if is_ring_refused() {
        return missing(-libc::ENOSYS);
    }
    give_up();
    real()
}

/// True if no ring and no context is to be made: the program does without, and its writes can be
/// seen. InnoDB looks at errno for the reason, so that is set as well.
pub(crate) fn is_refused() -> bool {
    client::refuses_io_uring() || pages::is_configured() || layer::is_there()
}

/// As [`is_refused`], of a ring: nothing here sees its writes.
pub(crate) fn is_ring_refused() -> bool {
    let mut hides_syncs = false;
    tell_client(|| hides_syncs = client::hides_syncs());
    hides_syncs || is_refused()
}

/// Makes the client absorb nothing any more.
pub(crate) fn give_up() {
    tell_client(|| client::give_up("the process uses io_uring"));
}

fn is_absorbed(block: *mut aiocb) -> bool {
    // SAFETY: the C library reads the block in the same way.
    let fd = unsafe { (*block).aio_fildes };
    client::absorbs(fd) || pages::is_cached(fd)
}

fn retire_block(block: *mut aiocb) -> Result<(), FailedCall> {
    // SAFETY: as above.
    retire(unsafe { (*block).aio_fildes })
}

/// Syncs the file of a block, if the program believes that its descriptor does that and the kernel
/// does not know.
fn sync_complete(block: *mut aiocb) -> Result<(), FailedCall> {
    // SAFETY: as above.
    let fd = unsafe { (*block).aio_fildes };
    if client::hidden_flags(fd) & libc::O_DSYNC == 0 {
        return Ok(());
    }
    client(|| client::sync(fd, client::SyncKind::Data).map(drop))
}

fn retire_list(blocks: *const *mut aiocb, count: c_int) -> Result<(), FailedCall> {
    each_write(blocks, count, retire_block)
}

/// Does something for each block of a list that writes to an absorbed descriptor.
fn each_write(
    blocks: *const *mut aiocb,
    count: c_int,
    work: impl Fn(*mut aiocb) -> Result<(), FailedCall>,
) -> Result<(), FailedCall> {
    for at in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: as above; a list may have null pointers in it.
        let block = unsafe { *blocks.add(at) };
        // SAFETY: as above.
        let writes = !block.is_null() && unsafe { (*block).aio_lio_opcode } == libc::LIO_WRITE;
        if writes && is_absorbed(block) {
            work(block)?;
        }
    }
    Ok(())
}

/// Retires the files that libaio is about to write to, and has the writes synced if the kernel does
/// not know that they are to be. From the first block on that cannot be read, the kernel submits
/// none.
pub(crate) fn retire_submitted(count: c_long, blocks: *mut *mut iocb) -> Result<(), FailedCall> {
    for at in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: our caller does not change the list nor the blocks while they are submitted.
        let Some(place) = (unsafe { memory::read(blocks.wrapping_add(at)) }) else {
            break;
        };
        // SAFETY: as above; any bytes are a block.
        let Some(block) = (unsafe { memory::read(place) }) else {
            break;
        };
        let fd = block.aio_fildes.cast_signed();
        if matches!(block.aio_lio_opcode, IOCB_CMD_FSYNC | IOCB_CMD_FDSYNC) && client::commits() {
            client(client::commit)?;
        }
        if matches!(block.aio_lio_opcode, IOCB_CMD_PWRITE | IOCB_CMD_PWRITEV) && client::absorbs(fd)
        {
            retire(fd)?;
            if client::hidden_flags(fd) & libc::O_DSYNC != 0 {
                // SAFETY: a block is the submitter's to write to: the kernel does so too. The flag
                // says what the descriptor says for the program.
                unsafe { (*place).aio_rw_flags |= RWF_DSYNC };
            }
        }
    }
    Ok(())
}
