//! Cycles that add up: a file with a line of JSON for each, which later runs append to. A run of
//! the same sources goes on where the one before ended, or was interrupted.

use crate::{Failure, cycle::Cycle, machine::MachineKind, sources};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::{
    fs::File,
    io::{self, Read, Write},
    path::Path,
    sync::{Mutex, PoisonError},
};

/// What is known of a cycle later.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ResultLine {
    /// The revision of the programs' sources.
    pub commit: String,
    /// What the run's random numbers began with.
    pub seed: u64,
    /// The command of the run.
    pub command: String,
    /// What ran the machines.
    pub accelerator: String,
    pub cycle: Cycle,
}

/// The lines so far, and the file that they go to.
pub struct ResultsFile {
    file: Mutex<File>,
    lines: Mutex<Vec<ResultLine>>,
}

impl ResultsFile {
    /// The file at `path`, made if it is not there.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let failed = |what: &str| format!("the results {}: {what}", path.display());
        let mut options = File::options();
        let opened = options
            .create(true)
            .read(true)
            // Another run may write to it, too.
            .append(true)
            .open(path);
        let mut file = opened.map_err(|e| failed(&e.to_string()))?;
        let mut text = String::new();
        // What another run is about to write is whole then.
        let whole = locked(&mut file, |file| {
            file.read_to_string(&mut text)?;
            // A run that was killed may have left half a line.
            let whole = text.rfind('\n').map_or(0, |end| end + 1);
            if whole < text.len() {
                file.set_len(whole as u64)?;
            }
            Ok(whole)
        })?;
        let mut lines = Vec::new();
        for (number, line) in (1..).zip(text[..whole].lines()) {
            let read = serde_json::from_str(line);
            lines.push(read.map_err(|e| {
                let what = format!("line {number}: {e}. Move the file away to begin anew");
                failed(&what)
            })?);
        }
        Ok(Self {
            file: Mutex::new(file),
            lines: Mutex::new(lines),
        })
    }

    /// Cycles of a workload that these sources have had.
    pub fn count(&self, commit: &str, machine: MachineKind, workload: &str) -> u64 {
        if !sources::is_known(commit) {
            return 0;
        }
        let is_one = |line: &&ResultLine| {
            line.commit == commit
                && line.cycle.machine == machine
                && line.cycle.workload == workload
        };
        self.lines().iter().filter(is_one).count() as u64
    }

    /// Adds a cycle.
    pub fn add(&self, line: ResultLine) -> io::Result<()> {
        let mut text = serde_json::to_string(&line)?;
        text.push('\n');
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        locked(&mut file, |file| file.write_all(text.as_bytes()))?;
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push(line);
        Ok(())
    }

    /// All lines so far.
    pub fn lines(&self) -> Vec<ResultLine> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.clone()
    }

    /// What a report says: of each workload and kind of machine the cycles of the sources that had
    /// it last, by sources. Those that had one last come last.
    pub fn newest(&self) -> Vec<Vec<ResultLine>> {
        let lines = self.lines();
        let last_of = |one: &ResultLine| {
            let same = |line: &&ResultLine| line.cycle.name() == one.cycle.name();
            lines.iter().rfind(same).map(|line| line.commit.clone())
        };
        let mut groups: Vec<Vec<ResultLine>> = Vec::new();
        for line in &lines {
            if last_of(line).as_ref() != Some(&line.commit) {
                continue;
            }
            let kind = |of: &[ResultLine]| {
                let first = of.first().map(|line| (&line.commit, line.cycle.machine));
                first == Some((&line.commit, line.cycle.machine))
            };
            match groups.iter_mut().find(|group| kind(group)) {
                Some(group) => group.push(line.clone()),
                None => groups.push(vec![line.clone()]),
            }
        }
        groups
    }
}

/// Does something with the file while no other run does.
fn locked<T>(file: &mut File, act: impl FnOnce(&mut File) -> io::Result<T>) -> io::Result<T> {
    flock(&*file, FlockOperation::LockExclusive)?;
    let done = act(file);
    let freed = flock(&*file, FlockOperation::Unlock);
    let done = done?;
    freed?;
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{lab::PoolOn, ledger::Verdict};

    fn line(commit: &str, workload: &'static str) -> ResultLine {
        ResultLine {
            commit: commit.to_owned(),
            seed: 1,
            command: "make powercut".to_owned(),
            accelerator: "namespace".to_owned(),
            cycle: Cycle {
                workload: workload.into(),
                machine: MachineKind::Namespace,
                seed: 3,
                number: 0,
                pool: PoolOn::Memory,
                moment: "pool full".into(),
                reached: true,
                cut_after: vec![1.5],
                seconds: 2.0,
                acknowledged: 9,
                unflushed: 2,
                dropped: 1,
                verdict: Verdict::default(),
                unusable: None,
                flash: None,
            },
        }
    }

    #[test]
    fn a_later_run_goes_on_with_the_cycles_of_the_same_sources() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results");
        let results = ResultsFile::open(&path).unwrap();
        results.add(line("a", "etcd")).unwrap();
        results.add(line("b", "etcd")).unwrap();
        results.add(line("a", "nats")).unwrap();
        results.add(line("unknown", "valkey")).unwrap();
        // Killed while it wrote.
        let mut text = std::fs::read_to_string(&path).unwrap();
        text.push_str("{\"commit\":");
        std::fs::write(&path, text).unwrap();

        let results = ResultsFile::open(&path).unwrap();
        results.add(line("b", "etcd")).unwrap();
        let results = ResultsFile::open(&path).unwrap();
        let count = |commit, machine| results.count(commit, machine, "etcd");
        assert_eq!(count("a", MachineKind::Namespace), 1);
        assert_eq!(count("b", MachineKind::Namespace), 2);
        assert_eq!(count("b", MachineKind::Emulated), 0);
        let unknown = results.count("unknown", MachineKind::Namespace, "valkey");
        assert_eq!(unknown, 0, "they may be of any sources");
        let groups = results.newest();
        let said: Vec<(&str, &str, usize)> = groups
            .iter()
            .map(|group| (&*group[0].commit, &*group[0].cycle.workload, group.len()))
            .collect();
        assert_eq!(
            said,
            [("b", "etcd", 2), ("a", "nats", 1), ("unknown", "valkey", 1)]
        );
    }

    #[test]
    fn a_line_that_another_run_writes_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results");
        let other = File::options().create(true).append(true).open(&path);
        let mut other = other.unwrap();
        let text = serde_json::to_string(&line("a", "etcd")).unwrap() + "\n";
        let (half, rest) = text.split_at(9);
        std::thread::scope(|scope| {
            let opened = locked(&mut other, |other| {
                other.write_all(half.as_bytes())?;
                let opened = scope.spawn(|| ResultsFile::open(&path).map_err(|e| e.to_string()));
                std::thread::sleep(std::time::Duration::from_millis(200));
                other.write_all(rest.as_bytes())?;
                Ok(opened)
            });
            let opened = opened.unwrap().join().unwrap().unwrap();
            assert_eq!(opened.lines().len(), 1);
        });
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }

    #[test]
    fn a_line_that_is_no_result_is_refused_with_its_number() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results");
        std::fs::write(&path, "{}\n").unwrap();
        let refused = ResultsFile::open(&path).err().unwrap().to_string();
        assert!(refused.contains("line 1: missing field"), "{refused}");
    }
}
