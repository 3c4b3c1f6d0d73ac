//! `forebay top` on a terminal: what it shows of runs that work, end, lose their supervisor or do
//! not answer; and how it leaves the terminal.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    DURABLE_REDIS, Ran, Sandbox, children,
    databases::{PATIENCE, ProcessGroup},
    pty::PtyScreen,
    skip,
};
use forebay_bench::redis::{
    resp::is_ok,
    server::{Kind, Launch, Server},
};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    ffi::OsString,
    os::unix::process::ExitStatusExt,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

const ROWS: u16 = 24;
const COLUMNS: u16 = 80;

/// Writes to a log of this name, some 100 times a second, each write synced.
const WRITER: &str = r#"
import os, sys, time
fd = os.open(sys.argv[1] + ".log", os.O_WRONLY | os.O_CREAT, 0o600)
open(sys.argv[1] + ".ready", "w").close()
while True:
    os.write(fd, b"x" * 100)
    os.fdatasync(fd)
    time.sleep(0.01)
"#;

/// Runs of a run directory, and a pool.
struct World(Sandbox);

impl World {
    fn new() -> Self {
        let sandbox = Sandbox::new();
        sandbox.pool();
        Self(sandbox)
    }

    fn environment(&self) -> (OsString, OsString) {
        ("FOREBAY_RUN_DIR".into(), self.0.file("run").into())
    }

    fn forebay(&self, line: &str) -> Command {
        let mut command = self.0.command(line);
        command
            .envs([self.environment()])
            .envs([("LC_ALL", "C.UTF-8"), ("TERM", "xterm-256color")])
            .env_remove("NO_COLOR")
            .env_remove("COLUMNS");
        command
    }

    /// A run that writes, once it has begun to.
    fn writer(&self, name: &str) -> ProcessGroup {
        let mut command = self.forebay("run --pool p --absorb *.log -- python3 -c");
        let command = command.args([WRITER, name]).stderr(Stdio::null());
        let group = ProcessGroup::start(command);
        let begun = Instant::now();
        while !self.0.file(&format!("{name}.ready")).exists() {
            assert!(begun.elapsed() < PATIENCE, "{name} does not begin");
            thread::sleep(Duration::from_millis(20));
        }
        group
    }

    fn top(&self, options: &str) -> PtyScreen {
        PtyScreen::start(&self.forebay(&format!("top {options}")), ROWS, COLUMNS)
    }
}

fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// The words of the line of the list that has this process id.
fn row_of(text: &str, pid: i32) -> Option<Vec<String>> {
    let pid = pid.to_string();
    let rows = text.lines().map(|line| {
        let words = line.split_whitespace().map(str::to_owned);
        words.collect::<Vec<_>>()
    });
    let mut rows = rows.filter(|words| words.get(1) == Some(&pid));
    rows.next()
}

/// What its line says in the column of this head.
fn figure_of(text: &str, pid: i32, head: &str) -> Option<f64> {
    let heads = text.lines().find(|line| line.starts_with("PROGRAM"))?;
    let at = heads.split_whitespace().position(|it| it == head)?;
    row_of(text, pid)?.get(at)?.parse().ok()
}

fn is_in_state(text: &str, pid: i32, word: &str) -> bool {
    let row = row_of(text, pid);
    row.is_some_and(|row| row.iter().any(|it| it.trim_end_matches(':') == word))
}

/// No line of the screen goes on in the next one.
#[track_caller]
fn wraps_nothing(screen: &PtyScreen) {
    let wrapped = screen.look(|it| (0..it.size().0).any(|row| it.row_wrapped(row)));
    assert!(!wrapped, "{}", screen.text());
}

/// A Redis under forebay that is asked for some 200 synced writes a second, and what is so.
fn redis_is_watched(server: &Server, watch: impl FnOnce(&AtomicU64)) {
    let (done, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut connection = server.connect().unwrap();
            while !done.load(Relaxed) {
                let reply = connection.command(&[b"SET", b"key", b"value"]).unwrap();
                assert!(is_ok(&reply));
                acknowledged.fetch_add(1, Relaxed);
                thread::sleep(Duration::from_millis(5));
            }
        });
        let watched =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| watch(&acknowledged)));
        done.store(true, Relaxed);
        if let Err(why) = watched {
            std::panic::resume_unwind(why);
        }
    });
}

/// Promise (programs): `forebay top` shows an unmodified Redis with the rate of its syncs.
#[test]
fn redis_is_on_the_screen_with_its_rate() {
    let program = match Kind::Redis.program() {
        Ok(program) => program,
        Err(missing) => return skip(&missing),
    };
    let world = World::new();
    let server = Server::start(&Launch {
        wrapper: common::databases::forebay_run(&world.0.file("p")),
        environment: vec![world.environment()],
        options: DURABLE_REDIS.map(str::to_owned).to_vec(),
        ..Launch::of(program, &world.0.file("data"))
    })
    .unwrap();
    let status = Ran::of(world.forebay("status --json").output().unwrap());
    let supervisor = status.ok().json()[0]["pid"].as_i64().unwrap();
    let supervisor = i32::try_from(supervisor).unwrap();
    redis_is_watched(&server, |acknowledged| {
        let mut screen = world.top("");
        // The only run is shown with its files.
        screen.until("its file", |text| {
            text.contains("appendonly.aof") && text.contains("syncs saved/s")
        });
        let is_rated =
            |text: &str| figure_of(text, supervisor, "SYNC/S").is_some_and(|it| it > 0.0);
        screen.until("a rate", is_rated);
        // An interval in which the machine was busy with something else may say otherwise.
        let asked = Instant::now();
        loop {
            let (begun, before) = (Instant::now(), acknowledged.load(Relaxed));
            thread::sleep(Duration::from_secs(2));
            let shown = figure_of(&screen.text(), supervisor, "SYNC/S").unwrap_or(-1.0);
            let rate = (acknowledged.load(Relaxed) - before) as f64 / begun.elapsed().as_secs_f64();
            if (rate / 2.0..rate * 2.0).contains(&shown) {
                break;
            }
            let text = screen.text();
            assert!(
                asked.elapsed() < PATIENCE,
                "{rate} acknowledged a second:\n{text}"
            );
        }
        screen.press("\x1b");
        screen.until("the list", |text| text.starts_with("forebay top  1 run of"));
        let text = screen.text();
        assert!(text.contains("redis-server"), "{text}");
        assert!(is_in_state(&text, supervisor, "absorbs"), "{text}");
        wraps_nothing(&screen);
        let heads = ["BY", "FILES", "MB/S", "P50", "P99", "LAG", "AGE", "WAIT/S"];
        assert!(heads.iter().all(|head| text.contains(head)), "{text}");
        screen.resize(10, 40);
        screen.until("fewer columns", |text| !text.contains("WAIT/S"));
        screen.until("its line", |text| is_in_state(text, supervisor, "absorbs"));
        wraps_nothing(&screen);
        screen.resize(40, 160);
        screen.until("the pool", |text| text.contains("POOL"));
        screen.press("++s");
        screen.until("other figures", |text| text.contains("every 5 s, by MB/S"));
        screen.press("q");
        assert!(screen.ended().success());
        screen.is_given_back_soon();
    });
}

#[test]
fn runs_that_begin_end_and_lose_forebay_are_seen_to() {
    let world = World::new();
    let (ends, mut stays) = (world.writer("ends"), world.writer("stays"));
    let mut screen = world.top("-d 0.3");
    let is_rated = |text: &str, run: &ProcessGroup| {
        figure_of(text, run.pid(), "SYNC/S").is_some_and(|it| it > 0.0)
    };
    screen.until("both", |text| {
        is_rated(text, &ends) && is_rated(text, &stays)
    });
    let first = ends.pid();
    signal(children(first)[0], Signal::KILL);
    screen.until("its end", |text| is_in_state(text, first, "ended"));
    let begins = world.writer("begins");
    screen.until("a new one", |text| is_rated(text, &begins));
    let program = children(stays.pid())[0];
    signal(stays.pid(), Signal::KILL);
    stays.outlast();
    screen.until("it without forebay", |text| {
        is_in_state(text, program, "ORPHANED") && text.contains("1 not well")
    });
    let red = screen.look(|screen| {
        let row = screen.contents();
        let row = row.lines().position(|line| line.contains("ORPHANED"));
        let cell = screen.cell(u16::try_from(row.unwrap()).unwrap(), 0);
        cell.unwrap().fgcolor()
    });
    assert_eq!(red, vt100::Color::Idx(1));
    // The first line is that of what is not well.
    screen.press("j\r");
    screen.until("the reason", |text| {
        text.contains("WITHOUT FOREBAY") && !text.contains("PROGRAM")
    });
    screen.press("\x1b");
    screen.until("the list", |text| is_rated(text, &begins));
    screen.press("\x03");
    assert!(screen.ended().success());
    screen.is_given_back_soon();
}

#[test]
fn stopped_supervisor_holds_up_neither_keys_nor_others() {
    let world = World::new();
    let (stopped, goes_on) = (world.writer("stopped"), world.writer("goes_on"));
    let mut command = world.forebay("top -d 0.3");
    command.env("LC_ALL", "C").env("NO_COLOR", "1");
    let mut screen = PtyScreen::start(&command, ROWS, COLUMNS);
    screen.until("both", |text| {
        let rate = |run: &ProcessGroup| figure_of(text, run.pid(), "SYNC/S");
        rate(&stopped).is_some_and(|it| it > 0.0) && rate(&goes_on).is_some_and(|it| it > 0.0)
    });
    let redraw = |screen: &mut PtyScreen| {
        let pressed = Instant::now();
        for _ in 0..10 {
            screen.press("?");
            screen.until("help", |text| text.contains("Any key goes back"));
            screen.press("x");
            screen.until("the list", |text| text.contains("PROGRAM"));
        }
        pressed.elapsed()
    };
    let before = redraw(&mut screen);
    signal(stopped.pid(), Signal::STOP);
    screen.until("silence", |text| is_in_state(text, stopped.pid(), "SILENT"));
    let text = screen.text();
    let words: Vec<&str> = text.split_whitespace().collect();
    assert!(words.join(" ").contains("kill -CONT"), "{text}");
    // A look waits a second for the answer, so twenty keys behind looks would take that many.
    let took = redraw(&mut screen);
    let limit = Duration::from_secs(8) + before * 2;
    assert!(took < limit, "{took:?}, before {before:?}");
    // What goes on is looked at again and again.
    let lines = || {
        screen.look(|it| {
            it.contents()
                .lines()
                .find(|it| it.contains("absorbs"))
                .map(str::to_owned)
        })
    };
    let before = lines();
    screen.until("other figures", |text| {
        figure_of(text, goes_on.pid(), "SYNC/S").is_some_and(|it| it > 0.0) && lines() != before
    });
    signal(stopped.pid(), Signal::CONT);
    screen.until("an answer", |text| {
        is_in_state(text, stopped.pid(), "absorbs")
    });
    assert!(screen.text().is_ascii(), "{}", screen.text());
    let bytes = String::from_utf8_lossy(&screen.bytes()).into_owned();
    assert!(!bytes.contains("\x1b[38;"), "{bytes:?}");
    screen.press("q");
    assert!(screen.ended().success());
}

#[test]
fn signals_give_the_terminal_back() {
    let world = World::new();
    for number in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut screen = world.top("");
        screen.until("a screen", |text| {
            text.contains("nothing runs under forebay")
        });
        assert!(!screen.is_given_back());
        signal(screen.pid(), number);
        assert_eq!(screen.ended().signal(), Some(number.as_raw()));
        screen.is_given_back_soon();
    }
}

#[test]
fn stopped_screen_is_given_back_and_taken_again() {
    let world = World::new();
    // A shell that has jobs, as people's have.
    let top = world.forebay("top");
    let mut shell = Command::new("bash");
    let script = "set -m; \"$0\" top; echo it stopped; read line; fg; echo status $?";
    shell.args(["-c", script, common::FOREBAY]);
    shell.current_dir(world.0.path());
    for (name, value) in top.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    let mut screen = PtyScreen::start(&shell, ROWS, COLUMNS);
    screen.until("a screen", |text| {
        text.contains("nothing runs under forebay")
    });
    screen.press("\x1a");
    screen.until("the shell", |text| text.contains("it stopped"));
    screen.is_given_back_soon();
    screen.press("\n");
    screen.until("a screen", |text| {
        text.contains("nothing runs under forebay")
    });
    screen.press("q");
    screen.until("its end", |text| text.contains("status 0"));
    screen.ended();
    screen.is_given_back_soon();
}

#[test]
fn one_frame_is_text_and_a_pipe_is_no_screen() {
    let world = World::new();
    let run = world.writer("a");
    let refused = Ran::of(world.forebay("top").output().unwrap());
    refused.fails(2, &["no terminal", "top --once", "status --watch"]);
    // A machine that is busy with something else may leave the writer no time in an interval.
    let asked = Instant::now();
    let text = loop {
        let said = Ran::of(world.forebay("top --once").output().unwrap());
        let text = said.ok().text();
        let rate = figure_of(&text, run.pid(), "SYNC/S").unwrap_or(-1.0);
        if (1.0..=110.0).contains(&rate) {
            break text;
        }
        assert!(asked.elapsed() < PATIENCE, "{text}");
    };
    assert!(!text.contains('\x1b'), "{text}");
    assert!(text.contains("POOL"), "{text}");
    let mut narrow = world.forebay("top --once -d 0.2");
    let text = Ran::of(narrow.env("COLUMNS", "40").output().unwrap())
        .ok()
        .text();
    let heads = text
        .lines()
        .find(|line| line.starts_with("PROGRAM"))
        .unwrap();
    assert!(
        heads.contains("SYNC/S") && heads.contains("STATE"),
        "{text}"
    );
    assert!(!heads.contains("WAIT/S"), "{text}");
    assert!(
        text.lines().all(|line| line.chars().count() <= 40),
        "{text}"
    );
    let said = Ran::of(world.forebay("top --interval 0").output().unwrap());
    said.fails(2, &["0.1 to 3600"]);
}
