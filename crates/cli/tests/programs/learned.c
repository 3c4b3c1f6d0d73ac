/* A program that does what is hard on a tracer, for crates/cli/tests/learn.rs: threads that sync at once, a signal of real time that a
 * handler counts, a child by vfork, and a thread that executes. Prints what it did. Usage: learned LOG, or learned LOG again. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 4, SYNCS = 25 };

static const char *log_path;
static volatile sig_atomic_t signals;
static char **arguments;

static void count(int signal) {
    (void)signal;
    signals++;
}

static void *append(void *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s.%d", log_path, (int)(long)name);
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    for (int at = 0; at < SYNCS; at++) {
        if (write(file, "0123456789", 10) != 10 || fdatasync(file) != 0)
            _exit(3);
        kill(getpid(), SIGRTMIN + 3);
    }
    return NULL;
}

static void *executes(void *nothing) {
    (void)nothing;
    char *again[] = {arguments[0], arguments[1], "again", NULL};
    execv(arguments[0], again);
    _exit(4);
}

int main(int argc, char **argv) {
    arguments = argv;
    log_path = argv[1];
    if (argc > 2) {
        int file = open(log_path, O_WRONLY | O_CREAT | O_APPEND, 0600);
        for (int at = 0; at < SYNCS; at++)
            if (write(file, "x", 1) != 1 || fsync(file) != 0)
                return 5;
        printf("executed\n");
        return 6;
    }
    struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESTART};
    sigaction(SIGRTMIN + 3, &action, NULL);
    pthread_t threads[THREADS];
    for (long at = 0; at < THREADS; at++)
        pthread_create(&threads[at], NULL, append, (void *)at);
    for (int at = 0; at < THREADS; at++)
        pthread_join(threads[at], NULL);
    pid_t child = vfork();
    if (child == 0)
        _exit(0);
    waitpid(child, NULL, 0);
    printf("signals %s\n", signals > 0 ? "came" : "were lost");
    fflush(stdout);
    pthread_t last;
    pthread_create(&last, NULL, executes, NULL);
    pause();
    return 7;
}
