//! A system on which systemd seems to run: `/run` and `/etc/systemd` are the test's, and what plays
//! `systemctl` notes what it is told, and starts and ends the one unit `db`.

use super::{FOREBAY, Ran, Sandbox};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs::{self, Permissions},
    io::Write,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Command, Stdio},
};

/// Plays systemd. Commands in `told.fails` fail, in the order in which they stand there.
const SYSTEMCTL: &str = r#"#!/bin/sh
u=/etc/systemd/system/db.service
d=$u.d/zz-forebay.conf
[ -e $d ] || d=
lives() { [ -e "$TOLD.pid" ] && grep -q '^State:.[^ZX]' "/proc/$(cat "$TOLD.pid")/status" 2>/dev/null; }
begin() {
    mkdir -p /run/forebay-db
    line=$(cat $u $d | sed -n 's/^ExecStart=\(..*\)/\1/p' | tail -n 1)
    cd "$(dirname "$TOLD")" || exit 1
    FOREBAY_RUN_DIR=/run/forebay-db setsid sh -c "exec $line" >"$TOLD.log" 2>&1 </dev/null &
    echo $! >"$TOLD.pid"
}
end() {
    lives && kill "$(cat "$TOLD.pid")"
    while lives; do sleep 0.02; done
}
case "$*" in
*ActiveState*) if lives; then echo active; else echo inactive; fi ;;
show*) printf 'Id=db.service\nLoadState=loaded\nFragmentPath=%s\nDropInPaths=%s\n' "$u" "$d" ;;
*) echo "$*" >>"$TOLD"
    if [ -e "$TOLD.fails" ] && [ "$(head -n 1 "$TOLD.fails")" = "$1" ]; then
        sed -i 1d "$TOLD.fails"
        exit 1
    fi
    case $1 in
    stop) end ;;
    start) begin ;;
    restart) end && begin ;;
    esac ;;
esac
"#;

/// The system.
pub struct LiveSystem {
    pub sandbox: Sandbox,
}

impl LiveSystem {
    /// One whose unit `db` starts so.
    pub fn new(exec_start: &str) -> Self {
        let sandbox = Sandbox::on_disk();
        let system = Self { sandbox };
        for directory in ["etc-systemd/system", "run/systemd/system", "data", "bin"] {
            fs::create_dir_all(system.file(directory)).unwrap();
        }
        system.write_unit(exec_start);
        fs::write(system.file("bin/systemctl"), SYSTEMCTL).unwrap();
        fs::set_permissions(system.file("bin/systemctl"), Permissions::from_mode(0o755)).unwrap();
        system
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.sandbox.file(name)
    }

    pub fn write_unit(&self, exec_start: &str) {
        let unit = format!("[Service]\nExecStart={exec_start}\n");
        fs::write(self.file("etc-systemd/system/db.service"), unit).unwrap();
    }

    pub fn drop_in(&self) -> PathBuf {
        self.file("etc-systemd/system/db.service.d/zz-forebay.conf")
    }

    /// What was told to systemd since.
    pub fn told(&self) -> String {
        let told = fs::read_to_string(self.file("told")).unwrap_or_default();
        drop(fs::remove_file(self.file("told")));
        told
    }

    /// These commands fail from now on, one after the other.
    pub fn fail(&self, commands: &str) {
        fs::write(self.file("told.fails"), commands).unwrap();
    }

    /// The line that enables the unit.
    pub fn enable(&self) -> String {
        format!(
            "enable db --profile redis --data {} --pool {} --size 32MiB",
            self.file("data").display(),
            self.file("db.pool").display()
        )
    }

    /// Runs a line of forebay there.
    pub fn run(&self, line: &str) -> Ran {
        let mut command = self.command();
        command.arg(FOREBAY).args(line.split(' '));
        Ran::of(command.stdin(Stdio::null()).output().unwrap())
    }

    /// Runs a line of forebay there, on a terminal, at which this is typed.
    pub fn run_on_terminal(&self, line: &str, typed: &str) -> Ran {
        let mut command = self.command();
        command.args(["/usr/bin/script", "-qec"]);
        command.arg(format!("{FOREBAY} {line}")).arg("/dev/null");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut running = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut keys = running.stdin.take().unwrap();
        keys.write_all(typed.as_bytes()).unwrap();
        let ran = Ran::of(running.wait_with_output().unwrap());
        drop(keys);
        ran
    }

    /// What runs the words that come after it there.
    fn command(&self) -> Command {
        let script = r#"set -e
mount --bind "$1/run" /run
mkdir -p /etc/systemd
mount --bind "$1/etc-systemd" /etc/systemd
PATH=$1/bin:$PATH
shift
exec "$@""#;
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script, "sh"]);
        command.arg(self.sandbox.path());
        command.env("TOLD", self.file("told"));
        command
    }
}

impl Drop for LiveSystem {
    fn drop(&mut self) {
        let process = fs::read_to_string(self.file("told.pid")).unwrap_or_default();
        let process = process.trim().parse().ok().and_then(Pid::from_raw);
        let of_test = process.filter(|pid| {
            let line =
                fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).unwrap_or_default();
            let ours = self.file("told").into_os_string().into_encoded_bytes();
            line.windows(ours.len()).any(|it| it == ours)
        });
        if let Some(process) = of_test {
            let _ = kill_process(process, Signal::TERM);
        }
    }
}
