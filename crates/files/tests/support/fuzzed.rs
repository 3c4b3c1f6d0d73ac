//! The fuzzer's entry point, for arbitrary bytes, and for an ordinary test with seeds and random
//! bytes: a supervisor in this process, and messages of clients that mean it no good. The messages
//! are written as docs/files-membership.md ("Messages") has them, not by `wire.rs`.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

use forebay_files::{
    ENV_SOCKET, ENV_TOKEN,
    supervisor::{Supervisor, SupervisorOptions},
};
use forebay_pool::PoolOptions;
use rustix::{
    io::Errno,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
        sockopt::{Timeout, set_socket_timeout},
    },
};
use serde_json::{Value, json};
use std::{
    ffi::OsString,
    fs::{self, File},
    io::{IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStringExt,
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// How long an answer may take. A supervisor waits 2 s at most for another client, and 10 s for the
/// lane of one that ended.
const PATIENCE: Duration = Duration::from_secs(30);
/// Messages of one input, at most.
const MESSAGES_MAX: usize = 24;
/// What the supervisor's memory may grow by from first to last, whatever is sent.
const GROWTH_MAX: u64 = 128 << 20;

/// A supervisor under attack.
pub struct Attacked {
    home: tempfile::TempDir,
    supervisor: Supervisor,
    socket: Vec<u8>,
    token: String,
    descriptors: usize,
    memory: u64,
}

impl Attacked {
    pub fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let pool = home.path().join("pool");
        let options = PoolOptions::new()
            .size(1 << 20)
            .segment_size(16 << 10)
            .emulated(true);
        drop(options.create(&pool).unwrap());
        let options = SupervisorOptions {
            preallocated: Default::default(),
            refuse_io_uring: false,
            guard: None,
            patterns: vec!["*.log".to_owned()],
            segments: 2,
            run_dir: home.path().join("run"),
            program: "fuzzed".to_owned(),
            front_end: Default::default(),
            layer: None,
        };
        let supervisor =
            Supervisor::start(PoolOptions::new().open(&pool).unwrap(), options).unwrap();
        let environment = supervisor.environment();
        let of = |name: &str| {
            let found = environment.iter().find(|(key, _)| key == name);
            found.unwrap().1.clone()
        };
        let mut attacked = Self {
            socket: OsString::into_vec(of(ENV_SOCKET)),
            token: of(ENV_TOKEN).into_string().unwrap(),
            home,
            supervisor,
            descriptors: 0,
            memory: 0,
        };
        fs::create_dir(attacked.home.path().join("data")).unwrap();
        // From the first on the run has its lane.
        attacked.must_welcome();
        attacked.must_be_well();
        attacked.descriptors = descriptors();
        attacked.memory = resident_bytes();
        attacked
    }

    pub fn data(&self) -> PathBuf {
        self.home.path().join("data")
    }

    /// Sends what `data` says over up to two connections, closes them, and looks whether the
    /// supervisor is well.
    pub fn input(&self, data: &[u8]) {
        let mut script = Script(data);
        let mut clients = [None, None];
        for _ in 0..MESSAGES_MAX {
            if script.0.is_empty() {
                break;
            }
            let which = usize::from(script.byte() & 1);
            let client = clients[which].get_or_insert_with(|| self.connect());
            if !client.send_next(self, &mut script) {
                clients[which] = None;
            }
        }
        drop(clients);
        self.must_be_well();
    }

    pub fn connect(&self) -> Client {
        let socket = rustix::net::socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        for which in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&socket, which, Some(PATIENCE)).unwrap();
        }
        let address = SocketAddrUnix::new_abstract_name(&self.socket).unwrap();
        rustix::net::connect(&socket, &address).expect("the supervisor takes connections");
        Client { socket }
    }

    pub fn hello(&self) -> Value {
        json!({"hello": {"version": forebay_files::WIRE_VERSION, "token": self.token, "pid": std::process::id()}})
    }

    /// A client that says hello is welcomed: what comes after it is not in vain.
    pub fn must_welcome(&self) {
        let client = self.connect();
        client.send(&self.hello(), &[]);
        let answer = client.receive().expect("the supervisor answers hello");
        assert!(answer["welcome"].is_object(), "{answer}");
    }

    /// It answers, and says something sensible.
    pub fn must_be_well(&self) {
        let client = self.connect();
        client.send(&json!({"status": {"token": self.token}}), &[]);
        let answer = client
            .receive()
            .expect("the supervisor answers in time, and does not hang up");
        // What it says lies in the file that comes along.
        assert_eq!(answer, json!("status"));
    }

    /// After the last input: it gave back what it had of the clients, and it ends.
    pub fn end(self) {
        let deadline = Instant::now() + PATIENCE;
        // What a client had open is closed when its lane is recovered, a moment after it is gone.
        while descriptors() > self.descriptors && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        let left = descriptors().saturating_sub(self.descriptors);
        assert_eq!(left, 0, "descriptors that no client has any more");
        let grown = resident_bytes().saturating_sub(self.memory);
        assert!(grown < GROWTH_MAX, "{grown} bytes of memory more");
        let (done, ended) = std::sync::mpsc::channel();
        let supervisor = self.supervisor;
        std::thread::spawn(move || done.send(supervisor.finish().map(drop)));
        let finished = ended.recv_timeout(PATIENCE);
        finished.expect("the supervisor ends").unwrap();
    }
}

/// Bytes that say what to do; zeros when they are used up.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    fn one_of<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[usize::from(self.byte()) % from.len()]
    }

    /// A file's number: mostly one that may be.
    fn number(&mut self) -> u64 {
        let numbers = [0, 1, 2, 3, 255, 256, u64::from(u32::MAX), u64::MAX];
        *self.one_of(&numbers)
    }

    fn path(&mut self, data: &Path) -> Vec<u8> {
        let file = |name: &str| data.join(name).into_os_string().into_vec();
        let paths = [
            file("a.log"),
            file("b.log"),
            file("directory"),
            file("gone/a.log"),
            b"/".to_vec(),
            Vec::new(),
            b"relative".to_vec(),
            b"/dev/null".to_vec(),
            b"a\0zero".to_vec(),
            vec![b'/'; 5000],
            [b"/".as_slice(), &[b'x'; 300]].concat(),
            b"/proc/self/fd/0".to_vec(),
        ];
        self.one_of(&paths).clone()
    }

    /// A descriptor, of something that may be absorbed or of something else.
    fn descriptor(&mut self, data: &Path) -> Option<OwnedFd> {
        let regular = |name: &str| {
            let mut how = File::options();
            how.read(true).write(true).create(true).truncate(false);
            how.open(data.join(name)).ok().map(OwnedFd::from)
        };
        match self.byte() % 12 {
            0..3 => regular("a.log"),
            3 => regular("b.log"),
            4 => {
                let file = regular("unlinked.log");
                let _ = fs::remove_file(data.join("unlinked.log"));
                file
            }
            5 => File::open(data).ok().map(OwnedFd::from),
            6 => std::io::pipe().ok().map(|(reads, _)| reads.into()),
            7 => std::io::pipe().ok().map(|(_, writes)| writes.into()),
            8 => File::open("/dev/null").ok().map(OwnedFd::from),
            9 => rustix::fs::memfd_create("fuzzed", rustix::fs::MemfdFlags::CLOEXEC).ok(),
            10 => {
                let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
                rustix::fs::open(data, flags, rustix::fs::Mode::empty()).ok()
            }
            _ => None,
        }
    }
}

/// One connection to the supervisor.
pub struct Client {
    socket: OwnedFd,
}

impl Client {
    /// Sends the next message of the script and, if there has to be one, receives its answer. False
    /// if the supervisor hung up.
    fn send_next(&self, attacked: &Attacked, script: &mut Script<'_>) -> bool {
        let data = attacked.data();
        let mut answered = false;
        let mut fds = Vec::new();
        let message = match script.byte() % 16 {
            0..3 => {
                answered = true;
                attacked.hello()
            }
            3..7 => {
                answered = true;
                fds.extend(script.descriptor(&data));
                json!({"register": {"path": script.path(&data)}})
            }
            7 | 8 => {
                answered = true;
                let generation = script.byte() % 4;
                json!({"retire": {"file": script.number(), "generation": generation}})
            }
            9 => {
                answered = true;
                json!({"repair": {"file": script.number()}})
            }
            10 => json!({"unlinked": {"file": script.number(), "path": script.path(&data)}}),
            11 => json!({"released": {"file": script.number()}}),
            12 => {
                answered = true;
                let tokens = [
                    attacked.token.as_str(),
                    "no",
                    "00000000-0000-0000-0000-000000000000",
                ];
                let token = script.one_of(&tokens);
                json!({"foreign": {"token": token, "dev": script.number(), "ino": script.number()}})
            }
            13 => {
                // More descriptors than any message has.
                fds.extend((0..6).filter_map(|_| script.descriptor(&data)));
                json!({"released": {"file": script.number()}})
            }
            14 => return self.send_bytes(&nonsense(script), &[]) && self.drop_answers(),
            _ => {
                let rest = script.0;
                script.0 = &[];
                return self.send_bytes(rest, &[]) && self.drop_answers();
            }
        };
        let borrowed: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        self.send(&message, &borrowed) && (!answered || self.receive().is_some())
    }

    /// True if the supervisor has not hung up. What is no message is answered by hanging up, or, as
    /// a first message, by a refusal.
    fn drop_answers(&self) -> bool {
        self.receive_flags(RecvFlags::DONTWAIT) != Err(Errno::CONNRESET)
    }

    pub fn send(&self, message: &Value, fds: &[BorrowedFd<'_>]) -> bool {
        self.send_bytes(&serde_json::to_vec(message).unwrap(), fds)
    }

    fn send_bytes(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> bool {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(fds.is_empty() || control.push(SendAncillaryMessage::ScmRights(fds)));
        let parts = [IoSlice::new(bytes)];
        match rustix::net::sendmsg(&self.socket, &parts, &mut control, SendFlags::NOSIGNAL) {
            Ok(_) => true,
            Err(Errno::AGAIN) => panic!("the supervisor does not read what it is sent"),
            // Gone; or larger than a packet may be.
            Err(_) => false,
        }
    }

    /// The next answer; none if the supervisor hung up.
    pub fn receive(&self) -> Option<Value> {
        match self.receive_flags(RecvFlags::empty()) {
            Ok(answer) => Some(answer),
            Err(Errno::AGAIN) => panic!("the supervisor hangs: no answer in {PATIENCE:?}"),
            Err(_) => None,
        }
    }

    fn receive_flags(&self, flags: RecvFlags) -> Result<Value, Errno> {
        let mut bytes = vec![0; 256 << 10];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = flags | RecvFlags::CMSG_CLOEXEC;
        let mut to = [IoSliceMut::new(&mut bytes)];
        let got = rustix::net::recvmsg(&self.socket, &mut to, &mut control, flags)?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                fds.for_each(drop);
            }
        }
        if got.bytes == 0 {
            return Err(Errno::CONNRESET);
        }
        Ok(serde_json::from_slice(&bytes[..got.bytes]).expect("an answer is JSON"))
    }
}

/// What looks like a message and is none.
fn nonsense(script: &mut Script<'_>) -> Vec<u8> {
    let texts = [
        Vec::new(),
        b"{}".to_vec(),
        b"null".to_vec(),
        br#"{"released":{"file":-1}}"#.to_vec(),
        br#"{"released":{"file":1e300}}"#.to_vec(),
        br#"{"retire":{"file":[],"generation":0}}"#.to_vec(),
        br#"{"register":{}}"#.to_vec(),
        vec![b'['; 100_000],
        vec![b' '; 159 << 10],
        format!(
            r#"{{"hello":{{"version":{},"token":"","pid":0}}}}"#,
            forebay_files::WIRE_VERSION
        )
        .into_bytes(),
        [
            br#"{"drain":{"end":1,"files":[0"#.as_slice(),
            &b",0".repeat(70_000),
            b"]}}",
        ]
        .concat(),
        vec![0xFF; 170 << 10],
    ];
    script.one_of(&texts).clone()
}

/// Descriptors that this process has.
fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Memory that this process has, in bytes.
fn resident_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.unwrap().trim().trim_end_matches(" kB");
    kilobytes.parse::<u64>().unwrap() << 10
}
