//! A desk answers each command once, whatever others do; and a resize that was begun is noted until
//! it has ended.
#![allow(clippy::unwrap_used, reason = "tests")]

use super::{super::resize, *};
use crate::{
    control::connect_to,
    descriptor::hold,
    settings::{Settings, settings_of},
    setup::{self, create, fixtures::Two},
};
use forebay_flash::WritePolicy;
use rustix::{
    event::{PollFd, PollFlags, poll},
    fd::OwnedFd,
    io::Errno,
    net::{RecvFlags, SendFlags, recv, send},
};
use std::fs;
use tempfile::TempDir;

const SMALL: u64 = 8 << 20;
const LARGE: u64 = 24 << 20;

fn made() -> (TempDir, CacheSession) {
    let dir = tempfile::tempdir().unwrap();
    let [flash, status] = ["f", "f.status"].map(|name| dir.path().join(name));
    create(&flash, SMALL).unwrap();
    let session = CacheSession::said_in(&status, &flash);
    (dir, session)
}

fn connect(desk: &ControlDesk<'_>) -> OwnedFd {
    connect_to(&hold(&socket_of(desk.session.flash())).unwrap()).unwrap()
}

fn asks(desk: &ControlDesk<'_>, bytes: &[u8]) -> OwnedFd {
    let socket = connect(desk);
    send(&socket, bytes, SendFlags::NOSIGNAL).unwrap();
    socket
}

fn asks_for(desk: &ControlDesk<'_>, bytes: u64) -> OwnedFd {
    asks(
        desk,
        format!("{{\"resize\":{{\"bytes\":{bytes}}}}}").as_bytes(),
    )
}

/// The thread's turn.
fn turn(desk: &mut ControlDesk<'_>) {
    thread::sleep(2 * IDLE);
    desk.serve();
}

/// The next answer; none at the end.
fn answer(socket: &OwnedFd) -> Option<ControlAnswer> {
    let limit = rustix::event::Timespec {
        tv_sec: 60,
        tv_nsec: 0,
    };
    assert_eq!(
        poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&limit)),
        Ok(1)
    );
    let mut bytes = [0; 4096];
    match recv(socket, &mut bytes[..], RecvFlags::empty()) {
        Ok((_, length)) if length > 0 => Some(serde_json::from_slice(&bytes[..length]).unwrap()),
        // What was sent to a process that has closed its end unread.
        Ok(_) | Err(Errno::CONNRESET) => None,
        Err(errno) => panic!("{errno}"),
    }
}

fn refusal(socket: &OwnedFd) -> String {
    match answer(socket) {
        Some(ControlAnswer::Refused(why)) => why,
        other => panic!("{other:?}"),
    }
}

/// The last answer of a resize.
fn last(socket: &OwnedFd) -> ControlAnswer {
    loop {
        match answer(socket).unwrap() {
            ControlAnswer::Resizing(_) => {}
            last => return last,
        }
    }
}

#[test]
fn commands_that_say_nothing_hold_up_no_other_one() {
    let (_dir, session) = made();
    let mut desk = ControlDesk::open(&session);
    let silent: Vec<_> = (0..CLIENTS_MAX + 6).map(|_| connect(&desk)).collect();
    turn(&mut desk);
    assert_eq!(desk.clients.len(), CLIENTS_MAX, "no more have a place");
    let asked = asks(&desk, b"\"set\"");
    let begun = Instant::now();
    let is_answered = |asked: &OwnedFd| {
        let mut found = [PollFd::new(asked, PollFlags::IN)];
        poll(&mut found, Some(&rustix::event::Timespec::default())) == Ok(1)
    };
    while !is_answered(&asked) {
        assert!(begun.elapsed() < Duration::from_secs(30));
        let turned = Instant::now();
        desk.serve();
        assert!(turned.elapsed() < Duration::from_secs(1), "it waited");
        thread::sleep(IDLE);
    }
    assert!(matches!(answer(&asked), Some(ControlAnswer::Settings(_))));
    while !desk.clients.is_empty() {
        turn(&mut desk);
    }
    assert!(silent.iter().all(|silent| answer(silent).is_none()));
}

#[test]
fn garbage_a_huge_message_and_a_flood_get_one_answer() {
    let (_dir, session) = made();
    let mut desk = ControlDesk::open(&session);
    for bytes in [
        &b"{"[..],
        &[b' '; 100_000],
        b"\"flush\"",
        b"{\"resize\":7}",
        b"\xff",
    ] {
        let socket = asks(&desk, bytes);
        turn(&mut desk);
        assert!(refusal(&socket).contains("no command"));
        assert_eq!(answer(&socket), None);
    }
    let flood = asks(&desk, b"\"set\"");
    for _ in 0..50 {
        let _ = send(&flood, b"\"cancel\"", SendFlags::NOSIGNAL);
    }
    turn(&mut desk);
    assert!(desk.clients.is_empty(), "what follows is not read");
    let other = asks(&desk, b"\"set\"");
    turn(&mut desk);
    assert!(matches!(answer(&other), Some(ControlAnswer::Settings(_))));
}

#[test]
fn what_a_command_asked_that_is_gone_is_not_done() {
    let (_dir, session) = made();
    let mut desk = ControlDesk::open(&session);
    drop(asks_for(&desk, LARGE));
    turn(&mut desk);
    assert!(desk.resize.is_none() && !note_of(session.flash()).exists());
}

#[test]
fn the_last_answer_reaches_a_command_that_reads_late() {
    let (_dir, session) = made();
    let mut desk = ControlDesk::open(&session);
    let late = asks_for(&desk, LARGE);
    turn(&mut desk);
    let far = ControlAnswer::Resizing(ResizeProgress::default());
    for _ in 0..5000 {
        desk.tell(is_resize, &far, false);
        let _ = desk.clients[0].send();
    }
    resize::follow(&mut desk);
    turn(&mut desk);
    assert_eq!(desk.clients.len(), 1, "it is not sent yet");
    let reads = thread::spawn(move || last(&late));
    while !desk.clients.is_empty() {
        turn(&mut desk);
    }
    let ControlAnswer::Resized(resized) = reads.join().unwrap() else {
        panic!("it has another answer");
    };
    assert_eq!(resized.now.slots, session.cache.stats().slots);
}

/// Promise (flash): A resize that a server has begun is noted durably until it has ended.
#[test]
fn a_resize_is_noted_from_its_first_answer_to_its_last() {
    let (_dir, session) = made();
    let (flash, before) = (session.flash(), session.cache.stats().slots);
    let mut desk = ControlDesk::open(&session);
    let [first, again, second] = [LARGE, LARGE, SMALL].map(|bytes| asks_for(&desk, bytes));
    turn(&mut desk);
    let Some(ControlAnswer::Resizing(far)) = answer(&first) else {
        panic!("it has not begun");
    };
    assert_eq!(far.bytes, LARGE);
    assert_eq!(ResizeNote::read(flash).unwrap().unwrap().bytes, LARGE);
    assert!(refusal(&second).contains("25165824 bytes already"));
    resize::follow(&mut desk);
    assert!(!note_of(flash).exists());
    turn(&mut desk);
    assert!(matches!(last(&first), ControlAnswer::Resized(_)));
    assert!(
        matches!(last(&again), ControlAnswer::Resized(_)),
        "it was asked for twice"
    );
    assert!(session.cache.stats().slots > 2 * before);
    // A refusal by the cache itself.
    let small = asks_for(&desk, 1 << 20);
    turn(&mut desk);
    resize::follow(&mut desk);
    turn(&mut desk);
    let ControlAnswer::Refused(why) = last(&small) else {
        panic!("it is not refused");
    };
    assert!(
        why.contains("cannot be made") && !note_of(flash).exists(),
        "{why}"
    );
}

#[test]
fn what_cannot_be_noted_is_refused_and_not_begun() {
    let (_dir, session) = made();
    let mut desk = ControlDesk::open(&session);
    fs::create_dir(note_of(session.flash())).unwrap();
    let asked = asks_for(&desk, LARGE);
    turn(&mut desk);
    let why = refusal(&asked);
    assert!(
        why.contains("And removing") && desk.resize.is_none(),
        "{why}"
    );
}

#[test]
fn what_an_earlier_server_has_begun_goes_on() {
    let (_dir, session) = made();
    let (flash, before) = (session.flash(), session.cache.stats().slots);
    ResizeNote { bytes: LARGE }.keep(flash).unwrap();
    let mut desk = ControlDesk::open(&session);
    resize::follow(&mut desk);
    assert!(session.cache.stats().slots > 2 * before && !note_of(flash).exists());
    drop(desk);
    fs::write(note_of(flash), "larger").unwrap();
    let desk = ControlDesk::open(&session);
    assert!(desk.resize.is_none() && !note_of(flash).exists());
}

#[test]
fn a_resize_that_is_given_up_leaves_size_and_space() {
    let (_dir, session) = made();
    let before = session.cache.stats().slots;
    let mut desk = ControlDesk::open(&session);
    let cancel = |desk: &ControlDesk<'_>| asks(desk, b"\"cancel\"");
    let idle = cancel(&desk);
    turn(&mut desk);
    assert_eq!(answer(&idle), Some(ControlAnswer::Idle));
    for bytes in [LARGE, SMALL] {
        let asked = asks_for(&desk, bytes);
        turn(&mut desk);
        let cancelled = cancel(&desk);
        turn(&mut desk);
        resize::follow(&mut desk);
        turn(&mut desk);
        match (last(&asked), answer(&cancelled).unwrap()) {
            (ControlAnswer::Refused(why), ControlAnswer::GivenUp(now)) => {
                assert!(why.contains("was given up") && now.slots == before, "{why}");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(fs::metadata(session.flash()).unwrap().len(), SMALL);
        assert!(session.cache.stats().slots == before && !note_of(session.flash()).exists());
    }
    let idle = cancel(&desk);
    turn(&mut desk);
    assert_eq!(answer(&idle), Some(ControlAnswer::Idle));
}

#[test]
fn a_note_that_cannot_be_read_now_stays_until_a_cancel() {
    let (_dir, session) = made();
    let note = note_of(session.flash());
    // An error that says nothing of what is noted.
    std::os::unix::fs::symlink(&note, &note).unwrap();
    let mut desk = ControlDesk::open(&session);
    assert!(desk.resize.is_none() && ResizeNote::is_there(session.flash()));
    let cancelled = asks(&desk, b"\"cancel\"");
    turn(&mut desk);
    assert!(matches!(
        answer(&cancelled),
        Some(ControlAnswer::GivenUp(_))
    ));
    assert!(!ResizeNote::is_there(session.flash()));
}

/// Promise (flash): A server changes nothing beside another cache that has its cache's path by now.
#[test]
fn a_server_whose_directory_was_moved_leaves_the_other_one() {
    let dirs = Two::new();
    let at = |name| dirs.at(name);
    create(&at("x/f"), SMALL).unwrap();
    create(&at("other/f"), SMALL).unwrap();
    let session = CacheSession::said_in(&at("status"), &at("x/f"));
    let mut desk = ControlDesk::open(&session);
    let [set, resized] = [(); 2].map(|()| connect(&desk));
    let other = ControlListener::open(&at("other/f")).unwrap();
    dirs.swap();
    desk.looked = None;
    turn(&mut desk);
    assert!(other.is_reachable(&at("other/f")), "its socket was taken");
    ResizeNote { bytes: 7 }.keep(&at("other/f")).unwrap();
    send(&set, b"\"set\"", SendFlags::NOSIGNAL).unwrap();
    let request = format!("{{\"resize\":{{\"bytes\":{LARGE}}}}}");
    send(&resized, request.as_bytes(), SendFlags::NOSIGNAL).unwrap();
    turn(&mut desk);
    for socket in [&set, &resized] {
        assert!(refusal(socket).contains("its directory was moved"));
    }
    session.end();
    assert!(other.is_reachable(&at("other/f")), "its socket was removed");
    let noted = ResizeNote::read(&at("other/f")).unwrap().unwrap();
    assert_eq!((noted.bytes, at("y/f.resize").exists()), (7, false));
}

/// A note that stays would have the next start do it again.
#[test]
fn a_resize_is_not_given_up_while_its_note_stays() {
    let (_dir, session) = made();
    let mut desk = ControlDesk::open(&session);
    let asked = asks_for(&desk, LARGE);
    turn(&mut desk);
    let cancelled = asks(&desk, b"\"cancel\"");
    turn(&mut desk);
    fs::remove_file(note_of(session.flash())).unwrap();
    fs::create_dir(note_of(session.flash())).unwrap();
    resize::follow(&mut desk);
    turn(&mut desk);
    for socket in [&asked, &cancelled] {
        let ControlAnswer::Refused(why) = last(socket) else {
            panic!("it is given up");
        };
        assert!(why.contains("Remove it"), "{why}");
    }
}

#[test]
fn a_socket_that_cannot_be_made_or_is_gone_is_made_later() {
    let (_dir, session) = made();
    let socket = socket_of(session.flash());
    fs::create_dir(&socket).unwrap();
    let mut desk = ControlDesk::open(&session);
    assert!(desk.listener.is_none());
    fs::remove_dir(&socket).unwrap();
    let left = ControlListener::open(session.flash()).unwrap();
    drop(left);
    for _ in 0..2 {
        desk.looked = None;
        turn(&mut desk);
        let asked = asks(&desk, b"\"set\"");
        turn(&mut desk);
        assert!(matches!(answer(&asked), Some(ControlAnswer::Settings(_))));
        fs::remove_file(&socket).unwrap();
    }
    session.end();
    desk.looked = None;
    turn(&mut desk);
    assert!(!socket.exists());
}

#[test]
fn settings_are_in_force_once_they_are_answered() {
    let (_dir, session) = made();
    let flash = session.flash().to_owned();
    let mut desk = ControlDesk::open(&session);
    let mut set = || {
        let asked = asks(&desk, b"\"set\"");
        turn(&mut desk);
        answer(&asked).unwrap()
    };
    let policy = |policy| Settings {
        policy: Some(policy),
        ..Settings::default()
    };
    policy(WritePolicy::Around).keep(&flash).unwrap();
    let ControlAnswer::Settings(now) = set() else {
        panic!("they are not");
    };
    assert!(now.include(&policy(WritePolicy::Around)));
    fs::write(settings_of(&flash), r#"{"policy": "sideways"}"#).unwrap();
    let ControlAnswer::Refused(why) = set() else {
        panic!("they are");
    };
    assert!(
        why.contains("sideways") && why.contains("All stays as it is"),
        "{why}"
    );
    // What it said may have been chosen for safety.
    fs::remove_file(settings_of(&flash)).unwrap();
    assert_eq!(set(), ControlAnswer::Settings(now));
    // What is set between a start and the moment from which on it listens.
    policy(WritePolicy::Through).keep(&flash).unwrap();
    drop(ControlDesk::open(&session));
    assert_eq!(session.cache.options().policy, WritePolicy::Through);
    assert!(setup::look(&flash).unwrap_err().is_in_use());
}
