//! Forebay bench.
