//! `forebay store export`.

use super::{
    lines::{KeyValue, LineArguments, LineFormat},
    opening::{InUse, ReadArguments, ReadStore},
};
use crate::{failure::Failure, output::Output, progress::byte_bar};
use clap::Args;
use forebay_store::ScanRange;
use std::{
    fs::File,
    io::{BufWriter, Write},
    path::{Path, PathBuf},
};

/// Write all pairs to a file or to standard output
#[derive(Args)]
#[command(
    long_about = "Writes all pairs of the store's default keyspace in key order, as `forebay store import` reads \
                  them. They are those of one moment, whatever is written meanwhile. A file appears under its name \
                  only when it is complete and synced; one that exists is not replaced without --force.",
    after_long_help = "Examples:\n  \
        forebay store export --dir s pairs.jsonl\n  \
        forebay store export --dir s --format tsv | gzip > pairs.tsv.gz"
)]
pub struct Export {
    #[command(flatten)]
    opening: ReadArguments,
    #[command(flatten)]
    lines: LineArguments,
    /// The file; none or - is standard output
    file: Option<PathBuf>,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
}

impl Export {
    pub fn run(self) -> Result<(), Failure> {
        let path = self.file.as_deref().filter(|path| *path != Path::new("-"));
        let format = self.lines.format(path);
        if let Some(path) = path
            && !self.force
            && path.exists()
        {
            return Err(Failure::Failed(format!(
                "{} exists; choose another name, or --force to replace it",
                path.display()
            )));
        }
        let opened = self.opening.open(InUse::Refuse)?;
        let others = opened.keyspaces();
        if !others.is_empty() {
            let names: Vec<_> = others
                .iter()
                .map(|it| it.name.escape_debug().to_string())
                .collect();
            eprintln!(
                "not exported: the keyspaces \"{}\" (forebay store backup has all)",
                names.join("\", \"")
            );
        }
        let written = match path {
            Some(path) => self.to_file(&opened, format, path),
            None => {
                let mut output = Output::new();
                self.each_line(&opened, format, |line| output.bytes(line))
                    .and_then(|_| output.finish())
            }
        };
        opened.close()?;
        written
    }

    /// Writes beside the file, and gives it its name at the end.
    fn to_file(&self, store: &ReadStore, format: LineFormat, path: &Path) -> Result<(), Failure> {
        let failed = || Failure::io("writing", path.display());
        let parent = path
            .parent()
            .filter(|p| !p.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let mut file = BufWriter::with_capacity(
            1 << 20,
            tempfile::Builder::new()
                .prefix(".forebay-export-")
                .tempfile_in(parent)
                .map_err(failed())?,
        );
        let bar = byte_bar(None, "exporting");
        let pairs = self.each_line(store, format, |line| {
            bar.inc(line.len() as u64);
            file.write_all(line).map_err(failed())
        })?;
        let file = file.into_inner().map_err(|e| failed()(e.into_error()))?;
        file.as_file().sync_all().map_err(failed())?;
        let named = if self.force {
            file.persist(path)
        } else {
            file.persist_noclobber(path)
        };
        named.map_err(|e| failed()(e.error))?;
        File::open(parent)
            .and_then(|dir| dir.sync_all())
            .map_err(failed())?;
        bar.finish_and_clear();
        eprintln!("exported {pairs} pairs to {}", path.display());
        Ok(())
    }

    /// Gives every pair as a line to `take`. Returns how many there were.
    fn each_line(
        &self,
        store: &ReadStore,
        format: LineFormat,
        mut take: impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<u64, Failure> {
        let snapshot = store.snapshot()?;
        let mut line = Vec::new();
        let mut pairs = 0;
        for pair in snapshot.scan(ScanRange::all())? {
            let (key, value) = pair?;
            line.clear();
            format.write(
                &KeyValue::new(&key, Some(&value)),
                self.lines.encoding,
                &mut line,
            );
            take(&line)?;
            pairs += 1;
        }
        Ok(pairs)
    }
}
