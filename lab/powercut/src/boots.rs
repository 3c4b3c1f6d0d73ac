//! The guest's boot: a kernel that is installed here, unless it is to have none, and the first file
//! system with Forebay and the databases in it.

use crate::Failure;
use forebay_bench::{
    processes::find_eatmydata,
    redis::server::Kind::{Redis, Valkey},
};
use forebay_guest::{MODULES, initramfs::Initramfs, run};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Kernel modules of the NVDIMM.
const NVDIMM: [&str; 5] = ["libnvdimm", "nfit", "nd_pmem", "dax_pmem", "device_dax"];
/// Those of a mirror of two disks.
const MIRROR: [&str; 2] = ["md_mod", "raid1"];

/// A build is what it is taken for: failpoints are in it, or nothing of them is.
pub fn check_build(programs: &Path, failpoints: bool) -> Result<(), Failure> {
    const TRACE: &[u8] = b"FOREBAY_FAILPOINT";
    for name in ["forebay", "libforebay.so", "forebay-lab-server"] {
        let path = programs.join(name);
        let program = fs::read(&path)
            .map_err(|e| format!("reading {}: {e}. Build it: make powercut", path.display()))?;
        if program.windows(TRACE.len()).any(|bytes| bytes == TRACE) != failpoints {
            let what = if failpoints {
                "no failpoints"
            } else {
                "failpoints"
            };
            return Err(format!(
                "{} has {what} in it. Build it again: make powercut",
                path.display()
            )
            .into());
        }
    }
    Ok(())
}

/// What a machine's first process does.
const INIT: &str = include_str!("init.sh");

/// The guest's first file system, for the kernel of this release, or for a machine in namespaces.
pub fn guest(home: &Path, release: Option<&str>, programs: &Path) -> Result<Initramfs, Failure> {
    let mut guest = Initramfs::default();
    match release {
        Some(release) => {
            guest.add_modules(release, &[&MODULES[..], &NVDIMM, &MIRROR].concat())?;
            guest.add_init(INIT)?;
            guest.add_program(Path::new("/usr/bin/ndctl"), "/lab/ndctl")?;
            guest.add_program(Path::new("/sbin/mdadm"), "/lab/mdadm")?;
        }
        None => {
            guest.add_init_in_namespaces(INIT)?;
            guest.add_program(Path::new("/sbin/mkfs.xfs"), "/lab/mkfs.xfs")?;
        }
    }
    guest.add("/lab/action", include_str!("action.sh"));
    // Called by its path: busybox has one of its own, without ext4.
    guest.add_program(Path::new("/sbin/mke2fs"), "/lab/mke2fs")?;
    for (name, to) in [
        ("forebay", "/lab/forebay"),
        ("libforebay.so", "/lab/libforebay.so"),
        ("forebay-lab-server", "/lab/lab-server"),
    ] {
        guest.add_stripped(&programs.join(name), home, to)?;
    }
    for (engine, sources, library) in [
        ("rocksdb", &["rocksdb.c"][..], "-lrocksdb"),
        ("sqlite", &["sqlite.c"], "-lsqlite3"),
        ("sqlite-processes", &["processes.c"], "-lsqlite3"),
    ] {
        let program = home.join(engine);
        build_server(sources, library, &program)?;
        guest.add_program(&program, &format!("/lab/{engine}-server"))?;
    }
    guest.add_program(&Redis.program()?, "/lab/redis-server")?;
    guest.add_program(&Valkey.program()?, "/lab/valkey-server")?;
    let eatmydata =
        find_eatmydata().ok_or("libeatmydata is not installed: scripts/setup.sh powercut")?;
    guest.add_program(&eatmydata, "/lab/libeatmydata.so")?;
    Ok(guest)
}

/// Builds guest/server.c with a database that Debian ships: the files of `engine`.
fn build_server(engine: &[&str], library: &str, to: &Path) -> Result<(), Failure> {
    if to.exists() {
        return Ok(());
    }
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("guest");
    run(Command::new("cc")
        .args([
            "-std=c11",
            "-D_GNU_SOURCE",
            "-O1",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-o",
        ])
        .arg(to)
        .arg(sources.join("server.c"))
        .args(engine.iter().map(|name| sources.join(name)))
        .arg(library))
}

/// Packs `data` of the directory `dir` into the file `to`.
pub fn archive(dir: &Path, to: PathBuf) -> Result<PathBuf, Failure> {
    run(Command::new("tar")
        .arg("-czf")
        .arg(&to)
        .arg("-C")
        .arg(dir)
        .arg("data"))?;
    Ok(to)
}
