//! Commands reach the process that has the cache, believe no other user's, and wait no longer than
//! they say.
#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::{
    control::{CommandProgress, ControlClient, ControlListener},
    setup::{
        create,
        fixtures::{Two, made_cache},
    },
};
use forebay_flash::WritePolicy;
use forebay_pool::rights::{alone, user};
use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::{
        fs::{PermissionsExt, chown},
        process::CommandExt,
    },
    path::PathBuf,
    process::{Child, Command, Stdio},
};
use tempfile::TempDir;

const NOBODY: u32 = 65_534;
const SOON: Duration = Duration::from_millis(300);

fn made() -> (TempDir, PathBuf) {
    made_cache(8 << 20)
}

/// The next command.
fn next(listener: &ControlListener) -> (ControlRequest, ControlClient) {
    let begun = Instant::now();
    let mut clients = Vec::new();
    while begun.elapsed() < PATIENCE {
        clients.extend(listener.accept());
        let asks = |client: &mut ControlClient| match client.hear() {
            CommandProgress::Request(request) => Some(request),
            _ => None,
        };
        if let Some(request) = clients.last_mut().and_then(asks) {
            return (request, clients.pop().unwrap());
        }
        thread::sleep(Duration::from_millis(5));
    }
    panic!("nothing is asked");
}

/// Has `command` ask, and gives it these answers.
fn answered<T: Send>(
    flash: &Path,
    request: ControlRequest,
    answers: &[ControlAnswer],
    command: impl FnOnce() -> T + Send,
) -> T {
    let listener = ControlListener::open(flash).unwrap();
    thread::scope(|scope| {
        let asks = scope.spawn(command);
        let (asked, mut client) = next(&listener);
        assert_eq!(asked, request);
        for answer in answers {
            client.answer(answer, false);
            assert!(client.send());
        }
        drop(client);
        asks.join().unwrap()
    })
}

fn ask_soon(flash: &Path, request: ControlRequest) -> Result<ControlAnswer, SetupError> {
    let place = CacheLocation::of(flash)?;
    ask_held(&CacheFiles::of(&place)?, request, SOON, |_| {})
}

#[test]
fn only_settings_that_were_wanted_are_said_to_be_in_force() {
    let (_dir, flash) = made();
    let policy = |policy| Settings {
        policy: Some(policy),
        ..Settings::default()
    };
    for (now, is_wanted) in [(WritePolicy::Around, true), (WritePolicy::Back, false)] {
        let answer = ControlAnswer::Settings(policy(now));
        let set = answered(&flash, ControlRequest::Set, &[answer], || {
            set_running(&flash, &policy(WritePolicy::Around))
        });
        match set {
            Ok(running) => assert!(is_wanted && running == policy(now)),
            Err(e) => assert!(
                !is_wanted && e.to_string().contains("another command"),
                "{e}"
            ),
        }
    }
}

#[test]
fn a_resize_says_how_far_it_is_and_how_it_ended() {
    let (_dir, flash) = made();
    let request = ControlRequest::Resize { bytes: 99 };
    let far = [0, 3].map(|done| ResizeProgress {
        bytes: 99,
        done,
        of: 3,
    });
    let resized = ResizeResult {
        pages: 3,
        complete: true,
        ..ResizeResult::default()
    };
    let mut answers = far.map(ControlAnswer::Resizing).to_vec();
    answers.push(ControlAnswer::Resized(resized));
    let mut heard = Vec::new();
    let done = answered(&flash, request, &answers, || {
        resize_running(&flash, 99, |far| heard.push(*far))
    });
    assert_eq!((done.unwrap(), heard.as_slice()), (resized, far.as_slice()));
    let refused = [ControlAnswer::Refused("it is too small".to_owned())];
    let done = answered(&flash, request, &refused, || {
        resize_running(&flash, 99, |_| {})
    });
    assert_eq!(done.unwrap_err().to_string(), "it is too small");
    // Of a process that ends it is said what it has begun.
    for (begun, words) in [(0, "is not known"), (1, "or the next server does")] {
        let done = answered(&flash, request, &answers[..begun], || {
            resize_running(&flash, 99, |_| {})
        });
        let e = done.unwrap_err().to_string();
        assert!(e.contains("has ended") && e.contains(words), "{e}");
    }
}

#[test]
fn a_process_that_says_nothing_is_not_waited_for_for_ever() {
    let (_dir, flash) = made();
    // One that listens, and looks at no command.
    let _listener = ControlListener::open(&flash).unwrap();
    let begun = Instant::now();
    let e = ask_soon(&flash, ControlRequest::Set)
        .unwrap_err()
        .to_string();
    assert!(
        e.contains("says nothing") && e.contains("is not known"),
        "{e}"
    );
    // And one with which many wait already.
    let file = || {
        CacheFiles::of(&CacheLocation::of(&flash).unwrap())
            .unwrap()
            .socket()
    };
    let file = file().unwrap().unwrap();
    let waits: Vec<_> = (0..50).filter_map(|_| connect_to(&file).ok()).collect();
    assert!(waits.len() < 50);
    let e = ask_soon(&flash, ControlRequest::Cancel)
        .unwrap_err()
        .to_string();
    assert!(e.contains("does not listen"), "{e}");
    assert!(begun.elapsed() < PATIENCE);
}

#[test]
fn a_process_that_is_about_to_listen_is_waited_for() {
    let (_dir, flash) = made();
    // What is left of one that has ended is no one that listens.
    drop(ControlListener::open(&flash).unwrap());
    let e = ask_soon(&flash, ControlRequest::Set)
        .unwrap_err()
        .to_string();
    assert!(e.contains("does not listen"), "{e}");
    thread::scope(|scope| {
        let asks = scope.spawn(|| set_running(&flash, &Settings::default()));
        thread::sleep(SOON);
        let listener = ControlListener::open(&flash).unwrap();
        let (_, mut client) = next(&listener);
        client.answer(&ControlAnswer::Settings(Settings::default()), true);
        assert!(!client.send());
        asks.join().unwrap().unwrap();
    });
}

#[test]
fn what_a_server_has_begun_that_is_gone_is_forgotten_once() {
    let (_dir, flash) = made();
    assert_eq!(cancel_resize(&flash).unwrap(), CancelledResize::None);
    ResizeNote { bytes: 9 }.keep(&flash).unwrap();
    assert_eq!(cancel_resize(&flash).unwrap(), CancelledResize::Forgotten);
    assert!(!ResizeNote::is_there(&flash));
}

/// A server that began in between has read no note.
#[test]
fn what_was_forgotten_stays_so_where_a_server_is_idle() {
    let now = CacheOccupancy::default();
    let resized = ControlAnswer::Resized(ResizeResult {
        now,
        ..ResizeResult::default()
    });
    for (answer, became) in [
        (ControlAnswer::Idle, CancelledResize::Forgotten),
        (ControlAnswer::GivenUp(now), CancelledResize::GivenUp(now)),
        (resized, CancelledResize::TooLate(now)),
    ] {
        let told = cancelled_by(Path::new("f"), &answer, CancelledResize::Forgotten);
        assert_eq!(told.unwrap(), became);
    }
}

#[test]
fn a_cache_that_is_let_go_of_meanwhile_is_not_waited_for() {
    let (_dir, flash) = made();
    let begun = Instant::now();
    let e = set_running(&flash, &Settings::default()).unwrap_err();
    assert!(matches!(e, SetupError::Released { .. }), "{e}");
    assert!(begun.elapsed() < PATIENCE);
}

#[test]
fn what_a_server_says_has_no_control_characters() {
    let (_dir, flash) = made();
    let refused = [ControlAnswer::Refused("\u{1b}]0;x\u{7} no\n".to_owned())];
    let request = ControlRequest::Resize { bytes: 9 };
    let done = answered(&flash, request, &refused, || {
        resize_running(&flash, 9, |_| {})
    });
    assert_eq!(done.unwrap_err().to_string(), "?]0;x? no?");
}

/// Promise: as `what_has_the_name_of_a_cache_s_file_by_then_is_left`.
#[test]
fn the_socket_is_that_in_the_directory_that_was_held() {
    let dirs = Two::new();
    let at = |name| dirs.at(name);
    create(&at("x/f"), 8 << 20).unwrap();
    let _other = ControlListener::open(&at("other/f")).unwrap();
    let place = CacheLocation::of(&at("x/f")).unwrap();
    let held = CacheFiles::of(&place).unwrap();
    dirs.swap();
    assert!(held.socket().unwrap().is_none());
    ResizeNote { bytes: 9 }.keep(&at("other/f")).unwrap();
    held.forget_resize().unwrap();
    assert!(ResizeNote::is_there(&at("other/f")));
}

#[test]
fn a_cache_with_the_longest_path_and_name_listens() {
    let dir = tempfile::tempdir().unwrap();
    let deep = dir.path().join("d".repeat(200));
    fs::create_dir(&deep).unwrap();
    let flash = deep.join("f".repeat(200));
    create(&flash, 8 << 20).unwrap();
    let answer = ControlAnswer::Settings(Settings::default());
    answered(&flash, ControlRequest::Set, &[answer], || {
        set_running(&flash, &Settings::default())
    })
    .unwrap();
    assert_eq!(
        fs::read_dir(&deep).unwrap().count(),
        4,
        "nothing else is left"
    );
}

/// A Python program as another user, with the socket's path.
fn as_nobody(flash: &Path, program: &str) -> Child {
    let mut command = Command::new("python3");
    command.args(["-c", program]).arg(socket_of(flash));
    command.uid(NOBODY).gid(NOBODY).current_dir("/");
    command.stdout(Stdio::piped()).spawn().unwrap()
}

/// Promise (flash): No user but root and the server's own commands a running cache.
#[test]
fn another_user_cannot_command_a_running_cache() {
    if user() != 0 {
        return;
    }
    let (dir, flash) = made();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let _listener = ControlListener::open(&flash).unwrap();
    let mode = fs::metadata(socket_of(&flash))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let program = "import socket, sys\n\
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n\
        try: s.connect(sys.argv[1])\n\
        except PermissionError: sys.exit(0)\n\
        sys.exit(1)";
    assert!(as_nobody(&flash, program).wait().unwrap().success());
    // Nor does root believe another user's socket, or anything else that has the name.
    fs::remove_file(socket_of(&flash)).unwrap();
    let _listener = ControlListener::open(&flash).unwrap();
    chown(socket_of(&flash), Some(NOBODY), None).unwrap();
    let e = ask_soon(&flash, ControlRequest::Set).unwrap_err();
    assert!(matches!(e, SetupError::Distrusted(_)), "{e}");
    fs::remove_file(socket_of(&flash)).unwrap();
    fs::write(socket_of(&flash), "").unwrap();
    let e = ask_soon(&flash, ControlRequest::Set).unwrap_err();
    assert!(matches!(e, SetupError::Distrusted(_)), "{e}");
}

/// Promise: as `root_flushes_and_resizes_only_what_the_caches_owner_may`.
#[test]
fn root_commands_a_server_as_the_cache_s_owner() {
    alone(|| {
        let (dir, flash) = made();
        for path in [dir.path(), &flash, &crate::pool_of(&flash)] {
            chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let program = "import os, socket, struct, sys\n\
            s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n\
            s.bind(sys.argv[1]); os.chmod(sys.argv[1], 0o600); s.listen(); print(flush=True)\n\
            c = s.accept()[0]\n\
            user = struct.unpack('iii', c.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]\n\
            assert c.recv(99) == b'\"set\"'\n\
            c.send(b'{\"settings\":{\"high\":%d}}' % (user == 65534))";
        let mut listens = as_nobody(&flash, program);
        let mut line = String::new();
        let output = listens.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        let set = set_running(&flash, &Settings::default());
        listens.wait().unwrap();
        assert_eq!(set.unwrap().high, Some(1));
    });
}
