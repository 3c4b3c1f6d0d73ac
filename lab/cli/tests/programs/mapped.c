/* Reads a file by a mapping: its bytes' sum, by 64-bit words, on standard output; then tries to write to it, which ends the program
 * with SIGSEGV, or in its handler of that with status 9. `mapped FILE private|shared plain|handler`. With `given` for the last
 * it only writes the bytes to standard output, in one call, which gets pages that the program has not touched. */
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char *pages;

static void on_fault(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    _exit(info->si_addr == pages ? 9 : 10);
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    int flags = strcmp(argv[2], "private") ? MAP_SHARED : MAP_PRIVATE;
    int fd = open(argv[1], O_RDONLY);
    struct stat stat;
    if (fd < 0 || fstat(fd, &stat) != 0) return 3;
    size_t words = stat.st_size / 8;
    pages = mmap(NULL, stat.st_size, PROT_READ, flags, fd, 0);
    if (pages == MAP_FAILED) return 4;
    close(fd);
    if (!strcmp(argv[3], "given")) return write(1, pages, stat.st_size) == stat.st_size ? 0 : 6;
    /* A child reads first: what it touches is its own business. */
    pid_t child = fork();
    if (child == 0) _exit(pages[0] == pages[1] ? 0 : 1);
    int status;
    waitpid(child, &status, 0);
    uint64_t sum = 0;
    for (size_t at = 0; at < words; at++) sum += ((uint64_t *)pages)[at];
    printf("%llu\n", (unsigned long long)sum);
    fflush(stdout);
    if (!strcmp(argv[3], "handler")) {
        struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
        sigaction(SIGSEGV, &action, NULL);
    }
    pages[0] = 1;
    return 5;
}
