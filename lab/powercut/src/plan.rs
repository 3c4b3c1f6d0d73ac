//! The plan of a run: chains, in turn of each workload, with seeds of their own.

use crate::{
    Failure, Options,
    lab::PoolOn,
    machine::MachineKind,
    workload::{self, CONTROLS, Expected, WORKLOADS, Workload},
};
use forebay_random::Rng;
use std::collections::VecDeque;

/// Cycles of a chain at most.
const CHAIN: u64 = 4;

/// A chain that is to be run.
pub struct Task {
    pub workload: &'static Workload,
    pub seed: u64,
    pub pool: PoolOn,
    /// The number of the moment that the first aimed cycle gets.
    pub first: u64,
    pub cycles: u64,
}

/// The chains. A workload's are the same whichever others run with it. Of the cycles that it is to
/// have, `had` says how many it has had: it goes on with the chains behind them.
pub fn tasks(
    options: &Options,
    seed: u64,
    had: impl Fn(&Workload) -> u64,
) -> Result<VecDeque<Task>, Failure> {
    check_pool(options)?;
    let mut chosen: Vec<(&'static Workload, u64)> = Vec::new();
    for name in &options.workload {
        if name == "all" {
            chosen.extend(WORKLOADS.iter().map(|workload| (workload, options.cycles)));
            continue;
        }
        let workload = workload::find(name)
            .ok_or_else(|| format!("unknown workload {name:?}; --help lists them"))?;
        chosen.push((workload, options.cycles));
    }
    if options.controls > 0 {
        chosen.extend(CONTROLS.iter().map(|workload| (workload, options.controls)));
    }
    if options.failpoints.is_none() {
        if let Some((workload, _)) = chosen
            .iter()
            .find(|(w, _)| w.broken.is_some() && options.workload.iter().any(|n| n == w.name))
        {
            return Err(format!(
                "{} needs a Forebay with failpoints: --failpoints DIR",
                workload.name
            )
            .into());
        }
        chosen.retain(|(workload, _)| workload.broken.is_none());
    }
    let mut rows: Vec<VecDeque<Task>> = chosen
        .into_iter()
        .map(|(workload, cycles)| {
            let mut random = Rng(workload
                .name
                .bytes()
                .fold(seed, |hash, byte| Rng(hash ^ u64::from(byte)).next()));
            // Redis on a device first: it disables huge pages, which the device needs.
            let device = u64::from(workload.name != "redis");
            let had = had(workload);
            let cycles = cycles.saturating_sub(had);
            let before = had.div_ceil(CHAIN);
            // They had theirs.
            (0..before).for_each(|_| {
                random.next();
            });
            (0..cycles.div_ceil(CHAIN))
                .map(|number| (number, before + number))
                .map(|(number, chain)| Task {
                    workload,
                    seed: random.next(),
                    pool: match options.machine {
                        MachineKind::Emulated => place(workload, options.pool, chain, device),
                        MachineKind::Namespace => place_in_memory(workload, options.pool, chain),
                    },
                    first: chain * CHAIN / 2,
                    cycles: CHAIN.min(cycles - number * CHAIN),
                })
                .collect()
        })
        .collect();
    // One of each in turn: so a run that is ended early has seen all of them.
    let mut tasks = VecDeque::new();
    while rows.iter().any(|row| !row.is_empty()) {
        tasks.extend(rows.iter_mut().filter_map(VecDeque::pop_front));
    }
    Ok(tasks)
}

/// Where the pool of a chain is.
fn place(workload: &Workload, wanted: Option<PoolOn>, chain: u64, device: u64) -> PoolOn {
    match wanted {
        Some(pool) if pool.is_disk() || !workload.on_disk => pool,
        _ if workload.on_disk => PoolOn::Disk,
        _ if chain % 3 == device => PoolOn::Devdax,
        _ => PoolOn::Fsdax,
    }
}

/// The same in a machine without an NVDIMM.
fn place_in_memory(workload: &Workload, wanted: Option<PoolOn>, chain: u64) -> PoolOn {
    match wanted {
        Some(pool) if pool.is_disk() || !workload.on_disk => pool,
        _ if workload.on_disk => PoolOn::Disk,
        // A control that must lose something has to be seen where nothing else can lose it.
        _ if chain % 3 == 1 && workload.expected == Expected::NoLoss => PoolOn::Disk,
        _ => PoolOn::Memory,
    }
}

/// A machine has that kind of pool.
fn check_pool(options: &Options) -> Result<(), Failure> {
    use PoolOn::{Devdax, Fsdax, LegDisk, Legs, Memory, Mirror};
    match (options.machine, options.pool) {
        (MachineKind::Emulated, Some(Memory)) => {
            Err("an emulated machine has an NVDIMM: --pool fsdax or devdax".into())
        }
        (_, Some(Legs | LegDisk)) if options.workload.iter().any(|name| name == "store") => {
            Err("a store takes no pool with legs: name other workloads".into())
        }
        (MachineKind::Namespace, Some(Fsdax | Devdax | Mirror | Legs | LegDisk)) => Err(
            "a machine in namespaces has no NVDIMM, mirror or legs: --pool memory, disk or disk-file"
                .into(),
        ),
        // Only with failpoints Forebay takes memory for something that outlives a boot.
        (MachineKind::Namespace, None | Some(Memory)) if options.failpoints.is_none() => Err(
            "a pool in memory needs a Forebay with failpoints: --failpoints DIR; or --pool disk"
                .into(),
        ),
        _ => Ok(()),
    }
}
