//! `GET /metrics`: for a scraper, for as long as a program runs.
//!
//! The program must not notice a scraper, whatever that does:
//!
//! * the port is taken before the program starts, so that one in use is an error and not a silence;
//! * figures are read once a second at most, and into memory before a byte is sent;
//! * a connection has a thread of its own, five seconds, and a request of 8 KiB at most; of more
//!   than [`CONNECTIONS_MAX`] at a time the newest is turned away;
//! * a request is answered and the connection closed: none is kept.
//!
//! `httparse` reads the request; ARCHITECTURE.md, "Dependencies", has why no library serves it.
//! docs/monitoring.md, "An address to scrape".

mod address;
mod connection;

pub use address::MetricsAddress;

use super::{MetricsFormat, MetricsSnapshot};
use crate::failure::Failure;
use std::{
    fmt,
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{
            AtomicBool, AtomicUsize,
            Ordering::{AcqRel, Acquire, Release},
        },
    },
    thread,
    time::{Duration, Instant},
};

/// Connections that are served at a time.
const CONNECTIONS_MAX: usize = 8;
/// Figures are not read again before.
const FRESH: Duration = Duration::from_secs(1);
/// After an error of the kernel's (no descriptor is left) it is asked again no sooner.
const PAUSE: Duration = Duration::from_millis(100);

/// A port that is taken, and not served yet.
#[derive(Debug)]
pub struct MetricsListener {
    listener: TcpListener,
    address: SocketAddr,
}

/// The served text, or an error: then there is none.
type ScrapeText = Result<Arc<str>, fmt::Error>;

type ReadFigures = Box<dyn Fn() -> MetricsSnapshot + Send + Sync>;

/// State that the threads share.
struct MetricsSource {
    listener: TcpListener,
    read: ReadFigures,
    /// The last reading, and its time, in both formats.
    last: Mutex<Option<(Instant, [ScrapeText; 2])>>,
    connections: AtomicUsize,
    ends: AtomicBool,
}

/// Serves until it is dropped.
pub struct MetricsServer {
    source: Arc<MetricsSource>,
    thread: Option<thread::JoinHandle<()>>,
}

impl MetricsListener {
    /// Takes the port.
    ///
    /// # Errors
    /// It is in use, or not to be had: nothing was started.
    pub fn bind(address: MetricsAddress) -> Result<Self, Failure> {
        let wanted = address.socket();
        let bound = TcpListener::bind(wanted).and_then(|listener| {
            let address = listener.local_addr()?;
            Ok(Self { listener, address })
        });
        bound.map_err(|error| Failure::Failed(address::refused(wanted, &error)))
    }

    /// The address for scrapers.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/metrics", self.address)
    }

    /// Serves the text that `read` gives.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn serve(
        self,
        read: impl Fn() -> MetricsSnapshot + Send + Sync + 'static,
    ) -> Result<MetricsServer, Failure> {
        let source = Arc::new(MetricsSource {
            listener: self.listener,
            read: Box::new(read),
            last: Mutex::default(),
            connections: AtomicUsize::new(0),
            ends: AtomicBool::new(false),
        });
        let serving = Arc::clone(&source);
        let thread = thread::Builder::new().name("metrics".to_owned());
        let thread = (thread.spawn(move || accept(&serving)))
            .map_err(Failure::io("starting a thread for", self.address))?;
        Ok(MetricsServer {
            source,
            thread: Some(thread),
        })
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.source.ends.store(true, Release);
        // Who waits for a connection gets an error.
        let _ = rustix::net::shutdown(&self.source.listener, rustix::net::Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Takes connections until the end.
fn accept(source: &Arc<MetricsSource>) {
    while !source.ends.load(Acquire) {
        match source.listener.accept() {
            Ok((stream, _)) => begin(source, stream),
            Err(_) if source.ends.load(Acquire) => return,
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

/// Serves a connection in a thread of its own.
fn begin(source: &Arc<MetricsSource>, stream: TcpStream) {
    let Some(held) = HeldConnection::take(source) else {
        connection::turn_away(&stream);
        return;
    };
    let thread = thread::Builder::new().name("scrape".to_owned());
    // Without a thread the connection is closed.
    let _ = thread.spawn(move || connection::serve(&stream, |format| held.0.text(format)));
}

impl MetricsSource {
    /// The figures, a second old at most.
    fn text(&self, format: MetricsFormat) -> ScrapeText {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((read, texts)) = &*last
            && read.elapsed() < FRESH
        {
            return texts[format as usize].clone();
        }
        let figures = (self.read)();
        let texts = [MetricsFormat::OpenMetrics, MetricsFormat::Prometheus]
            .map(|format| figures.text(format).map(Arc::from));
        let text = texts[format as usize].clone();
        *last = Some((Instant::now(), texts));
        text
    }
}

/// One of the connections that may be served at a time.
struct HeldConnection(Arc<MetricsSource>);

impl HeldConnection {
    fn take(source: &Arc<MetricsSource>) -> Option<Self> {
        let before = source.connections.fetch_add(1, AcqRel);
        let held = Self(Arc::clone(source));
        (before < CONNECTIONS_MAX).then_some(held)
    }
}

impl Drop for HeldConnection {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, AcqRel);
    }
}

#[cfg(test)]
mod tests;
