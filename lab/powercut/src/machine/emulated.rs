//! A virtual machine: QEMU with an NVDIMM in a file. Killing it is the power cut: what was in the
//! guest's memory is gone, and the NVDIMM's file holds what its processors had stored there.

use super::{Images, NVDIMM, PORT, leg_server::LegServer};
use crate::{Failure, nbd::Server, shared_disk::SharedDisk};
use forebay_guest::{
    kernel::Kernel,
    machine::{Machine, NetworkSetup},
};
use std::path::PathBuf;

/// A running one, killed when this is dropped.
pub struct EmulatedMachine {
    pub machine: Machine,
    disks: Vec<Server>,
    /// Dropped behind the machine: they outlive its cut.
    _legs: Vec<LegServer>,
}

/// Where the guest reaches the legs. `init.sh` names them to Forebay.
const LEGS: [&str; 2] = ["10.0.2.101:10809", "10.0.2.102:10809"];

impl EmulatedMachine {
    /// Boots with `parameters` on the kernel's command line.
    pub fn boot(
        kernel: &Kernel,
        images: &Images,
        parameters: &str,
        console: PathBuf,
    ) -> Result<Self, Failure> {
        let nvdimm = format!(
            "memory-backend-file,id=nvdimm,share=on,mem-path={},size={NVDIMM}",
            images.nvdimm.display()
        );
        let board = ["-machine", "q35,nvdimm=on", "-m", "1G,slots=2,maxmem=4G"];
        let memory = ["-object", &nvdimm, "-device", "nvdimm,id=nv,memdev=nvdimm"];
        let mut disks = Vec::new();
        let mut devices: Vec<String> = board.into_iter().chain(memory).map(str::to_owned).collect();
        for (number, image) in images.disks().enumerate() {
            let socket = image.with_extension("socket");
            disks.push(Server::start(SharedDisk::open(image)?, &socket)?);
            // Nothing of it is cached on this side: the guest's flushes reach the disk, and only
            // they make anything durable.
            let disk = format!(
                "driver=nbd,node-name=disk{number},server.type=unix,server.path={},cache.direct=on,cache.no-flush=off",
                socket.display()
            );
            let device = format!("virtio-blk-pci,drive=disk{number},write-cache=on");
            devices.extend(["-blockdev".into(), disk, "-device".into(), device]);
        }
        images.forget_legs()?;
        let legs = images.legs.iter().map(|image| LegServer::start(image));
        let legs = legs.collect::<Result<Vec<_>, _>>()?;
        let forwards: Vec<String> = (LEGS.iter().zip(&legs))
            .map(|(address, leg)| leg.forward(address))
            .collect();
        let network = NetworkSetup {
            ports: &[PORT],
            forwards: &forwards,
        };
        Ok(Self {
            machine: Machine::start(kernel, devices, network, parameters, console)?,
            disks,
            _legs: legs,
        })
    }

    /// Port of this machine that leads to the guest's server.
    pub fn port(&self) -> u16 {
        self.machine.port(PORT)
    }

    /// Its disks, in the order in which the guest has them.
    pub fn disks(&self) -> impl Iterator<Item = &SharedDisk> {
        self.disks.iter().map(|server| &*server.disk)
    }

    /// Ends it, the disks first.
    pub fn end(&mut self) -> Result<(), Failure> {
        self.disks().for_each(SharedDisk::power_off);
        self.machine.guest.kill()
    }
}
