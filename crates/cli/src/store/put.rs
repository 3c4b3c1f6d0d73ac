//! `forebay store put`.

use super::opening::{AbsentStore, StoreArguments, key};
use crate::{encoding::Encoding, failure::Failure};
use clap::Args;
use std::{
    fs,
    io::{Read, stdin},
    path::PathBuf,
};

/// Write a key and its value
#[derive(Args)]
#[command(
    long_about = "Writes a key and its value; a value that the key had before is replaced. When the command has \
                  ended, the write is as durable as --durability promises. The store is made if there is none.",
    after_long_help = "Examples:\n  \
        forebay store put --dir s greeting hello\n  \
        forebay store put --dir s --pool /mnt/pmem/p picture --file cat.png\n  \
        seq 100 | forebay store put --dir s numbers -\n  \
        forebay store put --dir s --hex 00ff cafe"
)]
pub struct Put {
    #[command(flatten)]
    opening: StoreArguments,
    #[command(flatten)]
    encoding: Encoding,
    /// The key
    key: String,
    /// The value; - reads it from standard input as it is
    #[arg(allow_hyphen_values = true, required_unless_present = "file")]
    value: Option<String>,
    /// Take the value from this file as it is
    #[arg(long, value_name = "FILE", conflicts_with = "value")]
    file: Option<PathBuf>,
}

impl Put {
    pub fn run(self) -> Result<(), Failure> {
        let key = key(self.encoding, &self.key)?;
        let value = self.value()?;
        let opened = self.opening.open(AbsentStore::Create)?;
        opened.store.put(&key, &value)?;
        opened.store.close()?;
        Ok(())
    }

    fn value(&self) -> Result<Vec<u8>, Failure> {
        match (&self.file, self.value.as_deref()) {
            (Some(path), _) => fs::read(path).map_err(Failure::io("reading", path.display())),
            (None, Some("-")) => {
                let mut value = Vec::new();
                stdin()
                    .read_to_end(&mut value)
                    .map_err(Failure::io("reading", "standard input"))?;
                Ok(value)
            }
            (None, Some(text)) => self
                .encoding
                .decode(text)
                .map_err(|what| Failure::Usage(format!("the value {what}"))),
            (None, None) => Err(Failure::Usage(
                "no value: give one, or --file, or - for standard input".to_owned(),
            )),
        }
    }
}
