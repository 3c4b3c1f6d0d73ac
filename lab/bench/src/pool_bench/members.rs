//! Processes that append to one shared lane.
//!
//! Each is this program, started with a hidden subcommand; it inherits the pool's open file and the
//! lane's state. For each slice it reads a line, payload bytes, nanoseconds and threads, from
//! standard input, and answers with one: operations, and the nanoseconds that they took, of all its
//! threads.

use super::{
    BUFFERS, Case,
    slices::{KIND, Slice, in_threads},
};
use crate::{BenchError, processes::Process, threads::beside};
use forebay_pool::{ClaimOptions, Pool, PoolOptions, SharedLane};
use std::{
    fs::OpenOptions,
    io::{BufRead, BufReader, IoSlice, Write},
    os::fd::{AsFd, AsRawFd},
    path::Path,
    process::{ChildStdin, ChildStdout, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};
use uuid::Uuid;

/// The shared lane and its members.
pub(super) struct Members {
    lane: SharedLane,
    members: Vec<Member>,
}

/// It ends when its orders do, too; it may be waiting for room.
struct Member {
    _process: Process,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Members {
    /// Starts `count` processes of `program`.
    pub(super) fn start(pool: &Pool, program: &Path, count: usize) -> Result<Self, BenchError> {
        let options = ClaimOptions::new()
            .segments(BUFFERS)
            .label("forebay-lab pool --processes");
        let lane = pool.claim_shared(Uuid::new_v4(), &options)?;
        let failed = BenchError::io("starting a member on", pool.path());
        let Some(file) = pool.descriptor() else {
            return Err(BenchError::Config(
                "processes cannot share this pool".to_owned(),
            ));
        };
        // These are not closed when a program is executed.
        let inherited =
            rustix::io::dup(file).and_then(|f| Ok((f, rustix::io::dup(lane.state_fd())?)));
        let (file, state) = inherited.map_err(|e| failed(e.into()))?;
        let members = (1..=count).map(|number| {
            let mut command = Command::new(program);
            command
                .args(["internal", "append"])
                .arg(format!(
                    "{} {} {number}",
                    file.as_raw_fd(),
                    state.as_raw_fd()
                ))
                .stdin(Stdio::piped())
                .stdout(Stdio::piped());
            let mut process = Process::spawn(&mut command)?;
            let child = process.child();
            match (child.stdin.take(), child.stdout.take()) {
                (Some(orders), Some(answers)) => Ok(Member {
                    _process: process,
                    orders,
                    answers: BufReader::new(answers),
                }),
                _ => Err(BenchError::Child("has no pipes".to_owned())),
            }
        });
        let members = members.collect::<Result<_, _>>()?;
        Ok(Self { lane, members })
    }

    /// A slice of appends by so many of the processes, beside an owner that releases what is
    /// complete.
    pub(super) fn appended(
        &mut self,
        case: Case,
        processes: usize,
        slice: Duration,
    ) -> Result<Slice, BenchError> {
        let lost = |e| BenchError::Child(format!("a member of the lane is gone: {e}"));
        let members = &mut self.members[..processes];
        let lane = &self.lane;
        let drain = |done: &AtomicBool| {
            while !done.load(Relaxed) {
                let seen = lane.turned();
                release(lane);
                lane.wait(seen, Duration::from_millis(2));
            }
        };
        let run = || {
            for member in &mut *members {
                let (bytes, ns, threads) = (case.bytes, slice.as_nanos(), case.threads());
                writeln!(member.orders, "{bytes} {ns} {threads}").map_err(lost)?;
            }
            let mut all = Slice::default();
            for member in &mut *members {
                let mut line = String::new();
                member.answers.read_line(&mut line).map_err(lost)?;
                let [ops, thread_ns] = numbers(&line)?;
                all.add(&Slice { ops, thread_ns });
            }
            Ok(all)
        };
        beside(drain, run).1
    }

    /// Ends the processes and gives the lane back. False if it could not be.
    pub(super) fn end(self) -> bool {
        drop(self.members);
        let sealed = self.lane.seal();
        release(&self.lane);
        sealed.is_ok() && self.lane.give_back()
    }
}

fn release(lane: &SharedLane) {
    if let Some(last) = lane.complete().last() {
        lane.release(last.end);
    }
    lane.prepare();
}

fn numbers<const N: usize>(line: &str) -> Result<[u64; N], BenchError> {
    let words = line.split_whitespace().map_while(|word| word.parse().ok());
    let numbers: Vec<u64> = words.collect();
    let wrong = |_| BenchError::Child(format!("{N} numbers expected, got {line:?}"));
    numbers.try_into().map_err(wrong)
}

/// A member's process: `order` is the numbers of two descriptors, and its own.
///
/// # Errors
/// Those of the pool; a wrong order.
pub fn serve(order: &str) -> Result<(), BenchError> {
    let [file, state, number] = numbers(order)?;
    let open = |fd: u64| {
        let path = format!("/proc/self/fd/{fd}");
        let file = OpenOptions::new().read(true).write(true).open(&path);
        file.map_err(BenchError::io("opening", Path::new(&path)))
    };
    // A mapping of its own: it locks nothing.
    let pool = PoolOptions::new().open_file("the inherited pool", open(file)?)?;
    let member = pool.join(
        open(state)?.as_fd(),
        u32::try_from(number).unwrap_or(u32::MAX),
    )?;
    let mut answers = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let failed = || BenchError::io("reading and answering", Path::new("orders"));
        let [bytes, slice_ns, threads] = numbers(&line.map_err(failed())?)?;
        let size = |number| usize::try_from(number).unwrap_or(usize::MAX);
        let case = Case {
            bytes: size(bytes),
            writers: size(threads),
            processes: Some(1),
        };
        let done = in_threads(case, Duration::from_nanos(slice_ns), |_, payload| {
            member.append(KIND, &[IoSlice::new(payload)])?;
            Ok(())
        })?;
        writeln!(answers, "{} {}", done.ops, done.thread_ns)
            .and_then(|()| answers.flush())
            .map_err(failed())?;
    }
    Ok(())
}
