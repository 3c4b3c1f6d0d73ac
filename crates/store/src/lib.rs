//! Forebay store.
pub mod index;
