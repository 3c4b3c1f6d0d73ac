//! The certificates of a TLS connection, in a directory with the names that the NBD standard's
//! other programs use (`nbdkit`, `nbdinfo`): `ca-cert.pem`, by which servers are known, with
//! `ca-crl.pem`, its revocation list, if that is there; and `client-cert.pem` with `client-key.pem`
//! for servers that ask for the client's.
//!
//! They are read for each connection: a renewed one counts from the next one on. What is wrong with
//! them is said without what is in them: the names may lead to any file that this process can read.

use rustix::{
    fs::{FileType, Mode, OFlags, fstat, open},
    io::Errno,
};
use rustls::{
    ClientConfig, RootCertStore,
    client::{Resumption, WebPkiServerVerifier},
    crypto::ring,
    pki_types::{
        CertificateDer, CertificateRevocationListDer, PrivateKeyDer,
        pem::{Error as PemError, PemObject},
    },
    version::TLS13,
};
use std::{
    fs::File,
    io::{self, Read},
    path::Path,
    sync::Arc,
};

/// No file of them is longer.
const BYTES_MAX: u64 = 1 << 20;

pub(super) const AUTHORITY: &str = "ca-cert.pem";
const REVOKED: &str = "ca-crl.pem";
pub(super) const CERTIFICATE: &str = "client-cert.pem";
const KEY: &str = "client-key.pem";

/// The certificates that a connection is made with.
pub(super) struct Certificates {
    pub(super) config: Arc<ClientConfig>,
    /// This machine says who it is.
    pub(super) is_known: bool,
}

impl Certificates {
    /// Reads those of a directory.
    ///
    /// # Errors
    /// In words: what is wrong, and what helps.
    pub(super) fn read(directory: &str) -> Result<Self, String> {
        let directory = Path::new(directory);
        let provider = Arc::new(ring::default_provider());
        let verifier = verifier(directory, &provider)?;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(|e| format!("TLS cannot be used: {e}"))?
            .with_webpki_verifier(verifier);
        let own = own(directory)?;
        let is_known = own.is_some();
        let mut config = match own {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => builder.with_client_auth_cert(chain, key).map_err(|e| {
                format!(
                    "{} cannot be used with {KEY} beside it: {e}. Make both anew, or find the key that belongs to it",
                    directory.join(CERTIFICATE).display()
                )
            })?,
        };
        // Each connection is made with certificates read anew.
        config.resumption = Resumption::disabled();
        Ok(Self {
            config: Arc::new(config),
            is_known,
        })
    }
}

/// The authorities that are believed.
fn verifier(
    directory: &Path,
    provider: &Arc<rustls::crypto::CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, String> {
    let path = directory.join(AUTHORITY);
    let found = contents(&path)?.ok_or_else(|| {
        format!(
            "there is no {}: put the certificate of the authority there that signed the server's",
            path.display()
        )
    })?;
    let mut roots = RootCertStore::empty();
    for root in all::<CertificateDer<'_>>(&path, &found, "certificate")? {
        roots
            .add(root)
            .map_err(|e| format!("{} holds no authority's certificate: {e}", path.display()))?;
    }
    let mut builder =
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    let revoked = directory.join(REVOKED);
    if let Some(found) = contents(&revoked)? {
        let lists = all::<CertificateRevocationListDer<'_>>(&revoked, &found, "revocation list")?;
        builder = builder
            .with_crls(lists)
            .allow_unknown_revocation_status()
            .enforce_revocation_expiration();
    }
    builder
        .build()
        .map_err(|e| format!("{} cannot be used: {e}", revoked.display()))
}

/// This machine's own certificate, if servers are to get one.
fn own(
    directory: &Path,
) -> Result<Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>, String> {
    let (certificate, key) = (directory.join(CERTIFICATE), directory.join(KEY));
    let (found_certificate, found_key) = match (contents(&certificate)?, contents(&key)?) {
        (None, None) => return Ok(None),
        (Some(certificate), Some(key)) => (certificate, key),
        (Some(_), None) => return Err(lone(&certificate, &key)),
        (None, Some(_)) => return Err(lone(&key, &certificate)),
    };
    let chain = all(&certificate, &found_certificate, "certificate")?;
    let key = PrivateKeyDer::from_pem_slice(&found_key).map_err(|e| match e {
        PemError::NoItemsFound => format!(
            "{} holds no private key that can be read without a passphrase: openssl pkey -in FILE writes one that can",
            key.display()
        ),
        e => malformed(&key, &e),
    })?;
    Ok(Some((chain, key)))
}

fn lone(found: &Path, missing: &Path) -> String {
    format!(
        "there is {} and no {}: a server that asks who this is needs both; otherwise remove it",
        found.display(),
        missing.display()
    )
}

/// All of a kind that a file has.
fn all<T: PemObject>(path: &Path, contents: &[u8], what: &str) -> Result<Vec<T>, String> {
    let found = T::pem_slice_iter(contents).collect::<Result<Vec<T>, _>>();
    let found = found.map_err(|e| malformed(path, &e))?;
    match found.is_empty() {
        true => Err(format!(
            "{} holds no {what} in PEM (-----BEGIN …): openssl x509 -inform DER -in FILE turns one that is binary into that",
            path.display()
        )),
        false => Ok(found),
    }
}

fn malformed(path: &Path, error: &PemError) -> String {
    let what = match error {
        PemError::MissingSectionEnd { .. } => "a section has no end (-----END …)",
        PemError::IllegalSectionStart { .. } => "a section's first line is malformed",
        PemError::Base64Decode(_) => "a section is no base64",
        _ => "it cannot be read",
    };
    format!(
        "{} is not in PEM, or not all of it: {what}. Copy it anew",
        path.display()
    )
}

/// The file's bytes: none if it is not there.
fn contents(path: &Path) -> Result<Option<Vec<u8>>, String> {
    let failed = |e: io::Error| {
        let remedy = match e.kind() {
            io::ErrorKind::PermissionDenied => {
                ". Let the owner of the pool's file read it, and nobody else the key"
            }
            _ => "",
        };
        format!("{} cannot be read: {e}{remedy}", path.display())
    };
    // What is no file does not keep anybody waiting.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = match open(path, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(None),
        Err(e) => return Err(failed(e.into())),
    };
    let found = fstat(&file).map_err(|e| failed(e.into()))?;
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        return Err(format!("{} is not a file", path.display()));
    }
    let mut bytes = Vec::new();
    File::from(file)
        .take(BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    match bytes.len() as u64 > BYTES_MAX {
        true => Err(format!(
            "{} is larger than any certificate ({BYTES_MAX} bytes)",
            path.display()
        )),
        false => Ok(Some(bytes)),
    }
}
