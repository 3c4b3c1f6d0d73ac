//! `forebay enable UNIT` and `forebay disable UNIT`: a database's own systemd unit under `forebay
//! run`, by a drop-in, and out of it again with a proof that nothing is left. docs/install.md.
//!
//! The unit is read ([`search`], [`settings`], [`command`]) and understood ([`understood`]); what
//! is known of its database is added ([`known`], [`postgres`]); what must be there is looked for
//! ([`checks`]); a pool is chosen ([`pool_place`]); the sandbox is answered ([`sandbox`]); all of
//! it is a [`plan`], which [`enable`] shows and carries out. [`disable`] goes back, and [`proof`]
//! looks whether it may.
//!
//! Whatever cannot be wrapped is refused in a sentence, before anything is changed.

mod checks;
mod command;
mod disable;
mod drop_in;
mod enable;
mod known;
mod name;
mod plan;
mod pool_place;
mod postgres;
mod proof;
mod sandbox;
mod search;
mod settings;
mod systemd;
mod understood;

pub use disable::DisableUnit;
pub use enable::EnableUnit;
