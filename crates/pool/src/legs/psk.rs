//! TLS by a key that both sides have from elsewhere, as `nbdkit --tls-psk` has it: a name, and the
//! key that a file has behind it. docs/legs.md, "TLS".

use super::{
    handshake::nonsense,
    openssl::{KEY_MAX, NAME_MAX, PresharedKey, SslConnection, SslStep},
    tls_address::LegKey,
};
use std::{
    fs,
    io::{self, Read, Write},
};

/// A file of keys is no larger.
const FILE_MAX: u64 = 1 << 20;
/// Encrypted bytes that are taken from a socket at once.
const AT_ONCE: usize = 16 << 10;

/// The key that an address names.
///
/// # Errors
/// The file cannot be read, or has no such key.
pub(super) fn read(key: &LegKey) -> io::Result<PresharedKey> {
    let LegKey { file, name } = key;
    let at_file = |why: String| io::Error::other(format!("the key {file}: {why}"));
    let about = fs::metadata(file).map_err(|e| at_file(denied_or(&e)))?;
    if !about.is_file() || about.len() > FILE_MAX {
        return Err(at_file(
            "it is no file of keys: a line NAME:KEY for each, as psktool makes it".to_owned(),
        ));
    }
    let text = fs::read_to_string(file).map_err(|e| at_file(denied_or(&e)))?;
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let Some((_, digits)) = lines.find(|(found, _)| found == name) else {
        return Err(at_file(format!(
            "it has no key of {name}: a line {name}:KEY, which the server has as well (psktool -u {name} -p FILE)"
        )));
    };
    match from_hex(digits.trim()) {
        Some(bytes) if (1..=KEY_MAX).contains(&bytes.len()) && name.len() < NAME_MAX => {
            Ok(PresharedKey {
                name: name.clone(),
                key: bytes,
            })
        }
        _ => Err(at_file(format!(
            "the text behind {name}: is no key of 1 to {KEY_MAX} bytes in hexadecimal digits"
        ))),
    }
}

fn denied_or(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            format!("{error}: the pool's owner has to be able to read it")
        }
        _ => error.to_string(),
    }
}

fn from_hex(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    let byte = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).ok().filter(|it| it.len() == 2)?;
        // A sign is none.
        let pair = (pair.bytes().all(|it| it.is_ascii_hexdigit())).then_some(pair)?;
        u8::from_str_radix(pair, 16).ok()
    };
    pairs.map(byte).collect()
}

/// A connection whose handshake is not over, on a stream.
pub(super) struct PskStream<'a, S> {
    pub(super) connection: &'a mut SslConnection,
    pub(super) stream: &'a mut S,
}

impl<S: Read + Write> PskStream<'_, S> {
    /// # Errors
    /// The other side does not have the key, or the stream's.
    pub(super) fn shake_hands(&mut self) -> io::Result<()> {
        loop {
            let step = self.connection.shake_hands();
            // Also what says why it failed.
            self.send()?;
            match step.map_err(io::Error::other)? {
                SslStep::Done(_) => return Ok(()),
                SslStep::NeedsMore => self.receive()?,
                SslStep::Ended => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
    }

    fn send(&mut self) -> io::Result<()> {
        let mut records = Vec::new();
        self.connection.send_to(&mut records);
        self.stream.write_all(&records)
    }

    fn receive(&mut self) -> io::Result<()> {
        let mut part = [0; AT_ONCE];
        match self.stream.read(&mut part)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            bytes => {
                self.connection.receive(&part[..bytes]);
                Ok(())
            }
        }
    }
}

impl<S: Read + Write> Read for PskStream<'_, S> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.connection.read(to).map_err(|e| nonsense(&e))? {
                SslStep::Done(bytes) => return Ok(bytes),
                SslStep::NeedsMore => self.receive()?,
                SslStep::Ended => return Ok(0),
            }
        }
    }
}

impl<S: Read + Write> Write for PskStream<'_, S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.connection.write(bytes).map_err(|e| nonsense(&e))? {
            SslStep::Done(written) => self.send().map(|()| written),
            SslStep::NeedsMore | SslStep::Ended => Err(io::ErrorKind::WriteZero.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_as_psktool_writes_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys");
        fs::write(&path, "bob:0001\nalice:A0ff\nodd:abc\nsign:+f\nempty:\n").unwrap();
        let of = |name: &str| {
            read(&LegKey {
                file: path.to_str().unwrap().to_owned(),
                name: name.to_owned(),
            })
        };
        assert_eq!(of("alice").unwrap().key, [0xA0, 0xFF]);
        for (name, why) in [
            ("carol", "psktool"),
            ("odd", "hexadecimal"),
            ("sign", "hexadecimal"),
            ("empty", "1 to 256"),
        ] {
            let refused = of(name).map(drop).unwrap_err().to_string();
            assert!(refused.contains(why), "{refused}");
        }
        fs::remove_file(&path).unwrap();
        let refused = of("alice").map(drop).unwrap_err().to_string();
        assert!(refused.contains(path.to_str().unwrap()), "{refused}");
    }
}
