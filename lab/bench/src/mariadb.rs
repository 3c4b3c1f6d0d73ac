//! MariaDB ([`forebay_databases::mariadb`]), and the papers' loads on it.

pub use forebay_databases::mariadb::*;

pub mod workload;
