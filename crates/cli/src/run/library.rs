//! Where libforebay.so is.

use crate::failure::Failure;
use std::{
    env, fs,
    path::{Path, PathBuf},
};

const NAME: &str = "libforebay.so";

/// Beside this program: in its directory, in `deps/` of it (cargo), in `../lib` (installed); or where `FOREBAY_LIBRARY` says.
pub fn find() -> Result<PathBuf, Failure> {
    if let Some(path) = env::var_os("FOREBAY_LIBRARY").map(PathBuf::from) {
        return match path.is_file() {
            true => path
                .canonicalize()
                .map_err(Failure::io("finding", path.display())),
            false => Err(Failure::Failed(format!(
                "FOREBAY_LIBRARY names {}, which is no file",
                path.display()
            ))),
        };
    }
    let program = env::current_exe().map_err(Failure::io("finding", "this program"))?;
    let dir = program.parent().unwrap_or(Path::new("/"));
    let places = ["", "deps", "../lib/forebay", "../lib"].map(|place| dir.join(place).join(NAME));
    // Of several, the newest: cargo leaves an old one in one place when it builds the other.
    let newest = places
        .iter()
        .filter_map(|path| Some((fs::metadata(path).ok()?.modified().ok()?, path)))
        .max_by_key(|(modified, _)| *modified);
    let Some((_, path)) = newest else {
        let places: Vec<_> = places.iter().map(|p| p.display().to_string()).collect();
        return Err(Failure::Failed(format!(
            "{NAME} is at none of {}. Build it (cargo build --release -p forebay-preload) or say where it is in the environment \
             variable FOREBAY_LIBRARY",
            places.join(", ")
        )));
    };
    path.canonicalize()
        .map_err(Failure::io("finding", path.display()))
}
