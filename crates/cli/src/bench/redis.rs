//! `forebay bench redis`, and the server that it and the demonstration start.

use super::turns::{self, Around, Database, Options, Sample};
use crate::{failure::Failure, size};
use clap::Args;
use forebay_measure::{
    MeasureError, csv,
    processes::{find_program, output},
    server::{Running, command_line, free_port, said_by},
};
use rustix::process::Signal;
use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

/// Measure Redis with appendfsync always: plain, and under forebay run
#[derive(Args)]
#[command(
    long_about = "Runs redis-benchmark's SETs against a redis-server on loopback that is started for the purpose, with an append-only file that \
                  is synced at each write: plain, under forebay run, and, where libeatmydata is installed, with syncs that do nothing. They \
                  take turns, round after round, each on fresh files; figures are medians of the rounds. Both programs have to be installed \
                  (Debian: redis-server).",
    after_long_help = "Examples:\n  \
        forebay bench redis --dir /var/lib\n  \
        forebay bench redis --pool /mnt/pmem/forebay.pool --clients 50 --json\n  \
        forebay bench redis --pool-disk /fast"
)]
pub struct Redis {
    /// Connections, each with one SET in flight
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    clients: u32,
    /// Bytes of a value
    #[arg(long, value_name = "SIZE", value_parser = size::parse_positive, default_value = "512")]
    value_size: u64,
    #[command(flatten)]
    options: Options,
}

impl Redis {
    pub fn run(self) -> Result<(), Failure> {
        let sets = Sets {
            clients: self.clients,
            value_bytes: self.value_size,
            seconds: if self.options.quick { 0.2 } else { 5.0 },
        };
        programs().map_err(Failure::Usage)?;
        turns::run(sets, &self.options)?.print(self.options.json)
    }
}

/// redis-server and redis-benchmark.
///
/// # Errors
/// In words, which is not installed, and the remedy.
pub fn programs() -> Result<(PathBuf, PathBuf), String> {
    let find = |name: &str| {
        find_program(name).ok_or_else(|| {
            format!("{name} is not installed: apt-get install redis-server redis-tools")
        })
    };
    Ok((find("redis-server")?, find("redis-benchmark")?))
}

/// SETs of random keys, for some seconds.
pub struct Sets {
    pub clients: u32,
    pub value_bytes: u64,
    pub seconds: f64,
}

/// Keys that are chosen from.
const KEYS: u64 = 100_000;
/// SETs that show how many make a round; a round has at most so many times as many seconds.
const FIRST: u64 = 500;
const SETS_MAX: f64 = 5e6;

impl Database for Sets {
    const NAME: &'static str = "redis";
    const COUNTED: &'static str = "SETs";
    const PLAIN: &'static str = "survives a power cut, if the disk keeps what it says it has";

    fn load(&self) -> String {
        format!(
            "redis-benchmark, {}, values of {} bytes, appendfsync always",
            turns::number(self.clients as usize, "connection"),
            self.value_bytes
        )
    }

    fn measure(&self, around: &Around) -> Result<Sample, Failure> {
        let server = Server::start(around.dir(), &around.wrapper, &around.environment)?;
        let first = self.sets(&server, FIRST)?;
        let sets = (first.ops_per_s * self.seconds).clamp(FIRST as f64, SETS_MAX);
        let sample = self.sets(&server, sets as u64)?;
        server.stop()?;
        Ok(sample)
    }
}

impl Sets {
    fn sets(&self, server: &Server, sets: u64) -> Result<Sample, Failure> {
        let (_, load) = programs().map_err(Failure::Failed)?;
        let mut command = Command::new(load);
        command
            .args(["-h", "127.0.0.1", "-p", &server.port.to_string()])
            .args(["-t", "set", "--csv", "-r", &KEYS.to_string()])
            .args(["-n", &sets.to_string(), "-c", &self.clients.to_string()])
            .args(["-d", &self.value_bytes.to_string()]);
        let said = said_by("redis-benchmark", output(&mut command)?)?;
        parse(&said).ok_or_else(|| {
            Failure::Failed(format!(
                "redis-benchmark said what cannot be read: {}; at least version 6.2 is needed",
                said.trim()
            ))
        })
    }
}

/// What `redis-benchmark --csv` printed: `"test","rps","avg_latency_ms",…`.
fn parse(said: &str) -> Option<Sample> {
    let figures = csv::figures(said, "rps")?;
    let figure = |name: &str| figures.get(name).copied();
    Some(Sample {
        ops_per_s: figure("rps").filter(|rate| *rate > 0.0)?,
        mean_us: Some(figure("avg_latency_ms")? * 1e3),
        p99_us: Some(figure("p99_latency_ms")? * 1e3),
    })
}

/// A redis-server of our own on loopback, with appendfsync always.
pub struct Server {
    port: u16,
    running: Running,
}

impl Server {
    /// Starts it with its data in `dir`, and waits until it serves.
    ///
    /// # Errors
    /// I/O errors, and what it said if it ends or does not serve.
    pub fn start(
        dir: &Path,
        wrapper: &[std::ffi::OsString],
        environment: &[(std::ffi::OsString, std::ffi::OsString)],
    ) -> Result<Self, Failure> {
        let (program, _) = programs().map_err(Failure::Failed)?;
        let port = free_port()?;
        let mut command = command_line([], wrapper, &program);
        command
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--daemonize", "no", "--save", ""])
            .args(["--appendonly", "yes", "--appendfsync", "always", "--dir"])
            .arg(dir)
            .envs(environment.iter().cloned())
            .current_dir(dir);
        let output = dir.join("server.out");
        // It refuses everything while it is loading.
        let serves = || Connection::open(port).is_ok_and(|mut it| it.ask("PING").is_ok());
        let is_wrapped = !wrapper.is_empty();
        let running = Running::start("redis-server", command, output, is_wrapped, serves)?;
        Ok(Self { port, running })
    }

    /// A new connection.
    ///
    /// # Errors
    /// I/O errors.
    pub fn connect(&self) -> io::Result<Connection> {
        Connection::open(self.port)
    }

    /// Has it end in the orderly way.
    ///
    /// # Errors
    /// What it said if it does not.
    pub fn stop(mut self) -> Result<(), MeasureError> {
        self.running.stop(Signal::TERM).map(drop)
    }

    /// Kills it, and its supervisor first, so that this cannot finish what the server leaves.
    ///
    /// # Errors
    /// [`MeasureError::Child`] if they do not end.
    pub fn kill(mut self) -> Result<(), MeasureError> {
        self.running.outer().signal(Signal::KILL);
        self.running.server().signal(Signal::KILL);
        self.running.wait().map(drop)
    }
}

/// A connection that says one line at a time.
pub struct Connection(BufReader<TcpStream>);

/// Longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(60);

impl Connection {
    fn open(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Says `command`, words without spaces in them, and gives the answer: its line, or the value that was asked for.
    ///
    /// # Errors
    /// I/O errors; `Other` with the server's words if it refuses.
    pub fn ask(&mut self, command: &str) -> io::Result<String> {
        self.0
            .get_mut()
            .write_all(format!("{command}\r\n").as_bytes())?;
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end();
        match line.split_at_checked(1) {
            Some(("+" | ":", said)) => Ok(said.to_owned()),
            Some(("$", "-1")) => Err(io::ErrorKind::NotFound.into()),
            Some(("$", length)) => {
                let length: usize = length.parse().map_err(io::Error::other)?;
                let mut value = vec![0; length + 2];
                self.0.read_exact(&mut value)?;
                value.truncate(length);
                String::from_utf8(value).map_err(io::Error::other)
            }
            _ => Err(io::Error::other(line.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_of_redis_benchmark_is_read_and_an_older_ones_is_not() {
        let said = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"\n\
            \"SET\",\"52631.58\",\"0.151\",\"0.048\",\"0.143\",\"0.223\",\"0.287\",\"1.023\"\n";
        let sample = parse(said).unwrap();
        assert_eq!(sample.ops_per_s, 52631.58);
        assert_eq!((sample.mean_us, sample.p99_us), (Some(151.0), Some(287.0)));
        assert_eq!(parse("\"SET\",\"52631.58\"\n"), None);
    }
}
