//! `forebay store delete`.

use super::opening::{AbsentStore, StoreArguments, key};
use crate::{encoding::Encoding, failure::Failure};
use clap::Args;

/// Delete keys
#[derive(Args)]
#[command(
    long_about = "Deletes keys. A key that is not there is no error: afterwards it is not there.",
    after_long_help = "Example:\n  forebay store delete --dir s greeting farewell"
)]
pub struct Delete {
    #[command(flatten)]
    opening: StoreArguments,
    #[command(flatten)]
    encoding: Encoding,
    /// The keys
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<String>,
}

impl Delete {
    pub fn run(self) -> Result<(), Failure> {
        let keys = self
            .keys
            .iter()
            .map(|text| key(self.encoding, text))
            .collect::<Result<Vec<_>, _>>()?;
        let opened = self.opening.open(AbsentStore::Refuse)?;
        for key in keys {
            opened.store.delete(&key)?;
        }
        opened.store.close()?;
        Ok(())
    }
}
