//! Databases that are measured: their servers, the loads that they get, and the turns that they
//! take, plain and under `forebay run`.
//!
//! [`contest`] has what all of them share: modes, pools, what stands around a program, turns and
//! the report. [`server`] starts servers; what is a database's own stands in [`redis`],
//! [`rocksdb`], [`sqlite`], [`tenants`], in [`mariadb`] and [`postgres`], which [`sql`] measures,
//! and in [`etcd`] and [`nats`], which [`closed_loop`] measures. `forebay-lab` measures with them,
//! tests start their servers. docs/benchmarks.md says how each figure is made.

pub mod closed_loop;
pub mod contest;
pub mod etcd;
pub mod mariadb;
pub mod nats;
pub mod postgres;
pub mod redis;
pub mod rocksdb;
pub mod server;
pub mod sql;
pub mod sqlite;
pub mod tenants;

use forebay_measure::{MeasureError, data, disk, processes, rounds, scratch, table, units};
