//! Workloads that must lose something, or, without Forebay, nothing: README.md, "Controls".

use super::{BESIDE_NATS, Beside, Dialect, Expected, FEW, FLASH, LARGE, PLAIN, Workload};
use crate::{
    cut_moments::{RELEASE_EARLY, TORN_ONLY, UNREGISTERED},
    flash::{METADATA_FIRST, NO_HOME_SYNC},
};

/// A control: records without checksums, cut where they are torn.
const UNCHECKED: Workload = Workload {
    expected: Expected::Loss,
    may_refuse: true,
    broken: Some("no-checksum"),
    moments: TORN_ONLY,
    only_aimed: true,
    ..PLAIN
};

/// What shows that the lab sees loss where there must be some, and none where there must be none.
///
/// Promise (lab): The lab sees the loss of an acknowledged write: with syncs switched off, and with
/// Forebay broken on purpose.
pub const CONTROLS: [Workload; 28] = [
    Workload {
        name: "redis-always",
        dialect: Dialect::Redis,
        ..PLAIN
    },
    Workload {
        name: "redis-everysec",
        dialect: Dialect::Redis,
        expected: Expected::Loss,
        may_refuse: true,
        ..PLAIN
    },
    Workload {
        name: "redis-no",
        dialect: Dialect::Redis,
        expected: Expected::Loss,
        ..PLAIN
    },
    Workload {
        name: "redis-eatmydata",
        dialect: Dialect::Redis,
        expected: Expected::Loss,
        ..PLAIN
    },
    Workload {
        name: "redis-released-early",
        dialect: Dialect::Redis,
        expected: Expected::Loss,
        may_refuse: true,
        broken: Some("release-early"),
        moments: RELEASE_EARLY,
        only_aimed: true,
        ..PLAIN
    },
    Workload {
        name: "store-released-early",
        shape: LARGE,
        expected: Expected::Loss,
        may_refuse: true,
        broken: Some("release-early"),
        ..PLAIN
    },
    Workload {
        name: "logs-unregistered",
        expected: Expected::Loss,
        may_refuse: true,
        broken: Some("no-registration-sync"),
        moments: UNREGISTERED,
        only_aimed: true,
        ..PLAIN
    },
    Workload {
        name: "redis-no-checksum",
        dialect: Dialect::Redis,
        ..UNCHECKED
    },
    Workload {
        name: "store-no-checksum",
        shape: LARGE,
        ..UNCHECKED
    },
    Workload {
        name: "redis-not-committed",
        dialect: Dialect::Redis,
        expected: Expected::Loss,
        may_refuse: true,
        broken: Some("no-commit"),
        on_disk: true,
        ..PLAIN
    },
    Workload {
        name: "redis-not-flushed",
        dialect: Dialect::Redis,
        expected: Expected::Loss,
        may_refuse: true,
        broken: Some("no-flush"),
        on_disk: true,
        ..PLAIN
    },
    Workload {
        name: "logs-plain",
        ..PLAIN
    },
    Workload {
        name: "mariadb-plain",
        shape: FEW,
        beside: Some(Beside::MariaDb),
        ..PLAIN
    },
    Workload {
        name: "mariadb-no-sync",
        shape: FEW,
        expected: Expected::Loss,
        beside: Some(Beside::MariaDb),
        ..PLAIN
    },
    Workload {
        name: "mariadb-eatmydata",
        shape: FEW,
        expected: Expected::Loss,
        beside: Some(Beside::MariaDb),
        ..PLAIN
    },
    Workload {
        name: "mariadb-no-doublewrite",
        shape: FEW,
        expected: Expected::Loss,
        may_refuse: true,
        beside: Some(Beside::MariaDb),
        tears: true,
        ..PLAIN
    },
    Workload {
        name: "mariadb-flash-metadata-first",
        expected: Expected::Loss,
        may_refuse: true,
        broken: Some("flash-metadata-first"),
        moments: METADATA_FIRST,
        only_aimed: true,
        ..FLASH
    },
    Workload {
        name: "mariadb-flash-no-home-sync",
        expected: Expected::Loss,
        may_refuse: true,
        broken: Some("flash-no-home-sync"),
        moments: NO_HOME_SYNC,
        only_aimed: true,
        ..FLASH
    },
    Workload {
        name: "postgres-plain",
        shape: FEW,
        beside: Some(Beside::Postgres),
        ..PLAIN
    },
    Workload {
        name: "postgres-no-sync",
        shape: FEW,
        expected: Expected::Loss,
        beside: Some(Beside::Postgres),
        ..PLAIN
    },
    Workload {
        name: "postgres-eatmydata",
        shape: FEW,
        expected: Expected::Loss,
        beside: Some(Beside::Postgres),
        ..PLAIN
    },
    Workload {
        name: "etcd-plain",
        shape: FEW,
        beside: Some(Beside::Etcd),
        ..PLAIN
    },
    Workload {
        name: "etcd-released-early",
        shape: FEW,
        expected: Expected::Loss,
        may_refuse: true,
        broken: Some("release-early"),
        moments: RELEASE_EARLY,
        only_aimed: true,
        beside: Some(Beside::Etcd),
        ..PLAIN
    },
    Workload {
        name: "etcd-no-sync",
        shape: FEW,
        expected: Expected::Loss,
        may_refuse: true,
        beside: Some(Beside::Etcd),
        ..PLAIN
    },
    Workload {
        name: "nats-plain",
        ..BESIDE_NATS
    },
    Workload {
        name: "nats-no-sync",
        expected: Expected::Loss,
        ..BESIDE_NATS
    },
    Workload {
        name: "nats-released-early",
        expected: Expected::Loss,
        may_refuse: true,
        broken: Some("release-early"),
        moments: RELEASE_EARLY,
        only_aimed: true,
        ..BESIDE_NATS
    },
    Workload {
        name: "sqlite-processes-eatmydata",
        expected: Expected::Loss,
        ..PLAIN
    },
];
