//! A relay that lengthens the round trip to a server: what the server answers is passed on so much
//! later, byte for byte, however much is under way. For kernels without a queue that delays.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::mpsc::{self, Receiver, Sender},
    thread,
    time::{Duration, Instant},
};

/// Bytes that are passed on at once.
const PART: usize = 256 << 10;
/// The kernel may wake a sleeper so much too late: the rest is waited for awake.
const AWAKE: Duration = Duration::from_micros(60);

/// What came, and when it goes on.
type DelayedPart = (Instant, Vec<u8>);

/// Serves at `listen` until this process ends: each connection is one to `server`.
///
/// # Errors
/// The address cannot be listened at.
pub fn serve(listen: SocketAddr, server: SocketAddr, delay: Duration) -> io::Result<()> {
    let listener = TcpListener::bind(listen)?;
    loop {
        let (client, _) = listener.accept()?;
        thread::spawn(move || {
            // An end of either side is the other's.
            let _ = relay(client, server, delay);
        });
    }
}

fn relay(client: TcpStream, server: SocketAddr, delay: Duration) -> io::Result<()> {
    let server = TcpStream::connect(server)?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    let (parts, delayed) = mpsc::channel();
    let (answers, back) = (server.try_clone()?, client.try_clone()?);
    thread::spawn(move || receive(answers, delay, &parts));
    thread::spawn(move || pass_on(&delayed, back));
    let mut from = client;
    let mut to = server;
    let mut part = vec![0; PART];
    loop {
        match from.read(&mut part)? {
            0 => return to.shutdown(Shutdown::Write),
            bytes => to.write_all(&part[..bytes])?,
        }
    }
}

fn receive(mut from: TcpStream, delay: Duration, parts: &Sender<DelayedPart>) {
    let mut part = vec![0; PART];
    while let Ok(bytes @ 1..) = from.read(&mut part) {
        let then = Instant::now() + delay;
        if parts.send((then, part[..bytes].to_vec())).is_err() {
            return;
        }
    }
}

fn pass_on(delayed: &Receiver<DelayedPart>, mut to: TcpStream) {
    while let Ok((then, part)) = delayed.recv() {
        let left = then.saturating_duration_since(Instant::now());
        if left > AWAKE {
            thread::sleep(left - AWAKE);
        }
        while Instant::now() < then {
            thread::yield_now();
        }
        if to.write_all(&part).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_later_and_whole() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = server.local_addr().unwrap();
        thread::spawn(move || {
            let (mut connection, _) = server.accept().unwrap();
            let mut echoed = connection.try_clone().unwrap();
            io::copy(&mut connection, &mut echoed).unwrap();
        });
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let relay_at = listener.local_addr().unwrap();
        drop(listener);
        let delay = Duration::from_millis(20);
        thread::spawn(move || serve(relay_at, at, delay));
        let connected = (0..500).find_map(|_| {
            thread::sleep(Duration::from_millis(2));
            TcpStream::connect(relay_at).ok()
        });
        let mut client = connected.unwrap();
        let sent: Vec<u8> = (0..1_000_000_u32).map(|at| (at % 251) as u8).collect();
        let begun = Instant::now();
        let mut writing = client.try_clone().unwrap();
        let whole = sent.clone();
        thread::spawn(move || {
            writing.write_all(&whole).unwrap();
            writing.shutdown(Shutdown::Write).unwrap();
        });
        let mut answered = Vec::new();
        client.read_to_end(&mut answered).unwrap();
        assert!(begun.elapsed() >= delay);
        assert!(answered == sent, "what came is not what was sent");
    }
}
