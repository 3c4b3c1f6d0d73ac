//! `forebay enable` on Debian's units, unchanged, and on what it refuses.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    FOREBAY, Ran, Sandbox, copy, have,
    image::{SystemImage, can_enable},
    live_system::LiveSystem,
};
use std::{
    fs,
    os::unix::fs::{MetadataExt, chown, symlink},
    process::Command,
};

#[test]
fn the_units_of_debian_are_enabled() {
    if !can_enable() {
        return;
    }
    let image = SystemImage::new();
    for (unit, profile) in [
        ("redis-server", "redis"),
        ("mariadb", "mariadb"),
        ("postgresql@15-main", "postgres"),
    ] {
        let said = image.enable(unit).text();
        assert!(
            said.contains("survives a power cut") && said.contains("systemctl daemon-reload"),
            "{said}"
        );
        let text = image.drop_in(unit);
        assert!(
            text.contains(&format!("--profile {profile} -- /")),
            "{text}"
        );
        image.verify(unit);
    }
    let text = image.drop_in("redis-server");
    assert!(text.contains("\nExecStart=\nExecStart=/usr/bin/forebay run --pool /var/lib/forebay/redis-server.pool --profile redis -- /usr/bin/redis-server /etc/redis/redis.conf --supervised systemd --daemonize no\n"), "{text}");
    for line in [
        "NotifyAccess=all",
        "SuccessExitStatus=129 130 141 143",
        "PIDFile=",
        "KillMode=mixed",
        "ReadWritePaths=/var/lib/forebay",
        "ExecPaths=/usr/bin/forebay /usr/lib/forebay",
        "SystemCallErrorNumber=EPERM",
        "RemoveIPC=no",
        "Requires=forebay-recover@var-lib-redis.service",
    ] {
        assert!(text.lines().any(|it| it == line), "{line} is not in {text}");
    }
    // A pool that is mounted with nofail may come after local-fs.target.
    let waits =
        "etc/systemd/system/forebay-recover@var-lib-redis.service.d/zz-forebay-redis-server.conf";
    let text = fs::read_to_string(image.at(waits)).unwrap();
    assert!(
        text.contains("\nRequiresMountsFor=/var/lib/forebay/redis-server.pool\n"),
        "{text}"
    );
    let text = image.drop_in("mariadb");
    assert!(
        text.contains("-- /bin/sh -c \"set -f;")
            && text.contains("exec /usr/sbin/mariadbd $MYSQLD_OPTS"),
        "{text}"
    );
    for line in ["RestartForceExitStatus=131 132", "SendSIGKILL=yes"] {
        assert!(text.lines().any(|it| it.starts_with(line)), "{text}");
    }
    let text = image.drop_in("postgresql@15-main");
    assert!(text.contains("-- /usr/lib/postgresql/15/bin/postgres -D /var/lib/postgresql/15/main -c config_file=/etc/postgresql/15/main/postgresql.conf\n"), "{text}");
    assert!(text.lines().any(|it| it == "Type=notify"), "{text}");
    // systemd would open the log as root, which its directory does not allow
    // (fs.protected_regular).
    let shell = "\nExecStart=/bin/sh -c '[ -e /var/log/postgresql/postgresql-15-main.log ] || ";
    assert!(
        text.contains(shell) && !text.contains("StandardOutput="),
        "{text}"
    );
}

#[test]
fn a_pool_belongs_to_the_user_of_its_unit_alone() {
    if !can_enable() {
        return;
    }
    let image = SystemImage::new();
    image.enable("redis-server");
    let found = fs::metadata(image.at("var/lib/forebay/redis-server.pool")).unwrap();
    assert_eq!((found.uid(), found.mode() & 0o7777), (65_533, 0o600));
    // A second time it is the same pool.
    let again = image
        .run("enable redis-server --json --pool redis-server")
        .ok()
        .json();
    assert_eq!(again["is_enabled"], true);
    image
        .run("enable redis-server --pool other")
        .fails(1, &["redis-server.pool", "forebay disable"]);
    chown(
        image.at("var/lib/forebay/redis-server.pool"),
        Some(65_000),
        None,
    )
    .unwrap();
    image
        .run("enable redis-server --pool redis-server")
        .fails(1, &["belongs to", "chown redis"]);
    image
        .run("enable mariadb --pool /mariadb.pool")
        .fails(2, &["lies in /"]);
}

#[test]
fn a_dry_run_shows_the_files_and_changes_nothing() {
    let Some(image) = SystemImage::with_units() else {
        return;
    };
    let shown = image
        .run("enable redis-server --pool redis --dry-run --json")
        .ok()
        .json();
    assert_eq!(shown["is_enabled"], false);
    assert!(
        shown["files"][2]["text"]
            .as_str()
            .unwrap()
            .contains("ExecStart=")
    );
    assert!(image.own_files().is_empty());
    let text = image
        .run("enable redis-server --pool redis --dry-run")
        .ok()
        .text();
    for words in [
        "to be written",
        "DOES NOT ASK FOR DURABILITY",
        "forebay disable redis-server",
    ] {
        assert!(text.contains(words), "{text}");
    }
    assert!(!image.at("var/lib/forebay/redis.pool").exists());
}

#[test]
fn units_that_cannot_be_wrapped_are_refused() {
    let Some(image) = SystemImage::with_units() else {
        return;
    };
    let data = "--pool p --data /srv/db --profile redis";
    let service = |name: &str, text: &str| {
        image.write(
            &format!("etc/systemd/system/{name}.service"),
            &format!("[Service]\n{text}\n"),
        );
    };
    image.refuses(
        "enable nothing --pool p",
        1,
        &["nothing", "no such unit", "lib/systemd/system"],
    );
    image.refuses("enable ../x --pool p", 2, &["no name of a unit"]);
    image.refuses(
        "enable postgresql --pool p",
        1,
        &["oneshot", "postgresql@15-main"],
    );
    image.refuses("enable postgresql@ --pool p", 2, &["a template"]);
    image.refuses(
        "enable postgresql@16-main --pool p",
        1,
        &["16/main/postgresql.conf"],
    );
    for (name, text, words) in [
        (
            "several",
            "ExecStart=/bin/true\nExecStart=/bin/sh",
            "2 ExecStart lines",
        ),
        ("plus", "ExecStart=+/bin/true", "prefix +"),
        ("exclamation", "ExecStart=!/bin/true", "prefix !"),
        ("at", "ExecStart=@/bin/true other", "prefix @"),
        ("none", "Type=simple", "no ExecStart"),
        (
            "dynamic",
            "ExecStart=/bin/true\nDynamicUser=yes",
            "DynamicUser",
        ),
        ("absent", "ExecStart=/usr/bin/no-such", "no such program"),
        (
            "home",
            "ExecStart=/bin/true\nUser=no-such",
            "no user no-such",
        ),
    ] {
        service(name, text);
        image
            .sandbox
            .run(&format!("enable {name} {data} --root image"))
            .fails(if name == "home" { 2 } else { 1 }, &[words]);
        fs::remove_file(image.at(&format!("etc/systemd/system/{name}.service"))).unwrap();
    }
}

#[test]
fn a_program_without_a_profile_needs_its_name() {
    let Some(image) = SystemImage::with_units() else {
        return;
    };
    let unit = "[Service]\nExecStart=/bin/true\n";
    image.write("lib/systemd/system/db.service", unit);
    let line = "enable db --pool p --data /srv/db";
    image.refuses(line, 2, &["--profile"]);
    let shown = image
        .run(&format!("{line} --profile any --dry-run --json"))
        .ok()
        .json();
    assert_eq!(shown["profile"], "any");
    image.refuses("enable db --pool p --profile redis", 2, &["--data DIR"]);
    // The files of another user than the unit's.
    let line = "enable db --pool p --data /var/lib/mysql --profile mariadb";
    let unit = "[Service]\nExecStart=/bin/true\nUser=redis\n";
    image.write("lib/systemd/system/db.service", unit);
    if rustix::process::geteuid().is_root() {
        image.refuses(line, 1, &["the unit's user is redis", "--data DIR"]);
    }
}

#[test]
fn a_masked_unit_and_others_drop_ins_are_left_alone() {
    let Some(image) = SystemImage::with_units() else {
        return;
    };
    image.write("etc/systemd/system/x", "");
    fs::remove_file(image.at("etc/systemd/system/x")).unwrap();
    symlink("/dev/null", image.at("etc/systemd/system/mariadb.service")).unwrap();
    image.refuses(
        "enable mariadb --pool p",
        1,
        &["masked", "systemctl unmask"],
    );
    image.write(
        "etc/systemd/system/redis-server.service.d/override.conf",
        "[Service]\nExecStart=\nExecStart=/bin/true\n",
    );
    image.refuses(
        "enable redis-server --pool p",
        1,
        &["override.conf", "sets ExecStart as well"],
    );
    image.write(
        "etc/systemd/system/redis-server.service.d/override.conf",
        "[Service]\nNice=1\n",
    );
    image.write(
        "etc/systemd/system/redis-server.service.d/zz-forebay.conf",
        "[Service]\nNice=1\n",
    );
    image.refuses(
        "enable redis-server --pool p",
        1,
        &["forebay.conf", "not written by forebay enable"],
    );
}

#[test]
fn an_alias_and_an_instance_lead_to_their_unit() {
    if !can_enable() {
        return;
    }
    let image = SystemImage::new();
    image.write("etc/systemd/system/x", "");
    symlink(
        "/lib/systemd/system/redis-server.service",
        image.at("etc/systemd/system/redis.service"),
    )
    .unwrap();
    image.run("enable redis --size 32MiB --pool redis").ok();
    image.drop_in("redis-server");
    image.write("lib/systemd/system/db@.service", "[Unit]\nDescription=%i\n[Service]\nUser=redis\nType=forking\nPIDFile=/run/%i.pid\nExecStart=-/bin/true --foreground %i\n");
    let said = image
        .run("enable db@one --size 32MiB --pool one --profile rocksdb --data /var/lib/redis")
        .ok()
        .text();
    assert!(said.contains("instead of forking"), "{said}");
    let text = image.drop_in("db@one");
    assert!(text.contains("ExecStart=-/usr/bin/forebay run --pool /var/lib/forebay/one.pool --profile rocksdb -- /bin/true --foreground %i\n"), "{text}");
    assert!(
        text.contains("Type=exec\n") && text.contains("PIDFile=\n"),
        "{text}"
    );
    image.verify("db@one");
}

#[test]
fn etcd_is_enabled_with_an_agent_which_is_said() {
    if !have("etcd") || !can_enable() {
        return;
    }
    let image = SystemImage::new();
    image.program("usr/bin/etcd");
    copy("/usr/bin/etcd", &image.at("usr/bin/etcd"));
    image.write("etc/passwd", "root:x:0:0::/:\netcd:x:65530:65530::/:\n");
    fs::create_dir_all(image.at("var/lib/etcd/default")).unwrap();
    chown(image.at("var/lib/etcd/default"), Some(65_530), None).unwrap();
    let shown = image.run("enable etcd --pool etcd --dry-run --json");
    let shown = shown.ok().json();
    let notes: Vec<&str> = (shown["notes"].as_array().unwrap().iter())
        .filter_map(|note| note.as_str())
        .collect();
    assert!(
        notes.iter().any(|it| it.starts_with("EXPERIMENTAL")),
        "{shown}"
    );
    assert_eq!(shown["data"][0], "/var/lib/etcd/default");
    let text = shown["files"][2]["text"].as_str().unwrap();
    assert!(
        text.contains("--profile etcd --front-end notify -- /usr/bin/etcd $DAEMON_ARGS"),
        "{text}"
    );
}

#[test]
fn systemd_is_told_what_its_units_became() {
    if !can_enable() {
        return;
    }
    let system = LiveSystem::new("/bin/sleep 600");
    let enable = system.enable();
    let shown = system.run(&format!(
        "{} --dry-run",
        enable.replace("redis", "postgres")
    ));
    let shown = shown.ok().text();
    assert!(shown.contains("NOTHING IS ABSORBED"), "{shown}");
    // Nobody can be asked: it is shown, and nothing is changed.
    let asked = system
        .run(&enable)
        .fails(1, &["without asking", "--yes", "Nothing was changed"]);
    assert!(asked.text().contains("to be written"), "{}", asked.text());
    assert_eq!(system.told(), "");
    assert!(!system.drop_in().exists() && !system.file("db.pool").exists());
    let said = system.run(&format!("{enable} --yes")).ok().text();
    assert!(said.contains("db runs under forebay"), "{said}");
    assert_eq!(system.told(), "daemon-reload\nrestart -- db.service\n");
    system
        .run(&format!("pool remove {}", system.file("db.pool").display()))
        .fails(1, &["is the pool of a unit", "zz-forebay.conf"]);
    system
        .run("disable db")
        .fails(1, &["not stopped without asking", "--yes"]);
    assert_eq!(system.told(), "");
    let done = system.run("disable db --yes --json").ok().json();
    assert_eq!(
        (&done["is_proven"], &done["is_started"]),
        (&true.into(), &true.into())
    );
    assert_eq!(
        system.told(),
        "stop -- db.service\ndaemon-reload\ndaemon-reload\nstart -- db.service\n"
    );
    assert!(!system.drop_in().parent().unwrap().exists());
}

#[test]
fn a_restart_without_a_run_is_no_success() {
    if !can_enable() {
        return;
    }
    // It ends at once.
    let system = LiveSystem::new("/bin/true");
    system.run(&format!("{} --yes", system.enable())).fails(
        1,
        &[
            "no run of forebay answers",
            "To go back: forebay disable db",
        ],
    );
}

/// Debian's unit of Redis kills what makes another system call than it expects. The drop-in has
/// such calls fail.
#[test]
fn a_run_does_without_the_calls_that_a_unit_refuses() {
    if !have("systemd-analyze") {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.pool();
    let program = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/programs/system_service.py"
    );
    let script = "import os
fd = os.open('a.log', os.O_WRONLY | os.O_CREAT)
os.fsync(fd)
os.write(fd, b'acknowledged')
os.fsync(fd)";
    let under = |answer: &str| {
        let mut command = Command::new("/usr/bin/python3");
        command.args([program, answer, FOREBAY]);
        command.args(
            "run --explain --pool p --profile generic --absorb *.log -- python3 -c".split(' '),
        );
        command.arg(script).current_dir(sandbox.path());
        command.env("FOREBAY_RUN_DIR", sandbox.file("run"));
        Ran::of(command.output().unwrap())
    };
    let killed = under("kill");
    assert_eq!(killed.code, None, "{}", killed.stderr);
    let ran = under("eperm").ok();
    assert!(
        ran.stderr.contains("absorbed what was written"),
        "{}",
        ran.stderr
    );
}
