//! libforebay.so: the C library's file functions, translated to [`forebay_files::client`], and
//! nothing else.
//!
//! The dynamic linker puts these functions before the C library's (`LD_PRELOAD`). Each asks whether
//! its descriptor is absorbed, which is one load. If not, it goes on to the function of the same
//! name that it hides ([`real`]). Then errno, cancellation and whatever the kernel does are the C
//! library's own. docs/files-protocol.md says what has to happen otherwise.
//!
//! [`table`] has a line for each function: its names, its handler, and the number of its system
//! call. From the lines [`hooks`] makes the exported functions and what `syscall` is translated to,
//! and [`dynamic`] what `dlsym` answers. Below stand the modules with the [handlers](handler), and
//! below those [`real`], which finds what is hidden, and [`call_context`]. No file imports one
//! above it.
//!
//! Which function is where:
//!
//! * bytes: [`write`], [`position`] (`read`, `lseek`), [`sync`], [`map`] (`mmap`, `munmap`, …),
//!   [`message`] (`send`, `sendmsg`), [`fd_changes`] (`fallocate`, `sendfile`, …: what alters a
//!   file without writing to it), [`stdio`], [`dprintf`] (by [`variadic`]);
//! * asynchronous: [`asynchronous`] (POSIX AIO, libaio, `io_uring`), [`ring`] (an `io_uring` that
//!   is made past them);
//! * descriptors: [`open`], [`received_fds`] (`open_by_handle_at`, `pidfd_getfd`), [`descriptor`]
//!   (`close`, `dup`, `fcntl`, `unshare`);
//! * names: [`directory`] (`readdir`), [`path_calls`] (`rename`, `unlink`, `link`, `truncate`),
//!   [`times`] (`utimensat`, …), [`metadata`] (`mkdir`, `chmod`, `setxattr`, …: what a sync is
//!   ordered behind);
//! * processes: [`process`] (fork, `daemon`), [`thread_numbers`] (`kill` without a signal),
//!   [`execute`] (`execve`, `posix_spawn`, `pidfd_spawn`, `system`), [`identity`] (`setuid`);
//! * calls by other ways: [`system_call`] (`syscall`), [`dynamic`] (`dlsym`, `dlopen`, by
//!   [`dlopen_imports`] and [`linker`]), [`interposers`] (other libraries that hide the same
//!   functions).
//!
//! The library's own start and end is [`start`]; below an agent, [`front_ends`] says which of the
//! two does its part.
//!
//! [`pages`] is what becomes of page files behind a flash cache ([`forebay_innodb`]),
//! [`checkpoint`] what comes before InnoDB says that pages are durable.
//!
//! [`layer`] is where a laboratory sees what a program does; this library has nothing there.
//!
//! All of them may be called before the library's constructor ran, and by the client itself
//! (through Rust's standard library).

mod asynchronous;
mod call_context;
mod checkpoint;
mod client_call;
mod clone;
mod descriptor;
mod directory;
mod dlopen_imports;
mod dprintf;
mod dynamic;
mod execute;
mod fd_changes;
mod file_status;
mod forked_child;
mod front_ends;
mod handler;
mod hooks;
mod identity;
mod installed_layer;
mod interposers;
mod ioctl_targets;
mod kernel;
pub mod layer;
mod linker;
mod map;
mod memory;
mod message;
mod metadata;
mod next_definition;
mod open;
mod pages;
mod path_calls;
mod plain;
mod position;
mod process;
mod real;
mod received_fds;
mod retire;
mod ring;
mod start;
mod stdio;
mod sync;
mod system_call;
mod table;
mod thread_numbers;
mod times;
mod truncated_fds;
mod variadic;
mod write;
