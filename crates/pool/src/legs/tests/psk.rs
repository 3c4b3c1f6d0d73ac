//! Legs with TLS by a pre-shared key, on nbdkit.

use super::{
    pool::{create_on, join, log, recovered},
    tls::{NbdkitServer, connect},
};
use crate::ClaimOptions;
use std::{fs, io, path::PathBuf, sync::mpsc, time::Duration};
use uuid::Uuid;

/// A directory with the keys of a server and of its client: lines of a name and a key.
struct KeyFiles {
    dir: tempfile::TempDir,
}

impl KeyFiles {
    fn new(server: &str, client: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("server"), server).unwrap();
        fs::write(dir.path().join("client"), client).unwrap();
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn serve(&self) -> NbdkitServer {
        let keys = self.path("server").display().to_string();
        NbdkitServer::start(&["--tls=require", "--tls-psk", &keys])
    }

    fn url(&self, server: &NbdkitServer) -> String {
        let (port, keys) = (server.port, self.path("client"));
        format!(
            "nbds://alice@127.0.0.1:{port}/x?tls-psk-file={}",
            keys.display()
        )
    }
}

const ALICE: &str = "alice:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n";

/// Promise (pool): A pool whose legs have TLS by a pre-shared key is recovered by the pool's file
/// and the file with the key.
#[test]
fn a_pool_is_recovered_by_a_pre_shared_key() {
    let keys = KeyFiles::new(&format!("bob:00ff\n{ALICE}"), ALICE);
    let servers = [keys.serve(), keys.serve()];
    let path = keys.path("pool");
    let urls = servers.iter().map(|server| keys.url(server)).collect();
    let pool = create_on(&path, urls).unwrap();
    let owner = Uuid::new_v4();
    let lane = pool.claim_shared(owner, &ClaimOptions::new()).unwrap();
    let member = join(&path, &pool, &lane);
    for text in ["one", "two"] {
        assert!(log(&member, text));
    }
    drop((member, lane));
    drop(pool);
    assert_eq!(recovered(&path, owner), ["one", "two"]);
}

/// Records of TLS are 16 KiB at most: requests and answers take several.
#[test]
fn requests_of_any_size_are_pipelined_by_a_key() {
    const PART: usize = 300_000 / 4096 * 4096;
    let keys = KeyFiles::new(ALICE, ALICE);
    let server = keys.serve();
    let link = connect(&keys.url(&server)).unwrap();
    // Before there is a thread that reads answers.
    link.write_and_wait(0, &[7; 8192]).unwrap();
    link.pipeline().unwrap();
    let (told, heard) = mpsc::channel();
    for number in 0..3_usize {
        let told = told.clone();
        let bytes: Vec<u8> = (0..PART).map(|at| (at % 253 + number) as u8).collect();
        let at = (8192 + number * PART) as u64;
        link.write(at, &bytes, move |answer| told.send(answer).unwrap());
    }
    for _ in 0..3 {
        heard
            .recv_timeout(Duration::from_secs(20))
            .unwrap()
            .unwrap();
    }
    for number in 0..3_usize {
        let mut found = vec![0; PART];
        link.read((8192 + number * PART) as u64, &mut found)
            .unwrap();
        let is_it = |(at, byte): (usize, &u8)| usize::from(*byte) == (at % 253 + number) % 256;
        assert!(found.iter().enumerate().all(is_it), "part {number}");
    }
    link.close();
}

/// Promise (pool): A leg that does not have the pre-shared key is refused with the reason, and so
/// is a key that is none.
#[test]
fn a_leg_that_lacks_the_key_is_refused_with_the_reason() {
    let refused = |keys: &KeyFiles, server: &NbdkitServer| {
        let refused: io::Error = connect(&keys.url(server)).map(drop).unwrap_err();
        refused.to_string()
    };
    let another = ALICE.replace("0001", "ff01");
    for server in [another.as_str(), "bob:0001\n"] {
        let keys = KeyFiles::new(server, ALICE);
        let said = refused(&keys, &keys.serve());
        assert!(said.contains("by the key of alice"), "{said}");
        assert!(said.contains("--tls-psk"), "{said}");
    }
    let keys = KeyFiles::new(ALICE, "bob:00\n");
    let said = refused(&keys, &keys.serve());
    assert!(said.contains("psktool"), "{said}");
    // A server without TLS, and one with certificates.
    let keys = KeyFiles::new(ALICE, ALICE);
    let said = refused(&keys, &NbdkitServer::start(&[]));
    assert!(said.contains("no TLS"), "{said}");
    let authority = super::authority::TestAuthority::new();
    let said = refused(&keys, &NbdkitServer::proper(&authority));
    assert!(said.contains("by the key of alice"), "{said}");
}
