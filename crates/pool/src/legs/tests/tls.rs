//! Legs with TLS: on nbdkit, and on servers that do not as they should.

use super::{
    BYTES, LEG_BYTES,
    authority::TestAuthority,
    misbehaving,
    pool::{create_on, join, log, recovered},
    server::{FakeServer, ServerMood, until},
};
use crate::{
    ClaimOptions, PoolOptions,
    legs::{address::LegAddress, link::LegLink},
};
use std::{
    fs,
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};
use uuid::Uuid;

/// A leg's server as users have it. It ends with the test.
pub(super) struct NbdkitServer {
    pub(super) port: u16,
    options: Vec<String>,
    child: Option<Child>,
}

impl NbdkitServer {
    pub(super) fn start(options: &[&str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let mut server = Self {
            port,
            options: options.iter().copied().map(str::to_owned).collect(),
            child: None,
        };
        server.go_on();
        server
    }

    /// As the document has it.
    pub(super) fn proper(authority: &TestAuthority) -> Self {
        let certificates = authority.path("leg-b").display().to_string();
        let options = ["--tls=require", "--tls-verify-peer", "--tls-certificates"];
        Self::start(&[&options[..], &[&certificates]].concat())
    }

    /// Starts it, with empty memory.
    pub(super) fn go_on(&mut self) {
        let mut nbdkit = Command::new("nbdkit");
        // With more threads it aborts now and then when a client is gone: docs/legs.md.
        nbdkit.args(["--foreground", "--exit-with-parent", "--threads", "1"]);
        nbdkit.args(["--ipaddr", "127.0.0.1", "--port", &self.port.to_string()]);
        nbdkit.args(&self.options).args(["memory", "2M"]);
        self.child = Some(nbdkit.stdin(Stdio::null()).spawn().unwrap());
        until("nbdkit", || {
            TcpStream::connect(("127.0.0.1", self.port)).is_ok()
        });
    }

    /// Its machine is gone, with its memory.
    fn lose(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for NbdkitServer {
    fn drop(&mut self) {
        self.lose();
    }
}

pub(super) fn connect(url: &str) -> io::Result<Arc<LegLink>> {
    LegLink::connect(&LegAddress::parse(url).unwrap(), false)
}

fn refused(url: &str) -> String {
    connect(url).map(drop).unwrap_err().to_string()
}

/// Promise (pool): A pool on legs with TLS, by which both sides know each other, keeps what was
/// committed as one without does, also while a leg is lost and made complete again.
#[test]
fn a_pool_on_encrypted_legs_keeps_what_was_committed() {
    let authority = TestAuthority::new();
    let mut servers = [0; 2].map(|_| NbdkitServer::proper(&authority));
    let dir = tempfile::tempdir().unwrap();
    let (path, copy) = (dir.path().join("pool"), dir.path().join("copy"));
    let urls: Vec<String> = servers.iter().map(|it| authority.url(it.port)).collect();
    let pool = create_on(&path, urls.clone()).unwrap();
    let owner = Uuid::new_v4();
    let lane = pool.claim_shared(owner, &ClaimOptions::new()).unwrap();
    let member = join(&path, &pool, &lane);
    assert!(log(&member, "on both") && !member.is_degraded());
    servers[1].lose();
    assert!(log(&member, "on one") && member.is_degraded());
    servers[1].go_on();
    until("a complete leg", || pool.degradation().is_none());
    until("word of it", || !member.is_degraded());
    assert!(log(&member, "on both again"));
    // By the leg that had been lost, on another machine.
    servers[0].lose();
    fs::copy(&path, &copy).unwrap();
    let (lost, _) = urls[0].split_once('?').unwrap();
    let options = PoolOptions::new().lost_legs(vec![lost.to_owned()]);
    let pool = options.open(&copy).unwrap();
    let (lane, found) = pool.claim(owner, &ClaimOptions::new()).unwrap();
    assert_eq!(found.records().count(), 3);
    servers[0].go_on();
    until("both legs", || pool.degradation().is_none());
    drop((found, lane, pool));
    assert_eq!(recovered(&copy, owner).len(), 3);
}

/// Promise (pool): A leg's server that cannot be believed, or does not believe this machine, is
/// named with the reason, and nothing is written to it.
#[test]
fn a_leg_whose_certificate_is_not_valid_is_not_written_to() {
    let (authority, other) = (TestAuthority::new(), TestAuthority::new());
    let old = TestAuthority::years_ago(11);
    authority.run(
        "touch index && echo 01 >number && mkdir revoking && cp ca-cert.pem revoking
         printf '[ca]\ndefault_ca=own\n[own]\ndatabase=index\ncrlnumber=number\ndefault_md=sha256\ndefault_crl_days=9\n' >config
         own='openssl ca -config config -cert ca-cert.pem -keyfile ca-key.pem'
         $own -revoke leg-b/server-cert.pem && $own -gencrl -out revoking/ca-crl.pem",
        0,
    );
    let query = |authority: &TestAuthority, client: &str, name: &str| {
        let client = authority.path(client);
        format!("?tls-certificates={}&tls-hostname={name}", client.display())
    };
    for (of, query, reasons) in [
        (
            &other,
            query(&authority, "client", "b"),
            ["signed it", "ca-cert.pem"],
        ),
        (&old, query(&old, "client", "b"), ["expired", "clock"]),
        (
            &authority,
            query(&authority, "client", "c"),
            ["\"b\"", "tls-hostname"],
        ),
        (
            &authority,
            query(&authority, "revoking", "b"),
            ["Revoked", "a new one"],
        ),
        (&authority, String::new(), ["wants TLS", "nbds://"]),
    ] {
        let server = FakeServer::encrypted(LEG_BYTES, of.server());
        let scheme = if query.is_empty() { "nbd" } else { "nbds" };
        let url = format!("{scheme}://127.0.0.1:{}/x{query}", server.port);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pool");
        let error = create_on(&path, vec![url.clone()]).map(drop).unwrap_err();
        let error = error.to_string();
        assert!(
            reasons.iter().all(|it| error.contains(it)),
            "{url}: {error}"
        );
        assert!(server.memory.lock().iter().all(|byte| *byte == 0), "{url}");
        assert!(!path.exists(), "{url}");
    }
    // Of its own authority it is.
    let server = FakeServer::encrypted(LEG_BYTES, authority.server());
    connect(&authority.url(server.port)).unwrap();
}

#[test]
fn a_server_and_a_client_that_do_not_fit_say_why() {
    let (authority, other) = (TestAuthority::new(), TestAuthority::new());
    authority.run("mkdir nobody && cp ca-cert.pem nobody", 0);
    authority.run("mkdir stranger && cp ca-cert.pem stranger", 0);
    for name in ["client-cert.pem", "client-key.pem"] {
        let to = authority.path("stranger").join(name);
        fs::copy(other.path("client").join(name), to).unwrap();
    }
    let plain = NbdkitServer::start(&["--tls=off"]);
    let error = refused(&authority.url(plain.port));
    assert!(error.contains("has no TLS"), "{error}");
    let server = NbdkitServer::proper(&authority);
    let url = authority.url(server.port);
    let error = refused(&format!("nbd://127.0.0.1:{}/x", server.port));
    assert!(error.contains("wants TLS"), "{error}");
    let error = refused(&url.replace("/client", "/nobody"));
    assert!(
        error.contains("client-cert.pem and client-key.pem into"),
        "{error}"
    );
    let error = refused(&url.replace("/client", "/stranger"));
    assert!(error.contains("does not accept this machine's"), "{error}");
    let start = connect(&url).unwrap().read_start().unwrap();
    assert!(start.iter().all(|byte| *byte == 0));
}

#[test]
fn certificates_that_cannot_be_used_are_named() {
    let authority = TestAuthority::new();
    let url = |dir: &Path| format!("nbds://127.0.0.1:1/x?tls-certificates={}", dir.display());
    let mut number = 0;
    let mut broken = |change: &str| -> PathBuf {
        number += 1;
        authority.run(
            &format!("cp -r client {number} && cd {number}\n{change}"),
            0,
        );
        authority.path(&number.to_string())
    };
    for (change, reason) in [
        ("rm ca-cert.pem", "there is no"),
        ("echo >ca-cert.pem", "holds no certificate in PEM"),
        (
            "cp client-key.pem ca-cert.pem",
            "holds no certificate in PEM",
        ),
        ("sed -i 4d ca-cert.pem", "no authority's certificate"),
        ("sed -i '$d' ca-cert.pem", "has no end"),
        ("sed -i '3s/^/;/' ca-cert.pem", "no base64"),
        ("rm ca-cert.pem && mkfifo ca-cert.pem", "not a file"),
        (
            "rm ca-cert.pem && ln -s /dev/zero ca-cert.pem",
            "not a file",
        ),
        ("truncate -s 2M ca-cert.pem", "larger than any"),
        ("rm client-key.pem", "needs both"),
        ("rm client-cert.pem", "needs both"),
        ("cp ../leg-b/server-key.pem client-key.pem", "KeyMismatch"),
        ("cp client-cert.pem client-key.pem", "without a passphrase"),
        ("sed -i 2d client-key.pem", "cannot be used"),
        ("echo >ca-crl.pem", "revocation list"),
    ] {
        let error = refused(&url(&broken(change)));
        assert!(error.contains(reason), "{change}: {error}");
    }
    // Whole, it is asked for: nobody listens there.
    let error = connect(&url(&broken(""))).map(drop).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    // What is in a file is not shown, wherever its name leads.
    let error = refused(&url(&broken("printf -- '-----BEGIN SECRET' >ca-cert.pem")));
    assert!(!error.contains("SECRET"), "{error}");
}

#[test]
fn an_encrypted_leg_that_misbehaves_ends_its_link() {
    let authority = TestAuthority::new();
    let try_one = |mood: ServerMood, reason: &str, pipelines: bool| {
        let server = FakeServer::encrypted(LEG_BYTES, authority.server());
        let link = connect(&authority.url(server.port)).unwrap();
        let error = misbehaving(&server, &link, mood, pipelines);
        assert!(error.contains(reason), "{mood:?}: {error}");
    };
    thread::scope(|scope| {
        for (mood, reason) in [
            (ServerMood::Silent, "without an answer"),
            (ServerMood::HalfAnswers, "without an answer"),
            (ServerMood::Garbage, "0x5a5a5a5a"),
            (ServerMood::Leaves, "closed the connection"),
        ] {
            for pipelines in [false, true] {
                scope.spawn(move || try_one(mood, reason, pipelines));
            }
        }
    });
}

/// A network between a link and its leg.
struct TestNetwork {
    port: u16,
    /// Answers come byte by byte.
    is_slow: Arc<AtomicBool>,
    /// A byte of the answers is another one.
    is_false: Arc<AtomicBool>,
}

impl TestNetwork {
    /// It ends with the test's process.
    fn to(leg: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let network = Self {
            port: listener.local_addr().unwrap().port(),
            is_slow: Arc::default(),
            is_false: Arc::default(),
        };
        let (is_slow, is_false) = (Arc::clone(&network.is_slow), Arc::clone(&network.is_false));
        thread::spawn(move || {
            let (from, _) = listener.accept().unwrap();
            let to = TcpStream::connect(("127.0.0.1", leg)).unwrap();
            let (mut answers, mut back) = (to.try_clone().unwrap(), from.try_clone().unwrap());
            back.set_nodelay(true).unwrap();
            thread::spawn(move || io::copy(&mut &from, &mut &to));
            let mut bytes = vec![0; 64 << 10];
            while let Ok(count @ 1..) = answers.read(&mut bytes) {
                bytes[count / 2] ^= u8::from(is_false.load(SeqCst));
                let slow = is_slow.load(SeqCst);
                for part in bytes[..count].chunks(if slow { 1 } else { count }) {
                    if back.write_all(part).is_err() {
                        return;
                    }
                    thread::sleep(Duration::from_millis(if slow { 20 } else { 0 }));
                }
            }
        });
        network
    }
}

#[test]
fn a_network_that_delays_or_changes_answers_ends_the_link() {
    let authority = TestAuthority::new();
    for (slow, reason) in [(true, "without an answer"), (false, "breaks TLS")] {
        let server = FakeServer::encrypted(LEG_BYTES, authority.server());
        let network = TestNetwork::to(server.port);
        let link = connect(&authority.url(network.port)).unwrap();
        link.pipeline().unwrap();
        link.read(0, &mut [0; 4096]).unwrap();
        (if slow {
            &network.is_slow
        } else {
            &network.is_false
        })
        .store(true, SeqCst);
        let begun = Instant::now();
        let error = link.read(0, &mut [0; 4096]).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
}

#[test]
fn requests_are_sent_while_a_leg_waits_for_its_answers_readers() {
    const PART: usize = 256 << 10;
    let authority = TestAuthority::new();
    let server = FakeServer::encrypted(LEG_BYTES, authority.server());
    let link = connect(&authority.url(server.port)).unwrap();
    link.pipeline().unwrap();
    let (told, heard) = mpsc::channel();
    let places = (0..BYTES / PART).cycle().take(160).enumerate();
    // The server reads no request while it sends an answer: both directions are full soon.
    for (number, place) in places {
        let (at, told) = ((place * PART) as u64, told.clone());
        match number % 2 {
            0 => link.write(at, &vec![place as u8; PART], move |answer| {
                told.send(answer.map(|()| true)).unwrap();
            }),
            _ => link.read_then(at, PART, move |answer| {
                let is_whole = |data: Vec<u8>| data.len() == PART;
                told.send(answer.map(is_whole)).unwrap();
            }),
        }
    }
    for _ in 0..160 {
        assert!(
            heard
                .recv_timeout(Duration::from_secs(20))
                .unwrap()
                .unwrap()
        );
    }
}

#[test]
fn new_keys_come_while_requests_are_answered() {
    let authority = TestAuthority::new();
    let works = |link: &LegLink, byte: u8| {
        link.write_and_wait(4096, &[byte; 8192]).unwrap();
        let mut found = [0; 8192];
        link.read(4096, &mut found).unwrap();
        assert_eq!(found, [byte; 8192]);
    };
    // The client's. GnuTLS takes no more than eight within a second for honest.
    let server = NbdkitServer::proper(&authority);
    let link = connect(&authority.url(server.port)).unwrap();
    link.pipeline().unwrap();
    for byte in 0..6 {
        link.renew_keys();
        works(&link, byte);
    }
    // The server's, which wants the client's as well.
    let server = FakeServer::encrypted(LEG_BYTES, authority.server());
    let link = connect(&authority.url(server.port)).unwrap();
    server.set(ServerMood::RenewsKeys);
    for byte in 0..6 {
        works(&link, byte);
    }
    link.pipeline().unwrap();
    for byte in 0..6 {
        works(&link, byte);
    }
}
