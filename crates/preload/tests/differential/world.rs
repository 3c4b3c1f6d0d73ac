//! The worker's state: descriptors, names, the random numbers that choose, and the transcript.

use crate::libraries::Libraries;
use forebay_random::Rng;
use libc::{c_int, c_uint, c_void};
use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{CStr, CString},
    fmt::Write as _,
};

/// What errno is before each call, so that the transcript shows who changes it without need.
pub const UNTOUCHED: c_int = 77;

/// An address where there is no memory.
pub const NOWHERE: usize = 8;

/// Set where absorbed files have other numbers than plain ones: below an agent. Numbers are not
/// shown then, and nothing is done by a number that was not got for it.
pub const NO_NUMBERS: &str = "FOREBAY_TEST_NO_NUMBERS";

/// A result that is a descriptor: its number depends on what other threads do.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Fd(pub c_int);

/// How a result looks in the transcript.
pub trait Shown {
    fn shown(&self, world: &World) -> String;
}

impl Shown for c_int {
    fn shown(&self, _: &World) -> String {
        self.to_string()
    }
}

impl Shown for isize {
    fn shown(&self, _: &World) -> String {
        self.to_string()
    }
}

impl Shown for i64 {
    fn shown(&self, _: &World) -> String {
        self.to_string()
    }
}

impl Shown for () {
    fn shown(&self, _: &World) -> String {
        String::new()
    }
}

impl Shown for Fd {
    fn shown(&self, world: &World) -> String {
        if world.is_thread() && self.0 >= 0 {
            "a descriptor".to_owned()
        } else {
            self.0.to_string()
        }
    }
}

impl<T> Shown for *mut T {
    fn shown(&self, _: &World) -> String {
        match self.addr() {
            0 => "null",
            usize::MAX => "MAP_FAILED",
            _ => "a pointer",
        }
        .to_owned()
    }
}

/// Calls a C function by its name and notes what came of it. Variadic functions of integers and
/// pointers are called as the others: the ABIs of x86-64 and aarch64 Linux allow it.
macro_rules! call {
    ($world:expr, $name:expr, $about:expr, ($($argument:expr => $type:ty),* $(,)?) -> $result:ty) => {{
        let name: &'static str = $name;
        let function: unsafe extern "C" fn($($type),*) -> $result =
            unsafe { std::mem::transmute($world.find(name)) };
        $crate::world::set_errno($crate::world::UNTOUCHED);
        let result = unsafe { function($($argument),*) };
        let errno = $crate::world::errno();
        $world.note(name, &$about, &result, errno);
        result
    }};
}
pub(crate) use call;

pub fn errno() -> c_int {
    unsafe { *libc::__errno_location() }
}

pub fn set_errno(number: c_int) {
    unsafe { *libc::__errno_location() = number }
}

/// Where the client has descriptors of its own.
pub const OWN: std::ops::Range<c_int> = 400..404;

pub struct World {
    pub rng: Rng,
    /// Descriptors, some of them closed or never opened.
    pub slots: Vec<c_int>,
    names: Vec<&'static str>,
    /// Before each name.
    prefix: String,
    /// One of several threads: its descriptors' numbers are not its own.
    pub is_beside_others: bool,
    /// [`NO_NUMBERS`]
    pub has_no_numbers: bool,
    /// Descriptors get numbers that the world chooses, are sent, and are copied from and to by the
    /// kernel. An agent may refuse that to a log with `O_DSYNC` (`EOPNOTSUPP`), so below an agent a
    /// world has this or such logs: one with an odd seed these.
    pub hands_over: bool,
    /// In a forked child.
    pub is_child: bool,
    /// Every function was called under each of its names.
    pub is_complete: bool,
    /// The C library's threads have other descriptors: `CLOSE_RANGE_UNSHARE` was used.
    pub is_unshared: bool,
    pub transcript: String,
    pub called: BTreeSet<&'static str>,
    /// How often each list of names was asked for. Two lists may begin with the same name: with one
    /// count for both, one of them would get only every other turn.
    turns: BTreeMap<&'static [&'static str], usize>,
    pub libraries: Libraries,
}

impl World {
    pub fn new(seed: u64) -> Self {
        std::fs::create_dir("sub").unwrap();
        std::os::unix::fs::symlink("a.log", "link.log").unwrap();
        let has_no_numbers = std::env::var_os(NO_NUMBERS).is_some();
        let mut world = Self {
            rng: Rng(seed),
            slots: vec![-1; 8],
            names: vec![
                "a.log",
                "b.log",
                "c.aof",
                "d.dat",
                "e.log",
                "sub/f.log",
                "link.log",
                "./a.log",
            ],
            prefix: String::new(),
            is_beside_others: false,
            has_no_numbers,
            hands_over: !has_no_numbers || seed.is_multiple_of(2),
            is_child: false,
            is_complete: false,
            is_unshared: false,
            transcript: String::new(),
            called: BTreeSet::new(),
            turns: BTreeMap::new(),
            libraries: Libraries::load(),
        };
        world.note_inherited();
        world
    }

    /// Descriptors that are open from the start would be one more difference to a plain run.
    fn note_inherited(&mut self) {
        let is_open = |fd: &c_int| unsafe { libc::fcntl(*fd, libc::F_GETFD) } >= 0;
        let inherited: Vec<c_int> = (0..1024).filter(is_open).collect();
        self.say(&format!("inherited {inherited:?}"));
    }

    /// A thread's world, with files of its own.
    pub fn for_thread(&mut self, n: u64) -> Self {
        Self {
            rng: Rng(self.rng.next()),
            slots: vec![-1; 5],
            names: vec!["a.log", "b.log", "c.aof", "d.dat"],
            prefix: format!("thread{n}-"),
            is_beside_others: true,
            has_no_numbers: self.has_no_numbers,
            hands_over: self.hands_over,
            is_child: false,
            is_complete: false,
            is_unshared: self.is_unshared,
            transcript: String::new(),
            called: BTreeSet::new(),
            turns: BTreeMap::new(),
            libraries: self.libraries,
        }
    }

    /// Closes what threads left open, so that numbers of descriptors can be compared again.
    pub fn forget_threads(&mut self) {
        self.is_beside_others = false;
        self.close_all();
    }

    /// Closes all descriptors but the first three.
    pub fn close_all(&mut self) {
        call!(self, "close_range", "all", (3 => c_uint, c_uint::MAX => c_uint, 0 => c_int) -> c_int);
        if self.is_thread() {
            self.slots.fill(-1);
        }
    }

    /// True if no number of a descriptor is to be shown, or used for another.
    pub fn is_thread(&self) -> bool {
        self.is_beside_others || self.has_no_numbers
    }

    /// Closes and unlinks everything: a file that was made plain stays so.
    pub fn remove_all(&mut self) {
        for slot in &mut self.slots {
            unsafe { libc::close(*slot) };
            *slot = -1;
        }
        for name in &self.names {
            let name = CString::new(*name).unwrap();
            unsafe { libc::unlink(name.as_ptr()) };
        }
    }

    /// The address of a function as a program would bind it.
    pub fn find(&mut self, name: &'static str) -> *mut c_void {
        let address = self.libraries.find(name);
        assert!(!address.is_null(), "no {name}");
        self.called.insert(name);
        address
    }

    /// One of a function's names, each in its turn.
    pub fn spelling(&mut self, names: &'static [&'static str]) -> &'static str {
        let turn = self.turns.entry(names).or_default();
        *turn += 1;
        names[(*turn - 1) % names.len()]
    }

    pub fn note(&mut self, name: &str, about: &str, result: &impl Shown, errno: c_int) {
        let result = result.shown(self);
        let child = if self.is_child { "child " } else { "" };
        let errno = match errno {
            UNTOUCHED => String::new(),
            // It tries to unlink a directory first.
            libc::EISDIR if name == "remove" => String::new(),
            errno => format!(" errno {errno}"),
        };
        writeln!(self.transcript, "{child}{name}({about}) = {result}{errno}").unwrap();
    }

    /// Notes where the descriptor is and how long its file is.
    pub fn note_state(&mut self, fd: c_int) {
        if let Some(size) = size(fd) {
            let position = unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) };
            writeln!(self.transcript, "  position {position} size {size}").unwrap();
        }
    }

    pub fn say(&mut self, what: &str) {
        writeln!(self.transcript, "  {what}").unwrap();
    }

    fn slot(&mut self) -> c_int {
        let fd = self.slots[self.rng.below(self.slots.len() as u64) as usize];
        // The client may have taken a number that was closed.
        let is_the_clients = OWN.contains(&fd) && !is_of_the_test(fd);
        if is_the_clients { -1 } else { fd }
    }

    /// Flags that a file is not opened with, as [`hands_over`](Self::hands_over) says.
    pub fn refused_flags(&self) -> c_int {
        match self.has_no_numbers && self.hands_over {
            true => libc::O_SYNC,
            false => 0,
        }
    }

    /// The first choice of a buffer that is made. Those before it point to no memory. An agent
    /// finds that out before the kernel has looked at the offset, or has made the file longer.
    pub fn least_wrong(&self) -> u64 {
        if self.has_no_numbers { 4 } else { 0 }
    }

    /// A descriptor, now and then one that is no descriptor.
    pub fn fd(&mut self) -> c_int {
        if !self.is_thread() && self.rng.chance(16) {
            return self.rng.one_of(&[-1, 9999, 40, c_int::MAX]);
        }
        let mut fd = self.slot();
        // Closed ones are of interest, but not most of the time.
        if size(fd).is_none() {
            fd = self.slot();
        }
        fd
    }

    /// How a descriptor looks in the transcript.
    pub fn show(&self, fd: c_int) -> String {
        Fd(fd).shown(self)
    }

    pub fn keep(&mut self, fd: c_int) {
        let at = self.rng.below(self.slots.len() as u64) as usize;
        if fd < 0 {
            return;
        }
        if self.is_thread() || self.rng.chance(2) {
            // Otherwise the old one stays open, as a leak.
            let old = self.slots[at];
            if old >= 0 && old != fd {
                unsafe { libc::close(old) };
                if self.is_thread() {
                    self.forget(old);
                }
            }
        }
        self.slots[at] = fd;
    }

    /// The number of a descriptor that was closed is any thread's now.
    pub fn forget(&mut self, fd: c_int) {
        for slot in &mut self.slots {
            if *slot == fd {
                *slot = -1;
            }
        }
    }

    /// A path, now and then one that cannot be opened.
    pub fn path(&mut self) -> CString {
        let path = if self.rng.chance(20) {
            match self.rng.below(4) {
                0 => String::new(),
                1 => "none/a.log".to_owned(),
                // Only one who is alone may move it.
                2 if self.is_beside_others => ".".to_owned(),
                2 => "sub".to_owned(),
                _ => "long".repeat(1500),
            }
        } else {
            format!("{}{}", self.prefix, self.rng.one_of(&self.names.clone()))
        };
        CString::new(path).unwrap()
    }

    /// `path`, or now and then a pointer to nothing.
    pub fn pointer(&mut self, path: &CStr) -> *const libc::c_char {
        if self.rng.chance(40) {
            self.rng.one_of(&[std::ptr::null(), NOWHERE as *const _])
        } else {
            path.as_ptr()
        }
    }

    pub fn bytes(&mut self) -> Vec<u8> {
        let length = match self.rng.below(10) {
            0 => 0,
            1 => self.rng.below(20_000),
            2 => 4096,
            _ => self.rng.below(300),
        };
        let seed = self.rng.next();
        let mut rng = Rng(seed);
        (0..length).map(|_| rng.next() as u8).collect()
    }

    /// An offset in or a little after a file, now and then an impossible one.
    pub fn offset(&mut self) -> i64 {
        match self.rng.below(16) {
            0 => self.rng.one_of(&[-1, -2, i64::MIN, i64::MAX]),
            1 => self.rng.below(200_000).cast_signed(),
            _ => self.rng.below(6000).cast_signed(),
        }
    }
}

/// True if a descriptor is open, and leads to the directory that the test works in: none of the
/// client's does.
fn is_of_the_test(fd: c_int) -> bool {
    let (Ok(to), Ok(here)) = (
        std::fs::read_link(format!("/proc/thread-self/fd/{fd}")),
        std::env::current_dir(),
    ) else {
        return false;
    };
    to.starts_with(here)
}

/// The size of a regular file, or `None`.
pub fn size(fd: c_int) -> Option<i64> {
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    let found = unsafe { libc::fstat(fd, &raw mut stat) };
    (found == 0 && stat.st_mode & libc::S_IFMT == libc::S_IFREG).then_some(stat.st_size)
}

/// A short name of some bytes.
pub fn hash(bytes: &[u8]) -> String {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{} bytes {hash:016x}", bytes.len())
}
