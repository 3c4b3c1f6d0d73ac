//! The beginning of an NBD connection: fixed newstyle negotiation, `NBD_OPT_STARTTLS` where there
//! is TLS, `NBD_OPT_GO`. Numbers as in the NBD project's `doc/proto.md`. Whatever a server says is
//! data of another machine: each length is bounded, and what is not understood ends the connection.

use std::io::{self, Read, Write};

const GREETING: u64 = 0x4e42_444d_4147_4943;
const OPTION: u64 = 0x4948_4156_454f_5054;
const REPLY: u64 = 0x0003_e889_0455_65a9;
/// Handshake flags of the server, and the same of the client.
const FIXED_NEWSTYLE: u16 = 1;
const NO_ZEROES: u16 = 2;
const START_TLS: u32 = 5;
const GO: u32 = 7;
const REP_ACK: u32 = 1;
const REP_INFO: u32 = 3;
const REP_ERROR: u32 = 1 << 31;
const INFO_EXPORT: u16 = 0;
const INFO_BLOCK_SIZE: u16 = 3;
/// Transmission flags.
const READ_ONLY: u16 = 2;
const SEND_FUA: u16 = 8;
/// A reply to an option is no longer than this, and there are no more of them.
const REPLY_MAX: u32 = 64 << 10;
const REPLIES_MAX: usize = 64;
/// The most that a server takes at once unless it says more: NBD's own default.
const PAYLOAD: u32 = 32 << 20;
/// Requests are made of whole pages.
const PAGE: u32 = 4096;

/// The server's description of its export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExportInfo {
    pub(crate) bytes: u64,
    /// The most bytes of one request.
    pub(crate) payload_max: u32,
}

/// Hears the server's greeting, and answers with this client's.
///
/// # Errors
/// It is none that is known.
pub(super) fn greet(stream: &mut (impl Read + Write)) -> io::Result<()> {
    if read_u64(stream)? != GREETING || read_u64(stream)? != OPTION {
        return Err(nonsense(
            "does not greet as an NBD server of the newstyle protocol does",
        ));
    }
    let offered = read_u16(stream)?;
    if offered & FIXED_NEWSTYLE == 0 {
        return Err(nonsense(
            "is an NBD server from before the fixed newstyle protocol",
        ));
    }
    let flags = u32::from(offered & (FIXED_NEWSTYLE | NO_ZEROES));
    stream.write_all(&flags.to_be_bytes())
}

/// A stream of any kind.
pub(super) trait ByteStream: Read + Write {}
impl<S: Read + Write> ByteStream for S {}

/// Has the server begin TLS: its next bytes are encrypted. Nothing is read ahead, so that no byte
/// from before is taken for one of those.
///
/// # Errors
/// It does not.
pub(super) fn start_tls(stream: &mut (impl Read + Write)) -> io::Result<()> {
    ask_option(stream, START_TLS, &[])?;
    match read_reply(stream, START_TLS)? {
        (REP_ACK, _) => Ok(()),
        (error, data) if error & REP_ERROR != 0 => {
            let why = match error & !REP_ERROR {
                1 | 2 => "has no TLS, and nbds:// asks for it: start it with TLS (nbdkit --tls=require --tls-certificates DIR)"
                    .to_owned(),
                7 => "is shutting down".to_owned(),
                other => format!("begins no TLS (error {other})"),
            };
            Err(with_words(why, &data))
        }
        (other, _) => Err(nonsense(&format!(
            "answers the wish for TLS with {other:#x}"
        ))),
    }
}

fn ask_option(stream: &mut impl Write, option: u32, data: &[u8]) -> io::Result<()> {
    let mut message = OPTION.to_be_bytes().to_vec();
    message.extend(option.to_be_bytes());
    message.extend((data.len() as u32).to_be_bytes());
    message.extend(data);
    stream.write_all(&message)
}

/// Negotiates for the export `name`, on a stream that was [greeted](greet).
///
/// # Errors
/// What the server says instead, or that it breaks the protocol.
pub(super) fn negotiate(stream: &mut (impl Read + Write), name: &str) -> io::Result<ExportInfo> {
    let mut go = (name.len() as u32).to_be_bytes().to_vec();
    go.extend(name.as_bytes());
    go.extend(1_u16.to_be_bytes());
    go.extend(INFO_BLOCK_SIZE.to_be_bytes());
    ask_option(stream, GO, &go)?;
    let mut found = None;
    let mut block = (1, PAYLOAD);
    for _ in 0..REPLIES_MAX {
        let (kind, data) = read_reply(stream, GO)?;
        match kind {
            REP_ACK => {
                let (bytes, flags) =
                    found.ok_or_else(|| nonsense("does not say how large the export is"))?;
                return check(bytes, flags, block);
            }
            REP_INFO => match (be16(&data, 0), data.len()) {
                (Some(INFO_EXPORT), 12) => found = be64(&data, 2).zip(be16(&data, 10)),
                (Some(INFO_BLOCK_SIZE), 14) => {
                    block = be32(&data, 2).zip(be32(&data, 10)).unwrap_or(block);
                }
                // What was not asked for.
                _ => {}
            },
            error if error & REP_ERROR != 0 => return Err(refusal(error, &data, name)),
            other => {
                return Err(nonsense(&format!(
                    "answers the negotiation with {other:#x}"
                )));
            }
        }
    }
    Err(nonsense("does not end the negotiation"))
}

/// Refuses an export that cannot be a leg.
fn check(bytes: u64, flags: u16, (block_min, payload): (u32, u32)) -> io::Result<ExportInfo> {
    if flags & READ_ONLY != 0 {
        return Err(nonsense("exports it read-only, and a leg is written to"));
    }
    if flags & SEND_FUA == 0 {
        return Err(nonsense(
            "does not offer FUA, so it says of no write when it is kept: take another server (nbdkit memory, qemu-nbd)",
        ));
    }
    if block_min > PAGE || payload < PAGE {
        return Err(nonsense(&format!(
            "takes writes of {block_min} to {payload} bytes, and a leg's are pages of {PAGE}"
        )));
    }
    Ok(ExportInfo {
        bytes,
        payload_max: payload.min(PAYLOAD) / PAGE * PAGE,
    })
}

fn read_reply(stream: &mut impl Read, asked: u32) -> io::Result<(u32, Vec<u8>)> {
    let (magic, option) = (read_u64(stream)?, read_u32(stream)?);
    let (kind, bytes) = (read_u32(stream)?, read_u32(stream)?);
    if magic != REPLY || option != asked || bytes > REPLY_MAX {
        return Err(nonsense(
            "answers the negotiation with something else than NBD",
        ));
    }
    let mut data = vec![0; bytes as usize];
    stream.read_exact(&mut data)?;
    Ok((kind, data))
}

fn refusal(kind: u32, data: &[u8], name: &str) -> io::Error {
    let why = match kind & !REP_ERROR {
        1 => "does not know NBD_OPT_GO: it is too old".to_owned(),
        2 => "refuses it by its policy".to_owned(),
        5 => "wants TLS: name the leg nbds://HOST:PORT/EXPORT?tls-certificates=DIR".to_owned(),
        6 => format!("has no export of the name {name:?}"),
        7 => "is shutting down".to_owned(),
        other => format!("refuses the export {name:?} (error {other})"),
    };
    with_words(why, data)
}

fn with_words(why: String, data: &[u8]) -> io::Error {
    // The server's own words, as far as they can be shown.
    let words: String = String::from_utf8_lossy(data)
        .chars()
        .filter(|c| !c.is_control())
        .take(200)
        .collect();
    nonsense(&match words.is_empty() {
        true => why,
        false => format!("{why}: {words}"),
    })
}

/// The server, by what it does.
pub(super) fn nonsense(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the server {what}"))
}

fn be16(data: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(data.get(at..at + 2)?.try_into().ok()?))
}

fn be32(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(data.get(at..at + 4)?.try_into().ok()?))
}

fn be64(data: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(data.get(at..at + 8)?.try_into().ok()?))
}

fn read<const BYTES: usize>(stream: &mut impl Read) -> io::Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn read_u16(stream: &mut impl Read) -> io::Result<u16> {
    read(stream).map(u16::from_be_bytes)
}

fn read_u32(stream: &mut impl Read) -> io::Result<u32> {
    read(stream).map(u32::from_be_bytes)
}

fn read_u64(stream: &mut impl Read) -> io::Result<u64> {
    read(stream).map(u64::from_be_bytes)
}
