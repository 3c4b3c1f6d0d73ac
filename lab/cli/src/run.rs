//! `forebay-lab run`: what `forebay run` does, with emulated devices under the program, or a slower
//! memory under its pool.
//!
//! The run is that of `forebay` ([`forebay_cli::RunCommand`]) with a layer: libforebay_lab.so
//! ([`LIBRARY`]) instead of libforebay.so, and [`supervisor`] under the supervisor's syncs.

mod device;
mod supervisor;

use clap::Args;
use forebay_cli::{PreloadLibrary, RunLayer, failure::Failure};
use forebay_device::{
    Placed,
    memory::{ENV_MEMORY, Profile},
};
use std::sync::Arc;

/// The library of lab/preload.
const LIBRARY: PreloadLibrary = PreloadLibrary {
    name: "libforebay_lab.so",
    variable: "FOREBAY_LAB_LIBRARY",
    package: "forebay-lab-preload",
};

/// Run a program as forebay run does, on emulated devices or with a slower pool
#[derive(Args)]
#[command(
    long_about = "Runs a program as forebay run does, with all of its options, and gives the file I/O below directories what it would take on another device, \
                  or the pool what it would take in another memory. What is durable is as without: only time is added.",
    after_long_help = "Examples:\n  \
        forebay-lab run --device /dev/shm/d=hdd-7200 --no-pool -- redis-server --dir /dev/shm/d --appendonly yes\n  \
        forebay-lab run --device /dev/shm/d=hdd-7200 --emulated 64MiB -- redis-server --dir /dev/shm/d --appendonly yes\n  \
        forebay-lab run --media-profile pcm --emulated 64MiB -- redis-server --appendonly yes --appendfsync always\n\n\
        An emulated device only adds to what I/O really takes: put the directory on something faster, as /dev/shm. With --device alone there is no pool. \
        docs/devices.md has the model, the profiles and how to write one.\n\n\
        Exit status: as of forebay run."
)]
pub struct EmulatedRun {
    /// Give file I/O below DIR the latency, bandwidth, queue and sync cost of a device: hdd-7200,
    /// hdd-15k-raid0x8, sata-ssd, sata-ssd-steady, nvme, nvram, gen-z-uc, gen-z-wt, gen-z-wc, or
    /// the path of a TOML file with a profile; may be given several times
    #[arg(long = "device", value_name = "DIR=PROFILE", value_parser = device::parse)]
    devices: Vec<Placed>,
    /// Make the pool as slow as a memory: dram, nvdimm-n, pcm, xpoint-mm, xpoint-sm, gen-z-uc,
    /// gen-z-wt, gen-z-wc
    #[arg(long, value_name = "MEMORY", value_parser = crate::profile)]
    media_profile: Option<Profile>,
    #[command(flatten)]
    run: forebay_cli::RunCommand,
}

impl EmulatedRun {
    pub fn run(self) -> Result<(), Failure> {
        let devices = device::make(&self.devices)?;
        let mut layer = RunLayer {
            library: LIBRARY,
            needs_no_pool: devices.is_some(),
            ..RunLayer::default()
        };
        if let Some(devices) = &devices {
            layer.environment.extend(devices.environment());
            layer.supervisor = Some(Arc::new(supervisor::Charged(Arc::clone(devices))));
        }
        if let Some(profile) = self.media_profile {
            eprintln!(
                "forebay: the pool is slowed to {} ({})",
                profile.name, profile.source
            );
            layer
                .environment
                .push((ENV_MEMORY.into(), profile.name.into()));
        }
        let done = self.run.run_on(&layer);
        if let (true, Some(devices)) = (self.run.explains(), &devices)
            && matches!(done, Ok(()) | Err(Failure::Passed(_)))
        {
            eprint!("{}", device::summary(devices));
        }
        done
    }
}
