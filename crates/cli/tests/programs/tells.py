"""Executes ./told in many ways, each with something else to inherit, and prints what it says."""
import errno, os, resource, signal, subprocess, sys

os.chdir(os.path.dirname(os.path.abspath(sys.argv[1])))
# The order of the others is the caller's.
search = os.environ["PATH"]
for name in list(os.environ):
    if not name.startswith(("FOREBAY", "LD_PRELOAD")):
        del os.environ[name]
os.environ.update({"PATH": search, "HOME": "/", "EMPTY": "", "TWO": "a=b"})
os.environ["SAY_PARENT"] = str(os.getpid())


def forked(work):
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            work()
        except OSError as error:
            os.write(1, f"failed {errno.errorcode[error.errno]}\n".encode())
        os._exit(7)
    # The program is this child, not one of it.
    print("status", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def spawned(function, path, words=("name", "a b"), **attributes):
    sys.stdout.flush()
    try:
        child = function(path, list(words), os.environ, **attributes)
    except OSError as error:
        print("failed", errno.errorcode[error.errno], flush=True)
        return
    print("status", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def with_mask():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGTERM})
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.execv("./told", ["own name", "-x", ""])


def closed():
    os.close(0)
    os.umask(0o27)
    os.setsid()
    os.nice(3)
    os.execve("./told", ["told"], {**os.environ, "MORE": "1"})


def many():
    os.execve("./told", ["told"] + [str(at) for at in range(3)] + ["x" * 5000], {**os.environ, **{f"V{at}": "v" for at in range(700)}})


def limited():
    resource.setrlimit(resource.RLIMIT_AS, (3 << 20, 3 << 20))
    os.execv("./told", ["told"])


pipe = os.pipe()
os.set_inheritable(pipe[0], True)
for work in [with_mask, closed, many, limited]:
    forked(work)
os.environ["PATH"] = "/nowhere:.:" + os.environ["PATH"]
forked(lambda: os.execvp("told", ["told"]))
forked(lambda: os.execv("./script", ["script", "-y"]))
forked(lambda: os.execve(os.open("./told", os.O_RDONLY), ["told"], os.environ))
for path in ["./none", "./unexecutable", "./broken", ".", "./text", "./without-loader"]:
    print(path)
    forked(lambda: os.execv(path, ["x"]))
    spawned(os.posix_spawn, path)
spawned(os.posix_spawn, "./told", setpgroup=0, setsigmask=[signal.SIGHUP], setsigdef=[signal.SIGPIPE])
spawned(os.posix_spawnp, "told", file_actions=[(os.POSIX_SPAWN_CLOSE, 0), (os.POSIX_SPAWN_DUP2, pipe[0], 9)])
print("shell", os.waitstatus_to_exitcode(os.system("./told shell; exec ./told again")), flush=True)
os.mkdir("below")
subprocess.run(["../told", "by subprocess"], cwd="below", stdin=subprocess.DEVNULL)
os.rmdir("below")
subprocess.run(["./told", "by subprocess"], close_fds=True, start_new_session=True)
