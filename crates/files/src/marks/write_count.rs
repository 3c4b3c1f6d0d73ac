//! The number of writes that a recovery would report, counted as its reading of a lane counts them
//! (`replay/lane_contents.rs`): of each file those since it got its last number, with truncations
//! that were not refused.

use crate::record::{self, FileChange};
use std::collections::HashMap;

/// The writes of a lane's files.
#[derive(Default)]
pub(super) struct WriteCount(HashMap<u32, FileCount>);

#[derive(Default)]
struct FileCount {
    identity: Vec<u8>,
    writes: u64,
    /// The truncations behind the last write: what is refused is the last of these.
    cuts: Vec<u64>,
}

impl WriteCount {
    /// Adds a record, by its kind and payload.
    pub(super) fn add(&mut self, kind: u16, payload: &[u8]) {
        let Ok((head, change)) = record::decode(kind, payload) else {
            return;
        };
        if let FileChange::File { identity, .. } = change {
            let known = self.0.get(&head.file);
            if known.is_none_or(|known| known.identity != identity) {
                self.0.retain(|_, other| other.identity != identity);
                let identity = identity.to_owned();
                let begun = FileCount {
                    identity,
                    ..FileCount::default()
                };
                self.0.insert(head.file, begun);
            }
            return;
        }
        let Some(file) = self.0.get_mut(&head.file) else {
            return;
        };
        match change {
            FileChange::Write(_) => {
                file.writes += 1;
                file.cuts.clear();
            }
            FileChange::Truncate => {
                file.writes += 1;
                file.cuts.push(head.at);
            }
            FileChange::Refused if file.cuts.last() == Some(&head.at) => {
                file.writes -= 1;
                file.cuts.pop();
            }
            _ => {}
        }
    }

    /// All of them.
    pub(super) fn total(&self) -> u64 {
        self.0.values().map(|file| file.writes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{
        KIND_FILE, KIND_REFUSED, KIND_TOUCHED, KIND_TRUNCATE, KIND_WRITE, PayloadHead, encode_file,
    };
    use std::path::Path;

    #[test]
    fn what_names_files_and_what_was_refused_is_no_write() {
        let mut count = WriteCount::default();
        let head = |file, at| PayloadHead {
            file,
            at,
            time: 1,
            ..PayloadHead::default()
        };
        let named = |file, whose: &str| {
            encode_file(head(file, 0), [0; 16], whose.as_bytes(), Path::new("/a"))
        };
        let of = |kind, file, at| (kind, head(file, at).encode().to_vec());
        for (kind, payload) in [
            of(KIND_WRITE, 9, 0),
            (KIND_FILE, named(0, "a")),
            of(KIND_WRITE, 0, 0),
            (KIND_FILE, named(0, "a")),
            of(KIND_TOUCHED, 0, 5),
            of(KIND_TRUNCATE, 0, 5),
            of(KIND_TRUNCATE, 0, 7),
            of(KIND_REFUSED, 0, 6),
            of(KIND_REFUSED, 0, 7),
            (KIND_FILE, named(1, "b")),
            of(KIND_WRITE, 1, 0),
            of(KIND_WRITE, 1, 0),
            // It was let go of, and absorbed again.
            (KIND_FILE, named(2, "b")),
            of(KIND_WRITE, 2, 0),
            // Another file has its number.
            (KIND_FILE, named(1, "c")),
            of(KIND_WRITE, 1, 0),
        ] {
            count.add(kind, &payload);
        }
        assert_eq!(count.total(), 2 + 1 + 1);
    }
}
