//! A directory for the files of a target: in memory where there is one that is.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process,
    sync::OnceLock,
};

/// This process's.
pub fn memory_dir() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let memory = Path::new("/dev/shm");
        let above = if memory.is_dir() { memory.to_owned() } else { env::temp_dir() };
        let dir = above.join(format!("forebay-fuzz-{}", process::id()));
        fs::create_dir_all(&dir).expect("a directory for the file");
        dir
    })
}
