//! Everything behind `forebay-lab`: workloads, the measurement of the device they run on, peers,
//! reports.
//!
//! A benchmark here is a library call that takes a plain configuration and returns a
//! [`report::DoctorReport`], which serialises to JSON (each benchmark has a `table` of the same,
//! for people). Three rules hold for all of them, and docs/benchmarks.md says how each figure is
//! made:
//!
//! * *Interleaved.* Contestants take turns, round after round; a figure is that of the median
//!   round.
//! * *Counted to the end.* The clock of a write workload stops when the data is on the disk.
//! * *In the same run.* The device's own speed ([`device`]) and the peers ([`peers`]) are measured
//!   beside us.
//!
//! The modules: [`clock`], [`histogram`], [`rounds`] (figures); [`data`] (keys and values);
//! [`scratch`] (directories and pools that go away again); [`processes`] (the same for processes);
//! [`relay`] (a longer way to a server); [`device`]; `place` (what files are on); `perf`;
//! [`pool_bench`], [`commit`], [`wisckey`], [`ycsb`], [`emulated`], [`fam`], [`synced_write`]
//! (benchmarks); [`peers`]; [`report`]; [`paper`] (the papers' tables and figures, made of the
//! benchmarks). Those of databases are [`forebay_databases`], to which [`forebay_sysbench`] and
//! `mix` add what the papers ask.

pub mod clock;
pub mod commit;
pub mod emulated;
pub mod fam;
pub mod histogram;
mod mix;
pub mod paper;
pub mod peers;
mod perf;
mod place;
pub mod pool_bench;
pub mod processes;
pub mod relay;
pub mod report;
pub mod scratch;
pub mod synced_write;
mod threads;
pub mod wisckey;
pub mod ycsb;

pub use forebay_databases::{
    closed_loop, contest, etcd, mariadb, nats, postgres, redis, rocksdb, sql, sqlite, tenants,
};
pub(crate) use forebay_measure::units;
pub use forebay_measure::{MeasureError as BenchError, data, disk as device, rounds};
pub(crate) use forebay_sysbench as sysbench;
