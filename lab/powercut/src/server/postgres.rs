//! A PostgreSQL server, whose table and index are looked through after a cut. Its pages have
//! checksums.

use crate::{
    Failure,
    sql::{Dialect, hex, text},
};
use forebay_bench::{postgres::client::Connection, sql::Client};

impl Dialect for Connection {
    fn literal(bytes: &[u8]) -> String {
        format!("'\\x{}'", hex(bytes))
    }

    fn put(key: &str, value: &str) -> String {
        format!(
            "INSERT INTO lab.kv VALUES ({key}, {value}) ON CONFLICT (k) DO UPDATE SET v = EXCLUDED.v"
        )
    }

    fn value(text: Vec<u8>) -> Result<Vec<u8>, Failure> {
        let text = String::from_utf8(text)?;
        let digits = text.strip_prefix("\\x").ok_or("a value that is no bytea")?;
        let pairs = (0..digits.len()).step_by(2);
        let byte = |at: usize| u8::from_str_radix(digits.get(at..at + 2).unwrap_or_default(), 16);
        Ok(pairs.map(byte).collect::<Result<_, _>>()?)
    }

    fn check(&mut self, _last: u64) -> Result<(), Failure> {
        self.query("SELECT bt_index_check('lab.kv_pkey', heapallindexed => true)")?;
        for table in ["lab.kv", "lab.transactions"] {
            let damage = format!("SELECT blkno, msg FROM verify_heapam('{table}')");
            let rows = self.query(&damage)?;
            if !rows.is_empty() {
                let (block, what) = (text(&rows, 0, 0), text(&rows, 0, 1));
                return Err(format!("{table}, block {block}: {what}").into());
            }
        }
        Ok(())
    }
}
