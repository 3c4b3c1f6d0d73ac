//! The library's life in a process: its start and its end.
#![expect(unsafe_code, reason = "runs before main and after it")]

use crate::{client_call::tell_client, dynamic, forked_child, front_ends, layer, process, ring};
use forebay_files::{
    activation,
    client::{self, note_standard_error},
};

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

extern "C" fn start() {
    note_standard_error();
    dynamic::find_all();
    activated();
    if front_ends::leaves_it_to_an_agent() {
        return;
    }
    forked_child::begin();
    if process::hear_of_forks() {
        // Without it a child would go on as if it were its parent: then nothing is absorbed.
        tell_client(client::start);
        ring::start();
        layer::start();
        tell_client(forebay_innodb::start);
    }
}

/// This process is the program that a service manager means, if the supervisor says so.
fn activated() {
    for name in activation::NAMING {
        if std::env::var(name).is_ok_and(|value| value == activation::PROGRAM) {
            // SAFETY: before `main` there is no other thread that could read the environment.
            unsafe { std::env::set_var(name, std::process::id().to_string()) };
        }
    }
}

extern "C" fn end() {
    // The child of a `clone` that no handler heard of must not end its parent's session.
    if forked_child::has_begun() {
        tell_client(forebay_innodb::exiting);
        tell_client(client::exiting);
    }
}
