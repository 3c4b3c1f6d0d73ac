//! The place of TLS in a program that was built without it. An address with TLS is
//! refused when it is read, so that none of what a session would be is ever made.

use super::handshake::ByteStream;
use std::{
    convert::Infallible,
    fmt,
    io::{self, IoSlice, Read, Write},
};

/// An address's TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LegTls(Infallible);

impl LegTls {
    pub(super) fn parse(_host: &str, _user: Option<&str>, _query: &str) -> Result<Self, String> {
        Err(
            "this program was built without TLS. Build it with the cargo feature \"tls\" of forebay-pool \
             (cargo add forebay-pool --features tls), or give nbd:// to the end of a tunnel on this machine"
                .to_owned(),
        )
    }

    pub(super) fn user(&self) -> Option<&str> {
        match self.0 {}
    }
}

impl fmt::Display for LegTls {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {}
    }
}

/// The means that begin a session.
pub(super) struct TlsStart(Infallible);

impl TlsStart {
    pub(super) fn read(tls: &LegTls) -> io::Result<Self> {
        match tls.0 {}
    }

    pub(super) fn begin<T>(
        self,
        _: &mut (impl Read + Write),
        _: impl FnOnce(&mut dyn ByteStream) -> io::Result<T>,
    ) -> io::Result<(T, TlsSession)> {
        match self.0 {}
    }
}

/// See `tls`.
pub(super) struct TlsSession(Infallible);

impl TlsSession {
    pub(super) fn encrypt(&self, _: &[IoSlice<'_>], _: &mut Vec<u8>) -> io::Result<usize> {
        match self.0 {}
    }

    pub(super) fn end(&self, _: &mut Vec<u8>) -> io::Result<()> {
        match self.0 {}
    }

    pub(super) fn read(&self, _: impl Read, _: &mut [u8]) -> io::Result<usize> {
        match self.0 {}
    }
}
