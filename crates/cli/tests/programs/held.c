/* A write that is held up where the kernel has it and the pool has not: one thread writes over the beginning of a.log, and the system call by which it is asked where that went
 * waits (seccomp) until the program hears "go". A child has b.log, and syncs it when the program hears "sync". Each says what it has done. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static int a;
/* What the held thread's calls are heard by, and a pipe that says that it is there. */
static int calls, is_there[2];

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void say(const char *what, long returned) {
    char line[64];
    int length = snprintf(line, sizeof line, "%s %ld\n", what, returned);
    if (write(STDOUT_FILENO, line, (size_t)length) != length)
        exit(1);
}

static int begin(const char *name) {
    int log = open(name, O_RDWR | O_CREAT, 0600);
    /* The first sync is a real one. */
    if (log < 0 || fsync(log) != 0 || write(log, "promised", 8) != 8 || fsync(log) != 0)
        fail(name);
    return log;
}

/* From now on lseek waits in this thread. */
static void hold_lseek(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_lseek, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog all = {sizeof filter / sizeof *filter, filter};
    calls = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
                ? -1
                : (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &all);
    if (calls < 0)
        fail("seccomp");
}

static void *write_held(void *unused) {
    hold_lseek();
    if (write(is_there[1], "", 1) != 1)
        fail("the pipe");
    say("written", write(a, "newer", 5));
    return unused;
}

int main(void) {
    char line[64];
    int to_child[2];
    if (pipe(to_child) != 0 || pipe(is_there) != 0)
        fail("pipe");
    pid_t child = fork();
    if (child == 0) {
        close(to_child[1]);
        int b = begin("b.log");
        say("began", 0);
        if (read(to_child[0], line, 1) == 1)
            say("synced", fsync(b));
        pause();
    }
    a = begin("a.log");
    if (child < 0 || lseek(a, 0, SEEK_SET) != 0)
        fail("lseek");
    say("began", 0);
    pthread_t thread;
    struct seccomp_notif call = {0};
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (strcmp(line, "write\n") == 0) {
            if (pthread_create(&thread, NULL, write_held, NULL) != 0 || read(is_there[0], line, 1) != 1)
                fail("a thread");
            if (ioctl(calls, SECCOMP_IOCTL_NOTIF_RECV, &call) != 0)
                fail("what is held");
            say("held", call.data.nr);
        } else if (strcmp(line, "sync\n") == 0) {
            if (write(to_child[1], "", 1) != 1)
                fail("the child");
        } else if (strcmp(line, "go\n") == 0) {
            struct seccomp_notif_resp answer = {.id = call.id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
            if (ioctl(calls, SECCOMP_IOCTL_NOTIF_SEND, &answer) != 0)
                fail("going on");
        }
    }
    return 0;
}
