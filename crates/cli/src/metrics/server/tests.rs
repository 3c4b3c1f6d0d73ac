use super::*;
use std::{
    io::{Read, Write},
    sync::atomic::AtomicU64,
};

fn served() -> (MetricsServer, SocketAddr) {
    served_with(MetricsSnapshot::default)
}

fn served_with(
    read: impl Fn() -> MetricsSnapshot + Send + Sync + 'static,
) -> (MetricsServer, SocketAddr) {
    let listener = MetricsListener::bind("0".parse().unwrap()).unwrap();
    let address = listener.address;
    (listener.serve(read).unwrap(), address)
}

fn connected(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    let patience = Some(Duration::from_secs(60));
    stream.set_read_timeout(patience).unwrap();
    stream
}

/// The answer; empty if the connection was only closed.
fn answer(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    String::from_utf8(bytes).unwrap()
}

fn asked(address: SocketAddr, request: &str) -> String {
    let mut stream = connected(address);
    stream.write_all(request.as_bytes()).unwrap();
    answer(stream)
}

#[test]
fn each_request_gets_what_it_asks_for() {
    let (_server, address) = served();
    let get =
        |path: &str, more: &str| asked(address, &format!("GET {path} HTTP/1.1\r\n{more}\r\n"));
    let found = get(
        "/metrics",
        "Accept: application/openmetrics-text;version=1.0.0;q=0.5\r\n",
    );
    assert!(found.starts_with("HTTP/1.1 200 OK\r\n"), "{found}");
    assert!(
        found.contains("application/openmetrics-text; version=1.0.0"),
        "{found}"
    );
    assert!(found.ends_with("\r\n\r\n# EOF\n"), "{found}");
    let older = get("/metrics?a=b", "Accept: */*\r\n");
    assert!(older.contains("text/plain; version=0.0.4"), "{older}");
    assert!(get("/", "").starts_with("HTTP/1.1 200"));
    assert!(get("/other", "").starts_with("HTTP/1.1 404"));
    let head = asked(address, "HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(
        head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"),
        "{head}"
    );
    assert!(asked(address, "POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
    assert!(asked(address, "\u{1}\u{2} no request\r\n\r\n").starts_with("HTTP/1.1 400"));
}

#[test]
fn request_in_pieces_is_answered_and_a_long_one_refused() {
    let (_server, address) = served();
    let mut stream = connected(address);
    for piece in ["GET /met", "rics HTTP/1.1\r", "\n\r\n"] {
        stream.write_all(piece.as_bytes()).unwrap();
        thread::sleep(Duration::from_millis(20));
    }
    assert!(answer(stream).starts_with("HTTP/1.1 200"));
    let long = format!("GET /metrics HTTP/1.1\r\nX: {}", "x".repeat(8 << 10));
    let said = asked(address, &long);
    assert!(said.starts_with("HTTP/1.1 431"), "{said}");
}

#[test]
fn slow_scrapers_are_bounded_in_number_and_time() {
    let (_server, address) = served();
    let slow: Vec<TcpStream> = (0..CONNECTIONS_MAX).map(|_| connected(address)).collect();
    let begun = Instant::now();
    // Those before have been taken by then. One whose request comes late may hear nothing.
    while !asked(address, "GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 503") {
        assert!(
            begun.elapsed() < Duration::from_secs(4),
            "none is turned away"
        );
    }
    for stream in slow {
        assert_eq!(answer(stream), "");
    }
    assert!(begun.elapsed() < Duration::from_secs(30));
    assert!(asked(address, "GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200"));
}

#[test]
fn many_scrapes_read_the_figures_once() {
    let reads = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&reads);
    let (_server, address) = served_with(move || {
        counted.fetch_add(1, AcqRel);
        MetricsSnapshot::default()
    });
    let begun = Instant::now();
    for _ in 0..20 {
        asked(address, "GET /metrics HTTP/1.1\r\n\r\n");
    }
    let seconds = begun.elapsed().as_secs();
    assert!(reads.load(Acquire) <= seconds + 1);
}

#[test]
fn address_in_use_is_refused_with_what_to_do() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let refused = MetricsListener::bind(address.parse().unwrap())
        .unwrap_err()
        .to_string();
    for words in [
        address.as_str(),
        "Another program has the port",
        "Nothing was started",
    ] {
        assert!(refused.contains(words), "{refused}");
    }
}

#[test]
fn port_is_free_again_when_the_run_ends() {
    // Another test may have the port as soon as it is free.
    let is_free_after = || {
        let (server, address) = served();
        drop(server);
        TcpStream::connect(address).is_err()
            && MetricsListener::bind(address.to_string().parse().unwrap()).is_ok()
    };
    assert!((0..10).any(|_| is_free_after()));
}
