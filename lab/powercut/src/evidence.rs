//! Evidence of a cycle in which something was lost: the machine's images and its console, after
//! each of the cycle's cuts.

use crate::{Failure, machine::Images};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// The cuts of the cycle that is running.
pub struct Evidence {
    /// Where they are while the cycle may still be good.
    held: PathBuf,
    /// Where they go if it is not.
    kept: PathBuf,
    cuts: u64,
}

impl Evidence {
    /// Of the chain whose images are in `chain`: kept in a directory of its name in `keep`.
    pub fn new(chain: &Path, keep: &Path) -> Self {
        let name = chain.file_name().unwrap_or_default();
        Self {
            held: chain.join("cuts"),
            kept: keep.join(name),
            cuts: 0,
        }
    }

    /// A cycle begins: those of the one before are not needed.
    pub fn begin(&mut self) -> Result<(), Failure> {
        self.cuts = 0;
        match fs::remove_dir_all(&self.held) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e.into()),
            _ => Ok(()),
        }
    }

    /// The power was cut, and left these images; the guest had said `console`.
    pub fn cut(&mut self, images: &Images, console: &str) -> Result<(), Failure> {
        self.cuts += 1;
        let dir = self.held.join(self.cuts.to_string());
        images.copy_to(&dir, true)?;
        Ok(fs::write(dir.join("console"), console)?)
    }

    /// Something was lost, as `line` says: all of it stays. Where.
    pub fn keep(&self, line: &str) -> Result<&Path, Failure> {
        fs::create_dir_all(&self.held)?;
        fs::write(self.held.join("cycle"), format!("{line}\n"))?;
        if self.kept.exists() {
            fs::remove_dir_all(&self.kept)?;
        }
        fs::create_dir_all(self.kept.parent().unwrap_or(Path::new(".")))?;
        // Another file system than the images' is likely.
        let done = std::process::Command::new("cp")
            .args(["-r", "--sparse=always"])
            .args([&self.held, &self.kept])
            .status()?;
        match done.success() {
            true => Ok(&self.kept),
            false => Err(format!("copying to {} failed", self.kept.display()).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{lab::PoolOn, machine::MachineKind};

    #[test]
    fn only_the_cuts_of_the_cycle_that_lost_something_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let (chain, keep) = (dir.path().join("redis-1"), dir.path().join("keep"));
        fs::create_dir(&chain).unwrap();
        let images = Images::create(MachineKind::Emulated, &chain, PoolOn::Fsdax, false).unwrap();
        let mut evidence = Evidence::new(&chain, &keep);
        evidence.begin().unwrap();
        evidence.cut(&images, "first").unwrap();
        evidence.cut(&images, "second").unwrap();
        evidence.begin().unwrap();
        evidence.cut(&images, "third").unwrap();
        let kept = evidence.keep("LOST").unwrap();
        assert_eq!(kept, keep.join("redis-1"));
        let console = fs::read_to_string(kept.join("1/console")).unwrap();
        assert_eq!(console, "third");
        assert!(kept.join("1/disk").exists() && !kept.join("2").exists());
        assert_eq!(fs::read_to_string(kept.join("cycle")).unwrap(), "LOST\n");
    }
}
