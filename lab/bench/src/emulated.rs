//! Emulated devices: what a program sees of one, beside what its profile says (P5's Fig. 3 and 4 for the memory behind a fabric).
//!
//! A child process under `forebay-lab run --device` does plain file I/O past the cache (`O_DIRECT`), 4 KiB and 1 MiB, sequential and random, reads and
//! writes, and times each call. The figure is the median: what the machine does to single calls is not the device's.

use crate::{
    BenchError,
    place::lab_program,
    processes::Process,
    rounds::median,
    scratch::{ScratchDir, memory_dir},
};
use forebay_device::Profile;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use std::{
    fs::{File, OpenOptions},
    io::Read,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// Sizes of requests that are measured, as in the paper.
pub const SIZES: [usize; 2] = [4 << 10, 1 << 20];

/// What is measured.
#[derive(Clone, Debug)]
pub struct Config {
    /// The `forebay` program; the laboratory's lies beside it.
    pub program: PathBuf,
    /// Names of profiles, or paths of TOML files.
    pub profiles: Vec<String>,
    /// Where the directories on the devices are made: on something faster than they.
    pub dir: PathBuf,
    /// Calls of each kind, at most; and less of what takes long.
    pub calls: usize,
    /// Bytes of the file.
    pub file_bytes: u64,
}

impl Config {
    /// All devices, in memory; `quick` shows that it runs, with medians of a few calls.
    #[must_use]
    pub fn usual(program: &Path, quick: bool) -> Self {
        let (calls, file_mib) = if quick { (9, 16) } else { (400, 64) };
        Self {
            program: program.to_owned(),
            profiles: Profile::NAMES.map(str::to_owned).to_vec(),
            dir: memory_dir(),
            calls,
            file_bytes: file_mib << 20,
        }
    }
}

/// What a child is to do.
#[derive(Serialize, Deserialize)]
struct Order {
    file: PathBuf,
    file_bytes: u64,
    calls: usize,
    /// Seconds after which a kind is over, whatever the number of calls (but not before the third).
    seconds_max: f64,
}

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kind {
    /// Bytes of a request.
    pub bytes: usize,
    /// At the places one after the other; false: at random ones.
    pub sequential: bool,
    /// Writes; false: reads.
    pub write: bool,
}

/// One kind of request to one device.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The profile's name.
    pub profile: String,
    /// The kind.
    #[serde(flatten)]
    pub kind: Kind,
    /// Calls that were measured.
    pub calls: usize,
    /// What the profile says, microseconds.
    pub profile_us: f64,
    /// The median of what was measured, microseconds.
    pub measured_us: f64,
    /// How much more that is, per cent.
    pub deviation_percent: f64,
    /// What the profile says, 10^6 bytes a second.
    pub profile_mb_s: f64,
    /// What was measured, 10^6 bytes a second.
    pub measured_mb_s: f64,
}

/// All devices.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// "device".
    pub bench: &'static str,
    /// Kinds of requests, device by device.
    pub rows: Vec<Row>,
}

/// What a child measured of one kind: median microseconds.
#[derive(Serialize, Deserialize)]
struct Measured {
    kind: Kind,
    calls: usize,
    us: f64,
}

/// A child that hangs is ended.
const PATIENCE: Duration = Duration::from_secs(600);

/// Measures one device after the other, saying which to `progress`.
///
/// # Errors
/// [`BenchError::Config`] for a profile that is none; I/O errors; [`BenchError::Child`].
pub fn run(config: &Config, progress: &dyn Fn(&str)) -> Result<Report, BenchError> {
    // All of them before the first is measured.
    let mut profiles = Vec::new();
    for name in &config.profiles {
        let profile =
            Profile::named(name).map_err(|error| BenchError::Config(error.to_string()))?;
        profiles.push((name, profile));
    }
    let mut rows = Vec::new();
    for (name, profile) in profiles {
        progress(&profile.name);
        let dir = ScratchDir::new_in(&config.dir)?;
        rows.extend(
            of_child(config, name, dir.path())?
                .into_iter()
                .map(|measured| row(&profile, &measured)),
        );
    }
    Ok(Report {
        bench: "device",
        rows,
    })
}

fn row(profile: &Profile, measured: &Measured) -> Row {
    let kind = measured.kind;
    let cost = if kind.write {
        &profile.write
    } else {
        &profile.read
    };
    let (fixed, transfer) = cost.of(kind.bytes as u64, kind.sequential);
    let profile_us = (fixed + transfer) as f64 / 1e3;
    Row {
        profile: profile.name.clone(),
        kind,
        calls: measured.calls,
        profile_us,
        measured_us: measured.us,
        deviation_percent: (measured.us / profile_us - 1.0) * 100.0,
        profile_mb_s: kind.bytes as f64 / profile_us,
        measured_mb_s: kind.bytes as f64 / measured.us,
    }
}

fn of_child(config: &Config, profile: &str, dir: &Path) -> Result<Vec<Measured>, BenchError> {
    let child = |what: String| BenchError::Child(format!("for {profile} {what}"));
    let order = Order {
        file: dir.join("file"),
        file_bytes: config.file_bytes,
        calls: config.calls,
        seconds_max: 2.0,
    };
    let order = serde_json::to_string(&order).map_err(|e| child(e.to_string()))?;
    let mut placed = dir.as_os_str().to_owned();
    placed.push("=");
    placed.push(profile);
    let program = lab_program(&config.program);
    let mut command = Command::new(&program);
    command
        .args(["run", "--no-pool", "--device"])
        .arg(placed)
        .arg("--");
    command.arg(&program).args(["internal", "requests", &order]);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut process = Process::spawn(&mut command)?;
    let mut said = String::new();
    let mut complaint = String::new();
    if let Some(mut stdout) = process.child().stdout.take() {
        stdout
            .read_to_string(&mut said)
            .map_err(|e| child(e.to_string()))?;
    }
    if let Some(mut stderr) = process.child().stderr.take() {
        stderr
            .read_to_string(&mut complaint)
            .map_err(|e| child(e.to_string()))?;
    }
    let status = process.wait(PATIENCE)?;
    if !status.success() {
        return Err(child(format!("ended with {status}: {}", complaint.trim())));
    }
    serde_json::from_str(&said).map_err(|e| child(format!("said {said:?}: {e}")))
}

/// What the child does: the requests of `order`; their times as JSON.
///
/// # Errors
/// I/O errors.
pub fn requests(order: &str) -> Result<String, BenchError> {
    let failed = |e: serde_json::Error| BenchError::Child(format!("got a wrong order: {e}"));
    let order: Order = serde_json::from_str(order).map_err(failed)?;
    let doing = || BenchError::io("measuring requests to", &order.file);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .custom_flags(OFlags::DIRECT.bits().cast_signed())
        .open(&order.file)
        .map_err(doing())?;
    let mut buffer = Aligned::new();
    for at in (0..order.file_bytes).step_by(SIZES[1]) {
        file.write_all_at(buffer.bytes(SIZES[1]), at)
            .map_err(doing())?;
    }
    let mut all = Vec::new();
    for write in [false, true] {
        for bytes in SIZES {
            for sequential in [true, false] {
                let kind = Kind {
                    bytes,
                    sequential,
                    write,
                };
                all.push(of_kind(&file, kind, &order, &mut buffer).map_err(doing())?);
            }
        }
    }
    serde_json::to_string(&all).map_err(failed)
}

fn of_kind(
    file: &File,
    kind: Kind,
    order: &Order,
    buffer: &mut Aligned,
) -> std::io::Result<Measured> {
    /// Coprime to every number of places that is a power of two, and not next to each other.
    const STRIDE: u64 = 7;
    let places = order.file_bytes / kind.bytes as u64;
    let step = if kind.sequential { 1 } else { STRIDE };
    let begun = Instant::now();
    let mut times = Vec::new();
    for call in 0..order.calls as u64 {
        if call >= 3 && begun.elapsed().as_secs_f64() > order.seconds_max {
            break;
        }
        let offset = call * step % places * kind.bytes as u64;
        let started = Instant::now();
        if kind.write {
            file.write_all_at(buffer.bytes(kind.bytes), offset)?;
        } else {
            file.read_exact_at(buffer.bytes(kind.bytes), offset)?;
        }
        times.push(started.elapsed().as_secs_f64() * 1e6);
    }
    Ok(Measured {
        kind,
        calls: times.len(),
        us: median(&times),
    })
}

/// Bytes at an address as `O_DIRECT` wants it.
struct Aligned {
    memory: Vec<u8>,
    from: usize,
}

impl Aligned {
    fn new() -> Self {
        const PAGE: usize = 4096;
        let memory = vec![0x5a; SIZES[1] + PAGE];
        let from = memory.as_ptr().align_offset(PAGE).min(PAGE);
        Self { memory, from }
    }

    fn bytes(&mut self, bytes: usize) -> &mut [u8] {
        &mut self.memory[self.from..self.from + bytes]
    }
}
