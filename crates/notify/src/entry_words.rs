//! Messages between the agent of a child and the process that is to become its program, by the
//! connection that this made to the supervisor. docs/notify.md, "A child of a program with the
//! library".
//!
//! The process sends by `sendto`, which its filter lets through.

use crate::number_window::NumberWindow;
use libc::c_int;
use rustix::{
    io::Errno,
    net::{RecvFlags, SendFlags},
};
use std::os::fd::AsFd;

/// A word between the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryWord {
    /// Of the process, before anything: the trials that the agent may make on it.
    Ready(ReadyProcess),
    /// Of the agent: the filter is to have this window.
    Window {
        window: NumberWindow,
        /// The process may give up gaining rights for it.
        costs_rights: bool,
    },
    /// Of the agent: there is none for this process.
    Unserved,
    /// Of the process: it has the filter, whose listener has this number.
    Listener(c_int),
    /// Of the process: it has no filter, for this error.
    Unfiltered(c_int),
    /// Of the agent: it serves.
    Go,
}

/// A process that is ready for the agent's trials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadyProcess {
    /// The address of a word in it, and the word.
    pub(crate) address: u64,
    pub(crate) word: u64,
    /// A descriptor of it.
    pub(crate) number: c_int,
    /// As many files as it may have open, at most.
    pub(crate) limit: u64,
    /// It has the filter already, by an agent that has died.
    pub(crate) filtered: Option<(c_int, NumberWindow)>,
}

const WORDS: usize = 8;
const NONE: i64 = -1;

impl EntryWord {
    fn words(self) -> [i64; WORDS] {
        let of = |window: NumberWindow| [window.first.into(), window.end.into()];
        match self {
            Self::Ready(ready) => {
                let (listener, [first, end]) = (ready.filtered)
                    .map_or((NONE, [0; 2]), |(listener, window)| {
                        (listener.into(), of(window))
                    });
                let (address, word) = (ready.address.cast_signed(), ready.word.cast_signed());
                let limit = ready.limit.cast_signed();
                [
                    1,
                    address,
                    word,
                    ready.number.into(),
                    limit,
                    listener,
                    first,
                    end,
                ]
            }
            Self::Window {
                window,
                costs_rights,
            } => {
                let [first, end] = of(window);
                [2, first, end, costs_rights.into(), 0, 0, 0, 0]
            }
            Self::Unserved => [3, 0, 0, 0, 0, 0, 0, 0],
            Self::Listener(number) => [4, number.into(), 0, 0, 0, 0, 0, 0],
            Self::Unfiltered(errno) => [5, errno.into(), 0, 0, 0, 0, 0, 0],
            Self::Go => [6, 0, 0, 0, 0, 0, 0, 0],
        }
    }

    fn of([kind, a, b, c, d, e, f, g]: [i64; WORDS]) -> Option<Self> {
        let window = |first: i64, end: i64| NumberWindow {
            first: first as c_int,
            end: end as c_int,
        };
        Some(match kind {
            1 => Self::Ready(ReadyProcess {
                address: a.cast_unsigned(),
                word: b.cast_unsigned(),
                number: c as c_int,
                limit: d.cast_unsigned(),
                filtered: (e != NONE).then(|| (e as c_int, window(f, g))),
            }),
            2 => Self::Window {
                window: window(a, b),
                costs_rights: c != 0,
            },
            3 => Self::Unserved,
            4 => Self::Listener(a as c_int),
            5 => Self::Unfiltered(a as c_int),
            6 => Self::Go,
            _ => return None,
        })
    }

    /// Says it to the other.
    ///
    /// # Errors
    /// The kernel's: `EPIPE` if that is gone.
    pub(crate) fn send(self, connection: impl AsFd) -> Result<(), Errno> {
        let words = self.words();
        let mut bytes = [0; 8 * WORDS];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        let send = || rustix::net::send(&connection, &bytes, SendFlags::NOSIGNAL);
        rustix::io::retry_on_intr(send).map(drop)
    }

    /// The other's message.
    ///
    /// # Errors
    /// The kernel's: `EAGAIN` after the connection's limit; `ECONNRESET` if the other is gone;
    /// `EPROTO` for what is no word.
    pub(crate) fn receive(connection: impl AsFd) -> Result<Self, Errno> {
        let mut bytes = [0; 8 * WORDS];
        let receive = || rustix::net::recv(&connection, &mut bytes[..], RecvFlags::TRUNC);
        let (_, read) = rustix::io::retry_on_intr(receive)?;
        if read == 0 {
            return Err(Errno::CONNRESET);
        }
        let mut words = [0; WORDS];
        for (word, part) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = i64::from_ne_bytes(part.try_into().unwrap_or_default());
        }
        let whole = (read == bytes.len()).then_some(words);
        whole.and_then(Self::of).ok_or(Errno::PROTO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    #[test]
    fn words_arrive_as_they_were_said() {
        let kind = SocketType::SEQPACKET;
        let (one, other) =
            socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
        let window = NumberWindow {
            first: 512,
            end: 1536,
        };
        let ready = ReadyProcess {
            address: u64::MAX - 7,
            word: 12,
            number: 3,
            limit: u64::MAX,
            filtered: None,
        };
        let filtered = Some((4, window));
        for word in [
            EntryWord::Ready(ready),
            EntryWord::Ready(ReadyProcess { filtered, ..ready }),
            EntryWord::Window {
                window,
                costs_rights: true,
            },
            EntryWord::Unserved,
            EntryWord::Listener(7),
            EntryWord::Unfiltered(13),
            EntryWord::Go,
        ] {
            word.send(&one).unwrap();
            assert_eq!(EntryWord::receive(&other), Ok(word));
        }
        rustix::net::send(&one, b"no word", SendFlags::empty()).unwrap();
        assert_eq!(EntryWord::receive(&other), Err(Errno::PROTO));
        drop(one);
        assert_eq!(EntryWord::receive(&other), Err(Errno::CONNRESET));
    }
}
