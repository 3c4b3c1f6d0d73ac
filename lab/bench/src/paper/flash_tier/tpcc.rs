//! TPC-C, as what a row's server is given to do.

use super::{
    Lab,
    stage::{CLIENTS, Stage, Standing},
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
}

impl<'a> Tpcc<'a> {
    /// Loads the tables.
    pub fn load(lab: &'a Lab<'a>, scratch: &Path) -> Result<Self, BenchError> {
        let workload = Workload::Tpcc {
            // Of some 100 MB each.
            warehouses: lab.size.pick(1, 4, 20),
            roam: true,
        };
        let scripts = Scripts::unpack(&scratch.join("scripts"), "innodb", workload)?;
        let stage = Stage::load(lab, scratch, |server| scripts.prepare(server))?;
        Ok(Self { stage, scripts })
    }

    /// Runs the mix for so many seconds.
    pub fn work(&self, standing: &Standing, seconds: u64) -> Result<Done, BenchError> {
        self.scripts.run(&standing.server, CLIENTS, seconds)
    }

    /// Ends a row's server, and checks its database.
    pub fn end(&self, standing: Standing) -> Result<(), BenchError> {
        self.stage
            .end(standing, |server| self.scripts.check(server))
    }

    /// What to know of all rows.
    pub fn describe(&self) -> String {
        format!(
            "{:?}: {}; the paper has 100 warehouses and a buffer pool of 200 MB. Its port to MySQL never syncs its cache file, and rebuilds its map by \
             reading all of it; here every sync of a page file is one of flash and of the metadata, which are in these figures",
            self.scripts.workload,
            self.stage.describe()
        )
    }
}
