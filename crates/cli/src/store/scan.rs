//! `forebay store scan`.

use super::{
    lines::{KeyValue, LineFormat},
    opening::{InUse, ReadArguments, ReadStore, key},
};
use crate::{encoding::Encoding, failure::Failure, output::Output};
use clap::Args;
use forebay_store::ScanRange;
use std::ops::Bound;

/// List keys and values in key order
#[derive(Args)]
#[command(
    long_about = "Lists keys and values in key order as tab-separated lines. Tab, newline, carriage return and \
                  backslash are written \\t, \\n, \\r, \\\\, and bytes that are not UTF-8 as \\xHH; or choose --hex, \
                  --base64 or --json.",
    after_long_help = "Examples:\n  \
        forebay store scan --dir s\n  \
        forebay store scan --dir s --prefix user: --keys-only\n  \
        forebay store scan --dir s --from a --to b --reverse --limit 10 --json"
)]
pub struct ScanCommand {
    #[command(flatten)]
    opening: ReadArguments,
    #[command(flatten)]
    encoding: Encoding,
    /// Only keys that begin with this
    #[arg(long, conflicts_with_all = ["from", "to"])]
    prefix: Option<String>,
    /// Only keys from this one on
    #[arg(long, value_name = "KEY")]
    from: Option<String>,
    /// Only keys before this one
    #[arg(long, value_name = "KEY")]
    to: Option<String>,
    /// From the last key to the first
    #[arg(long)]
    reverse: bool,
    /// At most so many
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Keys without values
    #[arg(long)]
    keys_only: bool,
    /// JSON Lines: {"key":…,"value":…}, with "key_base64" and "value_base64" for bytes that are not
    /// UTF-8
    #[arg(long)]
    json: bool,
}

impl ScanCommand {
    pub fn run(self) -> Result<(), Failure> {
        let range = self.range()?;
        let opened = self.opening.open(InUse::Refuse)?;
        let listed = self.list(&opened, range);
        opened.close()?;
        listed
    }

    fn range(&self) -> Result<ScanRange, Failure> {
        let bound = |text: &Option<String>| {
            text.as_ref()
                .map(|text| key(self.encoding, text))
                .transpose()
        };
        let mut range = match bound(&self.prefix)? {
            Some(prefix) => ScanRange::prefix(&prefix),
            None => ScanRange::new((
                bound(&self.from)?.map_or(Bound::Unbounded, Bound::Included),
                bound(&self.to)?.map_or(Bound::Unbounded, Bound::Excluded),
            )),
        };
        if self.reverse {
            range = range.reversed();
        }
        if self.keys_only {
            range = range.keys_only();
        }
        Ok(range)
    }

    fn list(&self, store: &ReadStore, range: ScanRange) -> Result<(), Failure> {
        let format = if self.json {
            LineFormat::Jsonl
        } else {
            LineFormat::Tsv
        };
        let limit = self
            .limit
            .map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX));
        let mut output = Output::new();
        let mut line = Vec::new();
        for pair in store.scan(range)?.take(limit) {
            let (key, value) = pair?;
            let value = (!self.keys_only).then_some(&*value);
            line.clear();
            format.write(&KeyValue::new(&key, value), self.encoding, &mut line);
            output.bytes(&line)?;
        }
        output.finish()
    }
}
