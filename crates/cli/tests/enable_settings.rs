//! `forebay enable`: where it finds a database's files, and when what it writes takes effect.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    image::{SystemImage, can_enable},
    live_system::LiveSystem,
};
use std::{
    fs,
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
