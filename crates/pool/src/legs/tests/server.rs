//! An NBD server in this process that obeys a test: it serves as it should, or not.

use parking_lot::Mutex;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::{
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

/// Its answer to requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServerMood {
    Proper,
    /// Answers two at a time, the later one first.
    Reversed,
    /// Never answers.
    Silent,
    /// Answers a request that nobody made.
    WrongCookie,
    Garbage,
    Fails,
    /// Closes the connection in the middle of a request.
    Leaves,
    /// Begins an answer and does not end it.
    HalfAnswers,
    /// Answers byte by byte.
    Trickles,
    /// Wants new keys with each answer, if it is encrypted.
    RenewsKeys,
}

/// Its description of its export.
#[derive(Clone, Copy)]
pub(super) struct ServerExport {
    pub(super) flags: u16,
    pub(super) block_min: u32,
    pub(super) payload_max: u32,
    /// The reply with which it refuses an option.
    pub(super) refuses: Option<u32>,
    /// Its greeting.
    pub(super) greeting: &'static [u8; 8],
}

impl ServerExport {
    pub(super) const USUAL: Self = Self {
        flags: 0b1101,
        block_min: 1,
        payload_max: 32 << 20,
        refuses: None,
        greeting: b"NBDMAGIC",
    };
}

pub(super) struct FakeServer {
    pub(super) memory: Arc<Mutex<Vec<u8>>>,
    pub(super) mood: Arc<Mutex<ServerMood>>,
    pub(super) port: u16,
    connections: Arc<Mutex<Vec<TcpStream>>>,
    is_up: Arc<AtomicBool>,
}

impl FakeServer {
    pub(super) fn start(bytes: usize) -> Self {
        Self::with(bytes, ServerExport::USUAL)
    }

    pub(super) fn with(bytes: usize, export: ServerExport) -> Self {
        Self::of(bytes, export, None)
    }

    /// One that demands TLS.
    pub(super) fn encrypted(bytes: usize, config: Arc<ServerConfig>) -> Self {
        Self::of(bytes, ServerExport::USUAL, Some(config))
    }

    fn of(bytes: usize, export: ServerExport, tls: Option<Arc<ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Self {
            memory: Arc::new(Mutex::new(vec![0; bytes])),
            mood: Arc::new(Mutex::new(ServerMood::Proper)),
            port: listener.local_addr().unwrap().port(),
            connections: Arc::default(),
            is_up: Arc::new(AtomicBool::new(true)),
        };
        let (memory, mood) = (Arc::clone(&server.memory), Arc::clone(&server.mood));
        let is_up = Arc::clone(&server.is_up);
        let connections = Arc::clone(&server.connections);
        // It ends with the test's process.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if !is_up.load(SeqCst) {
                    continue;
                }
                connections.lock().push(stream.try_clone().unwrap());
                let (memory, mood) = (Arc::clone(&memory), Arc::clone(&mood));
                let tls = tls.clone();
                thread::spawn(move || greet(stream, &memory, &mood, export, tls));
            }
        });
        server
    }

    pub(super) fn url(&self) -> String {
        format!("nbd://127.0.0.1:{}/x", self.port)
    }

    pub(super) fn set(&self, mood: ServerMood) {
        *self.mood.lock() = mood;
    }

    /// Its machine is gone, or cut off.
    pub(super) fn stop(&self, forgets: bool) {
        self.is_up.store(false, SeqCst);
        for connection in self.connections.lock().drain(..) {
            let _ = connection.shutdown(std::net::Shutdown::Both);
        }
        if forgets {
            self.memory.lock().fill(0);
        }
    }

    pub(super) fn go_on(&self) {
        self.is_up.store(true, SeqCst);
    }
}

/// Until the connection ends.
fn greet(
    mut stream: TcpStream,
    memory: &Mutex<Vec<u8>>,
    mood: &Mutex<ServerMood>,
    export: ServerExport,
    tls: Option<Arc<ServerConfig>>,
) -> io::Result<()> {
    let socket = stream.try_clone()?;
    stream.set_nodelay(true)?;
    stream.write_all(export.greeting)?;
    stream.write_all(b"IHAVEOPT\0\x03")?;
    stream.read_exact(&mut [0; 4])?;
    let Some(config) = tls else {
        serve(stream, &socket, (memory, mood), export, |_| {});
        return Ok(());
    };
    let (option, _) = read_option(&mut stream)?;
    if option != 5 {
        // Policy: it is to be encrypted.
        return reply(&mut stream, option, 1 << 31 | 5, &[]);
    }
    reply(&mut stream, option, 1, &[])?;
    let session = ServerConnection::new(config).map_err(io::Error::other)?;
    let encrypted = StreamOwned::new(session, stream);
    serve(encrypted, &socket, (memory, mood), export, |stream| {
        stream.conn.refresh_traffic_keys().unwrap();
    });
    Ok(())
}

fn serve<S: Read + Write>(
    mut stream: S,
    socket: &TcpStream,
    (memory, mood): (&Mutex<Vec<u8>>, &Mutex<ServerMood>),
    export: ServerExport,
    renew_keys: fn(&mut S),
) {
    let bytes = memory.lock().len() as u64;
    if negotiate(&mut stream, bytes, export).is_err() {
        return;
    }
    let mut held: Option<Vec<u8>> = None;
    while let Ok((kind, cookie, answer)) = request(&mut stream, memory) {
        let mood = *mood.lock();
        if kind == 2 || mood == ServerMood::Leaves {
            return drop(socket.shutdown(std::net::Shutdown::Both));
        }
        let mut reply = 0x6744_6698_u32.to_be_bytes().to_vec();
        let error = if mood == ServerMood::Fails { 5_u32 } else { 0 };
        reply.extend(error.to_be_bytes());
        let shown = match mood {
            ServerMood::WrongCookie => cookie + 1000,
            _ => cookie,
        };
        reply.extend(shown.to_be_bytes());
        if error == 0 {
            reply.extend(answer);
        }
        match mood {
            ServerMood::Silent => continue,
            ServerMood::RenewsKeys => renew_keys(&mut stream),
            ServerMood::Garbage => reply.fill(0x5a),
            ServerMood::HalfAnswers => reply.truncate(15),
            ServerMood::Reversed => match held.take() {
                None => {
                    held = Some(reply);
                    continue;
                }
                Some(earlier) => reply.extend(earlier),
            },
            _ => {}
        }
        let parts: Vec<&[u8]> = match mood {
            ServerMood::Trickles => reply.chunks(1).collect(),
            _ => vec![&reply],
        };
        for part in parts {
            if stream.write_all(part).is_err() {
                return;
            }
            if mood == ServerMood::Trickles {
                thread::sleep(Duration::from_millis(50));
            }
        }
    }
}

/// An option's number and data.
fn read_option(stream: &mut impl Read) -> io::Result<(u32, Vec<u8>)> {
    let mut start = [0; 8 + 4 + 4];
    stream.read_exact(&mut start)?;
    let word = |at: usize| u32::from_be_bytes(start[at..at + 4].try_into().unwrap());
    let mut data = vec![0; word(12) as usize];
    stream.read_exact(&mut data)?;
    Ok((word(8), data))
}

fn reply(stream: &mut impl Write, option: u32, kind: u32, data: &[u8]) -> io::Result<()> {
    let mut message = 0x0003_e889_0455_65a9_u64.to_be_bytes().to_vec();
    message.extend(option.to_be_bytes());
    message.extend(kind.to_be_bytes());
    message.extend((data.len() as u32).to_be_bytes());
    message.extend(data);
    stream.write_all(&message)
}

fn negotiate(stream: &mut (impl Read + Write), bytes: u64, export: ServerExport) -> io::Result<()> {
    let (option, _) = read_option(stream)?;
    let mut reply = |kind: u32, data: &[u8]| reply(stream, option, kind, data);
    if option != 7 {
        return reply(1 << 31 | 1, &[]);
    }
    if let Some(error) = export.refuses {
        return reply(error, b"no such thing");
    }
    let mut block = 3_u16.to_be_bytes().to_vec();
    for size in [export.block_min, 4096, export.payload_max] {
        block.extend(size.to_be_bytes());
    }
    reply(3, &block)?;
    let mut info = 0_u16.to_be_bytes().to_vec();
    info.extend(bytes.to_be_bytes());
    info.extend(export.flags.to_be_bytes());
    reply(3, &info)?;
    reply(1, &[])
}

/// A request, done: its kind, its cookie, and what the answer brings.
fn request(stream: &mut impl Read, memory: &Mutex<Vec<u8>>) -> io::Result<(u16, u64, Vec<u8>)> {
    let mut header = [0; 28];
    stream.read_exact(&mut header)?;
    assert_eq!(header[..4], 0x2560_9513_u32.to_be_bytes());
    let kind = u16::from_be_bytes([header[6], header[7]]);
    let number = |at: usize| u64::from_be_bytes(header[at..at + 8].try_into().unwrap());
    let length = u32::from_be_bytes(header[24..].try_into().unwrap()) as usize;
    let at = number(16) as usize;
    let answer = match kind {
        0 => memory.lock()[at..at + length].to_vec(),
        1 => {
            assert_eq!(header[5], 1, "a write without FUA");
            let mut data = vec![0; length];
            stream.read_exact(&mut data)?;
            memory.lock()[at..at + length].copy_from_slice(&data);
            Vec::new()
        }
        _ => Vec::new(),
    };
    Ok((kind, number(8), answer))
}

/// Returns once it is so.
pub(super) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if is_so() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("{what} did not come");
}
