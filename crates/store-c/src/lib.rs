//! `libforebay_store`: the store for C and C++. docs/store-c.md, and `include/forebay/store.h`,
//! which `scripts/store_c.sh --header` writes from this crate.
//!
//! Each module has a part of that header, in its order: `options`, `store`, `batch`, `iterator`,
//! `misc`. `handles` has what they share, `pointers` what they do with a caller's pointers: the
//! header's head has the rules that all `SAFETY` comments here rest on. A panic ends the process:
//! `extern "C"` does not let it unwind.
#![allow(unsafe_code, reason = "the pointers of C")]
#![allow(non_camel_case_types, reason = "types of C")]
#![allow(
    clippy::missing_safety_doc,
    reason = "the rules for pointers are the same everywhere, and stand at the header's head"
)]

mod batch;
mod handles;
mod iterator;
mod misc;
mod options;
mod pointers;
mod store;
