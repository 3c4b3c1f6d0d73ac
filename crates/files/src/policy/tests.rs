use super::*;
use std::path::Path;

fn request<'a>(program: &'a [&'a OsStr], config: &'a PolicyConfig) -> PolicyRequest<'a> {
    PolicyRequest {
        programs: program,
        profile: None,
        config,
        absorb: &[],
    }
}

fn absorbed_by(profile: &str) -> Vec<String> {
    let mut profiles = built_in().into_iter();
    profiles.find(|p| p.name == profile).unwrap().absorb
}

#[test]
fn the_programs_name_chooses_the_profile() {
    let config = PolicyConfig::default();
    for (program, profile, absorbed) in [
        (
            "redis-server",
            "redis",
            "/var/lib/redis/appendonlydir/appendonly.aof.1.incr.aof",
        ),
        ("valkey-server", "valkey", "/d/a.aof"),
        ("db_bench", "rocksdb", "/tmp/db/000004.log"),
        ("sqlite3", "sqlite", "/d/app.db-wal"),
        ("mariadbd", "mariadb", "/var/lib/mysql/ib_logfile0"),
        ("mariadbd", "mariadb", "/var/log/mysql/mysql-bin.000123"),
        ("mysqld", "mariadb", "/srv/any-name.at.all.1000000"),
        ("mariadbd", "mariadb", "/var/lib/mysql/aria_log.00000001"),
        ("mariadbd", "mariadb", "/d/#rocksdb/000007.log"),
    ] {
        let policy = choose(request(&[OsStr::new(program)], &config)).unwrap();
        assert_eq!(policy.profile, profile);
        assert!(
            policy
                .patterns
                .iter()
                .any(|p| matches(p.as_bytes(), absorbed.as_bytes())),
            "{program}: {absorbed}"
        );
    }
}

#[test]
fn of_nats_and_influxdb_the_logs_are_absorbed_alone() {
    for (profile, path, expected) in [
        ("nats", "jetstream/$G/streams/orders/msgs/1.blk", true),
        ("nats", "_js_/S-R3F-a/msgs/12.blk", true),
        ("nats", "streams/orders/msgs/1.new", false),
        ("nats", "streams/orders/msgs/index.db", false),
        ("nats", "streams/orders/obs/worker/o.dat", false),
        ("nats", "_js_/S-R3F-a/tav.idx", false),
        ("influxdb", "wal/db/autogen/2/_00001.wal", true),
        (
            "influxdb",
            "data/db/autogen/2/000000001-000000001.tsm.tmp",
            false,
        ),
        ("influxdb", "data/db/_series/00/0000", false),
        ("influxdb", "meta/meta.db", false),
    ] {
        let patterns = absorbed_by(profile);
        let absorbed = patterns
            .iter()
            .any(|pattern| matches(pattern.as_bytes(), path.as_bytes()));
        assert_eq!(absorbed, expected, "{path}");
    }
}

#[test]
fn only_the_log_segments_of_postgresql_are_absorbed() {
    let patterns = absorbed_by("postgres");
    for (path, expected) in [
        ("pg_wal/000000010000000000000001", true),
        ("/srv/data/pg_wal/0000000A00000001000000FF", true),
        // Being filled with zeros, then renamed.
        ("pg_wal/xlogtemp.4711", false),
        ("pg_wal/000000010000000000000001.partial", false),
        ("pg_wal/00000001000000000000000.", false),
        ("pg_wal/000000010000000000000002.00000028.backup", false),
        ("pg_wal/00000002.history", false),
        ("pg_wal/RECOVERYXLOG", false),
        (
            "pg_wal/archive_status/000000010000000000000001.ready",
            false,
        ),
        ("pg_wal/00000001000000000000000", false),
        ("pg_wal/0000000100000000000000012", false),
        ("pg_wal/0000000a0000000000000001", false),
        ("/srv/archive/000000010000000000000001", false),
        ("base/5/16384", false),
        ("global/pg_control", false),
    ] {
        let absorbed = patterns
            .iter()
            .any(|pattern| matches(pattern.as_bytes(), path.as_bytes()));
        assert_eq!(absorbed, expected, "{path}");
    }
}

#[test]
fn a_pattern_of_many_equal_sets_is_shown_in_short() {
    for (pattern, shown) in [
        (absorbed_by("postgres")[0].as_str(), "pg_wal/[0-9A-F]×24"),
        ("a[0-9][0-9][a-z].log", "a[0-9]×2[a-z].log"),
        ("*.aof", "*.aof"),
        ("a[", "a["),
    ] {
        assert_eq!(in_short(pattern), shown);
    }
}

#[test]
fn a_link_is_known_by_either_of_its_names() {
    let config = PolicyConfig::default();
    let names = [OsStr::new("redis-server"), OsStr::new("redis-check-rdb")];
    assert_eq!(choose(request(&names, &config)).unwrap().profile, "redis");
    let names = [OsStr::new("cache"), OsStr::new("valkey-server")];
    assert_eq!(choose(request(&names, &config)).unwrap().profile, "valkey");
}

#[test]
fn an_unknown_profile_or_program_is_refused_with_the_known_ones() {
    let config = PolicyConfig::default();
    let names = [OsStr::new("cat")];
    let unknown = choose(PolicyRequest {
        profile: Some("oracle"),
        ..request(&names, &config)
    });
    let message = unknown.unwrap_err().to_string();
    assert!(
        message.contains("oracle") && message.contains("redis, rocksdb, sqlite"),
        "{message}"
    );
    let config = PolicyConfig::parse("absorb = []", Path::new("f.toml")).unwrap();
    let message = choose(request(&names, &config)).unwrap_err().to_string();
    assert!(message.contains("--absorb"), "{message}");
}

/// Promise (files): A program that no profile names has the logs of SQLite, RocksDB, LevelDB,
/// Redis, MariaDB, PostgreSQL, etcd, ZooKeeper, Tarantool and others absorbed, known by their
/// names.
#[test]
fn a_program_that_no_profile_names_has_logs_by_their_names() {
    let config = PolicyConfig::default();
    let policy = choose(request(&[OsStr::new("python3")], &config)).unwrap();
    assert_eq!(policy.profile, ANY);
    for (path, expected) in [
        ("/srv/app/users.db-wal", true),
        ("/srv/app/users.db-journal", true),
        ("/srv/app/state/000012.log", true),
        ("/d/appendonlydir/appendonly.aof.1.incr.aof", true),
        ("/var/lib/mysql/ib_logfile0", true),
        ("/var/lib/mysql/mysql-bin.000007", true),
        ("/pg/pg_wal/000000010000000000000001", true),
        ("/e/member/wal/0000000000000000-0000000000000000.wal", true),
        ("/z/version-2/log.1f", true),
        ("/t/00000000000000000007.xlog", true),
        ("/t/00000000000000000007.xlog.inprogress", true),
        ("/srv/app/shop.duckdb.wal", true),
        ("/srv/derby/shop/log/log12.dat", true),
        ("/srv/app/log.0000000001", true),
        ("/b/journal/current/19c1f2a3b4c.txn", true),
        ("/o/nodes/0/indices/Lg/0/translog/translog-3.tlog", true),
        ("/o/nodes/0/indices/Lg/0/translog/translog.ckp", true),
        ("/o/nodes/0/indices/Lg/0/translog/translog-3.ckp", false),
        ("/o/nodes/0/indices/Lg/0/index/segments_3", false),
        ("/m/journal/WiredTigerLog.0000000001", false),
        ("/z/version-2/snapshot.1f", false),
        ("/t/00000000000000000007.snap.inprogress", false),
        ("/srv/derby/shop/log/log.ctrl", false),
        ("/srv/app/log.1", false),
        ("/srv/app/users.db", false),
        ("/var/log/app.log", false),
        ("/var/log/2026-11-29.log", false),
        ("/srv/app/report.000001", false),
    ] {
        let mut patterns = policy.patterns.iter();
        assert_eq!(
            patterns.any(|p| matches(p.as_bytes(), path.as_bytes())),
            expected,
            "{path}"
        );
    }
    assert_eq!(policy.guard.as_deref(), Some("pg_replslot"));
}

#[test]
fn what_is_preallocated_is_absorbed() {
    for profile in built_in() {
        let mut preallocated = profile.preallocated.iter();
        assert!(
            preallocated.all(|p| profile.absorb.contains(p)),
            "{}",
            profile.name
        );
    }
}

#[test]
fn the_documents_have_a_row_for_each_profile() {
    let operations = include_str!("../../../../docs/operations.md");
    let in_any: Vec<_> = built_in().into_iter().filter(|it| it.name == ANY).collect();
    let is_in_any = |pattern: &String| in_any.iter().any(|any| any.absorb.contains(pattern));
    for profile in built_in() {
        let quoted = |names: Vec<String>| {
            let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
            names.join(", ")
        };
        let programs = match profile.programs.is_empty() {
            true if profile.name == ANY => "all others".to_owned(),
            true if !profile.absorb.iter().any(is_in_any) => {
                format!("inside others: `--profile {}`", profile.name)
            }
            true => format!("inside others: *any*, or `--profile {}`", profile.name),
            false => quoted(profile.programs),
        };
        let absorbed = quoted(profile.absorb.iter().map(|p| in_short(p)).collect());
        let row = format!("| {} | {programs} | {absorbed} |", profile.name);
        assert!(operations.contains(&row), "operations.md lacks:\n{row}");
    }
}

#[test]
fn patterns_of_the_command_line_are_added_and_are_enough() {
    let config = PolicyConfig::default();
    let absorb = ["*.wal".to_owned(), "*.aof".to_owned()];
    let names = [OsStr::new("cat")];
    let policy = choose(PolicyRequest {
        absorb: &absorb,
        ..request(&names, &config)
    })
    .unwrap();
    assert_eq!(
        (policy.profile.as_str(), policy.patterns.len()),
        (GENERIC, 2)
    );
    let names = [OsStr::new("redis-server")];
    let policy = choose(PolicyRequest {
        absorb: &absorb,
        ..request(&names, &config)
    })
    .unwrap();
    assert_eq!(policy.patterns, ["*.aof", "temp-*.aof.incr", "*.wal"]);
    let bad = ["".to_owned()];
    let refused = choose(PolicyRequest {
        absorb: &bad,
        ..request(&names, &config)
    });
    assert!(matches!(refused, Err(PolicyError::Pattern { .. })));
}

#[test]
fn a_file_changes_profiles_and_makes_new_ones() {
    let text = "[profile.redis]\nabsorb = [\"log/*\"]\n\n[profile.mine]\nprograms = [\"mydb\"]\nabsorb = [\"*.wal\"]\n";
    let config = PolicyConfig::parse(text, Path::new("f.toml")).unwrap();
    let policy = choose(request(&[OsStr::new("redis-server")], &config)).unwrap();
    assert_eq!(policy.patterns, ["log/*"]);
    let policy = choose(request(&[OsStr::new("mydb")], &config)).unwrap();
    assert_eq!(policy.profile, "mine");
    let config = PolicyConfig::parse("absorb = [\"only\"]", Path::new("f.toml")).unwrap();
    let policy = choose(request(&[OsStr::new("redis-server")], &config)).unwrap();
    assert_eq!(
        (policy.profile.as_str(), policy.patterns),
        ("redis", vec!["only".to_owned()])
    );
}

#[test]
fn the_configuration_overrides_a_profiles_preallocated_files() {
    let of = |program: &str, config: &PolicyConfig| {
        choose(request(&[OsStr::new(program)], config))
            .unwrap()
            .preallocated
    };
    let config = PolicyConfig::default();
    let names = |patterns: &[String], path: &str| {
        (patterns.iter()).any(|pattern| matches(pattern.as_bytes(), path.as_bytes()))
    };
    assert!(names(
        &of("postgres", &config),
        "d/pg_wal/000000010000000000000001"
    ));
    let mariadb = of("mariadbd", &config);
    assert!(names(&mariadb, "/d/ib_logfile0") && !names(&mariadb, "/d/mysql-bin.000001"));
    assert!(of("redis-server", &config).is_empty());
    let text = "[profile.mariadb]\npreallocated = []\n[profile.mine]\nprograms = [\"mine\"]\nabsorb = [\"*.wal\"]\npreallocated = [\"*.wal\"]\n";
    let config = PolicyConfig::parse(text, Path::new("forebay.toml")).unwrap();
    assert!(of("mariadbd", &config).is_empty());
    assert_eq!(of("mine", &config), ["*.wal"]);
}
