//! [`LegLink`]: a connection to one leg. Requests are pipelined; a thread reads the answers, in
//! whatever order they come. docs/legs.md, "The network".
//!
//! A link that fails once is dead: each request that waits gets the error, and so does every later
//! one. It fails when the server breaks the protocol, answers a request that was not made, closes
//! or resets the connection, or leaves a request without an answer for [`ANSWER_LIMIT`], not
//! counted while this process stood still. A request that the server refuses (a disk that failed)
//! fails alone, and the link with it: a leg either has everything or is none.
//!
//! A [leg on a disk](DiskLeg) of this machine is asked in the same way, by a thread that does what
//! is asked for, and another one that looks at the time.

use super::{
    address::{ExportAddress, LegAddress},
    channel::LegChannel,
    disk_leg::{DiskAct, DiskLeg, DiskRequest},
    handshake::{ExportInfo, greet, negotiate, nonsense, start_tls},
    superblock::LEG_DATA,
    tls::{TlsSession, TlsStart},
};
use crate::{
    MonotonicTime, failpoint,
    stack::{OnPanic, quiet_thread},
};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    io::{self, BufReader, Read, Write},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{
            AtomicBool,
            Ordering::{AcqRel, Acquire, Release},
        },
        mpsc,
    },
    thread,
    time::Duration,
};

/// The longest time that a leg may take to answer. Then it is none any more.
pub(crate) const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// Interval of looks at the answers that are missing.
const LOOK: Duration = Duration::from_millis(100);
/// A thread that has not looked for so long stood still (it was stopped, or its machine was), and
/// its answer may have come long ago: that time does not count.
const STOOD_STILL: Duration = Duration::from_millis(500);

const REQUEST: u32 = 0x2560_9513;
const REPLY: u32 = 0x6744_6698;
const FUA: u16 = 1;

/// The kind of a request to a leg.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestKind {
    Read = 0,
    Write = 1,
    Disconnect = 2,
}

/// Called once with the result of a request: by the thread that reads answers, or by the one that
/// asked.
pub(crate) type OnAnswer = Box<dyn FnOnce(io::Result<Vec<u8>>) + Send>;

struct PendingRequest {
    /// By [`LinkState::watched`].
    since: Duration,
    /// Bytes that the answer brings.
    bytes: usize,
    then: OnAnswer,
}

#[derive(Default)]
struct LinkState {
    /// Time of the last look for answers.
    looked: Option<MonotonicTime>,
    /// For how long they had been by then.
    watched: Duration,
    next: u64,
    pending: HashMap<u64, PendingRequest>,
    /// The reason that it is dead.
    dead: Option<Arc<str>>,
}

impl LinkState {
    /// For how long answers have been looked for by now, without the time in which this process
    /// stood still. Where it does so again and again, as with a quota of processor time, what is
    /// left adds up.
    fn watched(&self, now: MonotonicTime) -> Duration {
        let since = self.looked.map(|looked| now.since(looked));
        let since = since.filter(|since| *since <= STOOD_STILL);
        self.watched + since.unwrap_or_default()
    }

    /// The thread that looks for answers is awake.
    fn look(&mut self, now: MonotonicTime) {
        self.watched = self.watched(now);
        self.looked = Some(now);
    }
}

/// The way of requests.
enum LegWay {
    Network(LegChannel),
    Disk(DiskLeg),
}

/// See the module's head.
pub(crate) struct LegLink {
    way: LegWay,
    export: ExportInfo,
    state: Mutex<LinkState>,
    /// A thread reads the answers. Until then who asks does: a process that only looks at a pool
    /// stays one with a single thread, as one that does work for another user has to be.
    is_pipelined: AtomicBool,
    /// Held by who asks and reads the answer.
    asking: Mutex<()>,
    answer_limit: Duration,
}

impl LegLink {
    /// Connects to a leg.
    ///
    /// # Errors
    /// It cannot be reached, or can be no leg.
    pub(crate) fn connect(address: &LegAddress, insecure: bool) -> io::Result<Arc<Self>> {
        let answer_limit = failpoint::limit("leg-answer", ANSWER_LIMIT);
        let (way, export) = match address {
            LegAddress::Export(address) => {
                let (channel, export) = connect_export(address, insecure, answer_limit)?;
                (LegWay::Network(channel), export)
            }
            LegAddress::Disk(path) => {
                let (disk, export) = DiskLeg::open(path)?;
                (LegWay::Disk(disk), export)
            }
        };
        Ok(Arc::new(Self {
            way,
            export,
            state: Mutex::default(),
            is_pipelined: AtomicBool::new(false),
            asking: Mutex::default(),
            answer_limit,
        }))
    }

    /// Has a thread read the answers from now on: requests may be pipelined.
    ///
    /// # Errors
    /// There is no more thread.
    pub(crate) fn pipeline(self: &Arc<Self>) -> io::Result<()> {
        let _nobody_asks = self.asking.lock();
        if self.is_pipelined.swap(true, AcqRel) {
            return Ok(());
        }
        let started = match &self.way {
            LegWay::Network(_) => self.start("forebay-leg", |link| {
                if let LegWay::Network(channel) = &link.way {
                    link.die(&read_answers(link, channel));
                }
            }),
            LegWay::Disk(disk) => {
                let requests = disk.begin_queue();
                self.start("forebay-leg", move |link| link.perform_all(requests))
                    .and_then(|()| self.start("forebay-look", |link| link.look_for_late_ones()))
            }
        };
        started.inspect_err(|_| self.is_pipelined.store(false, Release))
    }

    /// Has a thread do the `work`, without which no answer comes.
    fn start(
        self: &Arc<Self>,
        name: &str,
        work: impl FnOnce(&Arc<Self>) + Send + 'static,
    ) -> io::Result<()> {
        let link = Arc::clone(self);
        quiet_thread(name, move || {
            let _dies = OnPanic(|| link.die("a fault in forebay: its thread ended"));
            work(&link);
        })
        .map(drop)
    }

    /// A disk's requests, one after the other, until the link is dead.
    fn perform_all(&self, requests: mpsc::Receiver<DiskRequest>) {
        let LegWay::Disk(disk) = &self.way else {
            return;
        };
        for request in requests {
            // What was not begun is not to be done later.
            if self.is_dead() {
                break;
            }
            self.answer(request.cookie, disk.perform(&request));
        }
        disk.unlock();
    }

    /// A disk that hangs is found by who does not wait for it.
    fn look_for_late_ones(&self) {
        while !self.is_dead() {
            thread::sleep(LOOK);
            self.looks();
            if self.is_late() {
                self.die(&format!("the disk {}", self.lateness()));
            }
        }
    }

    /// A disk's answer. One that comes when the link is dead is of no request any more.
    fn answer(&self, cookie: u64, answer: io::Result<Vec<u8>>) {
        let pending = self.state.lock().pending.remove(&cookie);
        match (pending, answer) {
            (Some(request), Ok(data)) => (request.then)(Ok(data)),
            (Some(request), Err(e)) => {
                let why = format!("the disk says: {e}");
                (request.then)(Err(dead(&why)));
                self.die(&why);
            }
            (None, _) => {}
        }
    }

    pub(crate) fn export(&self) -> ExportInfo {
        self.export
    }

    #[cfg(test)]
    pub(super) fn renew_keys(&self) {
        if let LegWay::Network(channel) = &self.way {
            channel.renew_keys();
        }
    }

    /// A disk that hangs as long as this is held.
    #[cfg(test)]
    pub(super) fn hang(&self) -> impl Drop + '_ {
        match &self.way {
            LegWay::Disk(disk) => disk.hang(),
            LegWay::Network(_) => unreachable!("a network has no such lock"),
        }
    }

    /// True if nothing can be asked any more.
    pub(crate) fn is_dead(&self) -> bool {
        self.state.lock().dead.is_some()
    }

    /// Writes whole pages; durable when `then` is told so. Larger ones than the server takes at
    /// once are sent in parts.
    pub(crate) fn write(
        &self,
        offset: u64,
        bytes: &[u8],
        then: impl FnOnce(io::Result<()>) + Send + 'static,
    ) {
        let part_max = self.export.payload_max as usize;
        let parts = bytes.len().div_ceil(part_max).max(1);
        let gathered = Arc::new(Mutex::new((parts, Some(then), None::<io::Error>)));
        for (number, part) in bytes.chunks(part_max).enumerate() {
            let at = offset + (number * part_max) as u64;
            let gathered = Arc::clone(&gathered);
            let answered = move |answer: io::Result<Vec<u8>>| {
                let mut all = gathered.lock();
                all.0 -= 1;
                if let Err(e) = answer {
                    all.2.get_or_insert(e);
                }
                if all.0 == 0
                    && let Some(then) = all.1.take()
                {
                    let result = all.2.take().map_or(Ok(()), Err);
                    drop(all);
                    then(result);
                }
            };
            self.ask(
                RequestKind::Write,
                FUA,
                (at, part.len()),
                part,
                Box::new(answered),
            );
        }
    }

    /// The same, and waits for it.
    ///
    /// # Errors
    /// The leg does not have it.
    pub(crate) fn write_and_wait(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.wait(|then| self.write(offset, bytes, then))
    }

    /// Reads into `to`.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn read(&self, offset: u64, to: &mut [u8]) -> io::Result<()> {
        let part_max = self.export.payload_max as usize;
        for (number, part) in to.chunks_mut(part_max).enumerate() {
            let place = (offset + (number * part_max) as u64, part.len());
            let read =
                self.wait(|then| self.ask(RequestKind::Read, 0, place, &[], Box::new(then)))?;
            part.copy_from_slice(&read);
        }
        Ok(())
    }

    /// Reads the superblocks' slots.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(crate) fn read_start(&self) -> io::Result<Vec<u8>> {
        let mut start = vec![0; LEG_DATA as usize];
        self.read(0, &mut start).map(|()| start)
    }

    /// Writes zeros there.
    ///
    /// # Errors
    /// As [`write_and_wait`](Self::write_and_wait).
    pub(crate) fn erase_start(&self) -> io::Result<()> {
        self.write_and_wait(0, &vec![0; LEG_DATA as usize])
    }

    /// Calls `ask` with what takes the answer, and waits for that.
    fn wait<T: Send + 'static>(
        &self,
        ask: impl FnOnce(Box<dyn FnOnce(io::Result<T>) + Send>),
    ) -> io::Result<T> {
        let (told, answer) = mpsc::channel();
        let asking = self.asking.lock();
        ask(Box::new(move |result| drop(told.send(result))));
        if !self.is_pipelined.load(Acquire) {
            loop {
                if let Ok(result) = answer.try_recv() {
                    return result;
                }
                // A disk has answered by then.
                if let LegWay::Network(channel) = &self.way
                    && let Err(e) = read_answer(self, &mut &*channel)
                {
                    self.die(&e.to_string());
                }
            }
        }
        drop(asking);
        answer
            .recv()
            .unwrap_or_else(|_| Err(dead("the request was given up")))
    }

    /// Reads no more than the server takes at once; `then` is called with it.
    pub(crate) fn read_then(
        &self,
        offset: u64,
        bytes: usize,
        then: impl FnOnce(io::Result<Vec<u8>>) + Send + 'static,
    ) {
        self.ask(RequestKind::Read, 0, (offset, bytes), &[], Box::new(then));
    }

    fn ask(
        &self,
        kind: RequestKind,
        flags: u16,
        (offset, bytes): (u64, usize),
        payload: &[u8],
        then: OnAnswer,
    ) {
        let cookie = {
            let mut state = self.state.lock();
            if let Some(why) = &state.dead {
                let error = dead(why);
                drop(state);
                return then(Err(error));
            }
            let cookie = state.next;
            state.next += 1;
            let pending = PendingRequest {
                since: state.watched(MonotonicTime::now()),
                bytes: if kind == RequestKind::Read { bytes } else { 0 },
                then,
            };
            state.pending.insert(cookie, pending);
            cookie
        };
        let channel = match &self.way {
            LegWay::Network(channel) => channel,
            LegWay::Disk(disk) => {
                let act = match kind {
                    RequestKind::Write => DiskAct::Write {
                        payload: payload.to_vec(),
                    },
                    RequestKind::Read | RequestKind::Disconnect => DiskAct::Read { bytes },
                };
                let request = DiskRequest {
                    cookie,
                    offset,
                    act,
                };
                return self.ask_disk(disk, request);
            }
        };
        let mut header = REQUEST.to_be_bytes().to_vec();
        header.extend(flags.to_be_bytes());
        header.extend((kind as u16).to_be_bytes());
        header.extend(cookie.to_be_bytes());
        header.extend(offset.to_be_bytes());
        header.extend((bytes as u32).to_be_bytes());
        if let Err(e) = channel.send(&header, payload) {
            self.die(&format!("sending a request: {e}"));
        }
    }

    fn ask_disk(&self, disk: &DiskLeg, request: DiskRequest) {
        if !self.is_pipelined.load(Acquire) {
            self.answer(request.cookie, disk.perform(&request));
        } else if !disk.send(request) {
            self.die("its thread ended");
        }
    }

    /// Nothing is asked any more. What was sent and has not arrived is not to arrive: the
    /// connection is reset, as far as the kernel does so.
    pub(crate) fn die(&self, why: &str) {
        let pending = {
            let mut state = self.state.lock();
            if state.dead.is_none() {
                state.dead = Some(why.into());
            }
            std::mem::take(&mut state.pending)
        };
        match &self.way {
            LegWay::Network(channel) => channel.shut(),
            LegWay::Disk(disk) => {
                disk.end_queue();
                // Otherwise its thread does it, once nothing is under way.
                if !self.is_pipelined.load(Acquire) {
                    disk.unlock();
                }
            }
        }
        for request in pending.into_values() {
            (request.then)(Err(dead(why)));
        }
    }

    /// Before a leg that returns is written to: requests that another process, or this one, had
    /// under way there are over.
    ///
    /// # Errors
    /// It is not.
    pub(crate) fn claim(&self) -> io::Result<()> {
        match &self.way {
            LegWay::Network(_) => Ok(()),
            LegWay::Disk(disk) => disk.claim(),
        }
    }

    /// A disk that begins with zeros is not another's, as far as can be seen: its name may lead to
    /// another one than before.
    ///
    /// # Errors
    /// What it holds, or that it is in use.
    pub(crate) fn check_unused(&self) -> io::Result<()> {
        match &self.way {
            LegWay::Network(_) => Ok(()),
            LegWay::Disk(disk) => disk.check_unused(),
        }
    }

    /// Says good-bye; nothing is being asked.
    pub(crate) fn close(&self) {
        if let LegWay::Network(channel) = &self.way
            && !self.is_dead()
        {
            let mut header = REQUEST.to_be_bytes().to_vec();
            header.extend(0_u16.to_be_bytes());
            header.extend((RequestKind::Disconnect as u16).to_be_bytes());
            header.extend([0; 20]);
            let _ = channel.send(&header, &[]).and_then(|()| channel.end());
        }
        self.die("it was closed");
    }

    fn late(&self) -> io::Error {
        nonsense(&self.lateness())
    }

    fn lateness(&self) -> String {
        let limit = self.answer_limit.as_secs_f32();
        format!("left a request without an answer for {limit} seconds")
    }

    /// True if an answer is late.
    fn is_late(&self) -> bool {
        let state = self.state.lock();
        let mut pending = state.pending.values();
        pending.any(|request| self.is_over(&state, request.since))
    }

    /// True if an answer that began to come then takes too long.
    fn is_halting(&self, begun: Duration) -> bool {
        self.is_over(&self.state.lock(), begun)
    }

    /// True if the server had its time since then, and who asks was there to see it.
    fn is_over(&self, state: &LinkState, since: Duration) -> bool {
        let watched = state.watched(MonotonicTime::now());
        watched.saturating_sub(since) > self.answer_limit
    }

    fn looks(&self) {
        self.state.lock().look(MonotonicTime::now());
    }

    fn watched(&self) -> Duration {
        self.state.lock().watched(MonotonicTime::now())
    }
}

/// Connects to an export.
fn connect_export(
    address: &ExportAddress,
    insecure: bool,
    answer_limit: Duration,
) -> io::Result<(LegChannel, ExportInfo)> {
    // Before anything is said to anybody.
    let tls = address.tls().map(TlsStart::read).transpose()?;
    let at = address.resolve(insecure)?;
    let mut stream = TcpStream::connect_timeout(&at, answer_limit)?;
    stream.set_nodelay(true)?;
    // What a killed process had sent is not to arrive behind its successor's writes.
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO))?;
    let limit_ms = u32::try_from(answer_limit.as_millis()).unwrap_or(u32::MAX);
    rustix::net::sockopt::set_tcp_user_timeout(&stream, limit_ms)?;
    stream.set_read_timeout(Some(answer_limit))?;
    stream.set_write_timeout(Some(answer_limit))?;
    let mut bounded = BoundedStream {
        stream: &mut stream,
        begun: MonotonicTime::now(),
        limit: answer_limit,
    };
    let (export, tls) = begin(&mut bounded, address.export(), tls).map_err(|e| match e.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            nonsense("does not answer: it is no NBD server, or hangs")
        }
        io::ErrorKind::UnexpectedEof => nonsense("closes the connection when it is greeted"),
        _ => e,
    })?;
    stream.set_read_timeout(Some(LOOK))?;
    Ok((LegChannel::new(stream, tls), export))
}

/// Negotiates for the export `name`, encrypted if there is TLS: nothing of the export is asked or
/// believed before.
fn begin(
    stream: &mut (impl Read + Write),
    name: &str,
    tls: Option<TlsStart>,
) -> io::Result<(ExportInfo, Option<TlsSession>)> {
    greet(stream)?;
    let Some(tls) = tls else {
        return negotiate(stream, name).map(|export| (export, None));
    };
    start_tls(stream)?;
    let (export, session) = tls.begin(stream, |mut encrypted| negotiate(&mut encrypted, name))?;
    Ok((export, Some(session)))
}

/// A stream on which all that is said takes no longer than a limit.
struct BoundedStream<'a> {
    stream: &'a mut TcpStream,
    begun: MonotonicTime,
    limit: Duration,
}

impl BoundedStream<'_> {
    fn check(&self) -> io::Result<()> {
        match self.begun.elapsed() > self.limit {
            true => Err(io::ErrorKind::TimedOut.into()),
            false => Ok(()),
        }
    }
}

impl Read for BoundedStream<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.check()?;
        self.stream.read(to)
    }
}

impl Write for BoundedStream<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.check()?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// True of nothing but zeros.
pub(super) fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

fn dead(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, why.to_owned())
}

/// Reads answers until there are no more: why.
fn read_answers(link: &LegLink, channel: &LegChannel) -> String {
    let mut from = BufReader::with_capacity(64 << 10, channel);
    let mut looked = MonotonicTime::now();
    loop {
        if let Err(e) = read_answer(link, &mut from) {
            return e.to_string();
        }
        // Other answers may come all the time, and one not.
        if looked.elapsed() > LOOK {
            looked = MonotonicTime::now();
            link.looks();
            if link.is_late() {
                return link.late().to_string();
            }
        }
    }
}

fn read_answer(link: &LegLink, from: &mut impl Read) -> io::Result<()> {
    let mut header = [0; 16];
    fill(link, from, &mut header, None)?;
    let word = |at: usize| {
        u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    if word(0) != REPLY {
        return Err(nonsense(&format!(
            "answers with {:#010x}, which is no NBD reply",
            word(0)
        )));
    }
    let cookie = u64::from(word(8)) << 32 | u64::from(word(12));
    let Some(request) = link.state.lock().pending.remove(&cookie) else {
        return Err(nonsense(&format!(
            "answers request {cookie}, which was not made or was answered before"
        )));
    };
    match word(4) {
        0 => {
            let mut data = vec![0; request.bytes];
            match fill(link, from, &mut data, Some(link.watched())) {
                Ok(()) => (request.then)(Ok(data)),
                Err(e) => {
                    (request.then)(Err(dead(&e.to_string())));
                    return Err(e);
                }
            }
            Ok(())
        }
        error => {
            let why = nonsense(&format!(
                "refuses a request: {}",
                io::Error::from_raw_os_error(error.cast_signed())
            ));
            (request.then)(Err(dead(&why.to_string())));
            Err(why)
        }
    }
}

/// Fills `to`, of an answer that has begun since then. It wakes now and then to look for answers
/// that are late.
fn fill(
    link: &LegLink,
    from: &mut impl Read,
    to: &mut [u8],
    mut begun: Option<Duration>,
) -> io::Result<()> {
    let mut done = 0;
    while done < to.len() {
        let read = from.read(&mut to[done..]);
        link.looks();
        match read {
            Ok(0) => return Err(nonsense("closed the connection")),
            Ok(bytes) => {
                done += bytes;
                let begun = *begun.get_or_insert_with(|| link.watched());
                if done < to.len() && link.is_halting(begun) {
                    return Err(link.late());
                }
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                ) =>
            {
                if let Some(why) = &link.state.lock().dead {
                    return Err(dead(why));
                }
                let is_halting = begun.is_some_and(|it| link.is_halting(it));
                if is_halting || link.is_late() {
                    return Err(link.late());
                }
            }
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_which_a_process_stood_still_is_not_its_legs() {
        let (mut state, mut now) = (LinkState::default(), MonotonicTime::now());
        state.look(now);
        let mut passes = |state: &mut LinkState, millis: u64| {
            now = now + Duration::from_millis(millis);
            state.look(now);
            state.watched(now)
        };
        assert_eq!(passes(&mut state, 60_000), Duration::ZERO);
        // Of each second it has a tenth.
        for _ in 0..30 {
            passes(&mut state, 900);
            passes(&mut state, 100);
        }
        assert_eq!(passes(&mut state, 0), Duration::from_secs(3));
        let later = now + STOOD_STILL;
        assert_eq!(state.watched(later), Duration::from_millis(3500));
        assert_eq!(state.watched(later + LOOK), Duration::from_secs(3));
    }
}
