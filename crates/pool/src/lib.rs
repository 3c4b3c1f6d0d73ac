//! Forebay pool.
