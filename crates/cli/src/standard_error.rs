//! Standard error, which may be full, or have no reader.

use std::{
    fmt,
    io::{self, Write},
};

/// Says a line on standard error. Unlike `eprintln!` it does not panic where nothing can be said (a
/// reader that is gone, a full disk): the program that is run goes on.
macro_rules! complain {
    ($($words:tt)*) => {
        $crate::standard_error::say(format_args!("{}\n", format_args!($($words)*)))
    };
}
pub(crate) use complain;

/// Says it on standard error, if that can be.
pub(crate) fn say(what: fmt::Arguments<'_>) {
    let _ = io::stderr().write_fmt(what);
}
