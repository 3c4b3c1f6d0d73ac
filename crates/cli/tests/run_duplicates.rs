//! A duplicate of a log's descriptor that one thread makes while another closes that: what is
//! written by it is the log's.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    Sandbox,
    recovered::{BEGIN, Disk, RUN, run_and_recovered, same},
};

/// Promise (files): Bytes that a program writes by a duplicate of a log's descriptor are the log's,
/// though another thread closed that descriptor meanwhile.
#[test]
fn writes_by_a_duplicate_survive_the_close_of_its_original() {
    let sandbox = Sandbox::new();
    common::build_library("slow_dup", sandbox.path());
    let script = r#"
fd = opened("a.log")
logged(fd, b"a")
lowest = os.dup(fd)
os.close(lowest)
copies = []
copying = threading.Thread(target=lambda: copies.append(libc.dup(fd)))
copying.start()
while not os.path.lexists(f"/proc/self/fd/{lowest}"):
    pass
os.close(fd)
copying.join()
logged(copies[0], b"b")
cut()
"#;
    let mut run = sandbox.command(RUN);
    run.env("LD_PRELOAD", sandbox.file("slow_dup.so"));
    let program = ["python3", "-c", &format!("{BEGIN}{script}")];
    let found = run_and_recovered(Disk::Synced, &sandbox, run, &program);
    assert_eq!(same(found), [[b'a'; 100], [b'b'; 100]].concat());
}
