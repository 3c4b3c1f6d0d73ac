/* Changes a log by an io_uring after it was written and synced by calls: `ring CHANGE`. Linked to liburing.a no function of a library makes the ring. Then the
 * program is killed with its supervisor. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <liburing.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char block[4096];
static struct io_uring ring;

static struct io_uring_sqe *next(void) { return io_uring_get_sqe(&ring); }

static int done(void) {
    struct io_uring_cqe *end;
    if (io_uring_submit_and_wait(&ring, 1) != 1 || io_uring_wait_cqe(&ring, &end)) return -1;
    int result = end->res;
    io_uring_cqe_seen(&ring, end);
    return result;
}

static int written(int fd, char byte, long at) {
    memset(block, byte, sizeof block);
    io_uring_prep_write(next(), fd, block, sizeof block, at);
    return done() != sizeof block;
}

static int synced(int fd) {
    io_uring_prep_fsync(next(), fd, 0);
    return done();
}

static int called(int fd, char byte, long at) {
    memset(block, byte, sizeof block);
    return pwrite(fd, block, sizeof block, at) != sizeof block || fsync(fd);
}

int main(int count, char **words) {
    const char *change = count > 1 ? words[1] : "write";
    int is_synced = !strcmp(change, "synced");
    int fd = open("a.log", O_RDWR | O_CREAT | (is_synced ? O_DSYNC : 0), 0600);
    if (fd < 0 || called(fd, 'a', 0) || called(fd, 'b', 4096)) return 1;
    int failed = io_uring_queue_init(8, &ring, 0);
    if (failed) return fprintf(stderr, "no ring: %s\n", strerror(-failed)), 2;
    if (!strcmp(change, "write")) failed = written(fd, 'c', 0) || synced(fd);
    if (is_synced) failed = written(fd, 'c', 0);
    if (!strcmp(change, "append"))
        for (int n = 2; n < 5 && !failed; n++) failed = written(fd, 'd', 4096L * n) || synced(fd) || called(fd, 'e', 0);
    if (!strcmp(change, "replace")) {
        int other = open("other", O_RDWR | O_CREAT, 0600);
        failed = called(other, 'f', 0);
        io_uring_prep_renameat(next(), AT_FDCWD, "other", AT_FDCWD, "a.log", 0);
        failed |= done();
    }
    if (!strcmp(change, "remove")) {
        io_uring_prep_unlinkat(next(), AT_FDCWD, "a.log", 0);
        failed = done() || close(fd) || (fd = open("a.log", O_RDWR | O_CREAT | O_EXCL, 0600)) < 0 || called(fd, 'g', 0);
    }
    if (!strcmp(change, "cut")) {
        io_uring_prep_openat(next(), AT_FDCWD, "a.log", O_RDWR | O_TRUNC, 0);
        fd = done();
        failed = fd < 0 || written(fd, 'h', 0) || synced(fd);
    }
    if (failed) return 3;
    kill(getppid(), SIGKILL);
    kill(getpid(), SIGKILL);
    return 4;
}
