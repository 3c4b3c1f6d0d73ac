//! Steps: which thread goes on, what its call waits for, and what it does to the disk's model.

use super::{Machine, Role, SECOND, STEPS_MAX, Told, Wait, failed};
use crate::ptrace;
use libc::{c_int, c_long, pid_t, user_regs_struct};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::{
    fs::{self, File},
    io,
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
};

const FUTEX_WAIT: u64 = 0;
const FUTEX_WAIT_BITSET: u64 = 9;
const MILLISECOND: u64 = 1_000_000;
/// A sync takes so long at most.
const SYNC_MAX: u64 = 4 * MILLISECOND;

/// The number of a call, of which some have names here.
fn name_of(call: c_long) -> String {
    let names = [
        (libc::SYS_fallocate, "fallocate"),
        (libc::SYS_fdatasync, "fdatasync"),
        (libc::SYS_fsync, "fsync"),
        (libc::SYS_ftruncate, "ftruncate"),
        (libc::SYS_futex, "futex"),
        (libc::SYS_link, "link"),
        (libc::SYS_openat, "openat"),
        (libc::SYS_poll, "poll"),
        (libc::SYS_ppoll, "ppoll"),
        (libc::SYS_pwrite64, "pwrite"),
        (libc::SYS_pwritev, "pwritev"),
        (libc::SYS_pwritev2, "pwritev2"),
        (libc::SYS_recvfrom, "recvfrom"),
        (libc::SYS_recvmsg, "recvmsg"),
        (libc::SYS_renameat, "renameat"),
        (libc::SYS_renameat2, "renameat2"),
        (libc::SYS_rename, "rename"),
        (libc::SYS_sendmsg, "sendmsg"),
        (libc::SYS_unlinkat, "unlinkat"),
        (libc::SYS_utimensat, "utimensat"),
        (libc::SYS_write, "write"),
        (libc::SYS_writev, "writev"),
    ];
    let found = names.iter().find(|(number, _)| *number == call);
    found.map_or_else(|| format!("call {call}"), |(_, name)| (*name).to_owned())
}

impl Machine {
    /// Notes what the call that a task has come to waits for.
    pub(super) fn wait_of(&mut self, task: pid_t, call: &user_regs_struct) -> io::Result<()> {
        let (mut wait, mut until, mut asks, mut sync) = (Wait::Nothing, None, false, None);
        match call.orig_rax as c_long {
            libc::SYS_futex if matches!(call.rsi & 0x7F, FUTEX_WAIT | FUTEX_WAIT_BITSET) => {
                wait = Wait::Word(call.rdi, call.rdx as u32);
                until = self
                    .time_at(task, call.r10)?
                    .map(|time| self.end_of_wait(call, time));
            }
            libc::SYS_poll | libc::SYS_ppoll => {
                let limit = match call.orig_rax as c_long {
                    libc::SYS_poll => u64::try_from(call.rdx as i32)
                        .ok()
                        .map(|ms| ms * MILLISECOND),
                    _ => self.time_at(task, call.rdx)?,
                };
                if limit != Some(0) {
                    wait = self.descriptors_at(task, call.rdi, call.rsi)?;
                    until = limit.map(|limit| self.now.saturating_add(limit));
                }
            }
            libc::SYS_read | libc::SYS_accept | libc::SYS_accept4 => {
                wait = self.descriptor(task, call.rdi, false)?;
                asks = call.orig_rax as c_long == libc::SYS_read
                    && call.rdi == 0
                    && self.process(task)?.role == Role::Database;
            }
            libc::SYS_recvmsg => wait = self.descriptor(task, call.rdi, is_impatient(call.rdx))?,
            libc::SYS_recvfrom => wait = self.descriptor(task, call.rdi, is_impatient(call.r10))?,
            libc::SYS_wait4 if call.rdx & 1 == 0 => wait = Wait::Child,
            libc::SYS_waitid if call.r10 & 1 == 0 => wait = Wait::Child,
            libc::SYS_nanosleep | libc::SYS_clock_nanosleep => {
                let (at, is_absolute) = match call.orig_rax as c_long {
                    libc::SYS_nanosleep => (call.rdi, false),
                    _ => (call.rdx, call.rsi & 1 != 0),
                };
                let time = self.time_at(task, at)?.unwrap_or(0);
                wait = Wait::Clock;
                until = Some(match is_absolute {
                    true => time.saturating_sub(SECOND),
                    false => self.now.saturating_add(time),
                });
            }
            libc::SYS_sched_yield => wait = Wait::Others(self.steps),
            libc::SYS_fsync | libc::SYS_fdatasync => {
                if let Some(inode) = self
                    .file_of(task, call.rdi)
                    .filter(|it| self.disk.knows(*it))
                {
                    sync = Some((inode, self.disk.cache(inode).to_vec()));
                    wait = Wait::Clock;
                    until = Some(self.now + self.rng.below(SYNC_MAX));
                }
            }
            _ => {}
        }
        if let Some(it) = self.tasks.get_mut(&task) {
            (it.call, it.wait, it.until, it.asks, it.sync) = (Some(*call), wait, until, asks, sync);
        }
        Ok(())
    }

    /// When a futex's wait ends: relative, or by one of two clocks.
    fn end_of_wait(&self, call: &user_regs_struct, time: u64) -> u64 {
        match (call.rsi & 0x7F, call.rsi & 256 != 0) {
            (FUTEX_WAIT, _) => self.now.saturating_add(time),
            (_, true) => self.now + time.saturating_sub(self.time()),
            (_, false) => time.saturating_sub(SECOND),
        }
    }

    fn descriptors_at(&self, task: pid_t, at: u64, count: u64) -> io::Result<Wait> {
        let described = self.bytes(task, at, 8 * count)?;
        let mut found = Vec::new();
        for one in described.chunks_exact(8) {
            let fd = i32::from_ne_bytes([one[0], one[1], one[2], one[3]]);
            if fd >= 0 {
                let copy = ptrace::copy_of_descriptor(&self.process(task)?.descriptor, fd)?;
                found.push((copy, i16::from_ne_bytes([one[4], one[5]])));
            }
        }
        Ok(Wait::Descriptors(found))
    }

    fn descriptor(&self, task: pid_t, fd: u64, is_impatient: bool) -> io::Result<Wait> {
        if is_impatient {
            return Ok(Wait::Nothing);
        }
        let copy = ptrace::copy_of_descriptor(&self.process(task)?.descriptor, fd as c_int);
        let Ok(copy) = copy else {
            return Ok(Wait::Nothing);
        };
        let flags = rustix::fs::fcntl_getfl(&copy)?;
        Ok(match flags.contains(rustix::fs::OFlags::NONBLOCK) {
            true => Wait::Nothing,
            false => Wait::Descriptors(vec![(copy, libc::POLLIN)]),
        })
    }

    /// The inode of a descriptor, if it is on the data's device.
    fn file_of(&self, task: pid_t, fd: u64) -> Option<u64> {
        let process = self.tasks.get(&task)?.process;
        let found = fs::metadata(format!("/proc/{process}/fd/{}", fd as c_int)).ok()?;
        (found.dev() == self.device).then_some(found.ino())
    }

    /// The tasks that can go on, in the order of their beginnings.
    fn ready(&self) -> io::Result<Vec<pid_t>> {
        let mut polled: Vec<PollFd<'_>> = Vec::new();
        let mut whose = Vec::new();
        let mut ready = Vec::new();
        for (&task, it) in &self.tasks {
            let is_over = it.until.is_some_and(|until| until <= self.now);
            let is_ready = match &it.wait {
                Wait::Nothing => true,
                Wait::Word(at, seen) => self.word(task, *at)? != *seen,
                Wait::Descriptors(fds) => {
                    for (fd, events) in fds {
                        let events = PollFlags::from_bits_retain(events.cast_unsigned());
                        polled.push(PollFd::new(fd, events));
                        whose.push((task, it.order));
                    }
                    false
                }
                Wait::Child => (self.processes.get(&it.process)).is_some_and(|its| its.ended > 0),
                Wait::Clock => false,
                Wait::Others(since) => self.steps > *since + 1,
            };
            if is_ready || is_over {
                ready.push((it.order, task));
            }
        }
        rustix::event::poll(&mut polled, Some(&Timespec::default()))?;
        let found = polled
            .iter()
            .zip(whose)
            .filter(|(it, _)| !it.revents().is_empty());
        ready.extend(found.map(|(_, (task, order))| (order, task)));
        ready.sort_unstable();
        ready.dedup();
        Ok(ready.into_iter().map(|(_, task)| task).collect())
    }

    /// One step of one thread.
    pub fn step(&mut self) -> io::Result<Told> {
        if let Some(it) = self.tasks.values_mut().find(|it| it.asks) {
            it.asks = false;
            return Ok(Told::Asks);
        }
        if self.is_over() {
            return Ok(Told::Over);
        }
        self.steps += 1;
        if self.steps > STEPS_MAX {
            return Err(io::Error::other("it does not come to an end"));
        }
        let mut ready = self.ready()?;
        if ready.is_empty() {
            // Who yields its processor, and nobody takes it, has it again.
            let next = self.tasks.values().filter_map(|it| it.until).min();
            let yielding = self
                .tasks
                .values()
                .any(|it| matches!(it.wait, Wait::Others(_)));
            match next {
                _ if yielding => self.steps += 1,
                Some(next) => self.now = self.now.max(next),
                None => return Err(io::Error::other("all wait, and nothing will come")),
            }
            ready = self.ready()?;
        }
        let Some(&first) = ready.first() else {
            return Ok(Told::Nothing);
        };
        self.now += 500 + self.rng.below(20_000);
        let task = match self.alone.filter(|task| ready.contains(task)) {
            Some(task) => task,
            None if ready.contains(&self.last) && !self.rng.chance(self.patience) => self.last,
            None if ready.len() == 1 => first,
            None => self.rng.one_of(&ready),
        };
        self.last = task;
        match self.rng.below(160) {
            0 => self.disk.commit(),
            1..8 => self.disk.write_some_back(&mut self.rng),
            _ => {}
        }
        self.go_on(task)
    }

    /// Has a task do the call that it is stopped at, and come to its next one.
    fn go_on(&mut self, task: pid_t) -> io::Result<Told> {
        let Some(it) = self.tasks.get_mut(&task) else {
            return Ok(Told::Nothing);
        };
        let is_over = it.until.is_some_and(|until| until <= self.now);
        let wait = std::mem::replace(&mut it.wait, Wait::Nothing);
        it.until = None;
        let Some(call) = it.call.take() else {
            ptrace::go_on(task, 0)?;
            self.come_to_a_call(task)?;
            return Ok(Told::Nothing);
        };
        let number = call.orig_rax as c_long;
        let who = self.names_of.get(&task).cloned().unwrap_or_default();
        let what = match number {
            libc::SYS_faccessat => self.text(task, call.rsi)?,
            _ => name_of(number),
        };
        self.note(format!("{:>9} {who} {what}", self.now / 1000));
        let told = match number {
            libc::SYS_futex if let Wait::Word(at, seen) = wait => {
                let is_same = self.word(task, at)? == seen;
                let result = if is_same && is_over {
                    failed(libc::ETIMEDOUT)
                } else {
                    0
                };
                self.answer(task, &call, result)?;
                Told::Nothing
            }
            libc::SYS_nanosleep | libc::SYS_clock_nanosleep | libc::SYS_sched_yield => {
                self.answer(task, &call, 0)?;
                Told::Nothing
            }
            libc::SYS_faccessat => {
                self.answer(task, &call, failed(libc::ENOENT))?;
                Told::Nothing
            }
            libc::SYS_poll | libc::SYS_ppoll => self.poll(task, &call, &wait)?,
            libc::SYS_fcntl => self.lock_or_lease(task, &call)?,
            libc::SYS_exit_group => {
                ptrace::go_on(task, 0)?;
                let process = self.tasks.get(&task).map_or(task, |it| it.process);
                self.bury(process)?;
                return Ok(Told::Nothing);
            }
            _ => self.do_and_learn(task, &call)?,
        };
        if self.tasks.get(&task).is_some_and(|it| it.call.is_none()) {
            self.come_to_a_call(task)?;
        }
        Ok(told)
    }

    fn poll(&mut self, task: pid_t, call: &user_regs_struct, wait: &Wait) -> io::Result<Told> {
        let Wait::Descriptors(fds) = wait else {
            ptrace::go_on(task, 0)?;
            return Ok(Told::Nothing);
        };
        let polled = fds.iter().map(|(fd, events)| {
            PollFd::new(fd, PollFlags::from_bits_retain(events.cast_unsigned()))
        });
        let mut polled: Vec<PollFd<'_>> = polled.collect();
        let found = rustix::event::poll(&mut polled, Some(&Timespec::default()))?;
        if found > 0 {
            ptrace::go_on(task, 0)?;
            return Ok(Told::Nothing);
        }
        for at in 0..call.rsi {
            self.put(task, call.rdi + 8 * at + 6, &[0, 0])?;
        }
        self.answer(task, call, 0)?;
        Ok(Told::Nothing)
    }

    /// A lease is held by a thread that goes on alone: who opens the file would wait in the kernel.
    /// A lock is tried again when another thread has gone on.
    fn lock_or_lease(&mut self, task: pid_t, call: &user_regs_struct) -> io::Result<Told> {
        let command = call.rsi as c_int;
        if command == libc::F_SETLEASE {
            let done = self.do_call(task)?;
            if done == Some(0) {
                let is_taken = call.rdx as c_int == libc::F_WRLCK;
                self.alone = is_taken.then_some(task);
            }
        } else {
            let mut impatient = *call;
            impatient.rsi -= 1;
            ptrace::set_registers(task, &impatient)?;
            let done = self.do_call(task)?;
            let is_taken = [libc::EAGAIN, libc::EACCES].map(|errno| Some(-i64::from(errno)));
            if is_taken.contains(&done) {
                // Once more, from the beginning.
                let mut again = *call;
                (again.rip, again.rax) = (call.rip - 2, call.orig_rax);
                ptrace::set_registers(task, &again)?;
                ptrace::go_on(task, 0)?;
                self.come_to_a_call(task)?;
                let since = self.steps;
                if let Some(it) = self.tasks.get_mut(&task) {
                    it.wait = Wait::Others(since);
                }
                return Ok(Told::Nothing);
            }
        }
        if self.tasks.contains_key(&task) {
            ptrace::go_on(task, 0)?;
        }
        Ok(Told::Nothing)
    }

    /// Does a call, and brings the model up to date.
    fn do_and_learn(&mut self, task: pid_t, call: &user_regs_struct) -> io::Result<Told> {
        let number = call.orig_rax as c_long;
        let is_sync = matches!(number, libc::SYS_fsync | libc::SYS_fdatasync);
        let sync = self.tasks.get_mut(&task).and_then(|it| it.sync.take());
        if let Some(errno) = sync
            .as_ref()
            .and_then(|(inode, _)| self.error_of_sync(task, call, *inode))
        {
            self.note(format!("{:>9} the sync fails", self.now / 1000));
            self.answer(task, call, failed(errno))?;
            return Ok(Told::Nothing);
        }
        let said = match (number, call.rdi) {
            (libc::SYS_write, 1) => Some(self.bytes(task, call.rsi, call.rdx)?),
            _ => None,
        };
        let role = self.process(task)?.role;
        let Some(done) = self.do_call(task)? else {
            return Ok(Told::Nothing);
        };
        let told = match said {
            Some(line) => {
                let line = String::from_utf8_lossy(&line).into_owned();
                let shown = line.trim();
                if line.starts_with("ok") || line.starts_with("errno") {
                    self.note(format!("{:>9} {role:?} SAYS {shown}", self.now / 1000));
                }
                Told::Said(role, line)
            }
            None if number == libc::SYS_ioctl => {
                /// `FIEMAP_FLAG_SYNC`, and where a call has its flags.
                const WRITES_BACK: (u32, u64) = (1, 16);
                let flags = self.word(task, call.rdx + WRITES_BACK.1)?;
                if let Some(inode) = self
                    .file_of(task, call.rdi)
                    .filter(|_| flags & WRITES_BACK.0 != 0)
                {
                    self.disk.write_back(inode);
                }
                Told::Nothing
            }
            None if done < 0 => Told::Nothing,
            None if is_sync => {
                let data_only = number == libc::SYS_fdatasync;
                match sync {
                    Some((inode, before)) => {
                        self.disk.synced(inode, &before, data_only, &mut self.rng);
                    }
                    // A directory's.
                    None => self.disk.commit(),
                }
                Told::Nothing
            }
            None => self.learn(task, call, done)?,
        };
        ptrace::go_on(task, 0)?;
        Ok(told)
    }

    /// The error of a sync of this descriptor, if it has one: a sync that fails is told once to
    /// each that was open.
    fn error_of_sync(&mut self, task: pid_t, call: &user_regs_struct, inode: u64) -> Option<c_int> {
        let process = self.tasks.get(&task)?.process;
        let is_first = call.orig_rax as c_long == libc::SYS_fsync;
        if self.broken_syncs.left > 0 && self.broken_syncs.are_first == is_first {
            self.broken_syncs.left -= 1;
            let (count, errno) = self.sync_errors.entry(inode).or_default();
            (*count, *errno) = (*count + 1, self.broken_syncs.errno);
            self.disk.lose_unsynced(inode);
        }
        let &(count, errno) = self.sync_errors.get(&inode)?;
        let told = self.told_errors.insert((process, call.rdi), count);
        (told.unwrap_or(0) < count).then_some(errno)
    }

    /// What a call that succeeded has changed.
    fn learn(&mut self, task: pid_t, call: &user_regs_struct, done: i64) -> io::Result<Told> {
        match call.orig_rax as c_long {
            libc::SYS_write
            | libc::SYS_writev
            | libc::SYS_pwrite64
            | libc::SYS_pwritev
            | libc::SYS_pwritev2 => self.learn_write(task, call, done as u64),
            libc::SYS_ftruncate | libc::SYS_fallocate => {
                let file = self.file_of(task, call.rdi);
                self.changed(file, 0, &[])
            }
            libc::SYS_truncate => {
                let path = self.text(task, call.rdi)?;
                let path = path.replace("/proc/thread-self", &format!("/proc/{task}"));
                let file = fs::metadata(path).ok().map(|found| found.ino());
                self.changed(file, 0, &[])
            }
            libc::SYS_open | libc::SYS_openat => self.learn_open(task, done as u64),
            libc::SYS_rename
            | libc::SYS_renameat
            | libc::SYS_renameat2
            | libc::SYS_link
            | libc::SYS_linkat
            | libc::SYS_unlink
            | libc::SYS_unlinkat => {
                let before = self.disk.names().clone();
                self.disk.look_at_names()?;
                Ok(match *self.disk.names() == before {
                    true => Told::Nothing,
                    false => Told::Named,
                })
            }
            libc::SYS_utimensat => {
                // `UTIME_NOW` is the real machine's.
                let is_now = call.rdx == 0 || self.number(task, call.rdx + 24)? == 0x3FFF_FFFF;
                let now = is_now.then(|| self.time());
                if let Some(inode) = self.file_of(task, call.rdi) {
                    self.disk.touched(inode, now)?;
                }
                Ok(Told::Nothing)
            }
            libc::SYS_fsetxattr | libc::SYS_fremovexattr => {
                self.disk.look_at_attributes()?;
                Ok(Told::Nothing)
            }
            libc::SYS_syncfs => {
                self.disk.sync_all();
                Ok(Told::Nothing)
            }
            _ => Ok(Told::Nothing),
        }
    }

    /// A file was written to: as far as `bytes` reach, and perhaps cut or made longer.
    fn changed(&mut self, inode: Option<u64>, at: u64, bytes: &[u8]) -> io::Result<Told> {
        let now = self.time();
        match inode.filter(|inode| self.disk.knows(*inode)) {
            Some(inode) => {
                self.disk.written(inode, at, bytes, now)?;
                Ok(Told::Changed(inode))
            }
            None => Ok(Told::Nothing),
        }
    }

    fn learn_write(&mut self, task: pid_t, call: &user_regs_struct, done: u64) -> io::Result<Told> {
        let inode = self
            .file_of(task, call.rdi)
            .filter(|it| self.disk.knows(*it));
        let Some(inode) = inode.filter(|_| done > 0) else {
            return Ok(Told::Nothing);
        };
        let number = call.orig_rax as c_long;
        let mut bytes = match number {
            libc::SYS_write | libc::SYS_pwrite64 => self.bytes(task, call.rsi, call.rdx)?,
            _ => self.parts(task, call.rsi, call.rdx)?,
        };
        bytes.truncate(done as usize);
        let process = self.tasks.get(&task).map_or(task, |it| it.process);
        let info = fs::read_to_string(format!("/proc/{process}/fdinfo/{}", call.rdi))?;
        let field = |name: &str| {
            let line = info.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or("0").trim().to_owned()
        };
        let flags = i32::from_str_radix(&field("flags:"), 8).unwrap_or(0);
        let at = match number {
            _ if flags & libc::O_APPEND != 0 => self.disk.size(inode)? - done,
            libc::SYS_write | libc::SYS_writev => field("pos:").parse().unwrap_or(0) - done,
            _ => call.r10,
        };
        self.changed(Some(inode), at, &bytes)
    }

    /// The power fails: of what is being written to the pool any sectors arrive.
    pub fn tear(&mut self, pool: &Path) -> io::Result<()> {
        const SECTOR: usize = 512;
        let inode = fs::metadata(pool)?.ino();
        let calls: Vec<(pid_t, user_regs_struct)> = (self.tasks.iter())
            .filter_map(|(task, it)| Some((*task, it.call?)))
            .filter(|(_, call)| call.orig_rax as c_long == libc::SYS_pwritev2)
            .collect();
        for (task, call) in calls {
            let process = self.tasks.get(&task).map_or(task, |it| it.process);
            let its = fs::metadata(format!("/proc/{process}/fd/{}", call.rdi));
            if !its.is_ok_and(|its| its.ino() == inode) {
                continue;
            }
            let bytes = self.parts(task, call.rsi, call.rdx)?;
            let file = File::options().write(true).open(pool)?;
            for (at, sector) in (call.r10..).step_by(SECTOR).zip(bytes.chunks(SECTOR)) {
                if self.rng.chance(2) {
                    file.write_all_at(sector, at)?;
                }
            }
            self.note(format!(
                "{:>9} a write to the pool is torn",
                self.now / 1000
            ));
        }
        Ok(())
    }

    fn parts(&self, task: pid_t, at: u64, count: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        for part in 0..count {
            let from = self.number(task, at + 16 * part)?;
            let length = self.number(task, at + 16 * part + 8)?;
            bytes.extend(self.bytes(task, from, length)?);
        }
        Ok(bytes)
    }

    /// A file of the data was opened: it may be new, or have been cut off.
    fn learn_open(&mut self, task: pid_t, fd: u64) -> io::Result<Told> {
        let process = self.tasks.get(&task).map_or(task, |it| it.process);
        let link = format!("/proc/{process}/fd/{fd}");
        let Some(inode) = self
            .file_of(task, fd)
            .filter(|_| fs::metadata(&link).is_ok_and(|it| it.is_file()))
        else {
            return Ok(Told::Nothing);
        };
        let errors = self.sync_errors.get(&inode).map_or(0, |(count, _)| *count);
        self.told_errors.insert((process, fd), errors);
        if self.disk.knows(inode) {
            return match self.disk.size(inode)? as usize == self.disk.cache(inode).len() {
                true => Ok(Told::Nothing),
                false => self.changed(Some(inode), 0, &[]),
            };
        }
        let path = fs::read_link(link)?;
        if self.disk.has(&path) {
            let now = self.time();
            self.disk.add(Path::new(&path), inode, now)?;
            return Ok(Told::Named);
        }
        Ok(Told::Nothing)
    }
}

/// True of a call that does not wait (`MSG_DONTWAIT`).
fn is_impatient(flags: u64) -> bool {
    flags & libc::MSG_DONTWAIT as u64 != 0
}
