//! Another size while the server runs: what the command has asked for, done by the cache's thread.

use super::{STAY, StatusWindows};
use crate::{
    complain::{complain, complain_of},
    request::ResizeRequest,
    session::CacheSession,
    status::{ResizeAnswer, ResizeProgress},
};
use std::{
    ops::ControlFlow,
    time::{Duration, Instant},
};

/// Gives the cache the size that is asked for, if one is.
pub(super) fn follow(session: &CacheSession, windows: &mut StatusWindows) {
    let Some(request) = session.size_request() else {
        return;
    };
    complain(&format!(
        "the flash cache is to have {} bytes: pages whose slots go are written to their files",
        request.bytes
    ));
    let mut answer = ResizeAnswer {
        id: request.id,
        ..ResizeAnswer::default()
    };
    match resize(session, &request, windows) {
        Ok(pages) => {
            answer.pages = pages;
            complain(&format!(
                "the flash cache has {} bytes: {} slots, {} pages in it; {pages} pages were written to their files",
                request.bytes,
                session.cache.stats().slots,
                session.cache.stats().pages
            ));
        }
        Err(error) => {
            complain(&format!(
                "the flash cache was not given {} bytes: {error}",
                request.bytes
            ));
            answer.error = Some(error);
        }
    }
    let stats = session.cache.stats();
    (answer.slots, answer.kept, answer.dirty) = (stats.slots, stats.pages, stats.dirty_pages);
    session.answer(answer);
    // The answer is there before the request is gone.
    windows.say(session);
    session.take_back(&request);
}

/// How many pages went home.
fn resize(
    session: &CacheSession,
    request: &ResizeRequest,
    windows: &mut StatusWindows,
) -> Result<u64, String> {
    const OFTEN: Duration = Duration::from_millis(500);
    let mut say = |done, of| {
        let resizing = ResizeProgress {
            id: request.id,
            bytes: request.bytes,
            done,
            of,
        };
        session.set_resizing(resizing);
        windows.say(session);
    };
    say(0, 0);
    let mut said = Instant::now();
    let resized = session.cache.resize(request.bytes, |progress| {
        // Pages leave as always meanwhile.
        if let Err(error) = session.cache.step() {
            complain_of(STAY, &error);
        }
        // The last thing that is said before the metadata is written, which may take long, is that
        // all is home.
        if said.elapsed() < OFTEN && progress.done < progress.of {
            return ControlFlow::Continue(());
        }
        said = Instant::now();
        session.follow_settings();
        say(progress.done, progress.of);
        match session.is_asked(request) {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    });
    match resized {
        Ok(resized) if resized.complete => Ok(resized.pages),
        Ok(_) => Err("the request was taken back".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
