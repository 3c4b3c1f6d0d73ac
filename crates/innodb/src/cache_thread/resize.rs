//! Another size while the server runs: asked for by a command, or begun by an earlier server, and
//! done by the cache's thread.

use super::{STAY, command_service::ControlDesk};
use crate::{
    complain::{complain, complain_of},
    control::ControlAnswer,
    setup::{CacheOccupancy, ResizeResult},
};
use std::ops::ControlFlow;

/// Gives the cache the size that is noted, if one is.
pub(super) fn follow(desk: &mut ControlDesk<'_>) {
    let Some(bytes) = desk.resize.as_ref().map(|resize| resize.progress.bytes) else {
        return;
    };
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
    if let Err(why) = desk.forget_resize() {
        complain(&why);
        // Who is told that it is not done is told that it may be.
        ended = match ended {
            ControlAnswer::GivenUp(_) => {
                ControlAnswer::Refused(format!("the resize is given up for now, but {why}"))
            }
            ControlAnswer::Refused(error) => ControlAnswer::Refused(format!("{error}. And {why}")),
            done => done,
        };
    }
    desk.end_resize(&ended);
}

fn resize(desk: &mut ControlDesk<'_>, bytes: u64) -> Result<ResizeResult, String> {
    let cache = &desk.session.cache;
    if is_given_up(desk) {
        return Ok(ResizeResult {
            now: CacheOccupancy::of(cache),
            ..ResizeResult::default()
        });
    }
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
        match is_given_up(desk) {
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

fn is_given_up(desk: &ControlDesk<'_>) -> bool {
    let resize = desk.resize.as_ref();
    resize.is_some_and(|resize| resize.is_given_up)
}
