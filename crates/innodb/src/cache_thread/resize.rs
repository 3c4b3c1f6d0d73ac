//! Another size while the server runs: what a command has asked for, or an earlier server has
//! begun, done by the cache's thread.

use super::{STAY, desk::ControlDesk};
use crate::{
    complain::{complain, complain_of},
    control::ControlAnswer,
    resize_note::{ResizeNote, note_of},
    setup::{CacheOccupancy, ResizeResult},
};
use std::ops::ControlFlow;

/// Gives the cache the size that is noted, if one is.
pub(super) fn follow(desk: &mut ControlDesk<'_>) {
    let Some(bytes) = desk.resize.as_ref().map(|resize| resize.progress.bytes) else {
        return;
    };
    let session = desk.session;
    complain(&format!(
        "the flash cache is to have {bytes} bytes: pages whose slots go are written to their files"
    ));
    let mut ended = match resize(desk, bytes) {
        Ok(resized) if resized.complete => {
            complain(&format!(
                "the flash cache has {bytes} bytes: {} slots, {} pages in it; {} pages were written to their files",
                resized.now.slots, resized.now.pages, resized.pages
            ));
            ControlAnswer::Resized(resized)
        }
        Ok(kept) => {
            complain(&format!(
                "the flash cache was not given {bytes} bytes: that was given up by forebay flash resize --cancel"
            ));
            ControlAnswer::GivenUp(kept.now)
        }
        Err(error) => {
            complain(&format!(
                "the flash cache was not given {bytes} bytes: {error}"
            ));
            ControlAnswer::Refused(error)
        }
    };
    if let Err(e) = ResizeNote::forget(session.flash()) {
        let why = format!(
            "removing {}: {e}. Remove it: each start gives the cache the size of {bytes} bytes again",
            note_of(session.flash()).display()
        );
        complain(&why);
        if matches!(ended, ControlAnswer::GivenUp(_)) {
            ended = ControlAnswer::Refused(why);
        }
    }
    desk.end_resize(&ended);
}

fn resize(desk: &mut ControlDesk<'_>, bytes: u64) -> Result<ResizeResult, String> {
    let cache = &desk.session.cache;
    let resized = cache.resize(bytes, |progress| {
        // Pages leave as always meanwhile.
        if let Err(error) = cache.step() {
            complain_of(STAY, &error);
        }
        let far = desk.resize.as_mut().map(|resize| {
            (resize.progress.done, resize.progress.of) = (progress.done, progress.of);
            resize.progress
        });
        desk.session.set_resizing(far);
        desk.serve();
        match desk
            .resize
            .as_ref()
            .is_some_and(|resize| resize.is_given_up)
        {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    let resized = resized.map_err(|e| e.to_string())?;
    Ok(ResizeResult {
        pages: resized.pages,
        now: CacheOccupancy::of(cache),
        complete: resized.complete,
    })
}
