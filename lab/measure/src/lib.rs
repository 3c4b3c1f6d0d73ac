//! Tools of measuring: servers, pools and directories that go away again, rounds, figures.
//!
//! The databases (lab/databases) and the laboratory's benchmarks (lab/bench), which add workloads,
//! peers and the papers' experiments, stand on it, and tests start their processes with it. It
//! knows no database and no benchmark: [`disk`] (how fast the disk under a directory is),
//! [`scratch`] (directories and pools that go away again), [`processes`] and [`server`] (the same
//! for processes, and for servers that `forebay run` starts), [`user`] (whom a server runs as that
//! refuses to run as root), [`dialog`] (programs that answer line by line), [`threads`] and
//! [`lane`] (what runs beside it), [`rounds`] (medians, and taking turns), [`data`] (keys and
//! values), [`table`] and [`units`] (figures for people).

pub mod data;
pub mod dialog;
pub mod disk;
mod error;
pub mod lane;
pub mod processes;
pub mod rounds;
pub mod scratch;
pub mod server;
pub mod table;
pub mod threads;
pub mod units;
pub mod user;

pub use error::MeasureError;
