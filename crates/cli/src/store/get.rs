//! `forebay store get`.

use super::{
    lines::KeyValue,
    opening::{InUse, ReadArguments, key},
};
use crate::{encoding::Encoding, failure::Failure, output::Output};
use clap::Args;

/// Print the value of a key as it is
#[derive(Args)]
#[command(
    long_about = "Prints the value of a key, byte for byte, with nothing added. Exit status 1 if the store has no \
                  such key.",
    after_long_help = "Examples:\n  \
        forebay store get --dir s greeting\n  \
        forebay store get --dir s --pool /mnt/pmem/p picture > cat.png"
)]
pub struct Get {
    #[command(flatten)]
    opening: ReadArguments,
    #[command(flatten)]
    encoding: Encoding,
    /// The key
    key: String,
    /// Print key and value as JSON, in Base64 where they are not UTF-8
    #[arg(long)]
    json: bool,
}

impl Get {
    pub fn run(self) -> Result<(), Failure> {
        let key = key(self.encoding, &self.key)?;
        let opened = self.opening.open(InUse::Refuse)?;
        let found = opened.get(&key)?;
        if let Some(value) = &found {
            let mut output = Output::new();
            if self.json {
                output.json(&KeyValue::new(&key, Some(value)))?;
            } else {
                output.bytes(value)?;
            }
            output.finish()?;
        }
        let absent = found.is_none();
        drop(found);
        opened.close()?;
        if absent {
            return Err(Failure::Failed(format!(
                "the store has no key {:?}",
                self.key
            )));
        }
        Ok(())
    }
}
