/* Reads and writes a log that is open with O_DIRECT, aligned and not, and says what each call returned. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define SAY(call) do { errno = 0; long result = (call); printf("%s: %ld %s\n", #call, result, result < 0 ? strerror(errno) : ""); } while (0)

static char *memory;

/* On a busy disk it would have to wait, now and then. */
static long without_waiting(int fd, const struct iovec *parts, int count, off_t at) {
    long result;
    for (int tries = 0; tries < 2000; tries++) {
        result = pwritev2(fd, parts, count, at, RWF_NOWAIT);
        if (result >= 0 || errno != EAGAIN) break;
        usleep(1000);
    }
    return result;
}

int main(void) {
    int fd = open("a.log", O_RDWR | O_CREAT | O_DIRECT, 0600);
    if (fd < 0 || posix_memalign((void **)&memory, 4096, 65536)) return 1;
    memset(memory, 'a', 65536);
    struct iovec whole[2] = {{memory, 4096}, {memory + 8192, 4096}}, part[2] = {{memory, 4096}, {memory + 8192, 100}}, odd = {memory + 1, 4096};
    SAY(pwrite(fd, memory, 8192, 0));
    SAY(pwrite(fd, memory, 100, 0));
    SAY(pwrite(fd, memory, 4096, 100));
    SAY(pwrite(fd, memory + 1, 4096, 0));
    SAY(pwritev(fd, whole, 2, 4096));
    SAY(pwritev(fd, part, 2, 4096));
    SAY(pwritev(fd, &odd, 1, 0));
    SAY(without_waiting(fd, whole, 2, 4096));
    SAY(pwritev2(fd, whole, 1, 4096, 0x40));
    SAY(write(fd, memory, 4096));
    SAY(write(fd, memory, 7));
    SAY(writev(fd, whole, 2));
    SAY(writev(fd, part, 2));
    SAY(pread(fd, memory, 4096, 0));
    SAY(pread(fd, memory, 100, 0));
    SAY(pread(fd, memory, 4096, 100));
    SAY(pread(fd, memory + 1, 4096, 0));
    SAY(pread(fd, memory, 100, 1 << 20));
    SAY(preadv(fd, whole, 2, 0));
    SAY(preadv(fd, part, 2, 0));
    SAY(preadv2(fd, part, 2, 0, 0));
    SAY(preadv2(fd, whole, 2, -1, 0));
    SAY(read(fd, memory, 7));
    SAY(readv(fd, &odd, 1));
    SAY(lseek(fd, 5, SEEK_SET));
    SAY(read(fd, memory, 4096));
    SAY(write(fd, memory, 4096));
    SAY(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_DIRECT));
    SAY(pwrite(fd, memory, 100, 3));
    SAY(pread(fd, memory, 100, 3));
    SAY(fsync(fd));
    return 0;
}
