use super::*;
use crate::{
    ENV_SOCKET, ENV_TOKEN,
    shared::SharedPage,
    supervisor::{Supervisor, SupervisorOptions, SyncLayer},
    wire::VERSION,
};
use forebay_pool::PoolOptions;
use std::{
    ffi::OsStr,
    fs::File,
    os::{fd::AsRawFd, unix::ffi::OsStrExt},
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};
use uuid::Uuid;

/// A supervisor at `home`, of lanes of so many segments.
pub(in crate::supervisor) fn supervisor(home: &Path, segments: u16) -> Supervisor {
    supervisor_on(home, segments, None)
}

/// The same with a layer under it.
pub(in crate::supervisor) fn supervisor_on(
    home: &Path,
    segments: u16,
    layer: Option<Arc<dyn SyncLayer>>,
) -> Supervisor {
    let options = PoolOptions::new()
        .size(4 << 20)
        .segment_size(64 << 10)
        .emulated(true);
    let pool = options.create(home.join("pool")).unwrap();
    let options = SupervisorOptions {
        patterns: vec!["*.log".to_owned()],
        preallocated: Vec::new(),
        refuse_io_uring: false,
        guard: None,
        segments,
        run_dir: home.join("run"),
        program: "test".to_owned(),
        front_end: Default::default(),
        layer,
    };
    Supervisor::start(pool, options).unwrap()
}

/// The connection of a new member, its answers, and its messages.
pub(in crate::supervisor) fn hello(
    socket: &[u8],
    token: Uuid,
) -> (OwnedFd, SupervisorAnswer, Vec<OwnedFd>) {
    let connection = wire::connect(socket, None).unwrap();
    let hello = ClientRequest::Hello {
        version: VERSION,
        token,
    };
    wire::send(connection.as_fd(), &hello, &[]).unwrap();
    let (answer, fds) = wire::receive::<SupervisorAnswer>(connection.as_fd()).unwrap();
    (connection, answer, fds)
}

/// The connection of a supervisor's new member.
pub(in crate::supervisor) fn member_of(supervisor: &Supervisor) -> OwnedFd {
    let (connection, answer, _) = hello(&supervisor.socket_name, supervisor.shared.token);
    assert!(
        matches!(answer, SupervisorAnswer::Welcome { .. }),
        "{answer:?}"
    );
    connection
}

#[test]
fn a_process_that_cannot_be_answered_is_cut_off_and_no_member() {
    let home = tempfile::tempdir().unwrap();
    let supervisor = supervisor(home.path(), 2);
    let connection = wire::connect(&supervisor.socket_name, None).unwrap();
    rustix::net::shutdown(&connection, Shutdown::Read).unwrap();
    let hello = ClientRequest::Hello {
        version: VERSION,
        token: supervisor.shared.token,
    };
    wire::send(connection.as_fd(), &hello, &[]).unwrap();
    wait_until("it is not closed", || !is_open(&connection));
    wait_until("it is a member", || {
        supervisor.shared.member_processes().is_empty()
    });
    supervisor.finish().unwrap();
}

#[test]
fn a_hello_after_the_last_member_has_ended_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let supervisor = supervisor(home.path(), 2);
    let hello = || hello(&supervisor.socket_name, supervisor.shared.token).1;
    assert!(matches!(hello(), SupervisorAnswer::Welcome { .. }));
    // It has hung up. Another comes while the lane is being drained.
    supervisor.shared.outlast_members();
    let answer = hello();
    assert!(
        matches!(&answer, SupervisorAnswer::Refused { reason } if reason.contains("ended")),
        "{answer:?}"
    );
    supervisor.finish().unwrap();
}

/// A member's stand-in (`member`) and its child's (`child PAGE`), which has its connection for
/// standard input; and the file in which both note their work.
const ROLE: &str = "FOREBAY_TEST_SHARING";
const LEDGER: &str = "FOREBAY_TEST_LEDGER";
/// After so long a process waits for what never comes.
const LIMIT: Duration = Duration::from_secs(30);

fn wait_until(what: &str, done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < LIMIT, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

fn again(role: &str) -> Command {
    let mut again = Command::new(std::env::current_exe().unwrap());
    again
        .args(["--exact", "supervisor::member::tests::process"])
        .env(ROLE, role)
        .stdout(Stdio::null());
    again
}

/// Not a test by itself.
#[test]
#[expect(
    clippy::zombie_processes,
    reason = "this process ends before its child"
)]
fn process() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let ledger = std::env::var_os(LEDGER).unwrap();
    let ledger = Path::new(&ledger);
    if let Some(page) = role.strip_prefix("child ") {
        let page = format!("/proc/self/fd/{page}");
        let page = File::options().read(true).write(true).open(page).unwrap();
        let _page = SharedPage::map(page.as_fd()).unwrap();
        std::fs::write(ledger, "it has the memory").unwrap();
        while ledger.exists() {
            thread::sleep(Duration::from_millis(1));
        }
        return;
    }
    let socket = std::env::var_os(ENV_SOCKET).unwrap();
    let token = std::env::var(ENV_TOKEN).unwrap().parse().unwrap();
    let (connection, answer, fds) = hello(socket.as_bytes(), token);
    assert!(
        matches!(answer, SupervisorAnswer::Welcome { .. }),
        "{answer:?}"
    );
    // It is not closed when a program is executed.
    let page = rustix::io::dup(&fds[2]).unwrap();
    let mut child = again(&format!("child {}", page.as_raw_fd()));
    child.stdin(connection).spawn().unwrap();
    wait_until("the child has not begun", || ledger.exists());
}

#[test]
fn no_member_is_buried_while_a_child_has_its_memory_and_socket() {
    let home = tempfile::tempdir().unwrap();
    let supervisor = supervisor(home.path(), 2);
    let ledger = home.path().join("ledger");
    let mut member = again("member")
        .env(ENV_SOCKET, OsStr::from_bytes(&supervisor.socket_name))
        .env(ENV_TOKEN, supervisor.shared.token.to_string())
        .env(LEDGER, &ledger)
        .spawn()
        .unwrap();
    assert!(member.wait().unwrap().success());
    let is_there = || !supervisor.shared.member_processes().is_empty();
    for _ in 0..20 {
        assert!(is_there(), "it is buried");
        thread::sleep(CHILD_AGAIN);
    }
    std::fs::remove_file(ledger).unwrap();
    wait_until("it is not buried", || !is_there());
    supervisor.shared.outlast_members();
    supervisor.finish().unwrap();
}
