/* Makes a ring by a function for system calls of its own, in which no number stands: `own_call before`, and then a log is opened and written; or `own_call`, after that. It says
 * what came of each: a descriptor, or a negative error number. Of the last one the C library is told (`syscall`). */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

long own(long number, long a, long b);
#if defined(__x86_64__)
__asm__(".globl own\nown:\n mov %rdi, %rax\n mov %rsi, %rdi\n mov %rdx, %rsi\n xor %edx, %edx\n syscall\n ret\n");
#else
__asm__(".globl own\nown:\n mov x8, x0\n mov x0, x1\n mov x1, x2\n mov x2, #0\n svc #0\n ret\n");
#endif

static char parameters[120];
static volatile long number = SYS_io_uring_setup;

static long ring(void) {
    memset(parameters, 0, sizeof parameters);
    return own(number, 8, (long)parameters);
}

int main(int count, char **words) {
    (void)words;
    long before = count > 1 ? ring() : 0;
    int fd = open("a.log", O_WRONLY | O_CREAT, 0600);
    if (write(fd, "logged", 6) != 6 || fsync(fd)) return 1;
    long after = ring();
    memset(parameters, 0, sizeof parameters);
    long announced = syscall(number, 8, parameters);
    printf("%ld %ld %ld\n", before, after, announced);
    return 0;
}
