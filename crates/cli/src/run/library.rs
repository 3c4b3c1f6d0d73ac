//! The search for libforebay.so, or for a laboratory's library in its place.

use crate::failure::Failure;
use std::{
    env, fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// A library that is put before those of a program.
pub struct PreloadLibrary {
    /// Its file name.
    pub name: &'static str,
    /// The environment variable that may say where it is.
    pub variable: &'static str,
    /// The package that it is built from.
    pub package: &'static str,
}

impl Default for PreloadLibrary {
    fn default() -> Self {
        Self {
            name: "libforebay.so",
            variable: "FOREBAY_LIBRARY",
            package: "forebay-preload",
        }
    }
}

impl PreloadLibrary {
    /// Its path, in a form that `LD_PRELOAD` can have.
    pub(crate) fn find(&self) -> Result<PathBuf, Failure> {
        let path = self.look_for()?;
        match path
            .as_os_str()
            .as_bytes()
            .iter()
            .any(|b| b" :".contains(b))
        {
            false => Ok(path),
            true => Err(Failure::Failed(format!(
                "{} has a space or a colon in its path, at which the dynamic linker ends a library's name: the program would run without it. Copy it to another place, and \
                 say that in the environment variable {}",
                path.display(),
                self.variable
            ))),
        }
    }

    /// Beside this program: in its directory, in `deps/` of it (cargo), in `../lib` (installed); or
    /// where its variable says.
    fn look_for(&self) -> Result<PathBuf, Failure> {
        let (name, variable) = (self.name, self.variable);
        if let Some(path) = env::var_os(variable).map(PathBuf::from) {
            return match path.is_file() {
                true => path
                    .canonicalize()
                    .map_err(Failure::io("finding", path.display())),
                false => Err(Failure::Failed(format!(
                    "{variable} names {}, which is no file",
                    path.display()
                ))),
            };
        }
        let program = env::current_exe().map_err(Failure::io("finding", "this program"))?;
        let dir = program.parent().unwrap_or(Path::new("/"));
        let places =
            ["", "deps", "../lib/forebay", "../lib"].map(|place| dir.join(place).join(name));
        // Of several, the newest: cargo leaves an old one in one place when it builds the other.
        let newest = places
            .iter()
            .filter_map(|path| Some((fs::metadata(path).ok()?.modified().ok()?, path)))
            .max_by_key(|(modified, _)| *modified);
        let Some((_, path)) = newest else {
            let places: Vec<_> = places.iter().map(|p| p.display().to_string()).collect();
            return Err(Failure::Failed(format!(
                "{name} is at none of {}. Build it (cargo build --release -p {}) or say where it is in the environment variable {variable}",
                places.join(", "),
                self.package
            )));
        };
        path.canonicalize()
            .map_err(Failure::io("finding", path.display()))
    }
}
