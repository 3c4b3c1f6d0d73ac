//! Writers that are killed, and an oracle that remembers what they were promised.
//!
//! A child process ([`write_until_killed`]) writes to a store from several threads and acknowledges each operation
//! to its parent over a pipe, after the store has. The parent kills it with SIGKILL at a random moment,
//! reopens the store, and compares ([`Storm::strike`]). What each thread does is a function of a seed and
//! a counter ([`ops`]), so the parent knows it all: every acknowledged operation must be there, with its
//! exact value; the one operation of each thread that was in flight must be there as a whole or not at all; nothing
//! else may be there.

mod child;
pub mod ops;
mod oracle;
mod storm;

pub use child::{Child, die_with_parent, write_until_killed};
pub use ops::Mix;
pub use oracle::{Oracle, Verdict};
pub use storm::{Storm, Strike};
