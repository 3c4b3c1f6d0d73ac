//! The names of the two files that a run has in memory, side by side: its table of absorbed files
//! (`absorbed`), and the counts that order its syncs (`order`).

use std::path::{Path, PathBuf};

/// Leads the names of tables.
pub(crate) const TABLE_PREFIX: &str = "forebay-absorbed-";
/// Leads the names of the other files, in the place of the table's.
const ORDER_PREFIX: &str = "forebay-order-";

/// The path of the counts of the run with this table: beside it.
pub(crate) fn order_path(table: &Path) -> PathBuf {
    let name = table.file_name().unwrap_or_default().to_string_lossy();
    let run = name.strip_prefix(TABLE_PREFIX).unwrap_or(&name);
    table.with_file_name(format!("{ORDER_PREFIX}{run}"))
}
