/* A signal handler that works on a log, above a call of the program that is interrupted: an open() of a FIFO, which waits for a reader; or a pwrite() to the
 * log, which the kernel has done and of which there is no record yet.
 *
 * `handler own|truncating|shared|goes-on|writing`. Before: 300 bytes 'o' in a.log, acknowledged. The handler writes 100 bytes 'n' to their start and
 * syncs them: by a descriptor of its own, by one that it opened with O_TRUNC, or by the program's. Then the program and its supervisor are
 * killed; or, if it goes on, the program writes 100 bytes 'l' behind and syncs them, and it is killed then. */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

static char kind;
static int shared;
static volatile int done;
/* One record. */
static char large[256 << 10];
/* What the interrupted pwrite() writes. */
static volatile char current;

static void above_a_write(int signal) {
    char new[100], first = 0;
    memset(new, 'n', sizeof new);
    if (pread(shared, &first, 1, 0) != 1 || first != current)
        return;
    if (pwrite(shared, new, sizeof new, 0) == sizeof new && fsync(shared) == 0)
        done = 1;
    (void)signal;
}

static int write_interrupted(void) {
    struct sigaction action = {.sa_handler = above_a_write, .sa_flags = SA_RESTART};
    struct itimerval soon = {0}, never = {0};
    sigaction(SIGALRM, &action, 0);
    for (int n = 0; n < 10000 && !done; n++) {
        soon.it_value.tv_usec = 1 + n % 200;
        memset(large, current = 'A' + n % 26, sizeof large);
        setitimer(ITIMER_REAL, &soon, 0);
        if (pwrite(shared, large, sizeof large, 0) != sizeof large)
            return 4;
        setitimer(ITIMER_REAL, &never, 0);
        /* One that comes now is for what is written next. */
        current = 0;
    }
    return done ? 0 : 5;
}

static void work(int signal) {
    char new[100];
    memset(new, 'n', sizeof new);
    int fd = shared;
    if (kind != 's')
        fd = open("a.log", O_WRONLY | (kind == 't' ? O_TRUNC : 0));
    if (pwrite(fd, new, sizeof new, 0) == sizeof new && fsync(fd) == 0)
        done = 1;
    /* From now on the interrupted open goes on. */
    open("fifo.log", O_RDONLY | O_NONBLOCK);
    (void)signal;
}

int main(int argc, char **argv) {
    char bytes[300];
    kind = argc > 1 ? argv[1][0] : 0;
    memset(bytes, 'o', sizeof bytes);
    shared = open("a.log", O_RDWR | O_CREAT, 0600);
    if (pwrite(shared, bytes, 300, 0) != 300 || fsync(shared) != 0 || mkfifo("fifo.log", 0600) != 0)
        return 1;
    if (kind == 'w') {
        int failed = write_interrupted();
        if (failed)
            return failed;
        kill(getppid(), SIGKILL);
        kill(getpid(), SIGKILL);
    }
    struct sigaction action = {.sa_handler = work, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, 0);
    alarm(1);
    if (open("fifo.log", O_WRONLY) < 0 || !done)
        return 2;
    if (kind == 'g') {
        memset(bytes, 'l', 100);
        if (pwrite(shared, bytes, 100, 300) != 100 || fsync(shared) != 0)
            return 3;
    }
    kill(getppid(), SIGKILL);
    kill(getpid(), SIGKILL);
}
