//! The guest's first file system: busybox, kernel modules, the programs under test with their
//! libraries, and `init`.
//!
//! Made of what is installed on this machine; nothing of it is kept. The format is the kernel's
//! "newc" cpio archive, or files below a directory for a machine that has no kernel of its own.

use crate::{Failure, run};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

/// Files for the guest, by their path there.
#[derive(Default)]
pub struct Initramfs {
    files: BTreeMap<PathBuf, (u32, Vec<u8>)>,
}

const EXECUTABLE: u32 = 0o100_755;
const DIRECTORY: u32 = 0o040_755;

/// How every guest's first process begins, and that of a machine in namespaces.
const BOOT: &str = include_str!("boot.sh");
const BEGIN: &str = include_str!("begin.sh");

impl Initramfs {
    /// Adds busybox, and the first process: a shell script that does `then` once the kernel's
    /// modules are loaded and the network is up.
    ///
    /// # Errors
    /// Busybox cannot be read.
    pub fn add_init(&mut self, then: &str) -> Result<(), Failure> {
        self.add_first(BOOT, then)
    }

    /// The same for a machine [in namespaces](crate::namespace), whose network is a loopback
    /// device.
    ///
    /// # Errors
    /// As [`add_init`](Self::add_init).
    pub fn add_init_in_namespaces(&mut self, then: &str) -> Result<(), Failure> {
        self.add_first(BEGIN, then)
    }

    fn add_first(&mut self, begin: &str, then: &str) -> Result<(), Failure> {
        self.add("/init", format!("{begin}{then}"));
        self.add_program(Path::new("/bin/busybox"), "/bin/busybox")
    }

    /// Adds a file with this content.
    pub fn add(&mut self, path: impl Into<PathBuf>, content: impl Into<Vec<u8>>) {
        self.files.insert(path.into(), (EXECUTABLE, content.into()));
    }

    /// Adds a program of this machine as `to`, and the libraries that it names.
    ///
    /// # Errors
    /// It, or one of them, cannot be read.
    pub fn add_program(&mut self, from: &Path, to: &str) -> Result<(), Failure> {
        let read =
            |path: &Path| fs::read(path).map_err(|e| format!("reading {}: {e}", path.display()));
        self.add(to, read(from)?);
        let listed = Command::new("ldd")
            .arg(from)
            .output()
            .map_err(|e| format!("ldd: {e}"))?;
        for word in String::from_utf8_lossy(&listed.stdout).split_whitespace() {
            if word.starts_with('/') && !self.files.contains_key(Path::new(word)) {
                self.add(word, read(Path::new(word))?);
            }
        }
        Ok(())
    }

    /// The same without its symbols, which would be read, and unpacked, at every boot. `home` is
    /// where the smaller program is made.
    ///
    /// # Errors
    /// `strip` is not installed or fails, and those of [`add_program`](Self::add_program).
    pub fn add_stripped(&mut self, from: &Path, home: &Path, to: &str) -> Result<(), Failure> {
        let name = from.file_name().unwrap_or_default().to_string_lossy();
        let stripped = home.join(format!("{name}.stripped"));
        run(Command::new("strip").arg("-o").arg(&stripped).arg(from))?;
        self.add_program(&stripped, to)
    }

    /// Adds kernel modules and what they need, and a list of them in the order in which they are to
    /// be inserted.
    ///
    /// # Errors
    /// The kernel's modules of this release cannot be read.
    pub fn add_modules(&mut self, release: &str, wanted: &[&str]) -> Result<(), Failure> {
        let base = Path::new("/lib/modules").join(release);
        let path = base.join("modules.dep");
        let listed =
            fs::read_to_string(&path).map_err(|e| format!("reading {}: {e}", path.display()))?;
        let stem = |path: &str| {
            let name = path.rsplit('/').next().unwrap_or(path);
            name.split('.').next().unwrap_or(name).replace('-', "_")
        };
        let needs: BTreeMap<String, (&str, Vec<&str>)> = listed
            .lines()
            .filter_map(|line| line.split_once(':'))
            .map(|(path, needs)| (stem(path), (path, needs.split_whitespace().collect())))
            .collect();
        let mut order: Vec<&str> = Vec::new();
        let mut seen = BTreeSet::new();
        for name in wanted {
            // One that is built into this kernel has no file.
            let Some((path, needs)) = needs.get(*name) else {
                continue;
            };
            // The list of a module's needs ends with those that need nothing.
            for path in needs.iter().rev().chain([path]) {
                if seen.insert(*path) {
                    order.push(path);
                }
            }
        }
        for path in &order {
            let from = base.join(path);
            let content =
                fs::read(&from).map_err(|e| format!("reading {}: {e}", from.display()))?;
            self.add(format!("/modules/{}.ko", stem(path)), content);
        }
        let order: String = order.iter().map(|path| stem(path) + "\n").collect();
        self.add("/modules/order", order);
        Ok(())
    }

    /// Writes the files below `root`.
    ///
    /// # Errors
    /// I/O errors.
    pub fn unpack(&self, root: &Path) -> Result<(), Failure> {
        for (path, (mode, content)) in &self.files {
            let to = root.join(path.strip_prefix("/").unwrap_or(path));
            fs::create_dir_all(to.parent().unwrap_or(root))?;
            fs::write(&to, content).map_err(|e| format!("writing {}: {e}", to.display()))?;
            fs::set_permissions(&to, fs::Permissions::from_mode(mode & 0o7777))?;
        }
        Ok(())
    }

    /// The archive.
    #[must_use]
    pub fn archive(&self) -> Vec<u8> {
        let mut directories = BTreeSet::new();
        for path in self.files.keys() {
            directories.extend(path.ancestors().skip(1).filter(|d| d.parent().is_some()));
        }
        let mut out = Vec::new();
        for directory in directories {
            entry(&mut out, directory, DIRECTORY, &[]);
        }
        for (path, (mode, content)) in &self.files {
            entry(&mut out, path, *mode, content);
        }
        entry(&mut out, Path::new("/TRAILER!!!"), 0, &[]);
        out
    }
}

/// One file: a header of hexadecimal numbers, its name, its content, each padded to four bytes.
fn entry(out: &mut Vec<u8>, path: &Path, mode: u32, content: &[u8]) {
    let name = path.to_string_lossy();
    let name = name.trim_start_matches('/');
    let fields = [
        0, // inode: none is shared
        mode,
        0, // user
        0, // group
        1, // links
        0, // time
        content.len() as u32,
        0,
        0,
        0,
        0, // devices
        name.len() as u32 + 1,
        0, // check sum: none
    ];
    out.extend(b"070701");
    for field in fields {
        out.extend(format!("{field:08x}").bytes());
    }
    out.extend(name.bytes());
    out.push(0);
    out.resize(out.len().next_multiple_of(4), 0);
    out.extend(content);
    out.resize(out.len().next_multiple_of(4), 0);
}
