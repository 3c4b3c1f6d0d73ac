//! Data and pool on one disk: a log that has its size before it is written stays plain, any other
//! is absorbed.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::Sandbox;

const CONFIG: &str = "[profile.mine]\nprograms = [\"python3\"]\nabsorb = [\"*.wal\", \"*.bin\"]\npreallocated = [\"*.wal\"]\n";
/// Writes and syncs both.
const PROGRAM: &str = "import os
for name in ('a.wal', 'a.bin'):
    file = os.open(name, os.O_CREAT | os.O_WRONLY)
    os.write(file, b'x' * 100)
    os.fdatasync(file)
";

#[test]
fn a_preallocated_file_on_the_pools_disk_is_plain_unless_asked() {
    let sandbox = Sandbox::on_disk();
    std::fs::write(sandbox.file("forebay.toml"), CONFIG).unwrap();
    std::fs::write(sandbox.file("writer.py"), PROGRAM).unwrap();
    sandbox
        .run("pool create p --disk --size 4MiB --segment-size 256KiB")
        .ok();
    let run = |options: &str| {
        let line =
            format!("run --pool p --config forebay.toml --explain {options} -- python3 writer.py");
        sandbox.run(&line).ok().stderr
    };
    let said = run("");
    let line = |said: &str, name: &str| {
        let found = said.lines().find(|line| line.contains(name));
        found
            .unwrap_or_else(|| panic!("{name} is not in {said}"))
            .to_owned()
    };
    let (log, other) = (line(&said, "a.wal"), line(&said, "a.bin"));
    assert!(
        log.contains("as the pool does: its own syncs are faster"),
        "{log}"
    );
    assert!(other.contains("absorbed"), "{other}");

    let said = run("--absorb-preallocated");
    assert!(!said.contains("its own syncs are faster"), "{said}");
    assert!(line(&said, "a.wal").contains("absorbed"), "{said}");
}

#[test]
fn a_pool_in_memory_absorbs_such_a_log_too() {
    let sandbox = Sandbox::on_disk();
    std::fs::write(sandbox.file("forebay.toml"), CONFIG).unwrap();
    std::fs::write(sandbox.file("writer.py"), PROGRAM).unwrap();
    sandbox.pool();
    let said = sandbox
        .run("run --pool p --config forebay.toml --explain -- python3 writer.py")
        .ok()
        .stderr;
    assert!(!said.contains("its own syncs are faster"), "{said}");
}
