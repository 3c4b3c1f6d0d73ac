//! Links and groups on servers that do as they should, or do not.

mod authority;
mod disk;
mod pool;
mod psk;
mod server;
mod tls;

use super::{
    address::LegAddress,
    group::LegGroup,
    link::LegLink,
    mask::LegMask,
    pool_file::LegsFile,
    superblock::{LEG_DATA, LegRecord},
};
use parking_lot::Mutex;
use server::{FakeServer, ServerExport, ServerMood, until};
use std::{
    io,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};
use uuid::Uuid;

const BYTES: usize = 1 << 20;
const LEG_BYTES: usize = BYTES + LEG_DATA as usize;

fn connect(server: &FakeServer) -> io::Result<Arc<LegLink>> {
    LegLink::connect(&LegAddress::parse(&server.url()).unwrap(), false)
}

#[test]
fn requests_to_a_leg_are_pipelined_and_answered_in_any_order() {
    let server = FakeServer::with(
        LEG_BYTES,
        ServerExport {
            payload_max: 8192,
            ..ServerExport::USUAL
        },
    );
    let link = connect(&server).unwrap();
    let page = |byte: u8| vec![byte; 4096];
    // Before there is a thread that reads answers, and larger than one request may be.
    link.write_and_wait(0, &[1; 20480]).unwrap();
    let mut read = vec![0; 20480];
    link.read(0, &mut read).unwrap();
    assert!(read.iter().all(|byte| *byte == 1));
    link.pipeline().unwrap();
    server.set(ServerMood::Reversed);
    let (told, heard) = mpsc::channel();
    for number in 0..8_u8 {
        let told = told.clone();
        let then = move |answer: io::Result<()>| told.send((number, answer.is_ok())).unwrap();
        link.write(u64::from(number) * 4096, &page(number), then);
    }
    let order: Vec<u8> = (0..8)
        .map(|_| heard.recv_timeout(Duration::from_secs(10)).unwrap())
        .map(|(number, is_ok)| if is_ok { number } else { 99 })
        .collect();
    assert_eq!(order, [1, 0, 3, 2, 5, 4, 7, 6]);
    server.set(ServerMood::Proper);
    let mut read = vec![0; 4096];
    link.read(5 * 4096, &mut read).unwrap();
    assert_eq!(read, page(5));
}

/// The error with which a link ends whose server is in such a mood.
fn misbehaving(
    server: &FakeServer,
    link: &Arc<LegLink>,
    mood: ServerMood,
    pipelines: bool,
) -> String {
    if pipelines {
        link.pipeline().unwrap();
    }
    link.write_and_wait(0, &[1; 4096]).unwrap();
    server.set(mood);
    let begun = Instant::now();
    let error = link.write_and_wait(0, &[2; 4096]).unwrap_err().to_string();
    assert!(begun.elapsed() < Duration::from_secs(10), "{mood:?}");
    server.set(ServerMood::Proper);
    // What failed once is asked nothing more.
    let later = link.write_and_wait(0, &[3; 4096]).unwrap_err().to_string();
    assert_eq!(later, error, "{mood:?}");
    error
}

#[test]
fn a_leg_that_misbehaves_ends_its_link_with_the_reason() {
    for (mood, reason) in [
        (ServerMood::Silent, "without an answer"),
        (ServerMood::HalfAnswers, "without an answer"),
        (ServerMood::WrongCookie, "not made"),
        (ServerMood::Garbage, "0x5a5a5a5a"),
        (ServerMood::Fails, "refuses a request"),
        (ServerMood::Leaves, "closed the connection"),
    ] {
        for pipelines in [false, true] {
            let server = FakeServer::start(LEG_BYTES);
            let link = connect(&server).unwrap();
            let error = misbehaving(&server, &link, mood, pipelines);
            assert!(
                error.contains(reason) || error.contains("reset"),
                "{mood:?}: {error}"
            );
        }
    }
}

#[test]
fn an_export_that_can_be_no_leg_is_refused_with_the_reason() {
    let usual = ServerExport::USUAL;
    for (export, reason) in [
        (
            ServerExport {
                flags: 0b1111,
                ..usual
            },
            "read-only",
        ),
        (
            ServerExport {
                flags: 0b101,
                ..usual
            },
            "FUA",
        ),
        (
            ServerExport {
                block_min: 65536,
                ..usual
            },
            "65536",
        ),
        (
            ServerExport {
                refuses: Some(1 << 31 | 6),
                ..usual
            },
            "no export of the name \"x\": no such thing",
        ),
        (
            ServerExport {
                refuses: Some(1 << 31 | 5),
                ..usual
            },
            "TLS",
        ),
        (
            ServerExport {
                refuses: Some(77),
                ..usual
            },
            "0x4d",
        ),
        (
            ServerExport {
                greeting: b"SSH-2.0-",
                ..usual
            },
            "does not greet",
        ),
    ] {
        let server = FakeServer::with(LEG_BYTES, export);
        let error = connect(&server).map(drop).unwrap_err().to_string();
        assert!(error.contains(reason), "{reason}: {error}");
    }
    let nobody = LegAddress::parse("nbd://127.0.0.1:1/x").unwrap();
    let error = LegLink::connect(&nobody, false).map(drop).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
}

/// Servers, and a pool's file that names them.
fn servers(count: usize) -> (Vec<FakeServer>, LegsFile) {
    let servers: Vec<_> = (0..count).map(|_| FakeServer::start(LEG_BYTES)).collect();
    let urls: Vec<String> = servers.iter().map(FakeServer::url).collect();
    (
        servers,
        LegsFile::new(&urls, BYTES as u64, None, false).unwrap(),
    )
}

fn create(file: &LegsFile) -> Arc<LegGroup> {
    LegGroup::create("p", file.clone(), false).unwrap()
}

/// Writes a page, and waits.
fn write(group: &Arc<LegGroup>, page: u64, byte: u8) -> io::Result<()> {
    let (told, heard) = mpsc::channel();
    let then = Box::new(move |answer| told.send(answer).unwrap());
    group.write(page * 4096, &[byte; 4096], then);
    heard.recv_timeout(Duration::from_secs(20)).unwrap()
}

fn read(group: &Arc<LegGroup>, page: u64) -> u8 {
    let mut found = vec![0; 4096];
    group.read(page * 4096, &mut found).unwrap();
    assert!(found.iter().all(|byte| *byte == found[0]));
    found[0]
}

fn has(server: &FakeServer, page: usize) -> u8 {
    server.memory.lock()[LEG_DATA as usize + page * 4096]
}

/// Promise (pool): A leg that fails is named, and what is acknowledged without it is on the others;
/// once it is back it is made complete and counts again.
#[test]
fn a_lost_leg_degrades_the_pool_until_it_is_complete_again() {
    for forgets in [false, true] {
        let (servers, file) = servers(2);
        let group = create(&file);
        write(&group, 0, 1).unwrap();
        assert_eq!((has(&servers[0], 0), has(&servers[1], 0)), (1, 1));
        assert!(!group.is_degraded());
        servers[1].stop(forgets);
        write(&group, 1, 2).unwrap();
        assert!(group.is_degraded(), "{}", group.describe());
        assert!(group.describe().contains("OUT"), "{}", group.describe());
        servers[1].go_on();
        // It goes on while the leg is brought up to date.
        let mut page = 2;
        until("a complete leg", || {
            write(&group, page % 200 + 2, page as u8).unwrap();
            page += 1;
            !group.is_degraded()
        });
        write(&group, 250, 77).unwrap();
        for at in [0, 1, 250] {
            assert_eq!(has(&servers[0], at), has(&servers[1], at), "page {at}");
        }
        group.close();
        let both = servers[0].memory.lock().clone() == *servers[1].memory.lock();
        assert!(!both, "their own numbers are in their superblocks");
        assert!(
            servers[0].memory.lock()[LEG_DATA as usize..]
                == servers[1].memory.lock()[LEG_DATA as usize..]
        );
    }
}

/// Promise (pool): A recovery believes no leg that was left behind, and says which leg it misses.
#[test]
fn a_leg_that_was_left_behind_is_not_believed() {
    let (servers, file) = servers(2);
    let group = create(&file);
    write(&group, 0, 1).unwrap();
    servers[1].stop(false);
    write(&group, 0, 2).unwrap();
    group.close();
    drop(group);
    // The one that was left behind is back, alone.
    servers[0].stop(false);
    servers[1].go_on();
    let open = |lost: LegMask| LegGroup::open("p", file.clone(), lost);
    let refused = open(LegMask::NONE).map(drop).unwrap_err().to_string();
    assert!(
        refused.contains(&servers[0].url()) && refused.contains("--lost-leg"),
        "{refused}"
    );
    // The user may say so.
    assert_eq!(read(&open(LegMask::of(0)).unwrap(), 0), 1);
    servers[0].go_on();
    let group = open(LegMask::NONE).unwrap();
    assert_eq!(read(&group, 0), 2);
    group.take_over().unwrap();
    until("a complete leg", || !group.is_degraded());
    group.close();
    servers[0].stop(true);
    let refused = open(LegMask::NONE).map(drop).unwrap_err().to_string();
    assert!(
        refused.contains(&servers[0].url()) && refused.contains("--lost-leg"),
        "{refused}"
    );
    assert_eq!(read(&open(LegMask::of(0)).unwrap(), 0), 2);
    servers[1].stop(true);
    servers.iter().for_each(FakeServer::go_on);
    let refused = open(LegMask::NONE).map(drop).unwrap_err().to_string();
    assert!(refused.contains("lost"), "{refused}");
}

/// Promise (pool): A writer whose pool another machine took over acknowledges nothing more.
#[test]
fn a_writer_that_was_taken_over_from_ends() {
    let (_servers, file) = servers(2);
    let first = create(&file);
    write(&first, 0, 1).unwrap();
    let second = LegGroup::open("p", file.clone(), LegMask::NONE).unwrap();
    second.take_over().unwrap();
    assert_eq!(read(&second, 0), 1);
    until("the end of the first", || write(&first, 1, 2).is_err());
    write(&second, 2, 3).unwrap();
    assert!(!second.is_degraded());
    first.close();
    // What the first says when it ends does not count.
    second.close();
    let third = LegGroup::open("p", file, LegMask::NONE).unwrap();
    assert_eq!(read(&third, 2), 3);
}

/// Promise (pool): A writer that stood still for as long as a takeover takes writes and
/// acknowledges nothing before it has looked whether another machine has the pool.
#[test]
fn a_writer_that_stood_still_looks_before_it_writes() {
    let (servers, file) = servers(2);
    let group = create(&file);
    write(&group, 0, 1).unwrap();
    // Nobody took it over: it only comes later.
    group.lease.get().unwrap().end();
    assert!(!group.may_write());
    write(&group, 1, 2).unwrap();
    assert!(group.may_write());
    // The next look is a second away. What was sent before it is answered right behind its answer.
    let set = |mood| servers.iter().for_each(|server| server.set(mood));
    set(ServerMood::Reversed);
    let (told, heard) = mpsc::channel();
    let then = Box::new(move |answer: io::Result<()>| told.send(answer.is_ok()).unwrap());
    group.write(2 * 4096, &[3; 4096], then);
    until("the write", || {
        servers.iter().all(|server| has(server, 2) == 3)
    });
    take_over(&servers);
    group.lease.get().unwrap().end();
    assert!(!heard.recv_timeout(Duration::from_secs(20)).unwrap());
    set(ServerMood::Proper);
    group.close();
}

/// Another machine is the writer by what the legs say.
fn take_over(servers: &[FakeServer]) {
    let writer = Uuid::new_v4();
    for (leg, server) in servers.iter().enumerate() {
        let mut memory = server.memory.lock();
        let own = LegRecord::newest(&memory[..LEG_DATA as usize], leg).unwrap();
        let others = LegRecord {
            writer,
            generation: own.generation + 2,
            ..own
        };
        let at = others.offset() as usize;
        memory[at..at + 4096].copy_from_slice(&others.encode(leg));
    }
}

/// Promise (pool): A writer that stood still makes no leg equal to what its successor has replaced.
#[test]
fn a_writer_that_stood_still_mends_no_leg() {
    let (servers, file) = servers(2);
    let group = create(&file);
    write(&group, 0, 1).unwrap();
    // Its successor has written to one of them so far.
    let page = LEG_DATA as usize..LEG_DATA as usize + 4096;
    servers[1].memory.lock()[page].fill(9);
    take_over(&servers);
    group.lease.get().unwrap().end();
    group.read_equal(0, &mut [0; 4096]).unwrap();
    assert_eq!(has(&servers[1], 0), 9);
    assert!(write(&group, 1, 2).is_err());
    group.close();
}

#[test]
fn a_writer_that_was_succeeded_meanwhile_sends_nothing() {
    let (servers, file) = servers(2);
    let first = create(&file);
    write(&first, 0, 1).unwrap();
    let second = LegGroup::open("p", file, LegMask::NONE).unwrap();
    second.take_over().unwrap();
    write(&second, 0, 2).unwrap();
    first.lease.get().unwrap().end();
    assert!(write(&first, 0, 9).is_err());
    assert_eq!((has(&servers[0], 0), has(&servers[1], 0)), (2, 2));
    second.close();
    first.close();
}

#[test]
fn without_any_leg_every_write_fails_and_none_waits() {
    let (servers, file) = servers(2);
    let group = create(&file);
    let results: Arc<Mutex<Vec<bool>>> = Arc::default();
    servers
        .iter()
        .for_each(|server| server.set(ServerMood::Silent));
    for page in 0..4 {
        let results = Arc::clone(&results);
        let then = Box::new(move |answer: io::Result<()>| results.lock().push(answer.is_ok()));
        group.write(page * 4096, &[1; 4096], then);
    }
    until("the end", || results.lock().len() == 4);
    assert_eq!(*results.lock(), [false; 4]);
    assert!(write(&group, 9, 1).is_err());
    group.close();
}

#[test]
fn a_leg_that_holds_something_or_is_too_small_makes_no_pool() {
    let (servers, file) = servers(2);
    servers[1].memory.lock()[5000] = 1;
    let refused = |file: &LegsFile, bytes: usize| {
        let file = LegsFile {
            bytes: bytes as u64,
            ..file.clone()
        };
        let made = LegGroup::create("p", file, false);
        made.map(drop).unwrap_err().to_string()
    };
    let holds = refused(&file, BYTES);
    assert!(
        holds.contains(&servers[1].url()) && holds.contains("--force"),
        "{holds}"
    );
    assert!(servers[0].memory.lock().iter().all(|byte| *byte == 0));
    let small = refused(&file, BYTES + 4096);
    assert!(small.contains("larger"), "{small}");
    LegGroup::create("p", file.clone(), true).unwrap().close();
    // Another pool's leg in the place of one.
    let (others, other) = super::tests::servers(1);
    create(&other).close();
    servers[1]
        .memory
        .lock()
        .copy_from_slice(&others[0].memory.lock());
    let wrong = LegGroup::open("p", file, LegMask::NONE)
        .map(drop)
        .unwrap_err()
        .to_string();
    assert!(wrong.contains(&servers[1].url()), "{wrong}");
}

/// Promise (pool): A leg that returns with another pool, or with a newer writer's record, is not
/// written to, and a writer that finds a newer one ends.
#[test]
fn a_leg_that_returns_is_looked_at_before_it_is_erased() {
    let (servers, file) = servers(2);
    let group = create(&file);
    write(&group, 0, 1).unwrap();
    servers[1].stop(false);
    write(&group, 1, 2).unwrap();
    // Its server has another pool's leg by now.
    let own = servers[1].memory.lock().clone();
    let (others, other) = super::tests::servers(2);
    create(&other).close();
    let foreign = others[1].memory.lock().clone();
    servers[1].memory.lock().copy_from_slice(&foreign);
    servers[1].go_on();
    until("a refusal", || group.describe().contains("another pool"));
    assert!(*servers[1].memory.lock() == foreign);
    // Cut off from the first leg, another machine took the pool over on the second.
    servers[1].stop(false);
    servers[1].memory.lock().copy_from_slice(&own);
    servers[0].stop(false);
    servers[1].go_on();
    let second = LegGroup::open("p", file.clone(), LegMask::of(0)).unwrap();
    second.take_over().unwrap();
    write(&second, 3, 4).unwrap();
    second.close();
    servers[0].go_on();
    until("the end of the first", || write(&group, 4, 5).is_err());
    assert_eq!(has(&servers[1], 3), 4);
    group.close();
}

/// Promise (pool): What a writer goes on from is on every leg that counts, also what its dead
/// predecessor had on one of them only.
#[test]
fn what_a_successor_reads_is_on_each_complete_leg() {
    let (servers, file) = servers(2);
    let group = create(&file);
    write(&group, 0, 1).unwrap();
    group.close();
    drop(group);
    // It arrived at the first leg, and was not acknowledged.
    let at = LEG_DATA as usize + 5 * 4096;
    servers[0].memory.lock()[at..at + 4096].fill(9);
    let group = LegGroup::open("p", file, LegMask::NONE).unwrap();
    group.take_over().unwrap();
    let mut found = vec![0; 8 * 4096];
    group.read_equal(0, &mut found).unwrap();
    assert_eq!(found[5 * 4096], 9);
    assert_eq!((has(&servers[0], 5), has(&servers[1], 5)), (9, 9));
    assert!(!group.is_degraded());
    group.close();
}

#[test]
fn a_pool_that_was_closed_on_one_leg_only_is_whole() {
    let (servers, file) = servers(2);
    create(&file).close();
    // Generations of both parities, each closed by the leg that is asked first.
    for round in 1..=4 {
        let group = LegGroup::open("p", file.clone(), LegMask::NONE).unwrap();
        group.take_over().unwrap();
        until("complete legs", || {
            group.describe().matches("(complete)").count() == 2
        });
        if round % 2 == 0 {
            // One generation more.
            let link = group.state.lock().seats[1].link.clone().unwrap();
            group.leg_failed(1, &link, "of the test");
            write(&group, 9, round).unwrap();
        }
        write(&group, 0, round).unwrap();
        let before = servers[1].memory.lock()[..LEG_DATA as usize].to_vec();
        group.close();
        servers[1].memory.lock()[..LEG_DATA as usize].copy_from_slice(&before);
        let group = LegGroup::open("p", file.clone(), LegMask::NONE).unwrap();
        assert_eq!(read(&group, 0), round);
    }
}

/// Promise (pool): A takeover that died after it announced itself stands in no other one's way.
#[test]
fn an_announcement_of_the_dead_stops_no_takeover() {
    let (servers, file) = servers(2);
    let group = create(&file);
    write(&group, 0, 1).unwrap();
    group.end("of the test");
    group.close();
    for (leg, server) in servers.iter().enumerate() {
        let mut memory = server.memory.lock();
        let own = LegRecord::newest(&memory[..LEG_DATA as usize], leg).unwrap();
        // Its writer was of another boot, and so was who wanted to succeed it.
        let last = LegRecord {
            boot: Uuid::from_u128(1),
            ..own
        };
        let dead = LegRecord {
            writer: Uuid::from_u128(2),
            boot: Uuid::from_u128(3),
            // In the slot that has not what counts.
            generation: own.generation + (1 << 17) + 1,
            announced: true,
            ..own
        };
        for record in [last, dead] {
            let at = record.offset() as usize;
            memory[at..at + 4096].copy_from_slice(&record.encode(leg));
        }
    }
    let next = LegGroup::open("p", file, LegMask::NONE).unwrap();
    next.take_over().unwrap();
    assert_eq!(read(&next, 0), 1);
    write(&next, 1, 2).unwrap();
    next.close();
}

#[test]
fn a_process_that_stood_still_does_not_call_its_leg_late() {
    let server = FakeServer::start(LEG_BYTES);
    let link = connect(&server).unwrap();
    link.pipeline().unwrap();
    // The thread that reads answers stands still for longer than a leg may take.
    link.read_then(0, 4096, |_| std::thread::sleep(Duration::from_millis(2500)));
    let (told, heard) = mpsc::channel();
    for _ in 0..8 {
        let told = told.clone();
        link.read_then(0, 4096, move |answer| told.send(answer.is_ok()).unwrap());
    }
    for _ in 0..8 {
        assert!(heard.recv_timeout(Duration::from_secs(20)).unwrap());
    }
    assert!(!link.is_dead());
    // A leg that hangs is late all the same.
    server.set(ServerMood::Silent);
    let error = link.read(0, &mut [0; 4096]).unwrap_err().to_string();
    assert!(error.contains("without an answer"), "{error}");
}

#[test]
fn an_answer_that_trickles_in_is_late_all_the_same() {
    let server = FakeServer::start(LEG_BYTES);
    let link = connect(&server).unwrap();
    link.pipeline().unwrap();
    server.set(ServerMood::Trickles);
    let begun = Instant::now();
    let error = link.read(0, &mut [0; 64 << 10]).unwrap_err().to_string();
    assert!(error.contains("without an answer"), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_pool_that_is_made_in_the_place_of_another_is_the_newer_one() {
    let (servers, file) = servers(2);
    let old = create(&file);
    write(&old, 0, 1).unwrap();
    old.close();
    let urls: Vec<String> = servers.iter().map(FakeServer::url).collect();
    let anew = LegsFile::new(&urls, BYTES as u64, None, false).unwrap();
    let group = LegGroup::create("p", anew.clone(), true).unwrap();
    write(&group, 0, 2).unwrap();
    group.close();
    drop(group);
    assert_eq!(
        read(&LegGroup::open("p", anew, LegMask::NONE).unwrap(), 0),
        2
    );
}
