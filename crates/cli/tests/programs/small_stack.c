/* A signal handler with a small stack, below which there is no memory, writes two parts to a log, in each of the ways. `small_stack BYTES`. Then the program is killed with its
 * supervisor. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#define GUARD (64 << 10)

static int fd;
static volatile ssize_t written;

static void handler(int number) {
    struct iovec parts[2] = {{"one ", 4}, {"two ", 4}};
    (void)number;
    written += writev(fd, parts, 2);
    written += pwritev(fd, parts, 2, 8);
    written += pwritev2(fd, parts, 2, 16, 0);
}

int main(int argc, char **argv) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    stack_t stack = {.ss_size = argc > 1 ? strtoul(argv[1], 0, 10) : 0};
    char *memory = mmap(0, GUARD + stack.ss_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, GUARD, PROT_NONE) != 0)
        return 2;
    stack.ss_sp = memory + GUARD;
    alarm(60);
    fd = open("a.log", O_WRONLY | O_CREAT, 0600);
    /* The hidden functions are found before. */
    handler(0);
    if (ftruncate(fd, 0) != 0 || lseek(fd, 0, SEEK_SET) != 0)
        return 3;
    written = 0;
    if (sigaltstack(&stack, 0) != 0 || sigaction(SIGUSR1, &action, 0) != 0 || raise(SIGUSR1) != 0)
        return 4;
    if (written != 24 || fsync(fd) != 0)
        return 5;
    kill(getppid(), SIGKILL);
    kill(getpid(), SIGKILL);
}
