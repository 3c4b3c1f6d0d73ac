/* Children of every kind, of a process that has a.log open and wrote 100 bytes 'a' to it, acknowledged.
 *
 * `children vfork`: one of vfork opens it with O_TRUNC, and writes and syncs "new".
 * `children handler`: one of fork, by a signal handler above a write of 100 bytes 'b', whose position is just being asked for. In the child, too,
 * the handler returns into that write; then both sync it, and write and sync 100 bytes of their own.
 *
 * `children jump`: a handler jumps out of such a write, five times; the program, and a child of fork that opened the file before, go on writing and
 * syncing 100 bytes 'c' and 'd', a hundred times each.
 *
 * Then the program and its supervisor are killed. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

static int fd;
static volatile pid_t child = -1;
static sigjmp_buf out;
static volatile int jumps;

static void truncate_and_write(void) {
    int own = open("a.log", O_WRONLY | O_TRUNC);
    _exit(own < 0 || write(own, "new", 3) != 3 || fsync(own) != 0);
}

/* Instead of lseek(.., .., SEEK_CUR), which is trapped, after something was appended. */
static void trapped(int signal, siginfo_t *info, void *context) {
    ucontext_t *thread = context;
    struct stat stat;
    if (jumps > 0) {
        jumps--;
        siglongjmp(out, 1);
    }
    if (child < 0)
        child = fork();
    fstat(fd, &stat);
#ifdef __x86_64__
    thread->uc_mcontext.gregs[REG_RAX] = stat.st_size;
#else
    thread->uc_mcontext.regs[0] = stat.st_size;
#endif
    (void)signal, (void)info;
}

static int trap_lseek(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_lseek, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SEEK_CUR, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    struct sigaction action = {.sa_sigaction = trapped, .sa_flags = SA_SIGINFO | SA_NODEFER};
    return sigaction(SIGSYS, &action, 0) != 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0;
}

static int logged(char byte) {
    char bytes[100];
    memset(bytes, byte, sizeof bytes);
    return write(fd, bytes, sizeof bytes) == sizeof bytes && fsync(fd) == 0;
}

/* Deeper in the stack than the program's other calls. */
static int logged_below(char byte) {
    volatile char below[10000];
    for (size_t at = 0; at < sizeof below; at++)
        below[at] = byte;
    return logged(below[5000]);
}

static int go_on(char byte) {
    for (int turn = 0; turn < 50; turn++)
        if (!logged_below(byte) || !logged(byte))
            return 0;
    return 1;
}

static int jump(void) {
    int go[2];
    char byte;
    if (pipe(go) != 0 || trap_lseek() != 0)
        return 0;
    child = fork();
    if (child == 0) {
        fd = open("a.log", O_WRONLY | O_APPEND);
        _exit(!logged('d') || read(go[0], &byte, 1) != 1 || !go_on('d'));
    }
    for (volatile int turn = 0; turn < 5; turn++) {
        jumps = 1;
        if (sigsetjmp(out, 1) == 0)
            logged('b');
    }
    return write(go[1], "x", 1) == 1 && go_on('c');
}

int main(int argc, char **argv) {
    int status = 1;
    char kind = argc > 1 ? argv[1][0] : 0;
    alarm(60);
    fd = open("a.log", O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (!logged('a'))
        return 1;
    if (kind == 'v') {
        child = vfork();
        if (child == 0)
            truncate_and_write();
    } else if (kind == 'j') {
        if (!jump())
            return 5;
    } else if (trap_lseek() != 0 || !logged('b')) {
        return 3;
    } else if (child == 0) {
        _exit(!logged('c'));
    } else if (!logged('d')) {
        return 4;
    }
    if (waitpid(child, &status, 0) != child || status != 0)
        return 2;
    kill(getppid(), SIGKILL);
    kill(getpid(), SIGKILL);
}
