/* Threads write to a log while another forks again and again; each child does the same with as many of its own. Then the program is killed with its supervisor. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 16
#define CHILDREN 400
#define WRITES 100

static int fd;
static atomic_int stop;

static void *writing(void *endless) {
    char bytes[100];
    memset(bytes, 'a', sizeof bytes);
    for (int n = 0; endless ? !stop : n < WRITES; n++)
        if (pwrite(fd, bytes, sizeof bytes, 0) != sizeof bytes)
            _exit(5);
    return 0;
}

static int begin(pthread_t threads[THREADS], void *endless) {
    int failed = 0;
    for (int n = 0; n < THREADS; n++)
        failed |= pthread_create(&threads[n], 0, writing, endless);
    return failed;
}

static int end(pthread_t threads[THREADS]) {
    int failed = 0;
    for (int n = 0; n < THREADS; n++)
        failed |= pthread_join(threads[n], 0);
    return failed;
}

int main(void) {
    pthread_t threads[THREADS];
    alarm(120);
    fd = open("a.log", O_RDWR | O_CREAT, 0600);
    if (begin(threads, &stop) != 0)
        return 2;
    for (int n = 0; n < CHILDREN; n++) {
        int status = 1;
        pid_t child = fork();
        if (child == 0) {
            /* One whose threads wait for ever. */
            alarm(60);
            _exit(begin(threads, 0) | end(threads));
        }
        if (waitpid(child, &status, 0) != child || status != 0)
            return 3;
    }
    stop = 1;
    if (end(threads) != 0 || fsync(fd) != 0)
        return 4;
    kill(getppid(), SIGKILL);
    kill(getpid(), SIGKILL);
}
