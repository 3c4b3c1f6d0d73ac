//! Redis and Valkey ([`forebay_databases::redis`]), and a client of our own for what redis-benchmark does not do.

pub use forebay_databases::redis::*;

pub(crate) mod mix;
