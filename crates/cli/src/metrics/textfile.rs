//! A file for node_exporter's textfile collector, which reads all `*.prom` of a directory now and
//! then: it finds the old file or the new one, never a part.

use super::{MetricsFormat, MetricsSnapshot};
use crate::failure::Failure;
use std::{
    fs::Permissions,
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// The file that the text goes to.
#[derive(Clone, Debug)]
pub struct TextFile(PathBuf);

impl TextFile {
    /// From the command line.
    ///
    /// # Errors
    /// In words: nobody would read a file of that name.
    pub fn parse(text: &str) -> Result<Self, String> {
        let path = PathBuf::from(text);
        match path.extension().is_some_and(|ending| ending == "prom") {
            true => Ok(Self(path)),
            false => {
                Err("node_exporter reads files whose names end in .prom, and no others".to_owned())
            }
        }
    }

    /// Puts the figures there, in one step.
    ///
    /// # Errors
    /// Of the file system: the old file is as it was.
    pub fn write(&self, figures: &MetricsSnapshot) -> Result<(), Failure> {
        let path = &self.0;
        let failed = || Failure::io("writing", path.display());
        let parent = path.parent().filter(|parent| *parent != Path::new(""));
        // Under another name, which is nobody's business.
        let mut file = tempfile::Builder::new()
            .prefix(".forebay-")
            .suffix(".tmp")
            .tempfile_in(parent.unwrap_or(Path::new(".")))
            .map_err(failed())?;
        let text = figures.text(MetricsFormat::Prometheus);
        let text = text.map_err(|e| failed()(io::Error::other(e)))?;
        file.write_all(text.as_bytes()).map_err(failed())?;
        // node_exporter is another user.
        let readable = Permissions::from_mode(0o644);
        file.as_file().set_permissions(readable).map_err(failed())?;
        // A power cut leaves no file that is empty.
        file.as_file().sync_all().map_err(failed())?;
        let persisted = file.persist(path);
        persisted.map(drop).map_err(|e| failed()(e.error))
    }
}
