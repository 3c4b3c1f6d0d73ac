/* A child that shares its parent's memory, and not its descriptors, of a process that has a.log open and wrote 100 bytes 'a' to it, acknowledged.
 *
 * `vforked WAY KIND`: the child is one of vfork, or (`clone`) of clone with CLONE_VM, beside which its parent goes on. It puts other.txt in the place of the log's
 * descriptor, by WAY, and changes that; or (`copy`) it makes a duplicate of the log's descriptor, by WAY, and writes by that over what the log has, and syncs it. Then the
 * program writes and syncs 100 bytes 'b' to the log, and is killed with its supervisor. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static int fd, other;
static const char *way;

static int is(const char *name) { return strcmp(way, name) == 0; }

static int put(void) {
    if (is("dup2"))
        return dup2(other, fd) == fd;
    if (is("dup3"))
        return dup3(other, fd, O_CLOEXEC) == fd;
    if (is("range") ? syscall(SYS_close_range, fd, fd, 0) != 0 : close(fd) != 0)
        return 0;
    if (is("dup") || is("range"))
        return dup(other) == fd;
    if (is("fcntl"))
        return fcntl(other, F_DUPFD, 3) == fd;
    return open("other.txt", O_RDWR) == fd;
}

static int change(void *unused) {
    struct iovec part = {"vec", 3};
    struct stat stat;
    (void)unused;
    return !(put() && write(fd, "other", 5) == 5 && pwrite(fd, "X", 1, 2) == 1 && writev(fd, &part, 1) == 3 && fsync(fd) == 0 &&
             ftruncate(fd, 6) == 0 && lseek(fd, 0, SEEK_END) == 6 && posix_fallocate(fd, 0, 200) == 0 && fdatasync(fd) == 0 &&
             fstat(fd, &stat) == 0 && stat.st_size == 200);
}

static int copied(void) {
    if (is("dup2"))
        return dup2(fd, 100);
    if (is("dup3"))
        return dup3(fd, 100, O_CLOEXEC);
    return is("fcntl") ? fcntl(fd, F_DUPFD, 100) : dup(fd);
}

static int change_by_copy(void) {
    int copy = copied();
    return !(copy != fd && pwrite(copy, "child", 5, 10) == 5 && fsync(copy) == 0);
}

static int logged(char byte) {
    char bytes[100];
    memset(bytes, byte, sizeof bytes);
    return write(fd, bytes, sizeof bytes) == sizeof bytes && fsync(fd) == 0;
}

int main(int argc, char **argv) {
    int status = 1;
    pid_t child;
    if (argc < 3)
        return 1;
    way = argv[1];
    alarm(60);
    fd = open("a.log", O_RDWR | O_CREAT, 0600);
    other = open("other.txt", O_RDWR | O_CREAT, 0600);
    if (!logged('a'))
        return 2;
    if (strcmp(argv[2], "clone") == 0) {
        child = clone(change, (char *)malloc(1 << 16) + (1 << 16), CLONE_VM | SIGCHLD, 0);
    } else {
        child = vfork();
        if (child == 0)
            _exit(strcmp(argv[2], "copy") == 0 ? change_by_copy() : change(0));
    }
    if (waitpid(child, &status, 0) != child || status != 0)
        return 3;
    if (!logged('b'))
        return 4;
    kill(getppid(), SIGKILL);
    kill(getpid(), SIGKILL);
}
