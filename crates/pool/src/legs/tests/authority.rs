//! An authority, and its signatures: by the commands of docs/legs.md.

use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    version::TLS13,
};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};
use tempfile::TempDir;

/// A directory with `client` and `leg-b`, as the document has them. The leg's name is `b`.
pub(super) struct TestAuthority {
    dir: TempDir,
}

impl TestAuthority {
    pub(super) fn new() -> Self {
        Self::years_ago(0)
    }

    /// Makes an authority of so many years ago: its signatures are valid for ten years from then.
    pub(super) fn years_ago(years: u32) -> Self {
        let authority = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/legs.md");
        let document = fs::read_to_string(document).unwrap();
        let (_, rest) = document.split_once("<!-- certificates -->").unwrap();
        let (_, rest) = rest.split_once("```sh\n").unwrap();
        let (commands, _) = rest.split_once("```").unwrap();
        authority.run(commands, years);
        authority
    }

    /// Runs commands of the shell in the directory, so many years ago.
    pub(super) fn run(&self, commands: &str, years: u32) {
        let mut shell = Command::new("sh");
        shell.args(["-ec", commands]).current_dir(self.dir.path());
        if years > 0 {
            shell.env("LD_PRELOAD", faketime());
            shell.env("FAKETIME", format!("-{years}y"));
        }
        let ran = shell.output().unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{said}");
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A client's URL, as the document has it.
    pub(super) fn url(&self, port: u16) -> String {
        let client = self.path("client");
        let client = client.display();
        format!("nbds://127.0.0.1:{port}/x?tls-certificates={client}&tls-hostname=b")
    }

    /// Of a server in this process, which asks nobody who they are.
    pub(super) fn server(&self) -> Arc<ServerConfig> {
        let leg = self.path("leg-b");
        let chain = CertificateDer::pem_file_iter(leg.join("server-cert.pem")).unwrap();
        let chain = chain.map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_file(leg.join("server-key.pem")).unwrap();
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_protocol_versions(&[&TLS13]).unwrap();
        let builder = builder.with_no_client_auth();
        Arc::new(builder.with_single_cert(chain, key).unwrap())
    }
}

/// The library that makes a program's clock go wrong.
fn faketime() -> String {
    let arch = std::env::consts::ARCH;
    let library = format!("/usr/lib/{arch}-linux-gnu/faketime/libfaketime.so.1");
    assert!(
        Path::new(&library).exists(),
        "libfaketime: scripts/setup.sh test"
    );
    library
}
