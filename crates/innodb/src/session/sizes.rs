//! The cache's size: requests, and the messages about it.

use super::CacheSession;
use crate::{
    complain::{complain, complain_once},
    request::{ResizeRequest, request_of, take_back},
    status::{CacheStatus, ResizeAnswer, ResizeProgress},
};

/// Of the requests so far.
#[derive(Default)]
pub(super) struct SizeRequests {
    resizing: Option<ResizeProgress>,
    /// How the last one ended.
    resized: Option<ResizeAnswer>,
}

impl SizeRequests {
    pub(super) fn say_in(&self, status: &mut CacheStatus) {
        status.resizing = self.resizing;
        status.resized.clone_from(&self.resized);
    }
}

impl CacheSession {
    /// What is asked for, if it is new.
    pub(crate) fn size_request(&self) -> Option<ResizeRequest> {
        let answered = self.sizes.lock().resized.as_ref().map(|answer| answer.id);
        let request = match ResizeRequest::read(self.place.flash()) {
            Ok(request) => request?,
            Err(e) => {
                // Once: it may be one that cannot be removed.
                let path = request_of(self.place.flash());
                complain_once(&format!(
                    "a request for another size, {}: {e}. It is left out",
                    path.display()
                ));
                let _ = take_back(self.place.flash());
                return None;
            }
        };
        (answered != Some(request.id)).then_some(request)
    }

    /// True until it is taken back.
    pub(crate) fn is_asked(&self, request: &ResizeRequest) -> bool {
        request.stands(self.place.flash())
    }

    /// How far it is.
    pub(crate) fn set_resizing(&self, resizing: ResizeProgress) {
        self.sizes.lock().resizing = Some(resizing);
    }

    /// How it ended.
    pub(crate) fn answer(&self, answer: ResizeAnswer) {
        let mut sizes = self.sizes.lock();
        sizes.resizing = None;
        sizes.resized = Some(answer);
    }

    /// The request, which is answered, is gone.
    pub(crate) fn take_back(&self, request: &ResizeRequest) {
        let flash = self.place.flash();
        if let Err(e) = request.withdraw(flash, || take_back(flash)) {
            complain(&format!(
                "removing the request for another size, {}: {e}. If the command that made it does not remove it, do so: each start gives the cache that size again",
                request_of(flash).display()
            ));
        }
    }
}
