//! LevelDB, by a small program of ours (`programs/leveldb.c`) that is built when it is needed and linked to Debian's library.

use crate::{BenchError, processes::find_program};
use std::{fs, path::Path, path::PathBuf, process::Command};

/// The peer's name in reports.
pub const NAME: &str = "leveldb";

/// The program's source.
const SOURCE: &str = include_str!("../../programs/leveldb.c");

/// Checks that the program can be built.
///
/// # Errors
/// In words, that something is not installed, and the remedy.
pub fn check() -> Result<(), String> {
    if find_program("cc").is_none() || !Path::new("/usr/include/leveldb/c.h").exists() {
        return Err("not installed: apt-get install libleveldb-dev build-essential".to_owned());
    }
    Ok(())
}

/// Builds the program in `dir`; its path.
///
/// # Errors
/// I/O errors, and what the compiler says.
pub(crate) fn build(dir: &Path) -> Result<PathBuf, BenchError> {
    build_c(dir, NAME, SOURCE)
}

/// Builds a C program in `dir`, with the library of the same `name`; its path.
pub(super) fn build_c(dir: &Path, name: &str, code: &str) -> Result<PathBuf, BenchError> {
    let (source, program) = (dir.join(format!("{name}.c")), dir.join(name));
    fs::write(&source, code).map_err(BenchError::io("writing", &source))?;
    let built = Command::new("cc")
        .args(["-O2", "-o"])
        .args([&program, &source])
        .arg(format!("-l{name}"))
        .output()
        .map_err(BenchError::io("building", &source))?;
    if !built.status.success() {
        return Err(BenchError::Child(format!(
            "cc could not build {}: {}",
            source.display(),
            String::from_utf8_lossy(&built.stderr).trim()
        )));
    }
    Ok(program)
}
