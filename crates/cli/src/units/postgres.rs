//! PostgreSQL's clusters as Debian has them: `postgresql@VERSION-CLUSTER` calls `pg_ctlcluster`,
//! which clears the environment, so that the server would lack Forebay's library, and leaves the
//! server in the background. Under forebay the unit starts the server itself, as `pg_ctlcluster`
//! would: with its configuration file, its file of variables and its log, as the cluster's owner.
//!
//! What `pg_ctlcluster` does before is done in the unit: it takes a `postmaster.pid` away that a
//! server left which was cut off, if the number in it is another program's by now, as forebay's.
//! Stopping and reloading stay `pg_ctlcluster`'s.

use super::{
    command::ExecLine,
    config_files::{self, assigned},
    name::UnitName,
    search::UnitRoot,
};
use crate::failure::Failure;
use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// The program that the unit of a cluster calls.
pub const CALLS: &str = "pg_ctlcluster";

/// A cluster.
#[derive(Debug)]
pub struct DebianCluster {
    /// Its files.
    pub data: PathBuf,
    /// The number of their owner.
    pub owner: u32,
    /// The line that starts the server.
    pub exec: ExecLine,
    /// The file of its output.
    pub log: PathBuf,
    /// Further lines that a unit needs, of `[Service]`.
    pub lines: Vec<String>,
}

impl DebianCluster {
    /// The one of a unit's name.
    ///
    /// # Errors
    /// [`Failure::Failed`]: there is none; it is disabled; it has options that only `pg_ctlcluster`
    /// passes on; its files or its server are not there.
    pub fn of(name: &UnitName, root: &UnitRoot) -> Result<Self, Failure> {
        let fail = |why: String| Failure::Failed(format!("{}: {why}", name.stem()));
        let (version, cluster) = (name.template())
            .and_then(|(_, instance)| instance.split_once('-'))
            .ok_or_else(|| {
                fail(
                    "no cluster, as postgresql@15-main is one; pg_lsclusters lists them".to_owned(),
                )
            })?;
        let settings = Path::new("/etc/postgresql").join(version).join(cluster);
        let read = |file: &str| {
            config_files::text_of(root, &settings.join(file))
                .map_err(|why| fail(format!("{why}; pg_lsclusters lists clusters")))
        };
        if read("postgresql.conf")?.is_none() {
            return Err(fail(format!(
                "there is no configuration {}; pg_lsclusters lists clusters",
                settings.join("postgresql.conf").display()
            )));
        }
        let starts = read("start.conf")?.unwrap_or_default();
        if starts.lines().any(|it| it.trim() == "disabled") {
            return Err(fail(format!(
                "the cluster is disabled in {}",
                settings.join("start.conf").display()
            )));
        }
        let options = read("pg_ctl.conf")?.and_then(|text| assigned(&text, "pg_ctl_options"));
        if let Some(options) = options.filter(|it| !it.is_empty()) {
            return Err(fail(format!(
                "{} has options of pg_ctl ({options}), which starts no server under forebay. Put their settings into postgresql.conf",
                settings.join("pg_ctl.conf").display()
            )));
        }
        let config = settings.join("postgresql.conf");
        let data = config_files::postgres(root, &config, "data_directory").map_err(|why| {
            fail(format!(
                "the directory of its files cannot be found: {why}. Make that readable for the user who runs this"
            ))
        })?;
        let data = data.map_or_else(
            || Path::new("/var/lib/postgresql").join(version).join(cluster),
            PathBuf::from,
        );
        let found = fs::metadata(root.followed(&data)).map_err(|e| {
            fail(format!(
                "its data directory {} cannot be looked at: {e}",
                data.display()
            ))
        })?;
        let program = format!("/usr/lib/postgresql/{version}/bin/postgres");
        let log = log_of(version, cluster, &settings, root);
        for path in [&data, &settings, &log] {
            super::drop_in::check_plain(path)?;
        }
        let words = format!(
            "{program} -D {} -c config_file={}",
            data.display(),
            config.display()
        );
        Ok(Self {
            owner: found.uid(),
            exec: ExecLine {
                prefixes: String::new(),
                starter: appending_to(&log),
                program,
                words,
            },
            lines: lines(&data, &settings),
            data,
            log,
        })
    }
}

/// The file of the server's standard output.
fn log_of(version: &str, cluster: &str, settings: &Path, root: &UnitRoot) -> PathBuf {
    let linked = fs::read_link(root.at(settings.join("log"))).ok();
    let usual = || {
        PathBuf::from(format!(
            "/var/log/postgresql/postgresql-{version}-{cluster}.log"
        ))
    };
    linked
        .filter(|path| path.is_absolute())
        .unwrap_or_else(usual)
}

/// A shell that becomes a command, whose output goes to the log. It opens that as the server's
/// user, as `pg_ctl` does. systemd would as root (`StandardOutput=append:`), which the kernel
/// refuses in a directory like Debian's `/var/log/postgresql` (`fs.protected_regular=2`).
fn appending_to(log: &Path) -> String {
    let log = log.display();
    format!("/bin/sh -c '[ -e {log} ] || (umask 027; : >>{log}); exec \"$$@\" >>{log} 2>&1' sh ")
}

fn lines(data: &Path, settings: &Path) -> Vec<String> {
    let data = data.display();
    // A single-user server has its number there with a minus. Of a number that no process has the
    // server finds out itself.
    let stale = "if [ -e \"$$p\" ] && read -r n <\"$$p\" && n=$${n#-} && [ -n \"$$n\" ] && c=$$(cat \"/proc/$$n/comm\" 2>/dev/null) && [ \"$$c\" != postgres ] && [ \"$$c\" != postmaster ]; then rm -f \"$$p\"; fi";
    vec![
        "# The server itself, as pg_ctlcluster starts it, and not in the background.".to_owned(),
        "Type=notify".to_owned(),
        format!("EnvironmentFile=-{}", settings.join("environment").display()),
        "Environment=PG_OOM_ADJUST_FILE=/proc/self/oom_score_adj".to_owned(),
        "# As pg_ctlcluster: the number that a server left which was cut off may be another process's by now.".to_owned(),
        format!("ExecStartPre=/bin/sh -c 'p={data}/postmaster.pid; {stale}'"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    /// Runs the line as systemd would; true if the file is there afterwards.
    fn stays(data: &Path, text: &str) -> bool {
        let file = data.join("postmaster.pid");
        fs::write(&file, text).unwrap();
        let lines = lines(data, Path::new("/etc/x"));
        let line = lines
            .iter()
            .find_map(|it| it.strip_prefix("ExecStartPre=/bin/sh -c '"));
        let script = line.unwrap().trim_end_matches('\'').replace("$$", "$");
        let done = Command::new("/bin/sh")
            .arg("-c")
            .arg(script)
            .status()
            .unwrap();
        assert!(done.success());
        file.exists()
    }

    #[test]
    fn all_that_is_said_is_appended_to_the_log() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let starter = appending_to(&log).replace("$$", "$");
        for said in ["a b", "c"] {
            let line = format!("exec {starter}sh -c 'echo \"$0\"; echo $$ >&2' '{said}'");
            let mut shell = Command::new("/bin/sh");
            let shell = shell.args(["-c", &line]).stdout(Stdio::piped());
            let shell = shell.stderr(Stdio::piped()).spawn().unwrap();
            let number = shell.id();
            let done = shell.wait_with_output().unwrap();
            assert!(done.status.success() && done.stdout.is_empty());
            // Who is started is who was: systemd waits for that one's word.
            let text = fs::read_to_string(&log).unwrap();
            assert!(text.ends_with(&format!("{said}\n{number}\n")), "{text}");
        }
        assert!(fs::read_to_string(&log).unwrap().starts_with("a b\n"));
        assert_eq!(fs::metadata(&log).unwrap().mode() & 0o777, 0o640);
    }

    #[test]
    fn a_living_server_s_pid_file_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("postgres");
        std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
        let mut server = Command::new(&program)
            .arg("60")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        // Its name is the program's once that is executed.
        let comm = format!("/proc/{}/comm", server.id());
        while fs::read_to_string(&comm).unwrap().trim() != "postgres" {}
        for (text, is_there) in [
            (format!("{}\n/data\n", server.id()), true),
            (format!("-{}\n/data\n", server.id()), true),
            (format!("{}\n/data\n", std::process::id()), false),
            ("4194999\n/data\n".to_owned(), true),
            ("\n".to_owned(), true),
        ] {
            assert_eq!(stays(dir.path(), &text), is_there, "{text:?}");
        }
        server.kill().unwrap();
        server.wait().unwrap();
    }
}
