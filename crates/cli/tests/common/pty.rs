//! A program on a terminal of its own: what is on the screen, and how it leaves the terminal.

use super::databases::PATIENCE;
use rustix::{
    fs::{Mode, OFlags, open},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Termios, Winsize, tcgetattr, tcsetwinsize},
};
use std::{
    fs::File,
    io::{Read, Write},
    os::fd::OwnedFd,
    process::{Child, Command, ExitStatus},
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use vt100::{Parser, Screen};

/// What came out of the terminal.
struct TerminalOutput {
    parser: Parser,
    bytes: Vec<u8>,
}

/// A terminal, and the program on it. It is killed when this is dropped.
pub struct PtyScreen {
    child: Child,
    master: File,
    /// So that the terminal outlives the program.
    slave: Option<OwnedFd>,
    before: Termios,
    output: Arc<Mutex<TerminalOutput>>,
    reader: Option<JoinHandle<()>>,
}

impl PtyScreen {
    /// Starts it on a terminal of so many rows and columns, as what leads the terminal's session.
    pub fn start(command: &Command, rows: u16, columns: u16) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC);
        let master = master.unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let slave = open(ptsname(&master, Vec::new()).unwrap(), flags, Mode::empty()).unwrap();
        tcsetwinsize(&master, size(rows, columns)).unwrap();
        let before = tcgetattr(&slave).unwrap();
        let its = || slave.try_clone().unwrap();
        // What began the tests in the background may have it ignore a key's signals, as no terminal
        // does. It does not fork, since it leads no process group.
        let mut leader = Command::new("env");
        leader
            .args(["--default-signal", "setsid", "--ctty"])
            .arg(command.get_program())
            .args(command.get_args())
            .current_dir(command.get_current_dir().unwrap())
            .stdin(its())
            .stdout(its())
            .stderr(its());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => leader.env(name, value),
                None => leader.env_remove(name),
            };
        }
        let child = leader.spawn().unwrap();
        let output = Arc::new(Mutex::new(TerminalOutput {
            parser: Parser::new(rows, columns, 0),
            bytes: Vec::new(),
        }));
        let master = File::from(master);
        let reader = read(master.try_clone().unwrap(), Arc::clone(&output));
        Self {
            child,
            master,
            slave: Some(slave),
            before,
            output,
            reader: Some(reader),
        }
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    /// What is on the screen.
    pub fn text(&self) -> String {
        self.look(Screen::contents)
    }

    /// What `look` finds on it.
    pub fn look<T>(&self, look: impl FnOnce(&Screen) -> T) -> T {
        look(self.output.lock().unwrap().parser.screen())
    }

    /// All that was written to it.
    pub fn bytes(&self) -> Vec<u8> {
        self.output.lock().unwrap().bytes.clone()
    }

    /// Waits until the screen is so.
    #[track_caller]
    pub fn until(&self, what: &str, is_so: impl Fn(&str) -> bool) {
        let begun = Instant::now();
        while !is_so(&self.text()) {
            let waited = begun.elapsed();
            assert!(waited < PATIENCE, "never {what}:\n{}", self.text());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Presses keys.
    pub fn press(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    /// Gives the window another size.
    pub fn resize(&self, rows: u16, columns: u16) {
        let mut output = self.output.lock().unwrap();
        output.parser.screen_mut().set_size(rows, columns);
        tcsetwinsize(&self.master, size(rows, columns)).unwrap();
    }

    /// True if the terminal is as it was before the program.
    pub fn is_given_back(&self) -> bool {
        let now = tcgetattr(self.slave.as_ref().unwrap()).unwrap();
        let before = &self.before;
        let is_same = now.local_modes == before.local_modes
            && now.input_modes == before.input_modes
            && now.output_modes == before.output_modes;
        is_same && self.look(|screen| !screen.alternate_screen() && !screen.hide_cursor())
    }

    /// The same once all that was written to it has come.
    #[track_caller]
    pub fn is_given_back_soon(&self) {
        let begun = Instant::now();
        while !self.is_given_back() {
            let waited = begun.elapsed();
            assert!(waited < PATIENCE, "never given back:\n{}", self.text());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits for its end.
    #[track_caller]
    pub fn ended(&mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            let waited = begun.elapsed();
            assert!(waited < PATIENCE, "it goes on:\n{}", self.text());
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for PtyScreen {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // Without anybody who could write, the reader ends.
        self.slave = None;
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

fn size(rows: u16, columns: u16) -> Winsize {
    Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

fn read(mut master: File, output: Arc<Mutex<TerminalOutput>>) -> JoinHandle<()> {
    thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count) = master.read(&mut bytes) {
            if count == 0 {
                return;
            }
            let mut output = output.lock().unwrap();
            output.parser.process(&bytes[..count]);
            output.bytes.extend_from_slice(&bytes[..count]);
        }
    })
}
