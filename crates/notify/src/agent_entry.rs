//! `forebay notify-enter PATH NAME ARGUMENT…`: a process that is to become a program which the
//! library does not fit. It gets an agent, or gets none, and executes the program; whatever it
//! inherited the program has. docs/notify.md, "A child of a program with the library".
//!
//! 1. It asks the supervisor for an agent, and says to it what it may try ([`entry_words`]).
//! 2. It installs the filter, says the listener's number, and hears that the agent serves.
//! 3. It executes the program.
//!
//! If 1 fails, 3 follows. Behind 2 it is too late: without an agent the program's calls would fail,
//! so another agent is asked for.
//!
//! All this is before `main`: Rust's runtime would ignore `SIGPIPE` and open the descriptors 0 to 2.
//!
//! [`entry_words`]: crate::entry_words
#![expect(
    unsafe_code,
    reason = "runs before main, installs a filter, and executes a program"
)]

use crate::{
    entry_words::{EntryWord, ReadyProcess},
    filter::filter,
    launch::{install, raise_limit},
    listener::last_errno,
    number_window::NumberWindow,
};
use forebay_files::{
    ENTER_COMMAND, ENV_PRELOAD, ENV_SOCKET, agent_request,
    program::{LinkKind, kind_of},
};
use libc::{c_char, c_int};
use rustix::{
    io::Errno,
    process::{Resource, getrlimit, setrlimit},
};
use std::{
    ffi::{CStr, CString, OsStr},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
    ptr,
};

type CStringArray = *const *const c_char;

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn(c_int, CStringArray, CStringArray) = begin;

/// Words before the program's own: this command's name, what it is to do, the path.
const OWN_WORDS: c_int = 3;
/// Agents that are asked for once there is a filter.
const ATTEMPTS: u32 = 4;

extern "C" fn begin(count: c_int, words: CStringArray, environment: CStringArray) {
    // SAFETY: the program's arguments, as many as are said.
    let word = |at: usize| unsafe { CStr::from_ptr(*words.add(at)) };
    if count > OWN_WORDS
        && word(1).to_bytes() == ENTER_COMMAND.to_bytes()
        && std::env::var_os(ENV_SOCKET).is_some()
    {
        // SAFETY: there are more words than these.
        let program = unsafe { words.add(OWN_WORDS as usize) };
        become_program(word(2), program, environment);
    }
}

fn become_program(path: &CStr, words: CStringArray, environment: CStringArray) -> ! {
    let entry = enter(path);
    if let Entry::Lost(errno) = entry {
        say(path, "its agent has died", errno);
        exit(126);
    }
    let variables = program_variables(path, environment, matches!(entry, Entry::Served));
    let mut pointers: Vec<*const c_char> = variables.iter().map(|it| it.as_ptr()).collect();
    pointers.push(ptr::null());
    // SAFETY: strings, and arrays of them that end with a null pointer.
    unsafe { libc::execve(path.as_ptr(), words, pointers.as_ptr()) };
    let errno = last_errno();
    say(path, "executing it", errno);
    exit(if errno == Errno::NOENT { 127 } else { 126 });
}

fn say(path: &CStr, what: &str, errno: Errno) {
    forebay_pool::complain(&format!("{}: {what}: {errno}", path.to_string_lossy()));
}

fn exit(status: c_int) -> ! {
    // SAFETY: it ends the process, of which nothing else has begun.
    unsafe { libc::_exit(status) }
}

/// The program's environment: its list of libraries is where it was, without this library if an
/// agent serves a program that would load it.
fn program_variables(path: &CStr, environment: CStringArray, is_served: bool) -> Vec<CString> {
    let path = Path::new(OsStr::from_bytes(path.to_bytes()));
    let loads = || matches!(kind_of(path), Some(LinkKind::Go | LinkKind::OtherLibrary));
    let is_alone = is_served && loads();
    // SAFETY: an array of strings that ends with a null pointer.
    let strings = (0..).map(|at| unsafe { *environment.add(at) });
    let strings = strings.take_while(|string| !string.is_null());
    let variables = strings.filter_map(|string| {
        // SAFETY: as above.
        let variable = unsafe { CStr::from_ptr(string) };
        let list = variable.to_bytes().strip_prefix(ENV_PRELOAD.as_bytes());
        match list.and_then(|list| list.strip_prefix(b"=")) {
            Some(list) if is_alone => preload(&without_library(list)),
            Some(list) => preload(list),
            None => Some(variable.to_owned()),
        }
    });
    variables.collect()
}

fn preload(list: &[u8]) -> Option<CString> {
    let variable = [b"LD_PRELOAD=", list].concat();
    CString::new(variable).ok().filter(|_| !list.is_empty())
}

fn without_library(list: &[u8]) -> Vec<u8> {
    const LIBRARY: &[u8] = b"libforebay";
    let is_other = |path: &&[u8]| !path.windows(LIBRARY.len()).any(|part| part == LIBRARY);
    let libraries = list.split(|byte| matches!(byte, b':' | b' '));
    let others: Vec<&[u8]> = libraries.filter(is_other).collect();
    others.join(&b':')
}

/// The progress of a process.
enum Entry {
    /// It has no filter.
    Plain,
    /// It has one, and an agent.
    Served,
    /// It has one, and no agent.
    Lost(Errno),
}

/// The filter that this process has.
#[derive(Clone, Copy)]
struct InstalledFilter {
    listener: c_int,
    window: NumberWindow,
}

fn enter(path: &CStr) -> Entry {
    let mut installed = None;
    let mut attempts = 0;
    loop {
        let entered = agent_request::ask(path.to_bytes(), installed.is_some())
            .and_then(|connection| converse(&connection, &mut installed));
        attempts += 1;
        match (entered, installed) {
            (Ok(true), _) => return Entry::Served,
            (Ok(false) | Err(_), None) => return Entry::Plain,
            (Err(errno), Some(_)) if attempts >= ATTEMPTS => return Entry::Lost(errno),
            (Ok(false), Some(_)) => return Entry::Lost(Errno::PERM),
            (Err(_), Some(_)) => {}
        }
    }
}

/// The steps 1 and 2 with an agent: true if it serves. Notes a filter that is installed.
///
/// # Errors
/// The kernel's, of the connection.
fn converse(connection: &OwnedFd, installed: &mut Option<InstalledFilter>) -> Result<bool, Errno> {
    let word = u64::from(std::process::id()) | 1 << 40;
    let limit = getrlimit(Resource::Nofile);
    let ready = ReadyProcess {
        address: (&raw const word).addr() as u64,
        word,
        number: connection.as_raw_fd(),
        limit: limit.maximum.unwrap_or(u64::MAX),
        filtered: installed.map(|it| (it.listener, it.window)),
    };
    EntryWord::Ready(ready).send(connection)?;
    let (window, costs_rights) = match heard(connection, installed.is_some())? {
        EntryWord::Window {
            window,
            costs_rights,
        } => (window, costs_rights),
        EntryWord::Go if installed.is_some() => return Ok(true),
        EntryWord::Unserved => return Ok(false),
        _ => return Err(Errno::PROTO),
    };
    raise_limit(window);
    let listener = match install(&filter(window), costs_rights) {
        Ok(listener) => listener,
        Err(errno) => {
            let _ = setrlimit(Resource::Nofile, limit);
            EntryWord::Unfiltered(errno.raw_os_error()).send(connection)?;
            return Ok(false);
        }
    };
    *installed = Some(InstalledFilter { listener, window });
    EntryWord::Listener(listener).send(connection)?;
    match heard(connection, true)? {
        EntryWord::Go => Ok(true),
        _ => Err(Errno::PROTO),
    }
}

/// Receives the agent's message. Of one that may have the listener already, nothing but its end
/// says that it is dead: two that live would each get a part of the calls. So it is waited for.
///
/// # Errors
/// The kernel's.
fn heard(connection: &OwnedFd, may_have_listener: bool) -> Result<EntryWord, Errno> {
    loop {
        match EntryWord::receive(connection) {
            Err(Errno::AGAIN) if may_have_listener => {}
            heard => return heard,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_that_may_have_the_listener_is_waited_for() {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair, sockopt};
        use std::{thread, time::Duration};
        let kind = SocketType::SEQPACKET;
        let (own, agents) =
            socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
        let limit = Some(Duration::from_millis(5));
        sockopt::set_socket_timeout(&own, sockopt::Timeout::Recv, limit).unwrap();
        assert_eq!(heard(&own, false), Err(Errno::AGAIN));
        let says = thread::spawn(move || {
            thread::sleep(Duration::from_millis(50));
            EntryWord::Go.send(&agents).unwrap();
        });
        assert_eq!(heard(&own, true), Ok(EntryWord::Go));
        says.join().unwrap();
        assert_eq!(heard(&own, true), Err(Errno::CONNRESET));
    }

    #[test]
    fn only_this_library_leaves_a_programs_list() {
        let without = |list: &str| String::from_utf8(without_library(list.as_bytes())).unwrap();
        assert_eq!(without("/a/libforebay.so"), "");
        assert_eq!(without("/a/libforebay.so:/b.so /c.so"), "/b.so:/c.so");
        assert_eq!(preload(b""), None);
        assert_eq!(preload(b"/b.so").as_deref(), Some(c"LD_PRELOAD=/b.so"));
    }
}
