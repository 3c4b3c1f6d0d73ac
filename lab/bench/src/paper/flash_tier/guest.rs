//! FaCE beside what Linux itself has for the same, bcache: in a virtual machine, since bcache is a
//! part of the kernel, and needs disks.
//!
//! The disks are this machine's memory, and QEMU holds requests back: emulation makes processors
//! slower, and disks are to be the bound (P2's file).

use super::{
    X,
    case::{PERCENT, TABLE, Variant},
    steady::{Counts, Row, Tpcc},
};
use crate::{
    BenchError,
    mariadb::server::{self, Address},
    paper::{lab::Lab, outcome::Measured},
    scratch::{ScratchDir, disk_bytes, memory_dir},
};
use forebay_guest::{
    Failure,
    cached::{self, Cache, Setup},
    disk::Limits,
    kernel::Kernel,
};
use forebay_innodb::CacheStatus;

/// A row's server.
struct InMachine {
    variant: &'static Variant,
    server: cached::Server,
}

fn failed(why: Failure) -> BenchError {
    BenchError::Child(format!("(a virtual machine) {why}"))
}

impl Row for InMachine {
    fn name(&self) -> String {
        format!("{}, in a virtual machine", self.variant.name)
    }

    fn address(&self) -> Address {
        Address::Ports(self.server.ports())
    }

    fn counts(&self) -> Result<Counts, BenchError> {
        let guest = self.server.look().map_err(failed)?;
        let status = self.server.status().map_err(failed)?;
        let flash: Option<CacheStatus> = status.and_then(|text| serde_json::from_str(&text).ok());
        Ok(Counts {
            turns: self.server.written_over(&guest),
            flash,
            guest: Some(guest),
        })
    }
}

/// TPC-C, in each variant.
pub(in crate::paper) fn run(lab: &Lab<'_>) -> Result<Measured, BenchError> {
    if let Some(why) = server::lacking().or_else(cached::lacking) {
        return Err(BenchError::Missing(why));
    }
    let scratch = ScratchDir::new_in(&memory_dir())?;
    let pace = lab.size.pick(
        ([5, 5, 5, 10], 1),
        ([20, 60, 900, 40], 5),
        ([60, 300, 3600, 120], 3),
    );
    let warehouses = lab.size.pick(1, 4, 20);
    let tpcc = Tpcc::load(lab, scratch.path(), warehouses, pace)?;
    let kernel = cached::kernel(lab.forebay, scratch.path()).map_err(failed)?;
    let table = &TABLE.guest;
    let limits = [&table.data, &table.flash].map(|name| {
        let limits = Limits::of(name, table.slower);
        limits.unwrap_or_else(|| unreachable!("P2 names {name}"))
    });
    let mut measured = Measured::default();
    for variant in &table.variants {
        row(&tpcc, variant, (&kernel, limits), &mut measured)?;
    }
    let (about, [data, flash], slower) = (tpcc.describe(), limits, table.slower);
    measured.note(format!(
        "{about}. The disk of the data does {data}, that of flash {flash}: {} and {}, {slower} times slower",
        table.data, table.flash
    ));
    Ok(measured)
}

/// One row: its rate and its latency. In the end its database is checked, by a server on the same
/// disks, which are not slow then.
fn row(
    tpcc: &Tpcc<'_>,
    variant: &'static Variant,
    (kernel, limits): (&Kernel, [Limits; 2]),
    measured: &mut Measured,
) -> Result<(), BenchError> {
    let home = ScratchDir::new_in(&memory_dir())?;
    let data = tpcc.stage.loaded();
    let setup = Setup {
        kernel,
        data,
        // With room for what orders add, and the redo log.
        data_bytes: (2 * disk_bytes(&data.join("data"))).next_multiple_of(1 << 20),
        flash_bytes: tpcc.stage.flash_bytes(PERCENT),
        limits,
        cache: match &variant.flash {
            Some(flash) => Cache::Forebay(flash.clone()),
            None if variant.bcache => Cache::Bcache,
            None => Cache::None,
        },
        home: home.path(),
    };
    let server = setup.start(&tpcc.stage.options(variant.doublewrite));
    let server = server.map_err(failed)?;
    let row = InMachine { variant, server };
    // One client opens the tables: sysbench does not wait as long as sixteen take for it at once.
    tpcc.scripts.run(row.address(), 1, 1)?;
    let steady = tpcc.measure(&row)?;
    let (place, series) = (&TABLE.guest.flash, &variant.name);
    measured.add("guest", place, series, X, &steady.tpmc);
    measured.add("guest_p99", place, series, X, &steady.new_order_p99_ms);
    measured.note(format!("{}: {}", row.name(), steady.told));
    let again = row.server.again(&tpcc.stage.options_with_room());
    let again = again.map_err(failed)?;
    tpcc.scripts.check(Address::Ports(again.ports()))?;
    again.stop().map_err(failed)
}
