//! The file system with the data and the cache is cut off, as by a power cut: what was not synced
//! is lost, what was is there, and no checkpoint overtakes a file's name.

use crate::{
    common::{
        Sandbox,
        cut::{Cut, cut},
        databases::{boot_anew, random, small_pool},
        disk::Disk,
        mariadb::{faults, make_table},
        writers::Writer,
    },
    world::{FLASH, World, churn, fill, sound},
};
use forebay_bench::{
    BenchError,
    mariadb::{client::Connection, server::Server},
    sql::Client,
};
use forebay_innodb::{AdmissionPolicy, Settings, WritePolicy};
use rustix::{
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketType, connect, recv, send,
        socket,
        sockopt::{Timeout, set_socket_timeout},
    },
    process::Signal,
};
use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::Duration,
};

impl Cut for World {
    type Server = Server;

    fn start(&mut self, boot: usize) -> Result<Server, BenchError> {
        boot_anew(&mut self.launch.environment, boot);
        Server::start(&self.launch)
    }

    fn make_table(server: &Server) {
        make_table(server);
        fill(server);
    }

    fn write(server: &Server, writer: &mut Writer, all: &AtomicU64) {
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| churn(server, &done));
            writer.write::<Connection>(server.socket(), &AtomicBool::new(false), all);
            done.store(true, Relaxed);
        });
    }

    fn kill(server: &Server) {
        server.outer().signal(Signal::KILL);
        server.server().signal(Signal::KILL);
    }

    fn faults(server: &Server, writers: &mut [Writer]) -> Result<(), String> {
        faults(server, writers)?;
        sound(server, "stock.s");
        Ok(())
    }
}

/// The file system, what comes into the cache, and whether its policy is switched while the server
/// runs.
const CASES: [(&str, &str, bool); 4] = [
    ("ext4", "dirty", false),
    ("xfs", "dirty", false),
    ("ext4", "all", true),
    ("xfs", "all", true),
];

/// The logs are in a pool. A sync that is under way when an ext4 or an XFS is shut down may return
/// as if it had succeeded, which would be taken for a loss of the binary log.
///
/// Promise (flash-run): Synced pages are there after the file systems of data and flash are cut off
/// (ext4, XFS; logs in a pool), with `all` contents, and while the policy is switched.
#[test]
fn nothing_acknowledged_is_lost_if_data_and_flash_are_cut_off() {
    for (kind, contents, switched) in CASES {
        let pool = small_pool();
        let sandbox = Sandbox::new();
        let name = format!("{kind}, contents {contents}, policy switched: {switched}");
        let mut random = random(&name);
        let Some(mut disk) = Disk::make(sandbox.path(), kind) else {
            return;
        };
        let dir = disk.at.join("mariadb");
        fs::create_dir(&dir).unwrap();
        let Some(mut world) = World::within(sandbox, &dir) else {
            return;
        };
        let pool = pool.path().to_str().unwrap();
        world.create(&format!("--contents {contents}"));
        world.launch.wrapper = world.wrapper(&["--pool", pool]);
        let rounds = std::env::var("FOREBAY_CUTS").map_or(2, |rounds| rounds.parse().unwrap());
        let (flash, done) = (world.flash(), AtomicBool::new(!switched));
        let (cut, followed) = thread::scope(|scope| {
            let switches = scope.spawn(|| switch_policies(&flash, &done));
            let cut = scope.spawn(|| cut(&mut world, &mut disk, rounds, &mut random));
            let cut = cut.join();
            done.store(true, Relaxed);
            (cut, switches.join().unwrap())
        });
        if let Err(lost) = cut.unwrap() {
            panic!("{name}: {lost}");
        }
        assert_eq!(followed, switched, "{name}");
    }
}

/// Sets one policy after the other, with `all` contents, until it is `done`: true if a server
/// followed. While the file system is away none can be set.
fn switch_policies(flash: &Path, done: &AtomicBool) -> bool {
    let mut followed = false;
    let policies = [
        WritePolicy::Around,
        WritePolicy::Back,
        WritePolicy::Through,
        WritePolicy::Off,
        WritePolicy::Adaptive,
        WritePolicy::Back,
    ];
    for policy in policies.into_iter().cycle() {
        if done.load(Relaxed) {
            break;
        }
        let settings = Settings {
            policy: Some(policy),
            contents: Some(AdmissionPolicy::All),
            ..Settings::default()
        };
        let _ = settings.keep(flash).map(|()| tell(flash));
        thread::sleep(Duration::from_millis(150));
        let said = fs::read_to_string(flash.with_file_name("server.out"));
        followed |= said.is_ok_and(|said| said.contains("the flash cache is set anew"));
    }
    followed
}

/// Has the server that runs, if one does, follow its settings. A command would hold the directory
/// while it waits for one, and keep the file system from being mounted again.
fn tell(flash: &Path) -> Result<(), Errno> {
    let socket = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None)?;
    set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_secs(2)))?;
    let path = flash.with_file_name("flash.control");
    connect(&socket, &SocketAddrUnix::new(path.as_path())?)?;
    send(&socket, b"\"set\"", SendFlags::NOSIGNAL)?;
    recv(&socket, &mut [0; 1], RecvFlags::empty()).map(drop)
}

/// A checkpoint of InnoDB's overtakes the names of files, which nothing else makes durable so soon.
///
/// Promise (flash-run): A call that makes, renames, rebuilds or drops a table syncs its directory
/// before it returns, and only then the cache forgets removed pages.
/// Promise (flash-run): A checkpoint overtakes no name, and no file comes back without its pages.
#[test]
fn a_table_rebuilt_before_a_checkpoint_is_whole_after_a_cut_off() {
    let pool = small_pool();
    let sandbox = Sandbox::new();
    let Some(mut disk) = Disk::make(sandbox.path(), "ext4") else {
        return;
    };
    let dir = disk.at.join("mariadb");
    fs::create_dir(&dir).unwrap();
    let Some(mut world) = World::within(sandbox, &dir) else {
        return;
    };
    let path = pool.path().to_str().unwrap().to_owned();
    world.launch.wrapper = world.wrapper(&["--flash-size", FLASH, "--pool", &path]);
    const CHANGES: [&str; 3] = [
        "ALTER TABLE t.other FORCE",
        "CREATE OR REPLACE TABLE t.other (id INT PRIMARY KEY, v VARCHAR(200)) SELECT seq AS id, 'z' AS v FROM t.seq_1_to_40",
        "TRUNCATE TABLE t.other",
    ];
    disk.sync();
    for (boot, change) in (0..).zip(CHANGES) {
        let server = Cut::start(&mut world, boot).unwrap();
        let mut connection = Connection::connect(server.socket()).unwrap();
        let mut run = |statement: &str| connection.query(statement).unwrap();
        if boot == 0 {
            run("CREATE DATABASE t");
            run(
                "CREATE TABLE t.other (id INT PRIMARY KEY, v VARCHAR(200)) SELECT seq AS id, 'y' AS v FROM t.seq_1_to_40",
            );
            disk.sync();
        }
        run(change);
        run("SET GLOBAL innodb_max_dirty_pages_pct = 0");
        // Until nothing that was changed is younger than the checkpoint.
        let mut age = || {
            let row = run("SHOW GLOBAL STATUS LIKE 'Innodb_checkpoint_age'");
            let text = row[0][1].clone().unwrap_or_default();
            String::from_utf8(text).unwrap().parse::<u64>().unwrap()
        };
        let begun = std::time::Instant::now();
        while age() > 200 && begun.elapsed().as_secs() < 4 {
            thread::sleep(Duration::from_millis(20));
        }
        disk.cut();
        <World as Cut>::kill(&server);
        drop(server);
        disk.mount_again();
        let server = Cut::start(&mut world, 10 + boot).unwrap();
        let mut connection = Connection::connect(server.socket()).unwrap();
        let rows = connection.query("CHECK TABLE t.other EXTENDED").unwrap();
        let said = rows.last().and_then(|row| row.last()?.clone());
        assert_eq!(said.as_deref(), Some(&b"OK"[..]), "{change}: {rows:?}");
        let count = connection.query("SELECT COUNT(*) FROM t.other").unwrap();
        let expected: &[u8] = if change.starts_with("TRUNCATE") {
            b"0"
        } else {
            b"40"
        };
        assert_eq!(count[0][0].as_deref(), Some(expected), "{change}");
        drop(connection);
        server.stop().unwrap();
        disk.sync();
    }
}
