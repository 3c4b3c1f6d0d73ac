//! The place of a cache: a file of its size, or a device that holds nothing else. Anything else is
//! refused in a sentence, and not changed.

use crate::{
    common::{
        FOREBAY, Ran, Sandbox,
        databases::Strike,
        disk::{Disk, Loop},
    },
    world::{FLASH, World, fill, sound, sum},
};
use forebay_bench::mariadb::server;
use forebay_pool::{ClaimOptions, PoolOptions};
use std::{
    fs,
    os::unix::fs::FileExt,
    process::Command,
    thread,
    time::{Duration, Instant},
};
use uuid::Uuid;

/// A run of a server that ends at once.
fn run(sandbox: &Sandbox, line: &str) -> Ran {
    let line = format!("run {line} -- mariadbd --no-defaults --help");
    let mut command = sandbox.command(&line);
    Ran::of(
        command
            .env("FOREBAY_RUN_DIR", sandbox.file("r"))
            .output()
            .unwrap(),
    )
}

#[test]
fn a_run_waits_at_its_start_while_its_cache_is_inspected() {
    let sandbox = Sandbox::new();
    if server::program("mariadbd").is_err() {
        return;
    }
    run(&sandbox, "--flash f --flash-size 16MiB").ok();
    let cache = Uuid::from_slice(&fs::read(sandbox.file("f")).unwrap()[32..48]).unwrap();
    let pool = PoolOptions::new().emulated(true);
    let pool = pool.open(sandbox.file("f.lane")).unwrap();
    for line in ["--flash f", "--flash f --flash-size 16MiB"] {
        let looks = pool.claim(cache, &ClaimOptions::new()).unwrap();
        thread::scope(|scope| {
            let begins = scope.spawn(|| run(&sandbox, line));
            thread::sleep(Duration::from_millis(300));
            drop(looks);
            begins.join().unwrap().ok();
        });
    }
}

#[test]
fn a_file_that_cannot_be_a_cache_is_refused_in_a_sentence() {
    let sandbox = Sandbox::new();
    let run = |line: &str| run(&sandbox, line);
    if server::program("mariadbd").is_err() {
        return;
    }
    run("--flash f").fails(2, &["may not be mounted", "--flash-size"]);
    run("--flash f --flash-size 1MiB").fails(1, &["cannot be made"]);
    assert!(!sandbox.file("f").exists() && !sandbox.file("f.lane").exists());
    fs::write(sandbox.file("f"), vec![7; 1 << 20]).unwrap();
    run("--flash f").fails(1, &["f.lane", "not there"]);
    fs::remove_file(sandbox.file("f")).unwrap();
    run("--flash f --flash-size 16MiB").ok();
    let said = run("--flash f --flash-size 32MiB").ok().stderr;
    assert!(said.contains("32 MiB now"), "{said}");
    let said = run("--flash f --flash-size 32MiB").ok().stderr;
    assert!(!said.contains("MiB now"), "it has that size: {said}");
    fs::rename(sandbox.file("f.lane"), sandbox.file("kept")).unwrap();
    run("--flash f").fails(1, &["the newest pages are not known"]);
    fs::rename(sandbox.file("f"), sandbox.file("g")).unwrap();
    fs::rename(sandbox.file("kept"), sandbox.file("f.lane")).unwrap();
    run("--flash f --flash-size 16MiB").fails(1, &["metadata of a cache"]);
    fs::rename(sandbox.file("g"), sandbox.file("f")).unwrap();
    sandbox.edit("f", |bytes| bytes[..8192].fill(7));
    run("--flash f").fails(1, &["is not a flash cache"]);
    let other = sandbox.run("run --flash h --flash-size 16MiB -- cat");
    other.fails(2, &["a flash cache is for MariaDB"]);
    let line =
        "run --flash h --flash-size 16MiB -- mariadbd --innodb_flush_method=O_DIRECT_NO_FSYNC";
    sandbox.run(line).fails(2, &["does not sync its pages"]);
}

#[test]
fn an_unused_device_takes_a_cache_with_metadata_beside_its_link() {
    let Some(mut world) = World::new() else {
        return;
    };
    let image = world.launch.dir.join("image");
    fs::write(&image, vec![0; 16 << 20]).unwrap();
    let Some(device) = Loop::of(&image, 4096) else {
        return;
    };
    let line = |flash: &str, size: &str| {
        world.forebay(&format!(
            "run --flash {flash} --flash-size {size} -- mariadbd --no-defaults --help"
        ))
    };
    line(&device.path, "14MiB").fails(1, &["in memory", "ln -s"]);
    std::os::unix::fs::symlink(&device.path, world.flash()).unwrap();
    line("flash", "32MiB").fails(1, &["16777216 bytes"]);
    let write = |at: u64, bytes: &[u8]| {
        let file = fs::OpenOptions::new()
            .write(true)
            .open(&device.path)
            .unwrap();
        file.write_all_at(bytes, at).unwrap();
        file.sync_all().unwrap();
    };
    // Of a partition table whose beginning is gone, and of an array, only the end tells.
    let array = 0xA92B_4EFC_u32.to_le_bytes();
    let held: [(u64, &[u8], &str); 4] = [
        (65536 + 64, b"_BHRfS_M", "a Btrfs file system"),
        ((16 << 20) - 512, b"EFI PART", "a partition table (GPT)"),
        (
            (16 << 20) - 8192,
            &array,
            "a member of a Linux software RAID",
        ),
        (100_000, b"mine", "data of a kind that is not known"),
    ];
    for (at, bytes, what) in held {
        write(at, bytes);
        let words = ["it holds", what, "wipefs", "Nothing was changed"];
        line("flash", "14MiB").fails(1, &words);
        write(at, &vec![0; bytes.len()]);
    }
    assert!(!world.launch.dir.join("flash.lane").exists());

    world.launch.wrapper = world.wrapper(&["--flash-size", FLASH]);
    let mut server = world.start();
    fill(&server);
    let busy = world.flush();
    busy.fails(1, &["in use by another process"]);
    let before = sum(&server);
    Strike::Both.strike(server.server(), server.outer(), || {});
    let _ = server.wait();
    world.launch.wrapper = world.wrapper(&[]);
    let server = world.start();
    assert_eq!(sum(&server), before);
    sound(&server, "stock.s");
    server.stop().unwrap();
    resized(&world, &before);
    world.flush().ok();
    let server = world.plain().unwrap();
    assert_eq!(sum(&server), before);
    server.stop().unwrap();
}

/// The cache on a device of 16 MiB grows into what the device has, and shrinks.
fn resized(world: &World, before: &str) {
    let resize = |size: &str| world.forebay(&format!("flash resize --flash flash {size}"));
    resize("32MiB").fails(1, &["the device has 16777216 bytes"]);
    resize("15MiB").ok();
    resize("10MiB").ok();
    let server = world.start();
    assert_eq!(sum(&server), before);
    sound(&server, "stock.s");
    server.stop().unwrap();
}

/// A page of another size could not come in, and the system tablespace not be used as it is.
///
/// Promise (flash-run): Page files that cannot be behind the cache (their file system, their page
/// size, a server without the library) are refused or named.
#[test]
fn a_system_tablespace_of_other_pages_is_refused_untouched() {
    let Some(mut world) = World::new() else {
        return;
    };
    let pages = "--innodb-page-size=4k".to_owned();
    fs::remove_dir_all(world.launch.data()).unwrap();
    let made = std::process::Command::new("mariadb-install-db")
        .args(["--no-defaults", "--user=root", "--skip-test-db", &pages])
        .arg("--auth-root-authentication-method=normal")
        .arg(format!("--datadir={}", world.launch.data().display()))
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    world.launch.options.push(pages);
    let said = world.refused();
    assert!(said.contains("innodb_page_size"), "{said}");
    assert!(!world.launch.data().join("forebay.guard").exists());
    world.plain().unwrap().stop().unwrap();
}

/// Promise: as `a_system_tablespace_of_other_pages_is_refused_untouched`.
#[test]
fn page_files_without_a_birth_time_stay_plain_and_are_reported() {
    let sandbox = Sandbox::new();
    let Some(disk) = Disk::make(sandbox.path(), "ext4-128") else {
        return;
    };
    let dir = disk.at.join("mariadb");
    fs::create_dir(&dir).unwrap();
    let Some(world) = World::within(sandbox, &dir) else {
        return;
    };
    let server = world.start();
    fill(&server);
    let said = server.stop().unwrap();
    for words in [
        "does not say when a file was born",
        "no server has used the flash cache",
    ] {
        assert!(said.contains(words), "{said}");
    }
}

/// Promise: as `a_system_tablespace_of_other_pages_is_refused_untouched`.
#[test]
fn a_server_without_the_library_is_missed_at_the_end_of_its_run() {
    let Some(mut world) = World::new() else {
        return;
    };
    let used = world.start();
    let said = used.stop().unwrap();
    assert!(!said.contains("no server has used"), "{said}");
    assert!(said.contains("reads that found their page"), "{said}");
    world.flush().ok();
    let mut wrapper = world.wrapper(&["--profile", "mariadb"]);
    wrapper.extend(["env", "-u", "LD_PRELOAD"].map(Into::into));
    world.launch.wrapper = wrapper;
    let server = world.start();
    // Not what the server before it has said. It is no failure at once: a server may not be that
    // far yet.
    let limit = Instant::now() + Duration::from_secs(60);
    for line in ["flash status", "status"] {
        let shown = loop {
            let shown = world.forebay(line);
            if shown.code != Some(0) {
                break shown;
            }
            assert!(Instant::now() < limit, "{line}: {}", shown.text());
            thread::sleep(Duration::from_millis(100));
        };
        let lines = shown.fails(1, &[]).text();
        assert!(lines.contains("it has not got the library"), "{lines}");
        assert!(!lines.contains("newer than in the files"), "{lines}");
    }
    let said = server.stop().unwrap();
    assert!(
        said.contains("no server has used the flash cache"),
        "{said}"
    );
    assert!(!said.contains("reads that found their page"), "{said}");
}

/// Promise: as `a_system_tablespace_of_other_pages_is_refused_untouched`.
#[test]
fn of_a_cache_in_memory_it_is_said_that_a_power_cut_takes_it() {
    let Ok(memory) = tempfile::tempdir_in("/dev/shm") else {
        return;
    };
    let Some(world) = World::new() else { return };
    let line = format!(
        "run --flash {} --flash-size 14MiB -- mariadbd --no-defaults --help",
        memory.path().join("flash").display()
    );
    let said = world.forebay(&line).ok().stderr;
    assert!(said.contains("is in memory"), "{said}");
}

/// By its command line: what a configuration file says is the server's.
///
/// Promise (flash-run): A run says that the doublewrite buffer may be off, and that plain tables
/// need it.
#[test]
fn a_run_says_that_doublewrite_may_be_off_unless_it_is() {
    let sandbox = Sandbox::new();
    let asks = |argument: &str| {
        let line = format!("run --profile mariadb --flash f --flash-size 16MiB -- true {argument}");
        let mut command = sandbox.command(&line);
        let ran = command.env("FOREBAY_RUN_DIR", sandbox.file("r")).output();
        let said = Ran::of(ran.unwrap()).ok().stderr;
        let line = said.lines().find(|line| line.contains("doublewrite"));
        if let Some(line) = line {
            for words in [
                "innodb_doublewrite=0 is safe",
                "page-compressed",
                "KEY_BLOCK_SIZE",
            ] {
                assert!(line.contains(words), "{words}: {line}");
            }
        }
        line.is_some()
    };
    assert!(asks("--innodb-buffer-pool-size=6M"));
    for told in [
        "--innodb-doublewrite=0",
        "--innodb_doublewrite=ON",
        "--skip-innodb-doublewrite",
        "--loose-innodb_doublewrite",
    ] {
        assert!(!asks(told), "{told}");
    }
}

#[test]
fn a_cache_whose_making_was_cut_is_said_to_be_none_yet() {
    let sandbox = Sandbox::new();
    for lane in [0, 64 << 10] {
        fs::write(sandbox.file("flash"), vec![0; 14 << 20]).unwrap();
        fs::write(sandbox.file("flash.lane"), vec![0; lane]).unwrap();
        let words = ["was not made to the end", "Remove it"];
        sandbox.run("flash flush --flash flash").fails(1, &words);
    }
}

/// Promise (flash-run): A data directory is made under `forebay run --flash` as without it,
/// whatever its pages.
#[test]
fn a_data_directory_of_any_page_size_is_made_with_a_cache() {
    let Some(world) = World::new() else { return };
    let data = world.launch.data();
    fs::remove_dir_all(&data).unwrap();
    let mut command = Command::new("timeout");
    command.args(["120", FOREBAY, "run", "--profile", "mariadb", "--flash"]);
    command
        .arg(world.flash())
        .args(["--flash-size", FLASH, "--"]);
    command.args([
        "mariadb-install-db",
        "--no-defaults",
        "--innodb-page-size=4k",
    ]);
    command.args(["--user=root", "--auth-root-authentication-method=normal"]);
    command.arg(format!("--datadir={}", data.display()));
    command.env("FOREBAY_RUN_DIR", world.sandbox.file("run"));
    let made = Ran::of(command.output().unwrap()).ok();
    assert!(made.stderr.contains("is being made"), "{}", made.stderr);
    assert!(!data.join("forebay.guard").exists());
}
