//! A server of one [`SharedDisk`] over the network block device protocol, on a Unix-domain socket:
//! how QEMU reaches it.
//!
//! Only what QEMU asks for: the fixed newstyle handshake with `NBD_OPT_GO`, simple replies, reads,
//! writes (forced ones too) and flushes. The protocol:
//! <https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>.

use crate::{disk::SECTOR, shared_disk::SharedDisk};
use std::{
    io::{self, Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    sync::Arc,
    thread,
};

const IHAVEOPT: u64 = 0x4948_4156_454F_5054;
const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
const REQUEST: u32 = 0x2560_9513;
const SIMPLE_REPLY: u32 = 0x6744_6698;
/// `FIXED_NEWSTYLE`, `NO_ZEROES`.
const HANDSHAKE_FLAGS: u16 = 3;
const OPT_ABORT: u32 = 2;
const OPT_GO: u32 = 7;
const REP_ACK: u32 = 1;
const REP_INFO: u32 = 3;
const REP_UNSUPPORTED: u32 = 0x8000_0001;
const INFO_EXPORT: u16 = 0;
const INFO_BLOCK_SIZE: u16 = 3;
/// `HAS_FLAGS`, `SEND_FLUSH`, `SEND_FUA`.
const EXPORT_FLAGS: u16 = 0b1101;
const COMMAND_READ: u16 = 0;
const COMMAND_WRITE: u16 = 1;
const COMMAND_DISCONNECT: u16 = 2;
const COMMAND_FLUSH: u16 = 3;
const FLAG_FUA: u16 = 1;
/// Bytes of one request at most.
const REQUEST_MAX: u32 = 32 << 20;
const EIO: u32 = 5;
const EINVAL: u32 = 22;

/// A disk that is being served.
pub struct Server {
    /// The disk.
    pub disk: Arc<SharedDisk>,
    socket: PathBuf,
}

impl Server {
    /// Serves `disk` to the first who connects to `socket`.
    pub fn start(disk: SharedDisk, socket: &Path) -> io::Result<Self> {
        let _ = std::fs::remove_file(socket);
        let listener = UnixListener::bind(socket)?;
        let disk = Arc::new(disk);
        let served = Arc::clone(&disk);
        thread::Builder::new().name("disk".into()).spawn(move || {
            if let Ok((connection, _)) = listener.accept() {
                drop(listener);
                // It ends when QEMU does; what the disk has then is what counts.
                let _ = serve(connection, &served);
            }
        })?;
        Ok(Self {
            disk,
            socket: socket.to_owned(),
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The socket is this server's alone.
        let _ = std::fs::remove_file(&self.socket);
    }
}

fn u16_from(from: &mut impl Read) -> io::Result<u16> {
    let mut bytes = [0; 2];
    from.read_exact(&mut bytes)?;
    Ok(u16::from_be_bytes(bytes))
}

fn u32_from(from: &mut impl Read) -> io::Result<u32> {
    let mut bytes = [0; 4];
    from.read_exact(&mut bytes)?;
    Ok(u32::from_be_bytes(bytes))
}

fn u64_from(from: &mut impl Read) -> io::Result<u64> {
    let mut bytes = [0; 8];
    from.read_exact(&mut bytes)?;
    Ok(u64::from_be_bytes(bytes))
}

fn wrong(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

fn serve(mut connection: UnixStream, disk: &SharedDisk) -> io::Result<()> {
    let lock = || disk.lock();
    if !shake_hands(&mut connection, disk.bytes())? {
        return Ok(());
    }
    let mut data = Vec::new();
    loop {
        if u32_from(&mut connection)? != REQUEST {
            return Err(wrong("no request"));
        }
        let (flags, command) = (u16_from(&mut connection)?, u16_from(&mut connection)?);
        let handle = u64_from(&mut connection)?;
        let (at, length) = (u64_from(&mut connection)?, u32_from(&mut connection)?);
        if length > REQUEST_MAX {
            return Err(wrong(format!("a request of {length} bytes")));
        }
        data.clear();
        let mut reply = Vec::new();
        let done = match command {
            COMMAND_READ => {
                data.resize(length as usize, 0);
                let done = lock().read(at, &mut data);
                reply = data.clone();
                done
            }
            COMMAND_WRITE => {
                data.resize(length as usize, 0);
                connection.read_exact(&mut data)?;
                if flags & FLAG_FUA != 0 {
                    lock().write_forced(at, &data)
                } else {
                    lock().write(at, &data)
                }
            }
            COMMAND_FLUSH => lock().flush(),
            COMMAND_DISCONNECT => return Ok(()),
            _ => Err(wrong(format!("command {command}"))),
        };
        let error = match &done {
            Ok(()) => 0,
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => EINVAL,
            Err(_) => EIO,
        };
        if lock().is_off() {
            // A disk without power does not answer.
            return Ok(());
        }
        let mut head = Vec::with_capacity(16 + reply.len());
        head.extend(SIMPLE_REPLY.to_be_bytes());
        head.extend(error.to_be_bytes());
        head.extend(handle.to_be_bytes());
        if error == 0 {
            head.extend(reply);
        }
        connection.write_all(&head)?;
    }
}

/// Agrees on the export, of `bytes` bytes. False if the client goes again.
fn shake_hands(connection: &mut (impl Read + Write), bytes: u64) -> io::Result<bool> {
    let mut greeting = b"NBDMAGIC".to_vec();
    greeting.extend(IHAVEOPT.to_be_bytes());
    greeting.extend(HANDSHAKE_FLAGS.to_be_bytes());
    connection.write_all(&greeting)?;
    u32_from(connection)?;
    loop {
        if u64_from(connection)? != IHAVEOPT {
            return Err(wrong("no option"));
        }
        let (option, length) = (u32_from(connection)?, u32_from(connection)?);
        if length > 4096 {
            return Err(wrong(format!("an option of {length} bytes")));
        }
        let mut data = vec![0; length as usize];
        connection.read_exact(&mut data)?;
        let mut reply = |kind: u32, data: &[u8]| {
            let mut message = OPTION_REPLY.to_be_bytes().to_vec();
            message.extend(option.to_be_bytes());
            message.extend(kind.to_be_bytes());
            message.extend((data.len() as u32).to_be_bytes());
            message.extend(data);
            connection.write_all(&message)
        };
        match option {
            OPT_GO => {
                let mut info = INFO_EXPORT.to_be_bytes().to_vec();
                info.extend(bytes.to_be_bytes());
                info.extend(EXPORT_FLAGS.to_be_bytes());
                reply(REP_INFO, &info)?;
                let mut info = INFO_BLOCK_SIZE.to_be_bytes().to_vec();
                for size in [SECTOR as u32, 4096, REQUEST_MAX] {
                    info.extend(size.to_be_bytes());
                }
                reply(REP_INFO, &info)?;
                reply(REP_ACK, &[])?;
                return Ok(true);
            }
            OPT_ABORT => {
                reply(REP_ACK, &[])?;
                return Ok(false);
            }
            _ => reply(REP_UNSUPPORTED, &[])?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Survival;

    /// As much of a client as the test needs.
    struct Client(UnixStream);

    impl Client {
        fn connect(socket: &Path) -> Self {
            let mut stream = UnixStream::connect(socket).unwrap();
            let mut greeting = [0; 18];
            stream.read_exact(&mut greeting).unwrap();
            assert_eq!(&greeting[..8], b"NBDMAGIC");
            let mut message = 3u32.to_be_bytes().to_vec();
            for (option, data) in [(8u32, &[][..]), (OPT_GO, &[0; 6])] {
                message.extend(IHAVEOPT.to_be_bytes());
                message.extend(option.to_be_bytes());
                message.extend((data.len() as u32).to_be_bytes());
                message.extend(data);
            }
            stream.write_all(&message).unwrap();
            let mut replies = Vec::new();
            for _ in 0..4 {
                let mut head = [0; 20];
                stream.read_exact(&mut head).unwrap();
                let mut data = vec![0; u32::from_be_bytes(head[16..].try_into().unwrap()) as usize];
                stream.read_exact(&mut data).unwrap();
                replies.push((u32::from_be_bytes(head[12..16].try_into().unwrap()), data));
            }
            let kinds: Vec<u32> = replies.iter().map(|(kind, _)| *kind).collect();
            assert_eq!(kinds, [REP_UNSUPPORTED, REP_INFO, REP_INFO, REP_ACK]);
            assert_eq!(replies[1].1[2..10], 4096u64.to_be_bytes());
            Self(stream)
        }

        fn request(
            &mut self,
            flags: u16,
            command: u16,
            at: u64,
            length: u32,
            data: &[u8],
        ) -> io::Result<u32> {
            let mut message = REQUEST.to_be_bytes().to_vec();
            message.extend(flags.to_be_bytes());
            message.extend(command.to_be_bytes());
            message.extend(77u64.to_be_bytes());
            message.extend(at.to_be_bytes());
            message.extend(length.to_be_bytes());
            message.extend(data);
            self.0.write_all(&message)?;
            assert_eq!(u32_from(&mut self.0)?, SIMPLE_REPLY);
            let error = u32_from(&mut self.0)?;
            assert_eq!(u64_from(&mut self.0)?, 77);
            Ok(error)
        }
    }

    #[test]
    fn after_a_cut_a_client_finds_only_flushed_and_forced_writes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        std::fs::write(&path, [0; 4096]).unwrap();
        let disk = SharedDisk::open(&path).unwrap();
        let server = Server::start(disk, &dir.path().join("socket")).unwrap();
        let mut client = Client::connect(&dir.path().join("socket"));
        assert_eq!(
            client.request(0, COMMAND_WRITE, 0, 512, &[1; 512]).unwrap(),
            0
        );
        assert_eq!(client.request(0, COMMAND_FLUSH, 0, 0, &[]).unwrap(), 0);
        assert_eq!(
            client
                .request(FLAG_FUA, COMMAND_WRITE, 512, 512, &[2; 512])
                .unwrap(),
            0
        );
        assert_eq!(
            client
                .request(0, COMMAND_WRITE, 1024, 512, &[3; 512])
                .unwrap(),
            0
        );
        assert_eq!(client.request(0, COMMAND_READ, 1024, 512, &[]).unwrap(), 0);
        let mut read = [0; 512];
        client.0.read_exact(&mut read).unwrap();
        assert_eq!(read, [3; 512]);
        assert_eq!(
            client.request(0, COMMAND_READ, 4096, 512, &[]).unwrap(),
            EINVAL
        );
        server.disk.power_off();
        assert!(client.request(0, COMMAND_FLUSH, 0, 0, &[]).is_err());
        let none = Survival { per_mille: 0 };
        assert_eq!(server.disk.cut(1, none).unwrap(), (1, 1));
        let left = std::fs::read(&path).unwrap();
        assert_eq!([left[0], left[512], left[1024]], [1, 2, 0]);
    }
}
