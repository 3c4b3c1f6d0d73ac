//! The load: redis-benchmark, and rewrites of the append-only file meanwhile.

use super::{resp::Connection, server::Server};
use crate::{
    MeasureError,
    contest::Sample,
    processes::{find_program, output},
    rounds::Percentiles,
};
use forebay_measure::{server::said_by, threads::beside};
use std::{
    path::PathBuf,
    process::Command,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

/// redis-benchmark's program.
///
/// # Errors
/// In words, that it is not installed, and the remedy.
pub fn program() -> Result<PathBuf, String> {
    find_program("redis-benchmark").ok_or_else(|| {
        "redis-benchmark is not installed: apt-get install redis-server redis-tools".to_owned()
    })
}

/// One run of SETs.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// SETs.
    pub requests: u64,
    /// Bytes of a value.
    pub value_bytes: u64,
    /// Connections, each with one request in flight.
    pub clients: u64,
    /// Keys that are chosen from at random.
    pub keys: u64,
}

impl Load {
    /// Runs it against `server`.
    ///
    /// # Errors
    /// [`MeasureError::Config`] without redis-benchmark, [`MeasureError::Child`] if it fails.
    pub fn run(&self, server: &Server) -> Result<Sample, MeasureError> {
        let number = |n: u64| n.to_string();
        let mut command = Command::new(program().map_err(MeasureError::Config)?);
        command
            .args(["-h", "127.0.0.1", "-p", &server.port().to_string()])
            .args(["-t", "set", "--csv"])
            .args([
                "-n",
                &number(self.requests),
                "-d",
                &number(self.value_bytes),
            ])
            .args(["-c", &number(self.clients), "-r", &number(self.keys)]);
        let said = said_by("redis-benchmark", output(&mut command)?)?;
        let unread = || {
            format!(
                "(redis-benchmark) said what cannot be read: {}; at least version 6.2 is needed",
                said.trim()
            )
        };
        parse(&said).ok_or_else(|| MeasureError::Child(unread()))
    }

    /// The same while the append-only file is rewritten again and again. Also the number of
    /// rewrites that were done by the end.
    ///
    /// # Errors
    /// As [`run`](Self::run), and those of the connection that asks for rewrites.
    pub fn run_during_rewrites(&self, server: &Server) -> Result<(Sample, u64), MeasureError> {
        let rewrite = |done: &AtomicBool| server.talk(|connection| rewrite_until(connection, done));
        let (rewrites, measured) = beside(rewrite, || self.run(server));
        Ok((measured?, rewrites?))
    }
}

/// Asks for one rewrite after the other; returns how many came to their end.
fn rewrite_until(connection: &mut Connection, done: &AtomicBool) -> std::io::Result<u64> {
    let mut rewrites = 0;
    while !done.load(Relaxed) {
        connection.line("BGREWRITEAOF")?;
        wait_rewritten(connection)?;
        rewrites += 1;
    }
    Ok(rewrites)
}

/// Waits until no rewrite is running.
///
/// # Errors
/// I/O errors.
pub fn wait_rewritten(connection: &mut Connection) -> std::io::Result<()> {
    loop {
        thread::sleep(Duration::from_millis(5));
        let running = connection.info("persistence", "aof_rewrite_in_progress")?;
        let scheduled = connection.info("persistence", "aof_rewrite_scheduled")?;
        if running == "0" && scheduled == "0" {
            return Ok(());
        }
    }
}

/// `"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"`
fn parse(text: &str) -> Option<Sample> {
    let mut lines = text.lines().map(|line| line.trim().split(','));
    let names = lines.find(|cells| cells.clone().any(|cell| cell == "\"rps\""))?;
    let cells = lines.next()?;
    let at = |name: &str| -> Option<f64> {
        let mut figures = names.clone().zip(cells.clone());
        let (_, cell) = figures.find(|(known, _)| known.trim_matches('"') == name)?;
        cell.trim_matches('"').parse().ok()
    };
    let us = |name: &str| at(name).map(|ms| ms * 1e3);
    Some(Sample {
        ops_per_s: at("rps").filter(|rate| *rate > 0.0)?,
        latency: Percentiles {
            p50_us: Some(us("p50_latency_ms")?),
            p99_us: Some(us("p99_latency_ms")?),
            p999_us: None,
            max_us: Some(us("max_latency_ms")?),
        },
        ..Sample::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_of_a_run_are_read() {
        let text = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"\n\
                    \"SET\",\"103092.78\",\"0.263\",\"0.080\",\"0.255\",\"0.343\",\"0.511\",\"1.111\"\n";
        let measured = parse(text).unwrap();
        assert_eq!(measured.ops_per_s, 103_092.78);
        let latency = measured.latency;
        assert_eq!((latency.p50_us, latency.p99_us), (Some(255.0), Some(511.0)));
        assert!(parse("Could not connect").is_none());
        assert!(parse("\"SET\",\"52631.58\"\n").is_none(), "an older one's");
    }
}
