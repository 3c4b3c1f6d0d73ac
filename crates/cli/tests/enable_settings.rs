//! `forebay enable`: where it finds a database's files, when what it writes takes effect, and what
//! it does where systemd does not run.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    image::{SystemImage, can_enable, units},
    live_system::LiveSystem,
};
use std::{
    fs,
    net::TcpListener,
    os::unix::fs::{MetadataExt, chown},
};

#[test]
fn a_unit_is_enabled_for_its_next_start() {
    if !can_enable() {
        return;
    }
    let system = LiveSystem::new("/bin/sleep 600");
    let enable = format!("{} --no-restart", system.enable());
    system
        .run(&enable)
        .fails(1, &["not written without asking"]);
    assert!(!system.drop_in().exists());
    let said = system.run(&format!("{enable} --yes")).ok().text();
    assert!(
        said.contains("from its next start on") && said.contains("systemctl restart db"),
        "{said}"
    );
    assert!(system.drop_in().exists());
    assert_eq!(system.told(), "daemon-reload\n");
    let done = system.run("disable db --yes --json").ok().json();
    assert_eq!(
        (&done["is_proven"], &done["is_started"]),
        (&true.into(), &false.into())
    );
}

#[test]
fn without_systemd_only_a_named_root_is_written_to() {
    if !can_enable() {
        return;
    }
    let system = LiveSystem::new("/bin/sleep 600");
    fs::remove_dir_all(system.file("run/systemd")).unwrap();
    for options in ["", " --yes", " --dry-run"] {
        let words = ["systemd does not run here", "--root /", "forebay run"];
        let line = format!("{}{options}", system.enable());
        system.run(&line).fails(1, &words);
    }
    assert!(!system.drop_in().exists() && !system.file("db.pool").exists());
    let done = system
        .run(&format!("{} --root / --json", system.enable()))
        .ok()
        .json();
    assert_eq!(done["persistence"], "power_cut_once_committed", "{done}");
    assert_eq!(done["next"][0], "systemctl daemon-reload", "{done}");
    assert!(system.drop_in().exists());
    assert_eq!(system.told(), "");
}

#[test]
fn a_unit_is_restarted_after_a_yes_on_the_terminal() {
    if !can_enable() {
        return;
    }
    let system = LiveSystem::new("/bin/sleep 600");
    let refused = system.run_on_terminal(&system.enable(), "n\n");
    assert_eq!(refused.code, Some(1), "{}", refused.text());
    let said = refused.text();
    for words in [
        "to be written",
        "What you have then",
        "restart db now? [y/N]",
    ] {
        assert!(said.contains(words), "{said}");
    }
    assert_eq!(system.told(), "");
    assert!(!system.drop_in().exists() && !system.file("db.pool").exists());
    let said = system.run_on_terminal(&system.enable(), "y\n").ok().text();
    assert!(said.contains("db runs under forebay"), "{said}");
    assert_eq!(system.told(), "daemon-reload\nrestart -- db.service\n");
    let said = system.run_on_terminal("disable db", "yes\n").ok().text();
    assert!(said.contains("proven: this pool holds no record"), "{said}");
}

/// Debian's unit of Valkey is that of Redis with other names.
#[test]
fn the_unit_of_valkey_is_enabled() {
    if !can_enable() {
        return;
    }
    let image = SystemImage::new();
    let text = fs::read_to_string(units().join("redis-server.service")).unwrap();
    let text = text.replace("redis", "valkey");
    image.write("lib/systemd/system/valkey-server.service", &text);
    image.program("usr/bin/valkey-server");
    image.write("etc/passwd", "root:x:0:0::/:\nvalkey:x:65530:65530::/:\n");
    fs::create_dir_all(image.at("var/lib/valkey")).unwrap();
    chown(image.at("var/lib/valkey"), Some(65_530), None).unwrap();
    let settings = "dir /var/lib/valkey\nappendonly yes\nappendfsync always\n";
    image.write("etc/valkey/valkey.conf", settings);
    let said = image.enable("valkey-server").text();
    assert!(!said.contains("DOES NOT ASK FOR DURABILITY"), "{said}");
    let text = image.drop_in("valkey-server");
    let line =
        "--profile valkey -- /usr/bin/valkey-server /etc/valkey/valkey.conf --supervised systemd";
    assert!(text.contains(line), "{text}");
    image.verify("valkey-server");
}

#[test]
fn directories_are_found_in_files_that_are_included() {
    if !can_enable() {
        return;
    }
    let image = SystemImage::new();
    let directories = [
        (
            "redis-server",
            "srv/redis",
            "etc/redis/redis.conf",
            "dir /no\ninclude /etc/more/*.conf\n",
        ),
        (
            "mariadb",
            "srv/mysql",
            "etc/mysql/my.cnf",
            "!includedir /etc/more\n",
        ),
        (
            "postgresql@15-main",
            "srv/postgres",
            "etc/postgresql/15/main/postgresql.conf",
            "include_dir '/etc/more'\n",
        ),
    ];
    image.write(
        "etc/more/a.conf",
        "dir /srv/redis\ndata_directory = '/srv/postgres'\n",
    );
    image.write("etc/more/a.cnf", "[mysqld]\ndatadir = /srv/mysql\n");
    let owners = ["redis", "mysql", "postgresql/15/main"];
    for ((unit, directory, file, text), owner) in directories.into_iter().zip(owners) {
        let owner = fs::metadata(image.at(&format!("var/lib/{owner}"))).unwrap();
        fs::create_dir_all(image.at(directory)).unwrap();
        chown(image.at(directory), Some(owner.uid()), None).unwrap();
        image.write(file, text);
        let shown = image
            .run(&format!("enable {unit} --pool p --dry-run --json"))
            .ok()
            .json();
        assert_eq!(shown["data"][0], format!("/{directory}"), "{shown}");
    }
}

/// Promise (programs): `forebay enable --metrics` has the unit's run serve its figures there, and
/// opens the unit's sandbox for that address and no further.
#[test]
fn figures_of_a_unit_are_served_where_enable_says() {
    if !can_enable() {
        return;
    }
    let image = SystemImage::new();
    let unit = "[Service]\nUser=redis\nExecStart=/bin/true\nRestrictAddressFamilies=AF_UNIX\n";
    image.write("lib/systemd/system/db.service", unit);
    let line = "enable db --pool db --size 32MiB --profile redis --data /var/lib/redis";
    let refused = |address: &str, words: &[&str]| {
        image.refuses(&format!("{line} --metrics {address}"), 2, words);
    };
    refused("80", &["below 1024", "runs as redis", "--metrics"]);
    refused("0", &["any free one"]);
    refused("nowhere", &["write a port"]);
    image.run(&format!("{line} --metrics 9470")).ok();
    let text = image.drop_in("db");
    assert!(
        text.contains(" --profile redis --metrics 127.0.0.1:9470 -- /bin/true\n"),
        "{text}"
    );
    let families = |text: &str| {
        let lines = text.lines();
        lines
            .filter_map(|it| Some(it.strip_prefix("RestrictAddressFamilies=")?.to_owned()))
            .collect::<Vec<_>>()
    };
    assert_eq!(families(&text), ["AF_INET"], "{text}");
    image.verify("db");
    image.run(line).ok();
    let text = image.drop_in("db");
    assert!(!text.contains("--metrics"), "{text}");
    assert!(families(&text).is_empty(), "{text}");
}

/// Promise (programs): `forebay enable --metrics` refuses a port that another program or another
/// unit has, before anything is changed.
#[test]
fn a_port_that_is_in_use_is_refused_before_any_change() {
    if !can_enable() {
        return;
    }
    let system = LiveSystem::new("/bin/sleep 600");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let line = format!("{} --metrics {port} --yes", system.enable());
    let words: &[&str] = &["in use", "--metrics", "Nothing was started, nor changed"];
    system.run(&line).fails(1, words);
    assert_eq!(system.told(), "");
    assert!(!system.drop_in().exists() && !system.file("db.pool").exists());
    drop(taken);
    system.run(&line).ok();
    assert_eq!(system.told(), "daemon-reload\nrestart -- db.service\n");
    // Its own run has it now.
    system.run(&line).ok();
    let other = system.file("etc-systemd/system/other.service.d");
    fs::create_dir_all(&other).unwrap();
    fs::rename(system.drop_in(), other.join("zz-forebay.conf")).unwrap();
    system.told();
    let words: &[&str] = &["other.service.d", "two ports", "Nothing was changed"];
    system.run(&line).fails(1, words);
    assert_eq!(system.told(), "");
}

/// Promise (programs): `forebay enable` says what acknowledged writes survive before it asks.
#[test]
fn what_a_unit_will_survive_is_said_before_the_answer() {
    if !can_enable() {
        return;
    }
    let image = SystemImage::new();
    let line = "enable redis-server --pool redis --size 32MiB";
    for is_there in [false, true] {
        let shown = image.run(&format!("{line} --dry-run --json")).ok().json();
        assert_eq!(shown["persistence"], "power_cut_once_committed", "{shown}");
        let said = image.run(&format!("{line} --dry-run")).ok().text();
        let survives = shown["survives"].as_str().unwrap();
        assert!(said.contains(&format!("which {survives}")), "{said}");
        if !is_there {
            image.run(line).ok();
        }
    }
}
