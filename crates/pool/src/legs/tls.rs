//! [`TlsSession`]: TLS of one connection to a leg, and the error if there can be none.
//! docs/legs.md, "TLS". By certificates it is rustls's, by a pre-shared key OpenSSL's.
//!
//! What is sent and what comes is made from each other under one lock, which is never held while
//! the socket is waited for: a server that waits until its answers are read gets to read requests.
//! The reader sends nothing. What it would have to (the answer to new keys) goes ahead of the next
//! request, as the standard has it.

use super::{
    certificates::{AUTHORITY, CERTIFICATE, Certificates},
    handshake::{ByteStream, nonsense},
    openssl::{SslConnection, SslStep},
    psk::{self, PskStream},
    tls_address::{LegCertificates, LegKey, LegTls},
};
use parking_lot::Mutex;
use rustls::{
    AlertDescription, CertificateError, ClientConnection, Error as TlsError, PeerIncompatible,
};
use std::io::{self, IoSlice, Read, Write};

/// Encrypted bytes that are taken from a socket at once.
const AT_ONCE: usize = 64 << 10;

/// The means that begin a session.
pub(super) enum TlsStart {
    Certificates(Box<CertificatesStart>),
    Key {
        connection: SslConnection,
        /// The file and the name of it.
        key: LegKey,
    },
}

impl TlsStart {
    /// Reads the certificates, or the key; nothing is sent.
    ///
    /// # Errors
    /// They cannot be used.
    pub(super) fn read(tls: &LegTls) -> io::Result<Self> {
        match tls {
            LegTls::Certificates(tls) => {
                let start = CertificatesStart::read(tls)?;
                Ok(Self::Certificates(Box::new(start)))
            }
            LegTls::Key(key) => Ok(Self::Key {
                connection: SslConnection::begin(psk::read(key)?).map_err(io::Error::other)?,
                key: key.clone(),
            }),
        }
    }

    /// Makes the session's keys, knows who the server is then, and has `talk` do so encrypted.
    ///
    /// # Errors
    /// Either side does not believe the other; those of `talk`. Only by then it is known whether
    /// the server accepts who this machine says it is.
    pub(super) fn begin<T>(
        mut self,
        stream: &mut (impl Read + Write),
        talk: impl FnOnce(&mut dyn ByteStream) -> io::Result<T>,
    ) -> io::Result<(T, TlsSession)> {
        let said = match &mut self {
            Self::Certificates(start) => start.shake_hands(stream).and_then(|()| {
                let mut encrypted = rustls::Stream::new(&mut start.connection, stream);
                talk(&mut encrypted).map_err(|e| start.explain(e))
            }),
            Self::Key { connection, key } => {
                let mut encrypted = PskStream { connection, stream };
                let shaken = encrypted.shake_hands().map_err(|e| explain_key(key, e));
                shaken.and_then(|()| talk(&mut encrypted))
            }
        }?;
        let connection = match self {
            Self::Certificates(start) => TlsConnection::Certificates(Box::new(start.connection)),
            Self::Key { connection, .. } => TlsConnection::Key(connection),
        };
        Ok((said, TlsSession::begin(connection)))
    }
}

/// In words, why there is no session by a key.
fn explain_key(LegKey { file, name }: &LegKey, error: io::Error) -> io::Error {
    if matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    ) {
        return error;
    }
    nonsense(&format!(
        "makes no TLS session by the key of {name} ({error}): most likely it has another key of that name, or none, or asks for certificates. \
         It has to have the line {name}:… of {file} as well (nbdkit --tls=require --tls-psk FILE), and to speak TLS 1.3"
    ))
}

/// A session that is to be by certificates.
pub(super) struct CertificatesStart {
    connection: ClientConnection,
    directory: String,
    is_known: bool,
}

impl CertificatesStart {
    fn read(tls: &LegCertificates) -> io::Result<Self> {
        let Certificates { config, is_known } =
            Certificates::read(&tls.directory).map_err(io::Error::other)?;
        let connection = ClientConnection::new(config, tls.name.clone())
            .map_err(|e| io::Error::other(format!("TLS cannot begin: {e}")))?;
        Ok(Self {
            connection,
            directory: tls.directory.clone(),
            is_known,
        })
    }

    fn shake_hands(&mut self, stream: &mut (impl Read + Write)) -> io::Result<()> {
        while self.connection.is_handshaking() {
            self.connection
                .complete_io(stream)
                .map_err(|e| self.explain(e))?;
        }
        Ok(())
    }

    /// In words, why it failed until the export is negotiated.
    fn explain(&self, error: io::Error) -> io::Error {
        let inner = error.get_ref().and_then(|it| it.downcast_ref());
        let words = match (inner, error.kind()) {
            (Some(e), _) => self.words(e),
            (
                None,
                io::ErrorKind::UnexpectedEof
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::BrokenPipe,
            ) => format!(
                "ended the connection amid TLS without a word: {}",
                self.who_is_refused()
            ),
            _ => return error,
        };
        nonsense(&words)
    }

    fn words(&self, error: &TlsError) -> String {
        let Self { directory, .. } = self;
        match error {
            TlsError::InvalidCertificate(e) => {
                let remedy = match e {
                    CertificateError::UnknownIssuer | CertificateError::BadSignature => format!(
                        "none of the authorities in {directory}/{AUTHORITY} signed it. Put the one there that did, if it is the right server"
                    ),
                    CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                        "give the server a new one, or set this machine's clock".to_owned()
                    }
                    CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                        "set this machine's clock, or that of the machine that signed it".to_owned()
                    }
                    CertificateError::NotValidForName
                    | CertificateError::NotValidForNameContext { .. } => {
                        "make one with this name (subjectAltName), or, if it is the right server, give a name that it has: tls-hostname=NAME"
                            .to_owned()
                    }
                    CertificateError::Revoked => {
                        "give the server a new one: its authority takes this one back".to_owned()
                    }
                    CertificateError::ExpiredRevocationList
                    | CertificateError::ExpiredRevocationListContext { .. } => {
                        format!("get a new revocation list: {directory}/ca-crl.pem")
                    }
                    _ => "make it as Forebay's documentation has it (docs/legs.md)".to_owned(),
                };
                format!("has a certificate that is not valid ({e}): {remedy}")
            }
            TlsError::PeerIncompatible(PeerIncompatible::ServerDoesNotSupportTls12Or13)
            | TlsError::AlertReceived(AlertDescription::ProtocolVersion) => {
                "speaks no TLS 1.3, which is the least: take a newer one".to_owned()
            }
            TlsError::PeerIncompatible(e) => {
                format!("speaks TLS in another way than this program: {e:?}")
            }
            TlsError::AlertReceived(AlertDescription::InternalError) => {
                "failed by its own fault while TLS began: see its own log".to_owned()
            }
            TlsError::AlertReceived(e) => {
                format!("refuses TLS ({e:?}): {}", self.who_is_refused())
            }
            TlsError::InvalidMessage(_) => "answers with something else than TLS".to_owned(),
            e => format!("breaks TLS: {e}"),
        }
    }

    fn who_is_refused(&self) -> String {
        let Self { directory, .. } = self;
        match self.is_known {
            true => format!(
                "most likely it does not accept this machine's certificate. See its own log, and check that {directory}/{CERTIFICATE} is signed by the authority that it \
                 was given, and is valid still"
            ),
            false => format!(
                "most likely it asks for this machine's certificate, and there is none: put {CERTIFICATE} and client-key.pem into {directory}"
            ),
        }
    }
}

/// A connection of either kind, which reads and writes memory.
enum TlsConnection {
    Certificates(Box<ClientConnection>),
    Key(SslConnection),
}

/// See the module's head.
pub(super) struct TlsSession {
    connection: Mutex<TlsConnection>,
    /// Received bytes that are still encrypted. Who reads holds it, and there is one who reads.
    received: Mutex<ReceivedBytes>,
}

struct ReceivedBytes {
    bytes: Vec<u8>,
    /// From here to there they were not looked at.
    from: usize,
    to: usize,
}

impl TlsConnection {
    /// Encrypts the beginning of the two parts: how much of them.
    fn encrypt(&mut self, parts: &[IoSlice<'_>], records: &mut Vec<u8>) -> io::Result<usize> {
        let taken = match self {
            Self::Certificates(connection) => connection.writer().write_vectored(parts)?,
            Self::Key(connection) => {
                let mut taken = 0;
                for part in parts.iter().filter(|part| !part.is_empty()) {
                    let now = &part[..part.len().min(AT_ONCE)];
                    match connection.write(now).map_err(|e| broken(&e))? {
                        SslStep::Done(bytes) => taken += bytes,
                        SslStep::NeedsMore | SslStep::Ended => break,
                    }
                    // The next part comes behind all of this one.
                    if now.len() < part.len() {
                        break;
                    }
                }
                taken
            }
        };
        self.take_records(records)?;
        Ok(taken)
    }

    fn take_records(&mut self, records: &mut Vec<u8>) -> io::Result<()> {
        match self {
            Self::Certificates(connection) => {
                while connection.wants_write() {
                    connection.write_tls(records)?;
                }
            }
            Self::Key(connection) => connection.send_to(records),
        }
        Ok(())
    }

    /// The bytes that there are to read: none, if a whole record has to come first.
    fn read(&mut self, to: &mut [u8]) -> io::Result<Option<usize>> {
        match self {
            Self::Certificates(connection) => match connection.reader().read(to) {
                Ok(bytes) => Ok(Some(bytes)),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
                Err(e) => Err(e),
            },
            Self::Key(connection) => match connection.read(to).map_err(|e| broken(&e))? {
                SslStep::Done(bytes) => Ok(Some(bytes)),
                SslStep::NeedsMore => Ok(None),
                SslStep::Ended => Ok(Some(0)),
            },
        }
    }

    /// Takes encrypted bytes that came: how many.
    fn receive(&mut self, mut bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Certificates(connection) => {
                let taken = connection.read_tls(&mut bytes)?;
                let processed = connection.process_new_packets();
                processed.map_err(|e| broken(&e.to_string()))?;
                Ok(taken)
            }
            Self::Key(connection) => {
                connection.receive(bytes);
                Ok(bytes.len())
            }
        }
    }
}

fn broken(why: &str) -> io::Error {
    nonsense(&format!("breaks TLS: {why}"))
}

impl TlsSession {
    fn begin(connection: TlsConnection) -> Self {
        Self {
            connection: Mutex::new(connection),
            received: Mutex::new(ReceivedBytes {
                bytes: vec![0; AT_ONCE],
                from: 0,
                to: 0,
            }),
        }
    }

    /// Encrypts the beginning of the two parts, one behind the other, into `records`, which are to
    /// be sent before anything else is encrypted: the number of the parts' bytes in them.
    ///
    /// # Errors
    /// The session is over.
    pub(super) fn encrypt(
        &self,
        parts: &[IoSlice<'_>],
        records: &mut Vec<u8>,
    ) -> io::Result<usize> {
        let taken = self.connection.lock().encrypt(parts, records)?;
        match taken == 0 && records.is_empty() {
            true => Err(io::ErrorKind::WriteZero.into()),
            false => Ok(taken),
        }
    }

    /// The record that ends it.
    pub(super) fn end(&self, records: &mut Vec<u8>) -> io::Result<()> {
        let mut connection = self.connection.lock();
        match &mut *connection {
            TlsConnection::Certificates(connection) => connection.send_close_notify(),
            TlsConnection::Key(connection) => connection.end(),
        }
        connection.take_records(records)
    }

    /// As it does by itself once enough was encrypted with the old ones. What says so is sent with
    /// the next request.
    #[cfg(test)]
    pub(super) fn renew_keys(&self) {
        if let TlsConnection::Certificates(connection) = &mut *self.connection.lock() {
            assert_eq!(connection.refresh_traffic_keys(), Ok(()));
        }
    }

    /// Reads from `stream`, as of a socket: [`WouldBlock`](io::ErrorKind::WouldBlock) after bytes
    /// that are not a whole record yet, so that the reader may look at the time.
    ///
    /// # Errors
    /// Those of the socket; what came was changed on the way.
    pub(super) fn read(&self, mut stream: impl Read, to: &mut [u8]) -> io::Result<usize> {
        let mut received = self.received.lock();
        if let Some(bytes) = self.decrypt(&mut received, to)? {
            return Ok(bytes);
        }
        let ReceivedBytes { bytes, .. } = &mut *received;
        let came = stream.read(bytes)?;
        (received.from, received.to) = (0, came);
        match self.decrypt(&mut received, to)? {
            _ if came == 0 => Ok(0),
            Some(bytes) => Ok(bytes),
            None => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Nothing, if what was received is no whole record.
    fn decrypt(&self, received: &mut ReceivedBytes, to: &mut [u8]) -> io::Result<Option<usize>> {
        let mut connection = self.connection.lock();
        loop {
            if let Some(bytes) = connection.read(to)? {
                return Ok(Some(bytes));
            }
            let rest = &received.bytes[received.from..received.to];
            if rest.is_empty() {
                return Ok(None);
            }
            received.from += connection.receive(rest)?;
        }
    }
}
