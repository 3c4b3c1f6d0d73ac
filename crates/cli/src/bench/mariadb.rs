//! `forebay bench mariadb`.

use super::turns::{self, Around, Database, Options, Sample};
use crate::failure::Failure;
use clap::Args;
use forebay_measure::{
    processes::{find_program, output},
    server::{Running, command_line, copy, option, said_by},
};
use rustix::process::{Signal, geteuid};
use std::{
    ffi::OsString,
    fs,
    io::Read,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

/// Measure MariaDB with a binary log: plain, with libeatmydata, and under forebay run
#[derive(Args)]
#[command(
    long_about = "Runs sysbench's oltp_write_only against a MariaDB server that is started for the purpose and is reached by a Unix socket only. Each \
                  transaction syncs the redo log and the binary log (innodb_flush_log_at_trx_commit=1, sync_binlog=1): plain, under forebay run, and, \
                  where libeatmydata is installed, with syncs that do nothing. They take turns, round after round, each on a fresh copy of one data \
                  directory; figures are medians of the rounds. mariadbd and sysbench have to be installed (Debian: mariadb-server, sysbench).",
    after_long_help = "Examples:\n  \
        forebay bench mariadb --dir /var/lib\n  \
        forebay bench mariadb --dir /data --pool-disk /data --pool-disk /fast\n  \
        forebay bench mariadb --pool /mnt/pmem/forebay.pool --clients 1 --json"
)]
pub struct Mariadb {
    /// Connections, each with one transaction at a time
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    clients: u32,
    #[command(flatten)]
    options: Options,
}

impl Mariadb {
    pub fn run(self) -> Result<(), Failure> {
        let find = |name| find(name).map_err(Failure::Usage);
        let writes = Writes {
            server: find("mariadbd")?,
            install: find("mariadb-install-db")?,
            sysbench: find("sysbench")?,
            template: PathBuf::new(),
            clients: self.clients,
            tables: if self.options.quick { 1 } else { 4 },
            rows: if self.options.quick { 1_000 } else { 25_000 },
            seconds: if self.options.quick { 1 } else { 10 },
        };
        refuse_shared_memory(&self.options.dir())?;
        turns::run(writes, &self.options)?.print(self.options.json)
    }
}

/// A program of MariaDB or sysbench: on the path, or where Debian keeps those of administrators.
fn find(name: &str) -> Result<PathBuf, String> {
    let admins = Path::new("/usr/sbin").join(name);
    find_program(name)
        .or_else(|| admins.is_file().then_some(admins))
        .ok_or_else(|| format!("{name} is not installed: apt-get install mariadb-server sysbench"))
}

/// InnoDB would map its log there, and neither write nor sync it.
fn refuse_shared_memory(dir: &Path) -> Result<(), Failure> {
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    match dir.starts_with("/dev/shm") {
        true => Err(Failure::Usage(format!(
            "InnoDB takes {} for persistent memory and does not sync there: name a directory on a disk (--dir)",
            dir.display()
        ))),
        false => Ok(()),
    }
}

/// The database that sysbench works on.
const DATABASE: &str = "bench";
/// Every server's: a binary log, both logs synced for each transaction, and room in memory for all tables.
const OPTIONS: [&str; 5] = [
    "--skip-networking",
    "--log-bin=binlog",
    "--sync-binlog=1",
    "--innodb-flush-log-at-trx-commit=1",
    "--innodb-buffer-pool-size=256M",
];
/// The longest that a server which is not ready yet may leave a connection without a greeting before it is asked again.
const GREETING: Duration = Duration::from_millis(500);

/// sysbench's transactions that only write, for some seconds.
struct Writes {
    server: PathBuf,
    install: PathBuf,
    sysbench: PathBuf,
    /// The data directory that each round has a copy of.
    template: PathBuf,
    clients: u32,
    tables: u32,
    /// Rows of each table.
    rows: u32,
    seconds: u32,
}

impl Writes {
    /// Starts a server whose data directory is `data` in `dir`, and waits until it serves.
    fn start(
        &self,
        dir: &Path,
        wrapper: &[OsString],
        environment: &[(OsString, OsString)],
        more: Option<OsString>,
    ) -> Result<Running, Failure> {
        let mut command = command_line([], wrapper, &self.server);
        command
            .arg("--no-defaults")
            .args(as_root())
            .args(OPTIONS)
            .arg(option("--datadir=", &dir.join("data")))
            .arg(option("--socket=", &socket(dir)))
            .arg(option("--pid-file=", &dir.join("pid")))
            .args(more)
            .env("TMPDIR", temporary(dir)?)
            .envs(environment.iter().cloned());
        let socket = socket(dir);
        let serves = || greets(&socket);
        let output = dir.join("server.out");
        let is_wrapped = !wrapper.is_empty();
        Ok(Running::start(
            "mariadbd", command, output, is_wrapped, serves,
        )?)
    }

    /// What sysbench says with these arguments.
    fn sysbench(&self, dir: &Path, arguments: &[String]) -> Result<String, Failure> {
        let mut command = Command::new(&self.sysbench);
        command
            .args(["oltp_write_only", "--mysql-user=root"])
            .arg(format!("--mysql-db={DATABASE}"))
            .arg(option("--mysql-socket=", &socket(dir)))
            .arg(format!("--tables={}", self.tables))
            .arg(format!("--table-size={}", self.rows))
            .args(arguments);
        let said = said_by("sysbench", output(&mut command)?)?;
        // Of an error in one of its threads its exit status does not always tell.
        match said.contains("FATAL") {
            true => Err(Failure::Failed(format!("sysbench said: {}", said.trim()))),
            false => Ok(said),
        }
    }

    /// What it reports of `seconds` of transactions.
    fn transactions(&self, dir: &Path, seconds: u32) -> Result<Sample, Failure> {
        let clients = format!("--threads={}", self.clients);
        let time = format!("--time={seconds}");
        let said = self.sysbench(
            dir,
            &[clients, time, "--percentile=99".into(), "run".into()],
        )?;
        parse(&said).ok_or_else(|| {
            Failure::Failed(format!(
                "sysbench said what cannot be read: {}",
                said.trim()
            ))
        })
    }
}

/// As root the server asks to be told whom it runs as.
fn as_root() -> Option<&'static str> {
    geteuid().is_root().then_some("--user=root")
}

fn socket(dir: &Path) -> PathBuf {
    dir.join("socket")
}

/// A directory for temporary files of the server's own: one that starts deletes what others left in theirs.
fn temporary(dir: &Path) -> Result<PathBuf, Failure> {
    let path = dir.join("tmp");
    fs::create_dir_all(&path).map_err(Failure::io("making", path.display()))?;
    Ok(path)
}

/// Whether the server behind `socket` serves: then it begins with a packet that says protocol version 10.
fn greets(socket: &Path) -> bool {
    let Ok(mut stream) = UnixStream::connect(socket) else {
        return false;
    };
    let mut greeting = [0; 5];
    stream.set_read_timeout(Some(GREETING)).is_ok()
        && stream.read_exact(&mut greeting).is_ok()
        && greeting[4] == 10
}

impl Database for Writes {
    const NAME: &'static str = "mariadb";
    const COUNTED: &'static str = "transactions";
    const PLAIN: &'static str = "survives a power cut, if the disk keeps what it says it has";

    fn load(&self) -> String {
        format!(
            "sysbench oltp_write_only, {}, {} of {} rows, binary log, sync_binlog=1, innodb_flush_log_at_trx_commit=1",
            turns::number(self.clients as usize, "connection"),
            turns::number(self.tables as usize, "table"),
            self.rows
        )
    }

    fn prepare(&mut self, dir: &Path) -> Result<(), Failure> {
        let data = dir.join("data");
        let mut install = Command::new(&self.install);
        install
            .args(["--no-defaults", "--skip-test-db"])
            .arg("--auth-root-authentication-method=normal")
            .args(as_root())
            .arg(option("--datadir=", &data))
            .env("TMPDIR", temporary(dir)?);
        said_by("mariadb-install-db", output(&mut install)?)?;
        let first = dir.join("first.sql");
        fs::write(&first, format!("CREATE DATABASE {DATABASE};\n"))
            .map_err(Failure::io("writing", first.display()))?;
        let mut server = self.start(dir, &[], &[], Some(option("--init-file=", &first)))?;
        self.sysbench(dir, &["prepare".to_owned()])?;
        server.stop(Signal::TERM)?;
        self.template = data;
        Ok(())
    }

    fn measure(&self, around: &Around) -> Result<Sample, Failure> {
        let dir = around.dir();
        copy(&self.template, &dir.join("data"))?;
        let mut server = self.start(dir, &around.wrapper, &around.environment, None)?;
        // Pages and plans are in memory then.
        self.transactions(dir, 1)?;
        let sample = self.transactions(dir, self.seconds)?;
        server.stop(Signal::TERM)?;
        Ok(sample)
    }
}

/// `transactions: 5231 (1742.73 per sec.)`, and below `Latency (ms):` `avg: 0.57` and `99th percentile: 1.2`.
fn parse(said: &str) -> Option<Sample> {
    let after = |name: &str| {
        let line = said
            .lines()
            .find_map(|line| line.trim().strip_prefix(name))?;
        Some(line.trim())
    };
    let ms = |name: &str| after(name)?.parse::<f64>().ok();
    let (_, rate) = after("transactions:")?.split_once('(')?;
    let rate: f64 = rate.split_whitespace().next()?.parse().ok()?;
    Some(Sample {
        ops_per_s: Some(rate).filter(|rate| *rate > 0.0)?,
        mean_us: ms("avg:").map(|ms| ms * 1e3),
        p99_us: ms("99th percentile:").map(|ms| ms * 1e3),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_of_sysbench_is_read_and_one_without_transactions_is_none() {
        let said = "SQL statistics:\n    transactions:                        5231   (1742.73 per sec.)\n    \
            queries:                             31386  (10456.38 per sec.)\n\n\
            Latency (ms):\n         min:                                    0.31\n         \
            avg:                                    0.57\n         max:                                    9.01\n         \
            99th percentile:                        1.25\n         sum:                                 2999.01\n";
        let sample = parse(said).unwrap();
        assert_eq!(sample.ops_per_s, 1742.73);
        assert_eq!((sample.mean_us, sample.p99_us), (Some(570.0), Some(1250.0)));
        assert_eq!(parse(&said.replace("(1742.73", "(0.00")), None);
        assert_eq!(parse("FATAL: `thread_run' function failed\n"), None);
    }

    #[test]
    fn a_directory_in_shared_memory_is_refused_with_the_remedy() {
        let refused = refuse_shared_memory(Path::new("/dev/shm"));
        let Err(Failure::Usage(said)) = refused else {
            panic!("{refused:?}");
        };
        assert!(said.contains("--dir"), "{said}");
        refuse_shared_memory(Path::new("/")).unwrap();
    }
}
