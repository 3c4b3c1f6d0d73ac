//! A directory that plays a system with units as Debian ships them (`scripts/setup.sh test` unpacks
//! them), for `forebay enable` and `disable`: nothing there needs systemd but `systemd-analyze
//! verify`.

use super::{Ran, Sandbox, copy, have, is_there};
use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
    process::Command,
};

/// A system of units, users and programs, below a directory.
pub struct SystemImage {
    pub sandbox: Sandbox,
}

/// Units of Debian 12, unchanged.
const UNITS: [&str; 5] = [
    "redis-server.service",
    "mariadb.service",
    "postgresql@.service",
    "postgresql.service",
    "etcd.service",
];

impl SystemImage {
    /// One, if the units are there.
    pub fn with_units() -> Option<Self> {
        have_units().then(Self::new)
    }

    pub fn new() -> Self {
        let image = Self {
            sandbox: Sandbox::on_disk(),
        };
        for unit in UNITS {
            let text = fs::read_to_string(units().join(unit)).unwrap();
            image.write(&format!("lib/systemd/system/{unit}"), &text);
        }
        for program in [
            "usr/bin/redis-server",
            "bin/sh",
            "usr/sbin/mariadbd",
            "usr/lib/postgresql/15/bin/postgres",
            "usr/bin/pg_ctlcluster",
            "usr/bin/forebay",
            "bin/kill",
            "bin/true",
            "etc/mysql/debian-start",
        ] {
            image.program(program);
        }
        image.write("usr/lib/forebay/libforebay.so", "");
        fs::create_dir_all(image.at("var/lib/forebay")).unwrap();
        fs::create_dir_all(image.at("srv/db")).unwrap();
        let own = rustix::process::geteuid();
        let mut passwd = "root:x:0:0::/:\n".to_owned();
        for (user, uid, data) in [
            ("redis", 65_533, "redis"),
            ("mysql", 65_532, "mysql"),
            ("postgres", 65_531, "postgresql/15/main"),
        ] {
            // Only root gives files to others.
            let uid = if own.is_root() { uid } else { own.as_raw() };
            passwd.push_str(&format!("{user}:x:{uid}:{uid}::/:\n"));
            let data = image.at(&format!("var/lib/{data}"));
            fs::create_dir_all(&data).unwrap();
            chown(&data, Some(uid), None).unwrap();
        }
        image.write("etc/passwd", &passwd);
        image.write(
            "etc/redis/redis.conf",
            "daemonize yes\ndir /var/lib/redis\nappendonly no\n",
        );
        image.write(
            "etc/postgresql/15/main/postgresql.conf",
            "data_directory = '/var/lib/postgresql/15/main'  # here\n",
        );
        image.write(
            "etc/postgresql/15/main/pg_ctl.conf",
            "# none\npg_ctl_options = ''\n",
        );
        image
    }

    pub fn at(&self, path: &str) -> PathBuf {
        self.sandbox.file("image").join(path)
    }

    pub fn write(&self, path: &str, text: &str) {
        fs::create_dir_all(self.at(path).parent().unwrap()).unwrap();
        fs::write(self.at(path), text).unwrap();
    }

    /// What systemd, and forebay, take for a program.
    pub fn program(&self, path: &str) {
        self.write(path, "");
        copy("/bin/true", &self.at(path));
        fs::set_permissions(self.at(path), fs::Permissions::from_mode(0o755)).unwrap();
    }

    pub fn run(&self, line: &str) -> Ran {
        self.sandbox.run(&format!("{line} --root image"))
    }

    pub fn drop_in(&self, unit: &str) -> String {
        fs::read_to_string(self.at(&format!(
            "etc/systemd/system/{unit}.service.d/zz-forebay.conf"
        )))
        .unwrap()
    }

    /// All files of the administrator.
    pub fn own_files(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut left = vec![self.at("etc/systemd")];
        while let Some(path) = left.pop() {
            match path.is_dir() {
                true => left.extend(fs::read_dir(path).unwrap().map(|it| it.unwrap().path())),
                false if path.exists() => found.push(path),
                false => {}
            }
        }
        found.sort();
        found
    }

    /// Enables it with a pool of its name.
    #[track_caller]
    pub fn enable(&self, unit: &str) -> Ran {
        self.run(&format!(
            "enable {unit} --size 32MiB --pool {}",
            unit.replace('@', "-")
        ))
        .ok()
    }

    /// The unit is refused with these words, and nothing is changed.
    #[track_caller]
    pub fn refuses(&self, line: &str, code: i32, words: &[&str]) {
        let before = self.own_files();
        self.run(line).fails(code, words);
        assert_eq!(self.own_files(), before);
        assert_eq!(fs::read_dir(self.at("var/lib/forebay")).unwrap().count(), 0);
    }

    /// systemd finds nothing wrong with it.
    #[track_caller]
    pub fn verify(&self, unit: &str) {
        if !have("systemd-analyze") {
            return;
        }
        // What units are ordered by, and the manager itself needs.
        for name in [
            "sysinit.target",
            "basic.target",
            "shutdown.target",
            "network.target",
            "local-fs.target",
            "multi-user.target",
            "network-online.target",
            "umount.target",
            "local-fs-pre.target",
        ] {
            self.write(
                &format!("lib/systemd/system/{name}"),
                "[Unit]\nDefaultDependencies=no\n",
            );
        }
        let root = format!("--root={}", self.sandbox.file("image").display());
        let verify = Command::new("systemd-analyze")
            .args([
                "verify",
                &root,
                "--man=no",
                "--generators=no",
                &format!("{unit}.service"),
            ])
            .output();
        let verified = Ran::of(verify.unwrap());
        assert!(
            verified.code == Some(0) && verified.stderr.trim().is_empty(),
            "{}",
            verified.stderr
        );
    }
}

/// Where units of Debian lie.
pub fn units() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("peers/units")
}

/// True if they are there, as in CI they are.
fn have_units() -> bool {
    let found = UNITS.iter().all(|unit| units().join(unit).exists());
    is_there(found, "one of Debian's units")
}

/// True if pools can be given to other users, too.
pub fn can_enable() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("skipped: only root gives pools to other users");
    }
    is_root && have_units()
}
