//! `forebay bench postgres`.

use super::turns::{self, Around, Database, Options, Sample};
use crate::failure::Failure;
use clap::Args;
use forebay_measure::{
    processes::{find_of_postgres, output},
    server::{Running, command_line, copy, said_by},
    user::User,
};
use rustix::process::Signal;
use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Measure PostgreSQL: plain, and under forebay run
#[derive(Args)]
#[command(
    long_about = "Runs pgbench's simple update (pgbench -N) against a PostgreSQL server that is started for the purpose and is reached by a \
                  Unix socket only, with a write-ahead log that is synced for each transaction: plain, under forebay run, and, where \
                  libeatmydata is installed, with syncs that do nothing. They take turns, round after round, each on a fresh copy of one data \
                  directory; figures are medians of the rounds. postgres, initdb and pgbench have to be installed (Debian: postgresql).\n\n\
                  PostgreSQL does not run as root: then server and forebay run as the user postgres, or as nobody.",
    after_long_help = "Examples:\n  \
        forebay bench postgres --dir /var/lib\n  \
        forebay bench postgres --pool-disk /fast --clients 16 --json"
)]
pub struct Postgres {
    /// Connections, each with one transaction at a time
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    clients: u32,
    #[command(flatten)]
    options: Options,
}

impl Postgres {
    pub fn run(self) -> Result<(), Failure> {
        let find = |name| find_of_postgres(name).map_err(Failure::Usage);
        let updates = Updates {
            server: find("postgres")?,
            initdb: find("initdb")?,
            pgbench: find("pgbench")?,
            user: User::unprivileged()?,
            template: PathBuf::new(),
            clients: self.clients,
            scale: if self.options.quick { 1 } else { 4 },
            seconds: if self.options.quick { 1 } else { 10 },
        };
        if let Some(user) = &updates.user {
            user.check_reaches(&updates.server)?;
        }
        turns::run(updates, &self.options)?.print(self.options.json)
    }
}

/// The superuser, and the database that its tables are in.
const SUPERUSER: &str = "postgres";

/// pgbench's simple updates, for some seconds.
struct Updates {
    server: PathBuf,
    initdb: PathBuf,
    pgbench: PathBuf,
    user: Option<User>,
    /// The data directory that each round has a copy of.
    template: PathBuf,
    clients: u32,
    scale: u32,
    seconds: u32,
}

impl Updates {
    /// A command line of the user that the server runs as, in `dir`.
    fn command(&self, wrapper: &[OsString], program: &Path, dir: &Path) -> Command {
        let user = self.user.iter().flat_map(User::words);
        let mut command = command_line(user, wrapper, program);
        command
            .current_dir(dir)
            .env("PGHOST", dir)
            .env("PGUSER", SUPERUSER)
            .env("PGDATABASE", SUPERUSER);
        command
    }

    /// Starts a server whose data directory is `data` in `dir`.
    fn start(
        &self,
        dir: &Path,
        wrapper: &[OsString],
        environment: &[(OsString, OsString)],
    ) -> Result<Running, Failure> {
        let data = dir.join("data");
        let mut sockets = OsString::from("unix_socket_directories=");
        sockets.push(dir);
        let mut command = self.command(wrapper, &self.server, dir);
        command
            .arg("-D")
            .arg(&data)
            .arg("-c")
            .arg(sockets)
            .args(["-c", "listen_addresses=", "-c", "jit=off"])
            .envs(environment.iter().cloned());
        // The eighth line of its lock file says whether it serves, which is what pg_ctl looks at.
        let lock = data.join("postmaster.pid");
        let serves = || {
            let said = fs::read_to_string(&lock).unwrap_or_default();
            said.lines()
                .nth(7)
                .is_some_and(|state| state.trim() == "ready")
        };
        let output = dir.join("server.out");
        Ok(Running::start(
            "postgres",
            command,
            output,
            !wrapper.is_empty(),
            serves,
        )?)
    }

    /// What pgbench says with these arguments.
    fn pgbench(&self, dir: &Path, arguments: &[String]) -> Result<String, Failure> {
        let mut command = self.command(&[], &self.pgbench, dir);
        command.args(arguments);
        Ok(said_by("pgbench", output(&mut command)?)?)
    }
}

impl Database for Updates {
    const NAME: &'static str = "postgres";
    const COUNTED: &'static str = "transactions";
    const PLAIN: &'static str = "survives a power cut, if the disk keeps what it says it has";

    fn load(&self) -> String {
        format!(
            "pgbench -N, {}, tables of scale {}",
            turns::number(self.clients as usize, "connection"),
            self.scale
        )
    }

    fn user(&self) -> Option<&User> {
        self.user.as_ref()
    }

    fn prepare(&mut self, dir: &Path) -> Result<(), Failure> {
        let data = dir.join("data");
        let mut command = self.command(&[], &self.initdb, dir);
        command
            .args(["--auth=trust", "--no-sync", "--locale=C", "--encoding=UTF8"])
            .args(["--username", SUPERUSER, "--pgdata"])
            .arg(&data);
        said_by("initdb", output(&mut command)?)?;
        let mut server = self.start(dir, &[], &[])?;
        let arguments = ["--initialize", "--quiet", "--scale"].map(str::to_owned);
        let scale = self.scale.to_string();
        self.pgbench(dir, &[arguments.as_slice(), &[scale]].concat())?;
        server.stop(Signal::INT)?;
        self.template = data;
        Ok(())
    }

    fn measure(&self, around: &Around) -> Result<Sample, Failure> {
        copy(&self.template, &around.dir().join("data"))?;
        let mut server = self.start(around.dir(), &around.wrapper, &around.environment)?;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let jobs = processors.min(self.clients as usize);
        let said = self.pgbench(
            around.dir(),
            &[
                "--skip-some-updates".to_owned(),
                "--protocol=prepared".to_owned(),
                "--no-vacuum".to_owned(),
                format!("--client={}", self.clients),
                format!("--jobs={jobs}"),
                format!("--time={}", self.seconds),
            ],
        )?;
        server.stop(Signal::INT)?;
        parse(&said).ok_or_else(|| {
            Failure::Failed(format!("pgbench said what cannot be read: {}", said.trim()))
        })
    }
}

/// `latency average = 0.236 ms`, `tps = 4231.2 (without initial connection time)`; nothing if transactions failed.
fn parse(said: &str) -> Option<Sample> {
    let number = |name: &str| -> Option<f64> {
        let line = said.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    };
    let failed = number("number of failed transactions: ").unwrap_or(0.0);
    Some(Sample {
        ops_per_s: number("tps = ").filter(|rate| failed == 0.0 && *rate > 0.0)?,
        mean_us: number("latency average = ").map(|ms| ms * 1e3),
        p99_us: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_of_pgbench_is_read_and_one_of_failures_is_none() {
        let said = "number of failed transactions: 0 (0.000%)\n\
            latency average = 0.236 ms\n\
            tps = 4231.250321 (without initial connection time)\n";
        let sample = parse(said).unwrap();
        assert_eq!(
            (sample.ops_per_s, sample.mean_us),
            (4231.250321, Some(236.0))
        );
        assert_eq!(parse(&said.replace("ns: 0 ", "ns: 2 ")), None);
    }
}
