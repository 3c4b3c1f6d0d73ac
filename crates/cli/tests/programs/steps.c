/* One system call on logs after the other, each of which a test may break off. The first argument
 * says how many steps are made, of all that there are without it. Each is acknowledged by a line. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static int left;
static int step;

/* Does it, unless there are no steps left, and says so. */
#define STEP(what)                                                                                 \
    do {                                                                                           \
        if (left-- == 0)                                                                           \
            exit(42);                                                                              \
        step++;                                                                                    \
        if (!(what)) {                                                                             \
            fprintf(stderr, "step %d: %s: %s\n", step, #what, strerror(errno));                    \
            exit(3);                                                                               \
        }                                                                                          \
        if (write(1, "done\n", 5) != 5)                                                            \
            exit(4);                                                                               \
    } while (0)

/* Other bytes at each step. */
static char *bytes(void) {
    static char filled[200];
    memset(filled, 'A' + step % 50, sizeof filled);
    return filled;
}

static int writes_two(int fd) {
    struct iovec parts[2] = {{bytes(), 30}, {bytes(), 40}};
    return writev(fd, parts, 2) == 70;
}

static int reads(int fd, char byte) {
    char found[10];
    return read(fd, found, 10) == 10 && found[0] == byte && found[9] == byte;
}

int main(int count, char **arguments) {
    int a, b, c, twin;
    left = count > 1 ? atoi(arguments[1]) : -1;
    STEP((a = open("a.log", O_RDWR | O_CREAT, 0600)) >= 0);
    STEP(write(a, bytes(), 100) == 100);
    STEP(fsync(a) == 0);
    STEP(write(a, bytes(), 100) == 100);
    STEP(pwrite(a, bytes(), 50, 20) == 50);
    STEP(fdatasync(a) == 0);
    STEP(lseek(a, 60, SEEK_SET) == 60);
    STEP(reads(a, 'F'));
    STEP(write(a, bytes(), 10) == 10);
    STEP(lseek(a, 0, SEEK_END) == 200);
    STEP(writes_two(a));
    STEP(fdatasync(a) == 0);
    STEP(ftruncate(a, 130) == 0);
    STEP(fsync(a) == 0);
    STEP((b = open("b.log", O_WRONLY | O_CREAT | O_APPEND | O_DSYNC, 0600)) >= 0);
    STEP(write(b, bytes(), 100) == 100);
    STEP(link("b.log", "link.log") == 0);
    STEP(write(b, bytes(), 100) == 100);
    STEP((twin = dup(b)) >= 0);
    STEP(close(b) == 0);
    STEP(rename("b.log", "renamed.log") == 0);
    STEP(write(twin, bytes(), 100) == 100);
    STEP(unlink("link.log") == 0);
    STEP((c = open("c.log", O_RDWR | O_CREAT | O_EXCL, 0600)) >= 0);
    STEP(write(c, bytes(), 150) == 150);
    STEP(fsync(c) == 0);
    STEP(renameat2(AT_FDCWD, "c.log", AT_FDCWD, "renamed.log", RENAME_EXCHANGE) == 0);
    STEP(write(c, bytes(), 100) == 100);
    STEP(fdatasync(c) == 0);
    STEP(truncate("renamed.log", 170) == 0);
    STEP(fallocate(c, 0, 0, 300) == 0);
    STEP(fsync(c) == 0);
    STEP(rename("renamed.log", "c.log") == 0);
    STEP(write(twin, bytes(), 20) == 20);
    STEP(lseek(a, 0, SEEK_END) == 130);
    STEP(write(a, bytes(), 100) == 100);
    STEP(fsync(a) == 0);
    STEP(close(a) == 0);
    exit(42);
}
