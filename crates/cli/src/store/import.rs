//! `forebay store import`.

use super::{
    lines::{LineArguments, LineFormat},
    opening::{AbsentStore, OpenedStore, StoreArguments},
};
use crate::{encoding::Encoding, failure::Failure, output, progress::byte_bar};
use clap::Args;
use forebay_store::Batch;
use indicatif::ProgressBar;
use serde::Serialize;
use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read, Seek, stdin},
    path::{Path, PathBuf},
};

/// Write the pairs of a file or of standard input
#[derive(Args)]
#[command(
    long_about = "Writes the pairs that a file or standard input holds, one a line: JSON Lines \
                  {\"key\":…,\"value\":…}, with \"key_base64\" or \"value_base64\" for bytes that are not UTF-8; or \
                  tab-separated, with the escapes \\t \\n \\r \\\\ \\xHH. Empty lines are skipped.\n\n\
                  A file is read twice: a line that cannot be read is found before anything is written. From a \
                  pipe, lines are written as they come, and an error says which lines were; --check keeps the \
                  input in a temporary file and looks at all of it first.",
    after_long_help = "Examples:\n  \
        forebay store import --dir s pairs.jsonl\n  \
        zcat pairs.tsv.gz | forebay store import --dir s --format tsv --check"
)]
pub struct Import {
    #[command(flatten)]
    opening: StoreArguments,
    #[command(flatten)]
    lines: LineArguments,
    /// The file; none or - is standard input
    file: Option<PathBuf>,
    /// Look at all of the input before anything is written, also from a pipe
    #[arg(long)]
    check: bool,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct ImportReport {
    lines: u64,
    pairs: u64,
}

impl Import {
    pub fn run(self) -> Result<(), Failure> {
        let path = self.file.as_deref().filter(|path| *path != Path::new("-"));
        let source = path.map_or_else(
            || "standard input".to_owned(),
            |path| path.display().to_string(),
        );
        let lines = LineReader {
            format: self.lines.format(path),
            encoding: self.lines.encoding,
            source: &source,
        };
        let input = match path {
            Some(path) => File::open(path).map_err(Failure::io("opening", &source))?,
            None => spool(self.check)?,
        };
        let bytes = input
            .metadata()
            .ok()
            .filter(|meta| meta.is_file())
            .map(|meta| meta.len());
        if let Some(bytes) = bytes {
            lines.check(&input, bytes)?;
        } else if self.check {
            return Err(Failure::Usage(format!(
                "{source} cannot be read twice; give it on standard input to --check"
            )));
        }
        let opened = self.opening.open(AbsentStore::Create)?;
        let bar = byte_bar(bytes, "importing");
        let report = lines.import(&opened, bar.wrap_read(&input))?;
        opened.store.flush()?;
        opened.store.close()?;
        bar.finish_and_clear();
        output::report(self.json, &report, |r| {
            format!("imported {} pairs from {} lines\n", r.pairs, r.lines)
        })
    }
}

/// Standard input; in a temporary file if it is to be read twice.
fn spool(twice: bool) -> Result<File, Failure> {
    use std::os::fd::AsFd;
    let failed = || Failure::io("reading", "standard input");
    if twice {
        let mut file = tempfile::tempfile().map_err(Failure::io("making", "a temporary file"))?;
        io::copy(&mut stdin().lock(), &mut file).map_err(failed())?;
        file.rewind().map_err(failed())?;
        return Ok(file);
    }
    Ok(stdin()
        .as_fd()
        .try_clone_to_owned()
        .map_err(failed())?
        .into())
}

/// Reads lines and knows where they are from.
struct LineReader<'a> {
    format: LineFormat,
    encoding: Encoding,
    source: &'a str,
}

impl LineReader<'_> {
    /// Reads everything once and writes nothing.
    fn check(&self, mut input: &File, bytes: u64) -> Result<(), Failure> {
        let start = input
            .stream_position()
            .map_err(Failure::io("reading", self.source))?;
        let bar = byte_bar(Some(bytes), "checking");
        self.each(bar.wrap_read(input), |_| Ok(()))
            .map_err(|stop| self.explain(stop, "nothing was imported"))?;
        clear(&bar);
        input
            .seek(io::SeekFrom::Start(start))
            .map_err(Failure::io("reading", self.source))?;
        Ok(())
    }

    /// Reads everything and writes it in batches.
    fn import(&self, opened: &OpenedStore, input: impl Read) -> Result<ImportReport, Failure> {
        let mut writer = BatchWriter {
            opened,
            batch: Batch::new(),
            batch_bytes: 0,
            seen: 0,
            written: 0,
            pairs: 0,
        };
        let done = self
            .each(input, |line| writer.line(line))
            .and_then(|lines| {
                writer.flush()?;
                Ok(lines)
            });
        match done {
            Ok(lines) => Ok(ImportReport {
                lines,
                pairs: writer.pairs,
            }),
            Err(stop) => {
                // What could be read before the bad line is written.
                let flushed = if stop.store { Ok(()) } else { writer.flush() };
                let state = match writer.written {
                    0 => "nothing was imported".to_owned(),
                    1 => "line 1 was imported".to_owned(),
                    n => format!("lines 1 to {n} were imported"),
                };
                Err(self.explain(flushed.err().unwrap_or(stop), &state))
            }
        }
    }

    /// Gives every line to `take`, as a pair if it is not empty. Returns how many there were.
    fn each(
        &self,
        input: impl Read,
        mut take: impl FnMut(Option<super::lines::ReadPair>) -> Result<(), ImportStop>,
    ) -> Result<u64, ImportStop> {
        let mut input = BufReader::with_capacity(1 << 20, input);
        let mut line = Vec::new();
        let mut number = 0;
        loop {
            line.clear();
            let bytes = input
                .read_until(b'\n', &mut line)
                .map_err(|e| ImportStop::at(number + 1, e))?;
            if bytes == 0 {
                return Ok(number);
            }
            number += 1;
            let text = line.strip_suffix(b"\n").unwrap_or(&line);
            let pair = self
                .format
                .read(text, self.encoding)
                .map_err(|what| ImportStop::at(number, what))?;
            take(pair)?;
        }
    }

    fn explain(&self, stop: ImportStop, state: &str) -> Failure {
        Failure::Failed(match stop.line {
            Some(line) => format!("line {line} of {}: {}; {state}", self.source, stop.what),
            None => format!("{}; {state}", stop.what),
        })
    }
}

fn clear(bar: &ProgressBar) {
    bar.finish_and_clear();
}

/// The reason that reading or writing ended early.
struct ImportStop {
    line: Option<u64>,
    what: String,
    /// The store refused, so it is not asked again.
    store: bool,
}

impl ImportStop {
    fn at(line: u64, what: impl ToString) -> Self {
        Self {
            line: Some(line),
            what: what.to_string(),
            store: false,
        }
    }
}

impl From<forebay_store::StoreError> for ImportStop {
    fn from(error: forebay_store::StoreError) -> Self {
        Self {
            line: None,
            what: error.to_string(),
            store: true,
        }
    }
}

/// Writes pairs in batches and counts the lines that are in the store.
struct BatchWriter<'a> {
    opened: &'a OpenedStore,
    batch: Batch,
    batch_bytes: usize,
    seen: u64,
    written: u64,
    pairs: u64,
}

impl BatchWriter<'_> {
    fn line(&mut self, pair: Option<super::lines::ReadPair>) -> Result<(), ImportStop> {
        if let Some((key, value)) = pair {
            let bytes = key.len() + value.len() + BATCH_OVERHEAD;
            if self.batch_bytes + bytes > self.opened.batch_bytes_max {
                self.flush()?;
            }
            if bytes > self.opened.batch_bytes_max {
                self.opened.store.put(&key, &value)?;
                self.written = self.seen + 1;
            } else {
                self.batch.put(&key, &value)?;
                self.batch_bytes += bytes;
            }
            self.pairs += 1;
        }
        self.seen += 1;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), ImportStop> {
        if !self.batch.is_empty() {
            self.opened.store.write(&self.batch)?;
            self.batch = Batch::new();
            self.batch_bytes = 0;
        }
        self.written = self.seen;
        Ok(())
    }
}

/// More than an operation takes in a batch beside its key and value.
const BATCH_OVERHEAD: usize = 32;
