//! Reading a part of one page: from the cache, the guard file, or the file itself.

use super::uncached::RealRead;
use crate::{
    complain::{complain, complain_again, complain_once, said},
    page::{PAGE_BYTES, PageBuffer},
    session::CacheSession,
};
use forebay_flash::{CachedFile, FlashError, ReadOutcome};
use rustix::io::Errno;
use std::time::Instant;

thread_local! {
    static PAGE: std::cell::RefCell<Box<PageBuffer>> = std::cell::RefCell::new(Box::new(PageBuffer([0; PAGE_BYTES])));
}

/// Reads a part of one page.
pub(super) fn read_part(
    session: &CacheSession,
    file: &CachedFile,
    to: &mut [u8],
    at: u64,
    real: RealRead<'_>,
) -> Result<usize, Errno> {
    let page = u32::try_from(at / PAGE_BYTES as u64).unwrap_or(u32::MAX);
    let within = (at % PAGE_BYTES as u64) as usize;
    let ticket = if to.len() == PAGE_BYTES {
        match session.cache.read(file, page, to).map_err(|e| unread(&e))? {
            ReadOutcome::Hit => return Ok(to.len()),
            ReadOutcome::Miss(ticket) => Some(ticket),
        }
    } else {
        let hit = PAGE.with_borrow_mut(|whole| {
            let read = session.cache.read(file, page, &mut whole.0);
            if let Ok(ReadOutcome::Hit) = read {
                to.copy_from_slice(&whole.0[within..within + to.len()]);
            }
            read
        });
        match hit.map_err(|e| unread(&e))? {
            ReadOutcome::Hit => return Ok(to.len()),
            ReadOutcome::Miss(_) => None,
        }
    };
    if let Some(read) = session.homes.read_guarded(file.id(), to, at) {
        return read.map(|()| to.len()).map_err(|e| {
            complain_again(&format!("reading the guard file: {e}"));
            Errno::IO
        });
    }
    let is_ahead = |ticket| (session.cache).read_ahead(file, page, ticket, to, real);
    if ticket.as_ref().is_some_and(is_ahead) {
        return Ok(to.len());
    }
    let begun = Instant::now();
    let read = real(to, at)?;
    let ticket = ticket.filter(|_| read == PAGE_BYTES);
    if let Some(ticket) = &ticket {
        session.cache.read_at_home(ticket, begun.elapsed());
    }
    if let Some(ticket) = ticket
        && let Err(error) = session.cache.admit(file, page, to, ticket)
    {
        // The reader has its page.
        complain_once(&format!("pages that are read do not come in: {error}"));
    }
    Ok(read)
}

/// The program's error for a page that the cache has and cannot give.
///
/// If flash gives nothing at all, the process ends. It may be away for a moment only, with all that
/// is on it. A database that gets an error for a page takes that for damaged, goes on without it,
/// and has its log make that durable: indexes lack rows from then on.
fn unread(error: &FlashError) -> Errno {
    if let FlashError::UnreadablePage {
        page,
        source,
        is_gone: true,
    } = error
    {
        complain(&format!(
            "{page} could not be read from flash, nor can anything else: {source}. The file itself has an older one, so this process ends. Synced pages are on flash: once \
             that can be read, start the server again. If it never can: forebay flash flush --cache-is-lost, and a backup"
        ));
        std::process::abort();
    }
    said(error)
}
