//! [`TlsSession`]: TLS of one connection to a leg, and what is said if there can be none.
//! docs/legs.md, "TLS".
//!
//! What is sent and what comes is made from each other under one lock, which is never held while
//! the socket is waited for: a server that waits until its answers are read gets to read requests.
//! The reader sends nothing. What it would have to (the answer to new keys) goes ahead of the next
//! request, as the standard has it.

use super::{
    address::LegTls,
    certificates::{AUTHORITY, CERTIFICATE, Certificates},
    handshake::nonsense,
};
use parking_lot::Mutex;
use rustls::{
    AlertDescription, CertificateError, ClientConnection, Error as TlsError, PeerIncompatible,
};
use std::io::{self, IoSlice, Read, Write};

/// How many encrypted bytes are taken from a socket at once.
const AT_ONCE: usize = 64 << 10;

/// What begins a session.
pub(super) struct TlsStart {
    pub(super) connection: ClientConnection,
    directory: String,
    is_known: bool,
}

impl TlsStart {
    /// Reads the certificates; nothing is sent.
    ///
    /// # Errors
    /// They cannot be used.
    pub(super) fn read(tls: &LegTls) -> io::Result<Self> {
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

    /// Makes the session's keys, and knows who the server is then.
    ///
    /// # Errors
    /// Either side does not believe the other.
    pub(super) fn shake_hands(&mut self, stream: &mut (impl Read + Write)) -> io::Result<()> {
        while self.connection.is_handshaking() {
            self.connection
                .complete_io(stream)
                .map_err(|e| self.explain(e))?;
        }
        Ok(())
    }

    /// In words, why it failed until the export is negotiated. Only by then it is known whether the
    /// server accepts who this machine says it is.
    pub(super) fn explain(&self, error: io::Error) -> io::Error {
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
                        format!("get a new list of what is revoked: {directory}/ca-crl.pem")
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
                "failed by its own fault while TLS began: see what it says itself".to_owned()
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
                "most likely it does not accept this machine's certificate. See what it says itself, and whether {directory}/{CERTIFICATE} is signed by \
                 the authority that it was given, and is valid still"
            ),
            false => format!(
                "most likely it asks for this machine's certificate, and there is none: put {CERTIFICATE} and client-key.pem into {directory}"
            ),
        }
    }
}

/// See the module's head.
pub(super) struct TlsSession {
    connection: Mutex<ClientConnection>,
    /// What came and is still encrypted. Who reads holds it, and there is one who reads.
    received: Mutex<ReceivedBytes>,
}

struct ReceivedBytes {
    bytes: Vec<u8>,
    /// From here to there they were not looked at.
    from: usize,
    to: usize,
}

impl TlsSession {
    pub(super) fn begin(start: TlsStart) -> Self {
        Self {
            connection: Mutex::new(start.connection),
            received: Mutex::new(ReceivedBytes {
                bytes: vec![0; AT_ONCE],
                from: 0,
                to: 0,
            }),
        }
    }

    /// Encrypts the beginning of the two parts, one behind the other, into `records`, which are to
    /// be sent before anything else is encrypted: how many bytes of the parts that was.
    ///
    /// # Errors
    /// The session is over.
    pub(super) fn encrypt(
        &self,
        parts: &[IoSlice<'_>],
        records: &mut Vec<u8>,
    ) -> io::Result<usize> {
        let mut connection = self.connection.lock();
        let taken = connection.writer().write_vectored(parts)?;
        while connection.wants_write() {
            connection.write_tls(records)?;
        }
        match taken == 0 && records.is_empty() {
            true => Err(io::ErrorKind::WriteZero.into()),
            false => Ok(taken),
        }
    }

    /// The record that ends it.
    pub(super) fn end(&self, records: &mut Vec<u8>) -> io::Result<()> {
        let mut connection = self.connection.lock();
        connection.send_close_notify();
        while connection.wants_write() {
            connection.write_tls(records)?;
        }
        Ok(())
    }

    /// As it does by itself once enough was encrypted with the old ones. What says so is sent with
    /// the next request.
    #[cfg(test)]
    pub(super) fn renew_keys(&self) {
        let renewed = self.connection.lock().refresh_traffic_keys();
        assert_eq!(renewed, Ok(()));
    }

    /// Reads what `stream` brings, as of a socket: [`WouldBlock`](io::ErrorKind::WouldBlock) after
    /// bytes that are not a whole record yet, so that who reads may look at the time.
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
            match connection.reader().read(to) {
                Ok(bytes) => return Ok(Some(bytes)),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
            let mut rest = &received.bytes[received.from..received.to];
            if rest.is_empty() {
                return Ok(None);
            }
            received.from += connection.read_tls(&mut rest)?;
            connection
                .process_new_packets()
                .map_err(|e| nonsense(&format!("breaks TLS: {e}")))?;
        }
    }
}
