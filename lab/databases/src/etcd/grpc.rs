//! As much of HTTP/2 and gRPC as one call at a time takes.
//!
//! A client by a library takes a multiple of the processor time of this one, on the processors that
//! the server has: its figures would be its own. The head of a call needs no compression; of an
//! answer's heads nothing has to be understood, since a call that failed has no message. RFC 9113
//! (frames), RFC 7541 (heads).

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    time::Duration,
};

/// Nothing is waited for longer than this.
const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes of a frame's head: length, type, flags, stream.
const HEAD_BYTES: usize = 9;

/// Bytes that either side may send unasked at first, on a connection and in a call.
const FIRST_WINDOW: i64 = 65_535;
/// Of a frame at most.
const FRAME_BYTES_MAX: i64 = 16_384;
/// The largest window there is: answers are taken as they come.
const WINDOW_MAX: u32 = u32::MAX >> 1;

/// Types of frames.
mod kind {
    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub const RST_STREAM: u8 = 3;
    pub const SETTINGS: u8 = 4;
    pub const PING: u8 = 6;
    pub const GOAWAY: u8 = 7;
    pub const WINDOW_UPDATE: u8 = 8;
}

/// Flags of frames.
mod flag {
    pub const END_STREAM: u8 = 1;
    pub const ACK: u8 = 1;
    pub const END_HEADERS: u8 = 4;
    pub const PADDED: u8 = 8;
}

/// The setting of how much may be sent unasked in a call.
const INITIAL_WINDOW_SIZE: u16 = 4;

/// A frame that was received.
struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

/// A connection of HTTP/2 to an etcd on this machine, with one call at a time.
pub(super) struct Wire {
    stream: TcpStream,
    input: Vec<u8>,
    /// Goes out with the next call.
    output: Vec<u8>,
    authority: String,
    /// The next call's stream.
    next: u32,
    /// Bytes that the server still takes: all in all, and in the call that is made.
    windows: [i64; 2],
    first_window: i64,
}

impl Wire {
    /// Connects to the etcd whose clients' port this is.
    pub fn new(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut wire = Self {
            stream,
            input: Vec::new(),
            output: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
            authority: format!("127.0.0.1:{port}"),
            next: 1,
            windows: [FIRST_WINDOW; 2],
            first_window: FIRST_WINDOW,
        };
        let mut settings = INITIAL_WINDOW_SIZE.to_be_bytes().to_vec();
        settings.extend(WINDOW_MAX.to_be_bytes());
        wire.add(kind::SETTINGS, 0, 0, &settings);
        // Enough for as long as the connection lives.
        let more = WINDOW_MAX - FIRST_WINDOW as u32;
        wire.add(kind::WINDOW_UPDATE, 0, 0, &more.to_be_bytes());
        Ok(wire)
    }

    /// Calls a method of `service`, by one message; the answer's.
    ///
    /// # Errors
    /// I/O errors: then it is not known whether it was done. `InvalidData` if etcd says no.
    pub fn call(&mut self, method: &str, request: &[u8]) -> io::Result<Vec<u8>> {
        let stream = self.next;
        self.next += 2;
        self.windows[1] = self.first_window;
        let mut message = vec![0];
        message.extend((request.len() as u32).to_be_bytes());
        message.extend(request);
        let head = head(method, &self.authority);
        self.add(kind::HEADERS, flag::END_HEADERS, stream, &head);
        let mut answer = Vec::new();
        let mut rest = &message[..];
        while !rest.is_empty() {
            let [all, own] = self.windows;
            let bytes = all.min(own).min(FRAME_BYTES_MAX).min(rest.len() as i64);
            if bytes <= 0 {
                self.flush()?;
                if self.take_frame(stream, &mut answer)? {
                    return Err(closed("ended a call before it was made"));
                }
                continue;
            }
            let (part, later) = rest.split_at(bytes as usize);
            rest = later;
            self.windows = self.windows.map(|window| window - bytes);
            let flags = [0, flag::END_STREAM][usize::from(rest.is_empty())];
            self.add(kind::DATA, flags, stream, part);
        }
        self.flush()?;
        while !self.take_frame(stream, &mut answer)? {}
        // A call that failed has no message. One that was done has its length before it.
        match answer.get(5..) {
            Some(message) => Ok(message.to_vec()),
            None => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("etcd refused {method}"),
            )),
        }
    }

    /// Waits for a frame, and adds what it has of the answer. True if the call has ended.
    fn take_frame(&mut self, stream: u32, answer: &mut Vec<u8>) -> io::Result<bool> {
        let frame = self.receive()?;
        if frame.stream != 0 && frame.stream != stream {
            return Ok(false);
        }
        let is_acknowledgement = frame.flags & flag::ACK != 0;
        match frame.kind {
            kind::DATA => answer.extend(unpadded(&frame)?),
            kind::RST_STREAM => return Err(closed("ended a call")),
            kind::GOAWAY => return Err(closed("ended the connection")),
            kind::SETTINGS if !is_acknowledgement => {
                self.settle(&frame.payload);
                self.add(kind::SETTINGS, flag::ACK, 0, &[]);
            }
            kind::PING if !is_acknowledgement => {
                self.add(kind::PING, flag::ACK, 0, &frame.payload);
            }
            kind::WINDOW_UPDATE => {
                let unclear = || closed("sent an unclear frame");
                let more = frame.payload.first_chunk().ok_or_else(unclear)?;
                let window = &mut self.windows[usize::from(frame.stream != 0)];
                *window += i64::from(u32::from_be_bytes(*more));
            }
            _ => {}
        }
        let may_end = [kind::DATA, kind::HEADERS].contains(&frame.kind);
        Ok(may_end && frame.flags & flag::END_STREAM != 0)
    }

    /// The server's settings, as far as they matter here.
    fn settle(&mut self, settings: &[u8]) {
        for setting in settings.chunks_exact(6) {
            if let [a, b, value @ ..] = setting
                && u16::from_be_bytes([*a, *b]) == INITIAL_WINDOW_SIZE
                && let Ok(value) = value.try_into()
            {
                let window = i64::from(u32::from_be_bytes(value));
                self.windows[1] += window - self.first_window;
                self.first_window = window;
            }
        }
    }

    fn add(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = (payload.len() as u32).to_be_bytes();
        self.output.extend(&length[1..]);
        self.output.extend([kind, flags]);
        self.output.extend(stream.to_be_bytes());
        self.output.extend(payload);
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.output)?;
        self.output.clear();
        Ok(())
    }

    /// Waits for the next frame.
    fn receive(&mut self) -> io::Result<Frame> {
        loop {
            if let Some((frame, bytes)) = parse(&self.input) {
                self.input.drain(..bytes);
                return Ok(frame);
            }
            let mut buffer = [0; 16 << 10];
            match self.stream.read(&mut buffer)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => self.input.extend(&buffer[..read]),
            }
        }
    }
}

fn closed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, format!("etcd {what}"))
}

/// The first frame of what was received, and its bytes.
fn parse(input: &[u8]) -> Option<(Frame, usize)> {
    let head: &[u8; HEAD_BYTES] = input.first_chunk()?;
    let [a, b, c, kind, flags, stream @ ..] = *head;
    let end = HEAD_BYTES + u32::from_be_bytes([0, a, b, c]) as usize;
    let frame = Frame {
        kind,
        flags,
        stream: u32::from_be_bytes(stream) & (u32::MAX >> 1),
        payload: input.get(HEAD_BYTES..end)?.to_vec(),
    };
    Some((frame, end))
}

/// The bytes of a frame of data.
fn unpadded(frame: &Frame) -> io::Result<&[u8]> {
    let all = &frame.payload[..];
    if frame.flags & flag::PADDED == 0 {
        return Ok(all);
    }
    let parts = all.split_first();
    let data = parts
        .and_then(|(padding, rest)| rest.get(..rest.len().checked_sub(usize::from(*padding))?));
    data.ok_or_else(|| closed("sent a frame of wrong length"))
}

/// The head of a call, with entries of the static table, and strings as they are.
fn head(method: &str, authority: &str) -> Vec<u8> {
    let mut head = vec![
        0x83, // :method: POST
        0x86, // :scheme: http
    ];
    let mut literal = |name: &[u8], value: &str| {
        head.extend(name);
        head.push(value.len() as u8);
        head.extend(value.as_bytes());
    };
    literal(&[0x04], &format!("/etcdserverpb.KV/{method}")); // :path
    literal(&[0x01], authority); // :authority
    literal(&[0x0f, 0x10], "application/grpc"); // content-type
    literal(b"\x00\x02te", "trailers");
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_read_once_all_of_it_is_there() {
        let bytes = [0, 0, 2, 0, 9, 0x80, 0, 0, 3, 1, 42];
        assert!(parse(&bytes[..8]).is_none() && parse(&bytes[..10]).is_none());
        let (frame, read) = parse(&bytes).unwrap();
        assert_eq!((frame.kind, frame.stream, read), (kind::DATA, 3, 11));
        assert!(unpadded(&frame).unwrap().is_empty());
        let wrong = Frame {
            payload: vec![2, 42],
            ..frame
        };
        assert!(unpadded(&wrong).is_err());
    }
}
