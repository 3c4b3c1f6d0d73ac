//! Closed loops on servers that no library can be put before: so many clients, each with one
//! durable write in flight.
//!
//! [`crate::etcd`] and [`crate::nats`] are measured so. A server runs plain, with all of its files
//! in memory (the bound that no disk can reach), and under `forebay run --front-end notify`. The
//! modes take turns, each on a fresh server and directory, on an emulated device ([`BlockDevice`])
//! if that is asked for.
//!
//! The clients are this process's own threads and speak the servers' protocols themselves: a
//! library for them would take more processor time than the server. What they took is in each row
//! (`client_processors`).

use crate::{
    MeasureError,
    contest::{
        self, Around, Cell, Contender, Contest, Mode, Report, Sample, Setup, Syncs, of_pool,
    },
    data::{Random, Values, fresh_seed},
    rounds::Percentiles,
    scratch::{ScratchDir, memory_dir, sync_file_system},
    server::{Launch, Program},
};
use forebay_device::{Profile, block::BlockDevice};
use forebay_measure::threads::join;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Map, Value, json};
use std::{
    fs, io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

/// All of the server's files in ordinary memory.
pub const TMPFS: Mode = Mode::new("tmpfs", "a process crash", &[]).by(Syncs::Memory);

/// What such a server promises about an acknowledged write. libeatmydata does not reach it.
pub const MODES: [Mode; 3] = [contest::PLAIN, TMPFS, contest::NOTIFY.called("forebay")];

/// What is measured.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where, in which modes, with which pools.
    pub setup: Setup,
    /// Bytes of a value.
    pub sizes: Vec<u64>,
    /// Numbers of clients.
    pub clients: Vec<u64>,
    /// Seconds of a round that count.
    pub seconds: u64,
}

/// Keys that clients choose from at random.
pub const KEYS: u64 = 10_000;

/// A connection that writes.
pub(crate) trait Writer: Send {
    /// Writes `value` under a key of [`KEYS`], and waits until the server says that it is durable.
    fn write(&mut self, key: u64, value: &[u8]) -> io::Result<()>;
}

/// A server that is measured so.
pub(crate) trait Looped: Sized {
    /// Its clients.
    type Client: Writer;

    /// Its program.
    fn program() -> Result<PathBuf, String>;
    /// Starts it on a fresh directory.
    fn start(stage: &Stage, program: &Path) -> Result<Self, MeasureError>;
    /// A new client.
    fn client(&self) -> io::Result<Self::Client>;
    /// What it says of itself: figures that only grow.
    fn counts(&self) -> Map<String, Value>;
    /// What a row has of these counts, before and after its round.
    fn figures(before: &Map<String, Value>, after: &Map<String, Value>) -> Map<String, Value>;
    /// Ends it.
    fn end(self) -> Result<(), MeasureError>;
}

/// A directory for one server, and what stands around it. All gone when this is dropped.
pub struct Stage {
    around: Around,
    /// Dropped, and so unmounted, before the directory that it is in.
    device: Option<BlockDevice>,
    /// In memory: all of the server's files, or the device that they are on.
    memory: Option<ScratchDir>,
    dir: ScratchDir,
}

impl Stage {
    fn new(setup: &Setup, contender: &Contender, scratch: &Path) -> Result<Self, MeasureError> {
        let dir = ScratchDir::new_in(scratch)?;
        let is_in_memory = contender.mode.syncs == Syncs::Memory;
        let profile = setup.device.as_deref().filter(|_| !is_in_memory);
        let memory = match is_in_memory || profile.is_some() {
            true => Some(ScratchDir::new_in(&memory_dir())?),
            false => None,
        };
        let device = match (&memory, profile) {
            (Some(memory), Some(name)) => Some(make_device(memory.path(), name)?),
            _ => None,
        };
        let setting = setup.setting(contender, None);
        let around = setting.around(&[], [], dir.path().join("run"))?;
        // What other rounds left for the device to do is not this one's.
        sync_file_system(dir.path())?;
        Ok(Self {
            around,
            device,
            memory,
            dir,
        })
    }

    /// Where the server's files are.
    #[must_use]
    pub fn data(&self) -> &Path {
        match &self.device {
            Some(device) => device.path(),
            None => self.memory.as_ref().unwrap_or(&self.dir).path(),
        }
    }

    /// How a server is started there.
    #[must_use]
    pub fn launch<P: Program>(&self, program: &Path) -> Launch<P> {
        let mut launch = Launch::of(program.to_owned(), self.data());
        launch.stand_in(&self.around);
        launch
    }
}

fn make_device(dir: &Path, name: &str) -> Result<BlockDevice, MeasureError> {
    let made = Profile::named(name).and_then(|profile| BlockDevice::make(dir, profile));
    made.map_err(|e| MeasureError::Config(format!("--device: {e}")))
}

/// Measures a server. `note` is told what is being done.
pub(crate) fn run<S: Looped + Sync>(
    (bench, unit): (&'static str, &'static str),
    config: &Config,
    note: &dyn Fn(&str),
) -> Result<Report, MeasureError> {
    let setup = &config.setup;
    setup.check(&[&config.sizes, &config.clients, &[config.seconds]])?;
    let program = S::program().map_err(MeasureError::Config)?;
    let mut contest = Contest::begin(bench, unit, setup, note)?;
    contest.report.tell(
        json!({"keys": KEYS, "seconds": config.seconds}),
        "each client is a connection and a thread of this process, with one write in flight",
    );
    for &value_bytes in &config.sizes {
        for &clients in &config.clients {
            let columns = json!({"clients": clients, "value_bytes": value_bytes});
            let cell = Cell::new(format!("{value_bytes}_{clients}"), columns);
            let load = Load {
                clients,
                value_bytes,
                time: Duration::from_secs(config.seconds),
            };
            let measure = |scratch: &Path, contender: &Contender| {
                let stage = Stage::new(setup, contender, scratch)?;
                measure::<S>(&stage, &program, load)
            };
            contest.cell(&cell, |_| true, measure)?;
        }
    }
    Ok(contest.end())
}

/// What a round's clients do.
#[derive(Clone, Copy)]
struct Load {
    clients: u64,
    value_bytes: u64,
    /// Of the part that counts.
    time: Duration,
}

/// One round on a fresh server: a fifth of the time first, which does not count.
fn measure<S: Looped + Sync>(
    stage: &Stage,
    program: &Path,
    load: Load,
) -> Result<Sample, MeasureError> {
    fs::create_dir_all(stage.data()).map_err(MeasureError::io("creating", stage.data()))?;
    let server = S::start(stage, program)?;
    let mut clients = Vec::new();
    for _ in 0..load.clients {
        let client = server.client();
        clients.push(client.map_err(MeasureError::io("connecting to", program))?);
    }
    let warm_up = Load {
        time: load.time / 5,
        ..load
    };
    write(&mut clients, warm_up).map_err(MeasureError::io("writing to", program))?;
    let before = server.counts();
    let measured = write(&mut clients, load).map_err(MeasureError::io("writing to", program))?;
    let mut more = of_pool(stage.around.nvm_bytes(), stage.around.behind());
    more.extend(S::figures(&before, &server.counts()));
    more.extend(measured.more);
    drop(clients);
    server.end()?;
    Ok(Sample { more, ..measured })
}

/// Has all clients write for the time of `load`.
fn write<W: Writer>(clients: &mut [W], load: Load) -> io::Result<Sample> {
    let values = Values::new(usize::try_from(load.value_bytes).unwrap_or(usize::MAX));
    let (begun, own) = (Instant::now(), processor_time());
    let until = begun + load.time;
    let loops: Vec<io::Result<Vec<f64>>> = thread::scope(|scope| {
        let spawned: Vec<_> = clients
            .iter_mut()
            .map(|client| scope.spawn(|| write_until(client, &values, until)))
            .collect();
        spawned.into_iter().map(join).collect()
    });
    let seconds = begun.elapsed().as_secs_f64();
    let own = processor_time().saturating_sub(own).as_secs_f64();
    let mut times_us = Vec::new();
    for times in loops {
        times_us.extend(times?);
    }
    let more = [
        ("ops".to_owned(), json!(times_us.len())),
        ("client_processors".to_owned(), json!(own / seconds)),
    ];
    Ok(Sample {
        ops_per_s: times_us.len() as f64 / seconds,
        latency: Percentiles::of(&mut times_us),
        more: more.into_iter().collect(),
    })
}

/// One client's writes; how long each took, in microseconds.
fn write_until(client: &mut impl Writer, values: &Values, until: Instant) -> io::Result<Vec<f64>> {
    let mut random = Random::new(fresh_seed());
    let mut times_us = Vec::new();
    loop {
        let asked = Instant::now();
        if asked >= until {
            return Ok(times_us);
        }
        client.write(random.below(KEYS), values.value(random.number()))?;
        times_us.push(asked.elapsed().as_secs_f64() * 1e6);
    }
}

/// What this process's threads have had of processors.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}
