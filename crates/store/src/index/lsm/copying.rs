//! Parts of a copy of the index as of one view: its tables, and the manifest that names them.

use super::Index;
use crate::index::{manifest::IndexManifest, table, view::IndexView};
use rustix::fs::OFlags;
use std::{fs::File, io, path::Path, sync::atomic::Ordering};

/// A table of a view, whose file is there as long as the view is held.
pub(crate) struct NamedTable {
    /// Name of its file, in the index's directory.
    pub(crate) name: String,
    /// Bytes of the file.
    pub(crate) bytes: u64,
}

impl Index {
    /// The tables of `view`.
    pub(crate) fn named_tables(&self, view: &IndexView) -> Vec<NamedTable> {
        let facts = view.tables().map(|table| table.facts());
        facts
            .map(|facts| NamedTable {
                name: table::name_of(facts.id),
                bytes: facts.bytes,
            })
            .collect()
    }

    /// The bytes of the manifest of an index that is `view`, and where it stands.
    pub(crate) fn manifest_of(&self, view: &IndexView) -> (&'static str, Vec<u8>) {
        let next_id = self.maker.next_id.load(Ordering::Relaxed);
        let manifest = IndexManifest::of(view, next_id);
        (crate::index::manifest::NAME, manifest.encode().into_bytes())
    }

    /// Opens a table's file to read it.
    pub(crate) fn open_table(&self, name: &str) -> io::Result<File> {
        self.maker.dir.open_file(Path::new(name), OFlags::RDONLY)
    }
}
