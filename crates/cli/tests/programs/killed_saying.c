/* Stands between Forebay and the C library: the first sync takes as long as it takes until progress is said, and the process is killed once it has said a line. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

int fdatasync(int fd)
{
    static atomic_flag slow = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&slow))
        usleep(1200000);
    return syscall(SYS_fdatasync, fd);
}

ssize_t write(int fd, const void *bytes, size_t count)
{
    ssize_t written = syscall(SYS_write, fd, bytes, count);
    if (fd == STDERR_FILENO && count && ((const char *)bytes)[count - 1] == '\n')
        raise(SIGKILL);
    return written;
}
