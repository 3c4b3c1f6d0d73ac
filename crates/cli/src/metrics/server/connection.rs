//! One connection: a request, its answer, and the end. No longer than [`LIMIT`], however slowly the
//! other side sends and reads.

use super::super::MetricsFormat;
use httparse::{EMPTY_HEADER, Header, Request};
use std::{
    fmt,
    io::{self, Read, Write},
    net::{Shutdown, TcpStream},
    sync::Arc,
    time::{Duration, Instant},
};

/// From the connection to its end.
const LIMIT: Duration = Duration::from_secs(5);
/// The same of one that is turned away: others wait meanwhile.
const SHORT_LIMIT: Duration = Duration::from_millis(50);
/// Bytes of a request.
const REQUEST_MAX: usize = 8 << 10;
/// Headers of a request.
const HEADERS_MAX: usize = 64;

/// The page that is asked for.
#[derive(Debug, PartialEq, Eq)]
enum ScrapeRequest {
    Figures(MetricsFormat),
    Home,
    Nothing,
    OtherMethod,
}

/// The reason that there is none.
enum ReadError {
    /// The other side has gone, or is too slow.
    Gone,
    /// It sent something else: the answer to that.
    Wrong(&'static str),
}

/// Status, content type and body.
type ScrapeAnswer = (&'static str, &'static str, Arc<str>);

const PLAIN: &str = "text/plain; charset=utf-8";

/// Answers one request with the `text` of the figures.
pub(super) fn serve(
    stream: &TcpStream,
    text: impl FnOnce(MetricsFormat) -> Result<Arc<str>, fmt::Error>,
) {
    let deadline = Instant::now() + LIMIT;
    let told = |status, body: &str| (status, PLAIN, Arc::from(body));
    let (asked, is_head) = match read(stream, deadline) {
        Ok(asked) => asked,
        // It is gone, or too slow: nobody reads an answer.
        Err(ReadError::Gone) => return,
        Err(ReadError::Wrong(status)) => {
            let body = told(status, "this is no request\n");
            let _ = answer(stream, deadline, body, false);
            return drain(stream, deadline);
        }
    };
    let body = match asked {
        ScrapeRequest::Figures(format) => match text(format) {
            Ok(text) => ("200 OK", format.content_type(), text),
            Err(_) => told("500 Internal Server Error", "a figure has no text\n"),
        },
        ScrapeRequest::Home => told("200 OK", "forebay: its figures are at /metrics\n"),
        ScrapeRequest::Nothing => told("404 Not Found", "figures are at /metrics\n"),
        ScrapeRequest::OtherMethod => told("405 Method Not Allowed", "only GET\n"),
    };
    let _ = answer(stream, deadline, body, is_head);
}

/// Too many are served already. Its request is read first, if it is there.
pub(super) fn turn_away(stream: &TcpStream) {
    let soon = Instant::now() + SHORT_LIMIT;
    let _ = read(stream, soon);
    let body = (
        "503 Service Unavailable",
        PLAIN,
        Arc::from("too many connections\n"),
    );
    let _ = answer(stream, soon, body, false);
    drain(stream, soon);
}

/// Reads what else comes, to nowhere, until the other side has closed: a connection that is closed
/// with something unread is reset, and the answer may be lost with it.
fn drain(mut stream: &TcpStream, deadline: Instant) {
    let mut bytes = [0; REQUEST_MAX];
    while let Ok(left) = left(deadline) {
        let _ = stream.set_read_timeout(Some(left));
        if !matches!(stream.read(&mut bytes), Ok(1..)) {
            return;
        }
    }
}

/// The page that is asked for; true if only the head of the answer is.
fn read(stream: &TcpStream, deadline: Instant) -> Result<(ScrapeRequest, bool), ReadError> {
    let mut bytes = [0; REQUEST_MAX];
    let mut filled = 0;
    loop {
        if let Some(asked) = understood(&bytes[..filled])? {
            return Ok(asked);
        }
        if filled == bytes.len() {
            return Err(ReadError::Wrong("431 Request Header Fields Too Large"));
        }
        let left = left(deadline).map_err(|_| ReadError::Gone)?;
        let _ = stream.set_read_timeout(Some(left));
        match (&mut &*stream).read(&mut bytes[filled..]) {
            Ok(0) => return Err(ReadError::Gone),
            Ok(more) => filled += more,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Err(ReadError::Gone),
        }
    }
}

/// The request, if it is complete.
fn understood(bytes: &[u8]) -> Result<Option<(ScrapeRequest, bool)>, ReadError> {
    let mut headers = [EMPTY_HEADER; HEADERS_MAX];
    let mut request = Request::new(&mut headers);
    let parsed = request.parse(bytes);
    let is_complete = parsed.map_err(|_| ReadError::Wrong("400 Bad Request"))?;
    if is_complete.is_partial() {
        return Ok(None);
    }
    let is_head = request.method == Some("HEAD");
    let path = request.path.unwrap_or_default();
    let path = path.split_once('?').map_or(path, |(path, _)| path);
    let asked = match (request.method, path) {
        (Some("GET" | "HEAD"), "/metrics") => ScrapeRequest::Figures(format(request.headers)),
        (Some("GET" | "HEAD"), "/") => ScrapeRequest::Home,
        (Some("GET" | "HEAD"), _) => ScrapeRequest::Nothing,
        _ => ScrapeRequest::OtherMethod,
    };
    Ok(Some((asked, is_head)))
}

/// OpenMetrics to who takes it, as Prometheus does; to others the older format.
fn format(headers: &[Header<'_>]) -> MetricsFormat {
    let mut accepts = (headers.iter()).filter(|it| it.name.eq_ignore_ascii_case("accept"));
    let takes = |value: &[u8]| {
        let text = String::from_utf8_lossy(value);
        text.contains("application/openmetrics-text")
    };
    match accepts.any(|it| takes(it.value)) {
        true => MetricsFormat::OpenMetrics,
        false => MetricsFormat::Prometheus,
    }
}

fn answer(
    mut stream: &TcpStream,
    deadline: Instant,
    (status, content_type, body): ScrapeAnswer,
    is_head: bool,
) -> io::Result<()> {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let body = if is_head { "" } else { &body };
    for mut part in [head.as_bytes(), body.as_bytes()] {
        while !part.is_empty() {
            stream.set_write_timeout(Some(left(deadline)?))?;
            match stream.write(part) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => part = part.get(written..).unwrap_or_default(),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }
    stream.shutdown(Shutdown::Write)
}

/// The time until then.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    match left.is_zero() {
        true => Err(io::ErrorKind::TimedOut.into()),
        false => Ok(left),
    }
}
