//! The stores that ours is compared with, as programs: `db_bench` of Debian's rocksdb-tools, small
//! C programs of ours that are linked to Debian's libraries (`programs/`) and built when they are
//! needed, and `forebay-peers` (lab/peers/), which is built beside this program or is missing.
//!
//! What they are asked for is their callers' business ([`crate::wisckey`], [`crate::rocksdb`],
//! [`crate::fam`]).

use crate::{
    BenchError,
    histogram::Percentiles,
    processes::{find_program, output, said_by},
    rocksdb::db_bench,
    units::named,
};
use serde::Deserialize;
use std::{
    env, fmt, fs,
    path::{Path, PathBuf},
    process::Command,
    str::FromStr,
};

/// A peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// RocksDB.
    RocksDb,
    /// RocksDB with `--enable_blob_files`: values apart from keys, as in WiscKey.
    RocksDbBlob,
    /// LevelDB.
    LevelDb,
    /// LMDB.
    Lmdb,
    /// fjall, with its values apart from its keys.
    Fjall,
    /// redb.
    Redb,
}

/// A line that the programs of ours print.
#[derive(Deserialize)]
pub(crate) struct Line {
    /// Which of several workloads it is of.
    #[serde(default)]
    pub workload: String,
    pub ops: u64,
    pub seconds: f64,
    #[serde(flatten)]
    pub latency: Percentiles,
}

/// The program that the Rust stores are in.
const PEERS: &str = "forebay-peers";

impl Peer {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::RocksDb,
        Self::RocksDbBlob,
        Self::LevelDb,
        Self::Lmdb,
        Self::Fjall,
        Self::Redb,
    ];

    /// The name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::RocksDb => "rocksdb",
            Self::RocksDbBlob => "rocksdb_blob",
            Self::LevelDb => "leveldb",
            Self::Lmdb => "lmdb",
            Self::Fjall => "fjall",
            Self::Redb => "redb",
        }
    }

    /// Of a store that is linked to a C program of ours: that, the header that it includes, and
    /// Debian's package of both.
    fn in_c(self) -> Option<[&'static str; 3]> {
        let leveldb = include_str!("../programs/leveldb.c");
        let lmdb = include_str!("../programs/lmdb.c");
        match self {
            Self::LevelDb => Some([leveldb, "leveldb/c.h", "libleveldb-dev"]),
            Self::Lmdb => Some([lmdb, "lmdb.h", "liblmdb-dev"]),
            _ => None,
        }
    }

    /// Checks that it is installed, or can be built.
    ///
    /// # Errors
    /// In words, that it is not, and the remedy.
    pub fn check(self) -> Result<(), String> {
        let Some([_, header, package]) = self.in_c() else {
            return self.installed().map(drop);
        };
        check_header(header, package)
    }

    fn installed(self) -> Result<PathBuf, String> {
        match self {
            Self::RocksDb | Self::RocksDbBlob => db_bench::program(),
            _ => find_peers(),
        }
    }

    /// Of a store in C that [`crate::ycsb`] drives: what drives it, the header that this includes,
    /// the library, and Debian's package of both.
    fn driven_in_c(self) -> Option<[&'static str; 4]> {
        let rocksdb = include_str!("../programs/ycsb_rocksdb.c");
        let lmdb = include_str!("../programs/ycsb_lmdb.c");
        match self {
            Self::RocksDb | Self::RocksDbBlob => {
                Some([rocksdb, "rocksdb/c.h", "rocksdb", "librocksdb-dev"])
            }
            Self::Lmdb => Some([lmdb, "lmdb.h", "lmdb", "liblmdb-dev"]),
            _ => None,
        }
    }

    /// Checks that [`crate::ycsb`] can drive it.
    ///
    /// # Errors
    /// In words, why not, and the remedy.
    pub(crate) fn check_driven(self) -> Result<(), String> {
        if self == Self::LevelDb {
            return Err("not measured: it has no driver for these workloads".to_owned());
        }
        find_peers()?;
        match self.driven_in_c() {
            Some([_, header, _, package]) => check_header(header, package),
            None => Ok(()),
        }
    }

    /// The program that drives it, and the library that this needs of a store in C, which is built
    /// in `dir`.
    ///
    /// # Errors
    /// [`BenchError::Config`] that it is not installed; I/O errors, and what the compiler says.
    pub(crate) fn driver(self, dir: &Path) -> Result<(PathBuf, Option<PathBuf>), BenchError> {
        let missing = |missing| BenchError::Config(format!("{self} is {missing}"));
        let program = find_peers().map_err(missing)?;
        let Some([code, _, library, _]) = self.driven_in_c() else {
            return Ok((program, None));
        };
        let source = dir.join(format!("ycsb_{self}.c"));
        let built = source.with_extension("so");
        let header = ("ycsb.h", include_str!("../programs/ycsb.h"));
        compile(
            &source,
            code,
            header,
            &["-shared", "-fPIC"],
            (&built, library),
        )?;
        Ok((program, Some(built)))
    }

    /// Its program, which is built in `dir` if it is one of the C programs.
    ///
    /// # Errors
    /// [`BenchError::Config`] that it is not installed; I/O errors, and what the compiler says.
    pub(crate) fn program(self, dir: &Path) -> Result<PathBuf, BenchError> {
        let Some([code, ..]) = self.in_c() else {
            let missing = |missing| BenchError::Config(format!("{self} is {missing}"));
            return self.installed().map_err(missing);
        };
        let (source, program) = (dir.join(format!("{self}.c")), dir.join(self.name()));
        let header = ("puts.h", include_str!("../programs/puts.h"));
        compile(&source, code, header, &[], (&program, self.name()))?;
        Ok(program)
    }

    /// What its program prints: so many lines, and what else it prints is passed over.
    ///
    /// # Errors
    /// I/O errors; [`BenchError::Child`] if it fails, or prints more or fewer of them.
    pub(crate) fn lines(
        self,
        command: &mut Command,
        count: usize,
    ) -> Result<Vec<Line>, BenchError> {
        let printed = said_by(self.name(), output(command)?)?;
        let lines: Vec<Line> = read(&printed).collect();
        if lines.len() == count {
            return Ok(lines);
        }
        let wanted = format!("instead of lines of {count} workloads");
        Err(BenchError::Child(format!(
            "({self}) printed {printed:?} {wanted}"
        )))
    }
}

/// Checks that there are a compiler and a header of Debian's package.
fn check_header(header: &str, package: &str) -> Result<(), String> {
    let header = Path::new("/usr/include").join(header);
    let is_there = find_program("cc").is_some() && header.exists();
    let missing = || format!("not installed: apt-get install {package} build-essential");
    is_there.then_some(()).ok_or_else(missing)
}

/// Writes `code` to `source` and a header beside it, and has cc make `program` of them and of a
/// library.
fn compile(
    source: &Path,
    code: &str,
    (header, declarations): (&str, &str),
    options: &[&str],
    (program, library): (&Path, &str),
) -> Result<(), BenchError> {
    let header = source.with_file_name(header);
    for (file, code) in [(source, code), (&header, declarations)] {
        fs::write(file, code).map_err(BenchError::io("writing", file))?;
    }
    let mut cc = Command::new("cc");
    cc.arg("-O2")
        .args(options)
        .arg("-o")
        .args([program, source])
        .arg(format!("-l{library}"));
    said_by("cc", output(&mut cc)?).map(drop)
}

/// The lines of ours in what was printed.
pub(crate) fn read(printed: &str) -> impl Iterator<Item = Line> {
    let lines = printed.lines();
    lines.filter_map(|line| serde_json::from_str(line).ok())
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Peer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        named("peer", &Self::ALL, text)
    }
}

/// `forebay-peers`, beside this program or in one of the directories above it.
fn find_peers() -> Result<PathBuf, String> {
    let own = env::current_exe().unwrap_or_default();
    let mut places = own.ancestors().skip(1).take(2).map(|dir| dir.join(PEERS));
    places.find(|program| program.is_file()).ok_or_else(|| {
        format!("not installed: build it beside this program, cargo build --release -p {PEERS}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_program_is_read_and_anything_else_is_not() {
        let printed = "opened\n\n{}\n{\"workload\":\"random_get\",\"ops\":10000,\"seconds\":0.020000000}\n\
                       {\"name\":\"lmdb\",\"mode\":\"sync\",\"ops\":7,\"seconds\":0.5,\"p50_us\":1.5,\"max_us\":3.0}\n";
        let lines: Vec<Line> = read(printed).collect();
        let told = |line: &Line| (line.workload.clone(), line.ops, line.latency.p50_us);
        let told: Vec<_> = lines.iter().map(told).collect();
        let put = (String::new(), 7, Some(1.5));
        assert_eq!(told, [("random_get".to_owned(), 10_000, None), put]);
    }
}
