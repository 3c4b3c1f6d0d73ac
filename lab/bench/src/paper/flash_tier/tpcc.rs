//! TPC-C, as what a row's server is given to do.

use super::{
    CLIENTS, Lab, Size,
    stage::{Stage, Standing},
};
use crate::{
    BenchError,
    mariadb::workload::{Measured as Done, Scripts, Workload},
};
use std::path::Path;

/// The scripts, and servers with their tables.
pub(super) struct Tpcc<'a> {
    pub stage: Stage<'a>,
    scripts: Scripts,
    workload: Workload,
}

/// Warehouses: some 100 MB each.
pub(in crate::paper) fn warehouses(size: Size) -> u64 {
    size.pick(1, 4, 20)
}

impl<'a> Tpcc<'a> {
    /// Loads the tables.
    pub fn load(lab: &'a Lab<'a>, scratch: &Path) -> Result<Self, BenchError> {
        let scripts = Scripts::unpack(&scratch.join("scripts"), "innodb")?;
        let workload = Workload::Tpcc {
            warehouses: warehouses(lab.size),
            roam: true,
        };
        let stage = Stage::load(lab, scratch, |server| scripts.prepare(workload, server))?;
        Ok(Self {
            stage,
            scripts,
            workload,
        })
    }

    /// Runs the mix for so many seconds.
    pub fn work(&self, standing: &Standing, seconds: u64) -> Result<Done, BenchError> {
        let server = standing.server()?;
        self.scripts.run(self.workload, server, CLIENTS, seconds)
    }

    /// Ends a row's server, and checks its database.
    pub fn end(&self, standing: Standing) -> Result<(), BenchError> {
        let check = |server: &_| self.scripts.check(self.workload, server);
        self.stage.end(standing, check)
    }

    /// What to know of all rows.
    pub fn describe(&self) -> String {
        format!(
            "{:?}: {}; the paper has 100 warehouses and a buffer pool of 200 MB. Its port to MySQL never syncs its cache file, and rebuilds its map by \
             reading all of it; here every sync of a page file is one of flash and of the metadata, which are in these figures",
            self.workload,
            self.stage.describe()
        )
    }
}
