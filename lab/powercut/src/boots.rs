//! What the guest boots: a kernel that is installed here, and the first file system with Forebay and the databases in it.

use crate::{Failure, initramfs::Initramfs};
use forebay_bench::{
    processes::find_eatmydata,
    redis::server::Kind::{Redis, Valkey},
};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Kernel modules that the guest needs: disk, network, NVDIMM, file system.
const MODULES: [&str; 11] = [
    "virtio_pci",
    "virtio_blk",
    "virtio_net",
    "libnvdimm",
    "nfit",
    "nd_pmem",
    "dax_pmem",
    "device_dax",
    "crc32c_generic",
    "crc32c_intel",
    "ext4",
];

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

/// The guest's first file system.
pub fn guest(home: &Path, release: &str, programs: &Path) -> Result<Initramfs, Failure> {
    let mut guest = Initramfs::default();
    guest.add_modules(release, &MODULES)?;
    guest.add("/init", include_str!("init.sh"));
    guest.add("/lab/action", include_str!("action.sh"));
    guest.add_program(Path::new("/bin/busybox"), "/bin/busybox")?;
    guest.add_program(Path::new("/usr/bin/ndctl"), "/lab/ndctl")?;
    // Called by its path: busybox has one of its own, without ext4.
    guest.add_program(Path::new("/sbin/mke2fs"), "/lab/mke2fs")?;
    for (name, to) in [
        ("forebay", "/lab/forebay"),
        ("libforebay.so", "/lab/libforebay.so"),
        ("forebay-lab-server", "/lab/lab-server"),
    ] {
        // Symbols would be read, and unpacked, at every boot.
        let stripped = home.join(name);
        run(Command::new("strip")
            .arg("-o")
            .arg(&stripped)
            .arg(programs.join(name)))?;
        guest.add_program(&stripped, to)?;
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

pub fn run(command: &mut Command) -> Result<(), Failure> {
    let done = command
        .output()
        .map_err(|e| format!("{command:?}: {e}. Remedy: scripts/setup.sh powercut"))?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        return Err(format!("{command:?} failed:\n{said}").into());
    }
    Ok(())
}

/// The kernel without its compression, which would be undone at every boot, and slowly, if that can be had; otherwise `packed` itself.
pub fn unpacked(packed: &Path, home: &Path) -> Result<PathBuf, Failure> {
    const XZ: &[u8] = b"\xFD7zXZ\0";
    let bytes = fs::read(packed).map_err(|e| format!("reading {}: {e}", packed.display()))?;
    let Some(at) = bytes.windows(XZ.len()).position(|window| window == XZ) else {
        return Ok(packed.to_owned());
    };
    let (part, image) = (home.join("vmlinux.xz"), home.join("vmlinux"));
    fs::write(&part, &bytes[at..])?;
    let done = Command::new("xz")
        .args(["--single-stream", "-dc"])
        .arg(&part)
        .stdout(fs::File::create(&image)?)
        .status();
    let is_elf = fs::read(&image)?.starts_with(b"\x7FELF");
    Ok(if done.is_ok_and(|status| status.success()) && is_elf {
        image
    } else {
        packed.to_owned()
    })
}

/// The release of a kernel that is installed here, with its modules.
pub fn installed_kernel() -> Result<String, Failure> {
    let has_modules = |release: &String| {
        let listed = Path::new("/lib/modules").join(release).join("modules.dep");
        fs::read_to_string(listed).is_ok_and(|listed| listed.contains("/nfit.ko:"))
    };
    let mut found: Vec<String> = fs::read_dir("/boot")?
        .filter_map(|entry| {
            entry
                .ok()?
                .file_name()
                .into_string()
                .ok()?
                .strip_prefix("vmlinuz-")
                .map(str::to_owned)
        })
        .filter(has_modules)
        .collect();
    found.sort();
    found
        .pop()
        .ok_or_else(|| "no kernel is installed in /boot: scripts/setup.sh powercut".into())
}
