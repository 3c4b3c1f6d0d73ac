//! Checking everything there is to check.

use super::{ScanRange, Store};
use crate::{
    error::StoreError,
    log::{LogReader, Stop},
    stats::VerifyReport,
};

impl Store {
    /// Reads everything and checks every checksum: the index's tables, all records of the value-log files, and the value of
    /// every key. Finds as many problems as it can.
    ///
    /// # Errors
    /// Only what keeps it from looking at all; damage is in the report.
    pub fn verify(&self) -> Result<VerifyReport, StoreError> {
        let shared = &*self.shared;
        let mut report = VerifyReport::default();
        if let Err(error) = shared.index.verify() {
            report.problems.push(error.to_string());
        }
        // The snapshot keeps the files from being unlinked while they are read.
        let snapshot = self.snapshot()?;
        let drained = shared.head.drained();
        for file in shared.log.files().iter() {
            // A complete file's last segments may be in the pool still.
            let end = file.end().map_or(drained, |end| end.min(drained));
            let mut reader = LogReader::new(&shared.log, shared.uuid, file.start, end);
            let problem = loop {
                match reader.next() {
                    Ok(Ok(_)) => report.log_records += 1,
                    Ok(Err(Stop::End)) => break None,
                    Ok(Err(Stop::NoFile(lsn))) => {
                        // One that was collected before the snapshot may have been unlinked since.
                        let there = shared.log.files().iter().any(|f| f.start == file.start);
                        break there.then(|| format!("no file for log address {lsn}"));
                    }
                    Ok(Err(Stop::Invalid(lsn, found))) => {
                        break Some(StoreError::lost(&file.path, lsn, found).to_string());
                    }
                    Err(error) => break Some(error.to_string()),
                }
            };
            report.problems.extend(problem);
        }
        for found in snapshot.scan(ScanRange::all().keys_only())? {
            let (key, _) = match found {
                Ok(found) => found,
                Err(error) => {
                    report.problems.push(error.to_string());
                    break;
                }
            };
            match shared.read_in(snapshot.view(), &key) {
                Ok(Some(value)) => {
                    report.keys += 1;
                    report.value_bytes += value.len() as u64;
                }
                Ok(None) => report
                    .problems
                    .push(format!("key {key:02x?} was listed, but is not found")),
                Err(error) => report.problems.push(error.to_string()),
            }
        }
        Ok(report)
    }
}
