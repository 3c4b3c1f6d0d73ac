//! The numbers of descriptors are the program's: Forebay's own make way for them, and a low limit
//! changes nothing.

use crate::{absorbed, python, python_with};

/// Promise: as `a_plain_file_keeps_its_locks_when_it_is_opened_with_o_dsync`.
#[test]
fn the_clients_descriptors_make_way_for_the_programs() {
    let ran = python(
        r#"
fd = opened("a.log")
logged(fd)
libc = ctypes.CDLL(None, use_errno=True)
to = os.open("plain", os.O_RDWR | os.O_CREAT, 0o600)
for number in range(398, 410):
    assert os.dup2(to, number) == number
    assert libc.dup3(to, number, 0) == number
    os.write(number, b"0123456789")
assert os.stat("plain").st_size == 120
for number in range(398, 410):
    os.close(number)
assert [fcntl.fcntl(to, fcntl.F_DUPFD, 400) for _ in range(12)] == list(range(400, 412))
# Through the turns of a lane, and a new file.
logged(fd, 300)
logged(opened("b.log"), 7)
assert os.stat("plain").st_size == 120
libc.close_range(400, 0xffffffff, 0)
libc.close_range(to, 0xffffffff, 4)
logged(opened("c.log"), 3)
"#,
    )
    .ok();
    absorbed(&ran, "a.log", "301");
    absorbed(&ran, "b.log", "7");
    absorbed(&ran, "c.log", "3");
}

#[test]
fn a_low_descriptor_limit_and_a_spawned_child_change_nothing() {
    let ran = python(
        r#"
fd = opened("a.log")
logged(fd)
actions = [(os.POSIX_SPAWN_DUP2, 1, number) for number in range(399, 404)]
code = 'import os; os.write(401, b"spawned")'
child = os.posix_spawn(sys.executable, ["python3", "-c", code], os.environ, file_actions=actions)
assert os.waitpid(child, 0)[1] == 0
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (300, hard))
try:
    os.dup2(fd, 401)
except OSError as error:
    print(error.errno)
logged(fd, 300)
logged(opened("b.log"), 7)
resource.setrlimit(resource.RLIMIT_NOFILE, (402, hard))
for number in 400, 401:
    os.dup2(0, number)
logged(fd, 300)
"#,
    )
    .ok();
    assert_eq!(ran.text(), "spawned9\n", "{}", ran.stderr);
    absorbed(&ran, "a.log", "601");
    absorbed(&ran, "b.log", "7");
}

#[test]
fn descriptors_move_while_other_threads_use_them() {
    let ran = python(
        r#"
plain = os.open("plain", os.O_RDWR | os.O_CREAT, 0o600)
def log(name):
    for n in range(20):
        fd = opened(f"{name}{n}.log")
        logged(fd, 30)
        os.close(fd)
threads = [threading.Thread(target=log, args=(name,)) for name in "abc"]
for thread in threads:
    thread.start()
while any(thread.is_alive() for thread in threads):
    for number in range(400, 420):
        os.dup2(plain, number)
    for number in range(400, 420):
        os.close(number)
assert os.stat("plain").st_size == 0
"#,
    )
    .ok();
    // Sixty files: not all have a row.
    absorbed(&ran, "a0.log", "30");
}

#[test]
fn a_thread_that_joins_takes_no_number_another_thread_fills() {
    let ran = python(
        r#"
plain = os.open("plain", os.O_RDWR | os.O_CREAT, 0o600)
def log():
    fd = opened("a.log")
    logged(fd)
    os.close(fd)
def child():
    thread = threading.Thread(target=log)
    thread.start()
    while thread.is_alive():
        for number in range(400, 420):
            os.dup2(plain, number)
        for number in range(400, 420):
            os.close(number)
# Each child joins anew.
for n in range(100):
    id = os.fork()
    if id == 0:
        try:
            child()
            os._exit(0)
        except OSError as error:
            print(n, error, flush=True)
        os._exit(1)
    assert os.waitpid(id, 0)[1] == 0
assert os.stat("plain").st_size == 0
"#,
    )
    .ok();
    absorbed(&ran, "a.log", "100");
}

#[test]
fn threads_open_and_sync_while_another_awaits_the_supervisor() {
    let ran = python_with(
        "--disk",
        r#"
fd = opened("a.log")
logged(fd)
def started(work, *arguments):
    thread = threading.Thread(target=work, args=arguments)
    thread.start()
    return thread
os.kill(os.getppid(), signal.SIGSTOP)
while open(f"/proc/{os.getppid()}/stat").read().rsplit(") ", 1)[1][0] != "T":
    time.sleep(0.001)
try:
    asking = started(opened, "b.log")
    while not os.path.exists("b.log"):
        time.sleep(0.01)
    # It is being registered.
    time.sleep(0.3)
    threads = [started(fcntl.fcntl, 0, fcntl.F_DUPFD, 10)]
    time.sleep(0.3)
    threads.append(started(logged, fd))
    for thread in threads:
        thread.join(20)
    waiting = [thread.is_alive() for thread in (asking, *threads)]
finally:
    os.kill(os.getppid(), signal.SIGCONT)
assert waiting == [True, False, False], waiting
"#,
    )
    .ok();
    absorbed(&ran, "a.log", "2");
}
