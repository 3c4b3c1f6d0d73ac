/* Says what it was started with: whatever a program inherits. Linked statically. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

int main(int count, char **words) {
    for (int at = 0; at < count; at++)
        printf("word %s\n", words[at]);
    sigset_t blocked;
    sigprocmask(SIG_SETMASK, 0, &blocked);
    for (int signal = 1; signal < NSIG; signal++) {
        struct sigaction action;
        if (sigismember(&blocked, signal) == 1)
            printf("blocked %d\n", signal);
        if (sigaction(signal, 0, &action) == 0 && action.sa_handler == SIG_IGN)
            printf("ignored %d\n", signal);
    }
    for (int fd = 0; fd < 64; fd++) {
        char path[64], link[256];
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        ssize_t bytes = readlink(path, link, sizeof link - 1);
        /* A pipe's number differs from run to run. */
        if (bytes > 0)
            printf("open %d %.*s\n", fd, (int)strcspn((link[bytes] = 0, link), ":"), link);
    }
    char cwd[4096];
    printf("in %s, mask %o, group %d, session %d\n", getcwd(cwd, sizeof cwd), umask(0), getpgrp() == getpid(), getsid(0) == getpid());
    printf("nice %d, cannot gain %d\n", getpriority(PRIO_PROCESS, 0), prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
    for (char **variable = environ; *variable; variable++)
        if (strncmp(*variable, "FOREBAY", 7) && strncmp(*variable, "LD_PRELOAD", 10) && strncmp(*variable, "SAY_PARENT", 10))
            printf("variable %s\n", *variable);
    /* An agent is a filter more. */
    char *notes = getenv("FOREBAY_TEST_FILTERS"), line[256];
    FILE *status = notes ? fopen("/proc/self/status", "r") : 0, *note = status ? fopen(notes, "a") : 0;
    while (note && fgets(line, sizeof line, status))
        if (!strncmp(line, "Seccomp_filters:", 16))
            fprintf(note, "%d\n", atoi(line + 16));
    if (note)
        fclose(note);
    if (getenv("SAY_PARENT"))
        printf("parent %d\n", getppid() == atoi(getenv("SAY_PARENT")));
    return 5;
}
