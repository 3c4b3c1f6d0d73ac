//! `forebay enable UNIT` and `forebay disable UNIT`: a database's own systemd unit under `forebay
//! run`, by a drop-in, and out of it again with a proof that nothing is left. docs/install.md and
//! docs/removal.md.
//!
//! * [`search`], [`settings`] and [`command`] read the unit; [`parsed_unit`] says what it comes to.
//! * [`distribution_defaults`], [`postgres`] and [`config_files`] add what is known of its
//!   database.
//! * [`checks`] looks for what must be there, [`pool_place`] chooses a pool, [`sandbox`] answers
//!   the unit's sandbox.
//! * All of it is a [`plan`], which [`enable`] shows and carries out; [`drop_in`] is what it
//!   writes.
//! * [`disable`] goes back from an [`enabled_unit`], and [`drain_proof`] looks whether it may.
//!
//! Whatever cannot be wrapped is refused in a sentence, before anything is changed.

mod checks;
mod command;
mod config_files;
mod disable;
mod distribution_defaults;
mod drain_proof;
mod drop_in;
mod enable;
mod enabled_unit;
mod name;
mod parsed_unit;
mod plan;
mod pool_place;
mod postgres;
mod sandbox;
mod search;
mod settings;
mod systemd;

pub use disable::DisableUnit;
pub use drop_in::naming;
pub use enable::EnableUnit;
