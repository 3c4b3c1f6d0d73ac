//! `forebay-lab paper`: the papers' tables and figures, measured again.
//!
//! An [`Experiment`] is one table or figure of a paper: what the paper says (claims), how its
//! figures are drawn (panels), what it needs, and which measurement makes them, all of it data in
//! the [`catalogue`]. [`run`] measures some, one JSON file each ([`Outcome`]); a report is made
//! from the files alone. docs/benchmarks.md says how each figure is made.

pub mod catalogue;
mod fabric;
mod flash_tier;
mod lab;
mod loss;
mod machine;
mod mixes;
mod outcome;
mod parts;
mod policies;
mod puts;
mod run;
mod size;
mod template;
mod write_ahead;

pub use catalogue::Experiment;
pub use machine::Machine;
pub use outcome::{FORMAT, Outcome};
pub use run::{Plan, run};
pub use size::Size;
