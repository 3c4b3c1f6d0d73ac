//! YCSB's core workloads: which operations, how often, on which records.

use super::keys::Distribution;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationKind {
    /// Reads a whole record.
    Read,
    /// Writes a whole record that is there.
    Update,
    /// Writes a new one.
    Insert,
    /// Reads records in the order of their keys, from one on: 1 to
    /// [`SCAN_RECORDS_MAX`](super::SCAN_RECORDS_MAX).
    Scan,
    /// Reads a record, and writes it.
    ReadModifyWrite,
}

impl OperationKind {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Read,
        Self::Update,
        Self::Insert,
        Self::Scan,
        Self::ReadModifyWrite,
    ];

    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Update => "update",
            Self::Insert => "insert",
            Self::Scan => "scan",
            Self::ReadModifyWrite => "read_modify_write",
        }
    }
}

/// One of the core workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CoreWorkload {
    /// Half updates.
    A,
    /// Mostly reads.
    B,
    /// Only reads.
    C,
    /// Reads of what is inserted meanwhile.
    D,
    /// Short scans, and inserts.
    E,
    /// Records that are read, changed, and written.
    F,
}

impl CoreWorkload {
    /// All of them, in the order that YCSB has them run in: those that add records come last.
    pub const ALL: [Self; 6] = [Self::A, Self::B, Self::C, Self::F, Self::D, Self::E];

    /// Of a hundred operations, so many of these kinds.
    #[must_use]
    pub const fn percents(self) -> &'static [(OperationKind, u64)] {
        use OperationKind::{Insert, Read, ReadModifyWrite, Scan, Update};
        match self {
            Self::A => &[(Read, 50), (Update, 50)],
            Self::B => &[(Read, 95), (Update, 5)],
            Self::C => &[(Read, 100)],
            Self::D => &[(Read, 95), (Insert, 5)],
            Self::E => &[(Scan, 95), (Insert, 5)],
            Self::F => &[(Read, 50), (ReadModifyWrite, 50)],
        }
    }

    /// The kind of an operation that drew this number below a hundred.
    pub(super) fn kind(self, mut drawn: u64) -> OperationKind {
        for &(kind, percent) in self.percents() {
            if drawn < percent {
                return kind;
            }
            drawn -= percent;
        }
        OperationKind::Read
    }

    /// Inserts among a hundred operations.
    pub(super) fn inserts(self) -> u64 {
        let mut kinds = self.percents().iter();
        let found = kinds.find(|(kind, _)| *kind == OperationKind::Insert);
        found.map_or(0, |(_, percent)| *percent)
    }

    /// How its records are chosen.
    #[must_use]
    pub const fn distribution(self) -> Distribution {
        match self {
            Self::D => Distribution::Latest,
            _ => Distribution::Zipfian,
        }
    }
}

impl fmt::Display for CoreWorkload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl FromStr for CoreWorkload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut all = Self::ALL.into_iter();
        let found = all.find(|one| one.to_string().eq_ignore_ascii_case(text));
        found.ok_or_else(|| format!("unknown workload {text:?}: A, B, C, D, E or F"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_has_a_hundred_percent() {
        for workload in CoreWorkload::ALL {
            let all: u64 = workload.percents().iter().map(|(_, percent)| percent).sum();
            assert_eq!(all, 100, "{workload}");
            for &(kind, percent) in workload.percents() {
                let drawn = (0..100).filter(|n| workload.kind(*n) == kind).count();
                assert_eq!(drawn as u64, percent, "{workload}");
            }
            assert_eq!(workload.to_string().to_lowercase().parse(), Ok(workload));
        }
        assert!("G".parse::<CoreWorkload>().is_err());
        assert_eq!(
            (CoreWorkload::E.inserts(), CoreWorkload::F.inserts()),
            (5, 0)
        );
    }
}
