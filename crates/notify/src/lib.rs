//! The second front end of the files tier: for programs that no library can be put before (Go,
//! static, musl). Their system calls are seen by seccomp user notification.
//!
//! An *agent*, a process above the program, executes the calls that concern logs on the program's
//! behalf, by [`forebay_files::client`]. It is an ordinary member of the run, so a write, a sync or
//! a rename means what it means in `libforebay.so`. docs/notify.md has the protocol.
//!
//! Its rooms:
//!
//! * [`preconditions`]: whether that can be; [`launch`]: starts the program with the [`filter`];
//! * [`agent`]: serves its calls by threads, each with a [slot](slots) that outlives it;
//! * [`calls`]: what becomes of each call; [`caller`]: the thread that made it;
//! * [`numbers`]: the logs that were injected, in the [`number_window`]; [`held_numbers`]: those
//!   that are being closed;
//! * [`spent_numbers`]: those that no other log gets yet;
//! * [`pending`]: changes that the kernel makes after an answer;
//! * [`guardian`]: goes on when the agent has died, and answers what was [unanswered];
//! * [`agent_entry`]: the process that becomes a child's program, [`child_agent`]: its agent, and
//!   the [`entry_words`] between them; [`serving_stage`]: whether that does anything;
//! * [`plain_calls`]: what is answered when nobody follows a log; [`self_paths`]: names of the
//!   caller's own.

mod agent;
mod agent_entry;
mod agent_state;
mod caller;
mod calls;
mod child_agent;
mod entry_words;
mod filter;
mod guardian;
mod held_numbers;
mod launch;
mod listener;
mod number_window;
mod numbers;
mod open_files;
mod pending;
mod plain_calls;
mod preconditions;
mod receiver_turn;
mod self_paths;
mod serving_stage;
mod slots;
mod spent_numbers;
mod unanswered;

pub use agent::Agent;
pub use child_agent::ENTERED_ENV;
pub use guardian::{AgentFate, CONTROL_ENV, Guardian};
pub use launch::ProgramImage;
pub use preconditions::{NotServed, can_serve, can_serve_children, costs_rights};
