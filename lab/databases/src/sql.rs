//! Common parts of the benchmarks of SQL servers: modes, the turns that they take, and the report.
//!
//! Each number of clients is measured in all modes in turn, round after round, each time on a fresh
//! copy of one data directory, which is reached by a Unix socket. [`Database`] is what a server
//! adds: [`crate::mariadb`], [`crate::postgres`].

pub use forebay_measure::{server as running, user::User};

use crate::{
    MeasureError,
    contest::{self, Cell, Contender, Contest, Mode, Report, Sample, Setup},
    scratch::{ScratchDir, sync_file_system},
    server::{Launch, Program, Server},
    table::object,
};
use serde::Serialize;
use serde_json::json;
use std::{
    fmt::Display,
    io,
    path::{Path, PathBuf},
};

/// A row of a result: its columns as text, or none for NULL.
pub type Columns = Vec<Option<Vec<u8>>>;

/// A connection of the superuser to a server.
pub trait Client: Sized {
    /// Connects by a socket.
    ///
    /// # Errors
    /// I/O errors; `Other` with the server's own words if it refuses.
    fn connect(socket: &Path) -> io::Result<Self>;

    /// Has a statement carried out, or several with semicolons between them; their rows.
    ///
    /// # Errors
    /// I/O errors: then it is not known whether it was; `Other` with the server's own words if it
    /// refuses.
    fn query(&mut self, statement: &str) -> io::Result<Vec<Columns>>;
}

/// What is measured.
#[derive(Clone, Debug)]
pub struct Config<S> {
    /// Where, in which modes, with which pools.
    pub setup: Setup,
    /// Connections.
    pub clients: Vec<u64>,
    /// The data set.
    pub size: S,
    /// Seconds of a round.
    pub seconds: u64,
}

/// A load.
#[derive(Clone, Copy, Debug)]
pub struct Load<S> {
    /// The data set.
    pub size: S,
    /// Connections, each with one transaction at a time.
    pub clients: u64,
    /// How long it takes.
    pub seconds: u64,
    /// The processor that the load program is to run on.
    pub processor: Option<usize>,
}

/// A server and the load that it gets.
pub trait Database: Program {
    /// Its name in reports.
    const NAME: &'static str;
    /// The load, in words.
    const LOAD: &'static str;
    /// What a server promises about an acknowledged transaction.
    const MODES: [Mode; 4];
    /// What gives its servers room in memory for the whole data set.
    const MEMORY: &'static str;
    /// What else they have while they are measured.
    const OPTIONS: &'static [&'static str];
    /// The size of the data set, in words too.
    type Size: Copy + Display + Serialize;

    /// Whether it can be measured; otherwise why not, and the remedy.
    fn check(config: &Config<Self::Size>) -> Result<(), MeasureError>;

    /// The user that servers run as, if not ours.
    fn user() -> Result<Option<User>, MeasureError> {
        Ok(None)
    }

    /// A server in `dir`, to be started without an option.
    fn launch(dir: &Path) -> Result<Launch<Self>, MeasureError>;

    /// Makes its data directory.
    fn create(launch: &Launch<Self>) -> Result<(), MeasureError>;

    /// Starts it.
    fn start(launch: &Launch<Self>) -> Result<Server<Self>, MeasureError>;

    /// Makes the data set.
    fn prepare(size: Self::Size, server: &Server<Self>) -> Result<(), MeasureError>;

    /// Reads what the load works on into memory, where the load itself would be too slow at that.
    fn warm_up(_: &Server<Self>) -> Result<(), MeasureError> {
        Ok(())
    }

    /// Runs the load.
    fn work(load: &Load<Self::Size>, server: &Server<Self>) -> Result<Sample, MeasureError>;

    /// Ends it when it has been measured.
    fn end(server: Server<Self>) -> Result<String, MeasureError> {
        server.stop()
    }
}

/// Runs it all. `note` is told what is being done.
///
/// # Errors
/// The first thing that goes wrong; if libeatmydata is not installed, that is reported, and is no
/// error.
pub fn run<D: Database>(
    config: &Config<D::Size>,
    note: &dyn Fn(&str),
) -> Result<Report, MeasureError> {
    config.setup.check(&[&config.clients, &[config.seconds]])?;
    D::check(config)?;
    let user = D::user()?;
    let mut contest = Contest::begin(<D as Database>::NAME, "transactions", &config.setup, note)?;
    let pinned = "one client is kept on a processor of its own, where there are two";
    let settings = json!({
        "load": D::LOAD,
        "data_set": config.size.to_string(),
        "seconds": config.seconds,
    });
    contest.report.tell(settings, pinned);
    contest.report.settings.extend(object(json!(config.size)));
    contest.note("preparing the tables");
    let template = contest.scratch().join("template");
    std::fs::create_dir(&template).map_err(MeasureError::io("creating", &template))?;
    if let Some(user) = &user {
        user.let_in(contest.scratch())?;
        user.give(&template)?;
    }
    let mut launch = D::launch(&template)?;
    D::create(&launch)?;
    launch.options = vec![D::MEMORY.to_owned()];
    let server = D::start(&launch)?;
    D::prepare(config.size, &server)?;
    server.stop()?;
    let template = launch.data();
    for &clients in &config.clients {
        let cell = Cell::new(clients.to_string(), json!({"clients": clients}));
        let measure = |scratch: &Path, contender: &Contender| {
            measure::<D>(
                config,
                (scratch, &template),
                user.as_ref(),
                contender,
                clients,
            )
        };
        contest.cell(&cell, |_| true, measure)?;
    }
    Ok(contest.end())
}

/// One contender with so many clients, once, on a fresh copy.
fn measure<D: Database>(
    config: &Config<D::Size>,
    (scratch, template): (&Path, &PathBuf),
    user: Option<&User>,
    contender: &Contender,
    clients: u64,
) -> Result<Sample, MeasureError> {
    let dir = ScratchDir::new_in(scratch)?;
    let data = dir.path().join("data");
    running::copy(template, &data)?;
    // What other rounds left for the device to do is not this one's.
    sync_file_system(dir.path())?;
    if let Some(user) = user {
        user.give(dir.path())?;
    }
    let setting = config.setup.setting(contender, user);
    let device = config.setup.device.as_deref();
    let devices: Vec<_> = device.map(|it| (&*data, it)).into_iter().collect();
    let around = setting.around(&devices, [], dir.path().join("run"))?;
    let pinned = pinned(clients);
    let load = Load {
        size: config.size,
        clients,
        seconds: config.seconds,
        processor: pinned.as_ref().map(|(_, client)| *client),
    };
    let mut launch = D::launch(dir.path())?;
    launch.stand_in(&around);
    launch.processors = pinned.map(|(server, _)| server);
    let options = [&[D::MEMORY], D::OPTIONS, contender.mode.settings].concat();
    launch.options = options.into_iter().map(str::to_owned).collect();
    let server = D::start(&launch)?;
    D::warm_up(&server)?;
    // Pages, plans and the server's own tables are in memory then.
    let second = Load { seconds: 1, ..load };
    D::work(&second, &server)?;
    let mut sample = D::work(&load, &server)?;
    D::end(server)?;
    let is_pinned = json!(load.processor.is_some());
    sample.more.insert("is_pinned".to_owned(), is_pinned);
    Ok(sample)
}

/// An SQL server's modes, by its settings that sync each transaction and those that do not.
pub const fn modes(
    synced: &'static [&'static str],
    not_synced: &'static [&'static str],
) -> [Mode; 4] {
    let no_sync = Mode {
        name: "no_sync",
        survives: "nothing (a second may be lost)",
        ..contest::PLAIN
    };
    [
        contest::PLAIN.with(synced),
        no_sync.with(not_synced),
        contest::EATMYDATA.with(synced),
        contest::FOREBAY.with(synced),
    ]
}

/// The server's processors, as `taskset` has them, and the client's. One client and the thread that
/// serves it work in turns: where the scheduler puts both on one processor decides more than any
/// sync, so they are kept apart. Several fill the processors themselves.
fn pinned(clients: u64) -> Option<(String, usize)> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let last = processors.checked_sub(1).filter(|last| *last > 0)?;
    (clients == 1).then(|| (format!("0-{}", last - 1), last))
}
