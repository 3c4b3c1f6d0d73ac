//! [`LegChannel`]: the socket of a link, with TLS or without. Who sends and who reads do not wait
//! for each other.

use super::tls::TlsSession;
use parking_lot::Mutex;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use std::{
    io::{self, IoSlice, Read},
    net::{Shutdown, TcpStream},
};

/// See the module's head.
pub(super) struct LegChannel {
    stream: TcpStream,
    tls: Option<TlsSession>,
    /// Held while a request is sent, so that none is inside another. What it holds is the memory of
    /// encrypted ones.
    sending: Mutex<Vec<u8>>,
}

impl LegChannel {
    pub(super) fn new(stream: TcpStream, tls: Option<TlsSession>) -> Self {
        Self {
            stream,
            tls,
            sending: Mutex::default(),
        }
    }

    /// Sends all of both.
    ///
    /// # Errors
    /// The connection is over, or the other side takes nothing.
    pub(super) fn send(&self, header: &[u8], payload: &[u8]) -> io::Result<()> {
        let mut records = self.sending.lock();
        let Some(tls) = &self.tls else {
            return self.send_bytes(header, payload);
        };
        let mut sent = 0;
        while sent < header.len() + payload.len() {
            records.clear();
            sent += tls.encrypt(&rest_of(header, payload, sent), &mut records)?;
            self.send_bytes(&records, &[])?;
        }
        Ok(())
    }

    /// Nothing is sent any more.
    pub(super) fn end(&self) -> io::Result<()> {
        let mut records = self.sending.lock();
        let Some(tls) = &self.tls else {
            return Ok(());
        };
        records.clear();
        tls.end(&mut records)?;
        self.send_bytes(&records, &[])
    }

    fn send_bytes(&self, header: &[u8], payload: &[u8]) -> io::Result<()> {
        let mut sent = 0;
        while sent < header.len() + payload.len() {
            let parts = rest_of(header, payload, sent);
            let mut nothing = SendAncillaryBuffer::default();
            match sendmsg(&self.stream, &parts, &mut nothing, SendFlags::NOSIGNAL) {
                Ok(bytes) => sent += bytes,
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn renew_keys(&self) {
        let _nobody_sends = self.sending.lock();
        if let Some(tls) = &self.tls {
            tls.renew_keys();
        }
    }

    /// Nothing comes, and nothing goes.
    pub(super) fn shut(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

impl Read for &LegChannel {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match &self.tls {
            None => (&self.stream).read(to),
            Some(tls) => tls.read(&self.stream, to),
        }
    }
}

/// The rest of both when so many bytes were sent.
fn rest_of<'a>(header: &'a [u8], payload: &'a [u8], sent: usize) -> [IoSlice<'a>; 2] {
    [
        IoSlice::new(&header[sent.min(header.len())..]),
        IoSlice::new(&payload[sent.saturating_sub(header.len())..]),
    ]
}
