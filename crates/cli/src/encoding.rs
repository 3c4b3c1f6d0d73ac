//! Keys and values as text: UTF-8, hexadecimal, Base64, and the escapes of tab-separated lines.

use base64::{Engine, prelude::BASE64_STANDARD};
use clap::Args;

/// The form of keys and values on the command line and in listings.
#[derive(Args, Clone, Copy, Debug)]
pub struct Encoding {
    /// Keys and values are written in hexadecimal
    #[arg(long, conflicts_with = "base64")]
    hex: bool,
    /// Keys and values are written in Base64
    #[arg(long)]
    base64: bool,
}

impl Encoding {
    /// The bytes that an argument means.
    pub fn decode(self, text: &str) -> Result<Vec<u8>, String> {
        if self.hex {
            from_hex(text)
        } else if self.base64 {
            from_base64(text)
        } else {
            Ok(text.as_bytes().to_vec())
        }
    }

    /// Appends a field of a tab-separated line.
    pub fn encode_field(self, bytes: &[u8], to: &mut Vec<u8>) {
        if self.hex {
            for byte in bytes {
                to.extend_from_slice(format!("{byte:02x}").as_bytes());
            }
        } else if self.base64 {
            to.extend_from_slice(BASE64_STANDARD.encode(bytes).as_bytes());
        } else {
            escape(bytes, to);
        }
    }

    /// Reads a field of a tab-separated line.
    pub fn decode_field(self, field: &[u8]) -> Result<Vec<u8>, String> {
        if !self.hex && !self.base64 {
            return unescape(field);
        }
        let text = std::str::from_utf8(field)
            .map_err(|_| "is neither hexadecimal nor Base64".to_owned())?;
        self.decode(text)
    }
}

/// Base64 with padding.
pub fn to_base64(bytes: &[u8]) -> String {
    BASE64_STANDARD.encode(bytes)
}

/// The bytes of a Base64 text.
pub fn from_base64(text: &str) -> Result<Vec<u8>, String> {
    BASE64_STANDARD
        .decode(text)
        .map_err(|e| format!("is not Base64: {e}"))
}

fn from_hex(text: &str) -> Result<Vec<u8>, String> {
    let wrong = || "is not hexadecimal: an even number of the digits 0-9, a-f is needed".to_owned();
    if !text.len().is_multiple_of(2) {
        return Err(wrong());
    }
    text.as_bytes()
        .chunks(2)
        .map(|pair| {
            let digit = |c: u8| char::from(c).to_digit(16);
            let (high, low) = (digit(pair[0])?, digit(pair[1])?);
            u8::try_from(high * 16 + low).ok()
        })
        .collect::<Option<_>>()
        .ok_or_else(wrong)
}

/// Tab, newline, carriage return and backslash become `\t`, `\n`, `\r`, `\\`; what is not UTF-8
/// becomes `\xHH`.
fn escape(bytes: &[u8], to: &mut Vec<u8>) {
    for chunk in bytes.utf8_chunks() {
        for &byte in chunk.valid().as_bytes() {
            match byte {
                b'\t' => to.extend_from_slice(b"\\t"),
                b'\n' => to.extend_from_slice(b"\\n"),
                b'\r' => to.extend_from_slice(b"\\r"),
                b'\\' => to.extend_from_slice(b"\\\\"),
                byte => to.push(byte),
            }
        }
        for byte in chunk.invalid() {
            to.extend_from_slice(format!("\\x{byte:02x}").as_bytes());
        }
    }
}

fn unescape(field: &[u8]) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field.iter().copied();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        bytes.push(match rest.next() {
            Some(b't') => b'\t',
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b'\\') => b'\\',
            Some(b'x') => {
                let digits: String = rest.by_ref().take(2).map(char::from).collect();
                match from_hex(&digits).as_deref() {
                    Ok([byte]) => *byte,
                    _ => {
                        return Err(format!(
                            "has the escape \\x{digits}; two hexadecimal digits are needed"
                        ));
                    }
                }
            }
            Some(other) => {
                let other = char::from(other);
                return Err(format!(
                    "has the unknown escape \\{other}; \\t, \\n, \\r, \\\\ and \\xHH are known"
                ));
            }
            None => return Err("ends in a single backslash".to_owned()),
        });
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Encoding; 3] = [
        Encoding {
            hex: false,
            base64: false,
        },
        Encoding {
            hex: true,
            base64: false,
        },
        Encoding {
            hex: false,
            base64: true,
        },
    ];

    #[test]
    fn every_field_is_read_as_it_was_written() {
        let all_bytes: Vec<u8> = (0..=255).collect();
        for bytes in [
            &b""[..],
            b"plain",
            "tab\there \\ süß\n".as_bytes(),
            b"\\t",
            &all_bytes,
        ] {
            for encoding in ALL {
                let mut field = Vec::new();
                encoding.encode_field(bytes, &mut field);
                assert!(!field.contains(&b'\t') && !field.contains(&b'\n'));
                assert!(std::str::from_utf8(&field).is_ok());
                assert_eq!(
                    encoding.decode_field(&field).as_deref(),
                    Ok(bytes),
                    "{encoding:?}"
                );
            }
        }
    }

    #[test]
    fn wrong_escapes_and_digits_are_refused() {
        for field in [&b"\\"[..], b"\\q", b"\\x", b"\\x1", b"\\xzz"] {
            assert!(ALL[0].decode_field(field).is_err());
        }
        for text in ["1", "zz", "0x12"] {
            assert!(ALL[1].decode(text).is_err());
        }
        assert!(ALL[2].decode("a").is_err());
    }
}
