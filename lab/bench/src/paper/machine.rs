//! The machine that a figure belongs to.

use crate::processes::{field, kib};
use serde::{Deserialize, Serialize};
use std::fs;

/// A machine, as far as figures depend on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name.
    pub processor: String,
    /// Processors that this process may use.
    pub processors: usize,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// The kernel's version.
    pub kernel: String,
    /// The distribution.
    pub system: String,
}

impl Machine {
    /// This one.
    #[must_use]
    pub fn this() -> Self {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        // What follows the version is the builder's own.
        let version = release.trim().split('-').next().unwrap_or_default();
        let processor = field("/proc/cpuinfo", "model name", ':');
        let system = field("/etc/os-release", "PRETTY_NAME", '=');
        Self {
            processor: processor.unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: kib("/proc/meminfo", "MemTotal").unwrap_or(0) * 1024,
            kernel: format!("Linux {version}"),
            system: system.unwrap_or_else(|| "unknown".to_owned()),
        }
    }
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (processors, processor) = (self.processors, &self.processor);
        let gib = self.memory_bytes as f64 / f64::from(1 << 30);
        let (system, kernel) = (&self.system, &self.kernel);
        write!(
            f,
            "{processors} × {processor}, {gib:.0} GiB, {system}, {kernel}"
        )
    }
}
