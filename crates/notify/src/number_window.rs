//! The *window*: the numbers of descriptors that only logs have.

use forebay_files::client;
use libc::c_int;

/// Numbers that only logs have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NumberWindow {
    pub(crate) first: c_int,
    /// Behind the last.
    pub(crate) end: c_int,
}

impl NumberWindow {
    /// As many logs as a program has open, duplicates included.
    pub(crate) const COUNT: u64 = 1024;
    /// Below, programs expect numbers of their own.
    const FIRST_MIN: u64 = 512;

    /// The highest numbers that the limit of open files allows. None if it is too low.
    pub(crate) fn below(limit: u64) -> Option<Self> {
        let end = limit.min(client::DESCRIPTORS as u64);
        let first = end.checked_sub(Self::COUNT)?;
        (first >= Self::FIRST_MIN).then_some(Self {
            first: first as c_int,
            end: end as c_int,
        })
    }

    pub(crate) fn has(self, number: c_int) -> bool {
        (self.first..self.end).contains(&number)
    }
}
