//! Checking everything there is to check.

use super::{Scan, Store, StoreCore, sample::op_address};
use crate::{
    error::StoreError,
    keyspace::KeyspaceId,
    log::{LogReader, WalkStop},
    op::{KEY_LENGTH, LargeRef, ops},
    stats::VerifyReport,
};
use forebay_pool::Record;

impl Store {
    /// Reads everything and checks every checksum: the index's tables, all records of the value-log
    /// files, dictionaries, and the value of every key. Finds as many problems as it can.
    ///
    /// # Errors
    /// Only what keeps it from looking at all; damage is in the report.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// let report = store.verify()?;
    /// for problem in &report.problems {
    ///     eprintln!("{problem}");
    /// }
    /// println!("{} keys are whole", report.keys);
    /// # Ok(())
    /// # }
    /// ```
    pub fn verify(&self) -> Result<VerifyReport, StoreError> {
        let shared = &*self.shared;
        shared.check_process()?;
        let mut report = VerifyReport::default();
        if let Err(error) = shared.index.verify() {
            report.problems.push(error.to_string());
        }
        // The snapshot keeps the files from being unlinked while they are read.
        let snapshot = self.snapshot()?;
        let drained = shared.tail.drained();
        for file in shared.log.files().iter() {
            // A complete file's last segments may be in the pool still.
            let end = file.end().map_or(drained, |end| end.min(drained));
            let mut reader = LogReader::new(&shared.log, shared.uuid, file.start, end);
            let mut too_long = None;
            let problem = loop {
                match reader.next() {
                    Ok(Ok(record)) => {
                        report.log_records += 1;
                        too_long = too_long.or(shared.too_long_to_copy(record));
                    }
                    Ok(Err(WalkStop::End)) => break None,
                    Ok(Err(WalkStop::NoFile(lsn))) => {
                        break Some(format!("no file for log address {lsn}"));
                    }
                    Ok(Err(WalkStop::Invalid(lsn, found))) => {
                        break Some(StoreError::lost(&file.path, lsn, found).to_string());
                    }
                    Err(error) => break Some(error.to_string()),
                }
            };
            // One that was collected before the snapshot may have been unlinked since.
            if shared.log.files().iter().all(|f| f.start != file.start) {
                continue;
            }
            if let Some(why) = problem.as_ref().or(too_long.as_ref()) {
                let path = file.path.display();
                report.not_collectable.push(format!("{path}: {why}"));
            }
            report.problems.extend(problem);
        }
        // Told once, and not for each value that needs it.
        let without_dictionary = shared.damaged_dictionaries();
        report.problems.extend(without_dictionary.iter().cloned());
        let mut all = Scan::everything(snapshot.clone());
        loop {
            let key = match all.next_address() {
                Ok(Some((key, _))) => key,
                Ok(None) => break,
                Err(error) => {
                    report.problems.push(error.to_string());
                    break;
                }
            };
            if shared.keyspaces().is_dead(&key) {
                continue;
            }
            match shared.read_in(snapshot.view(), &key) {
                Ok(Some(value)) => {
                    report.keys += 1;
                    report.value_bytes += value.len() as u64;
                }
                Ok(None) => report
                    .problems
                    .push(format!("key {key:02x?} was listed, but is not found")),
                // What was dropped meanwhile is missed by nobody.
                Err(StoreError::KeyspaceDropped { .. }) => {}
                Err(error) => {
                    let said = error.to_string();
                    if !without_dictionary.contains(&said) {
                        report.problems.push(said);
                    }
                }
            }
        }
        Ok(report)
    }
}

impl StoreCore {
    /// What reads say that need a dictionary that cannot be had.
    fn damaged_dictionaries(&self) -> Vec<String> {
        let named = self.dictionaries.named();
        let damaged = named.iter().filter_map(|named| {
            // Not what was prepared before: what is on the disk.
            let error = self.dictionaries.read(named.number).err()?;
            let told = self.dictionary_error(KeyspaceId(named.keyspace), error);
            // Of a keyspace that was dropped meanwhile nothing is missed.
            let is_named = self.log.state().keyspaces.dictionaries.has(named.number);
            is_named.then(|| told.to_string())
        });
        damaged.collect()
    }

    /// Why an operation of the record cannot be copied by the collector, if so: its key alone is
    /// too long for a record of this log.
    fn too_long_to_copy(&self, record: Record<'_>) -> Option<String> {
        let bytes_max = self.tail.payload_max();
        ops(record).flatten().find_map(|op| {
            let bytes = KEY_LENGTH + op.key.len() + LargeRef::BYTES;
            let is_live = || {
                let found = self.view.load().find(self.hash(op.key), op.key);
                found.is_ok_and(|found| found == Some(op_address(record.header.lsn, &op)))
            };
            let is_dead = self.keyspaces().is_dead(op.key);
            (bytes > bytes_max && !is_dead && is_live()).then(|| {
                format!(
                    "a key of {} bytes, at log address {}, is too long to be written again: a record has at most {bytes_max} bytes with the present segments; open the store with larger ones",
                    op.key.len(),
                    record.header.lsn
                )
            })
        })
    }
}
