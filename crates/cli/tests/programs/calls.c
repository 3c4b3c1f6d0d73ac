/* System calls on logs, of a program that no library can be put before. The first argument names
 * what it does. `cut` ends everything in its process group, as a power cut does. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #what, strerror(errno));                \
            exit(3);                                                                               \
        }                                                                                          \
    } while (0)

static void cut(void) {
    kill(0, SIGKILL);
    pause();
}

static void fill(char *bytes, int byte) { memset(bytes, byte, 100); }

static void logged(int fd, int byte, int times) {
    char bytes[100];
    fill(bytes, byte);
    for (int i = 0; i < times; i++)
        CHECK(write(fd, bytes, 100) == 100);
    CHECK(fdatasync(fd) == 0);
}

static int opened(int flags) {
    int fd = open("a.log", O_RDWR | O_CREAT | flags, 0640);
    CHECK(fd >= 0);
    return fd;
}

static void data(void) {
    void *volatile nowhere = (void *)16;
    umask(0);
    int fd = opened(0);
    struct stat stat;
    CHECK(fstat(fd, &stat) == 0 && (stat.st_mode & 0777) == 0640);
    logged(fd, 'a', 5);
    char bytes[100], more[100];
    fill(bytes, 'b');
    fill(more, 'c');
    CHECK(pwrite(fd, bytes, 100, 50) == 100);
    struct iovec parts[3] = {{bytes, 100}, {NULL, 0}, {more, 100}};
    CHECK(writev(fd, parts, 3) == 200);
    CHECK(pwritev(fd, parts, 3, 1000) == 200);
    CHECK(lseek(fd, 0, SEEK_CUR) == 700);
    CHECK(lseek(fd, 50, SEEK_SET) == 50);
    CHECK(read(fd, more, 100) == 100 && memcmp(more, bytes, 100) == 0);
    CHECK(lseek(fd, 0, SEEK_CUR) == 150);
    CHECK(ftruncate(fd, 1150) == 0);
    CHECK(lseek(fd, 0, SEEK_END) == 1150);
    CHECK(write(fd, nowhere, 8) == -1 && errno == EFAULT);
    CHECK(write(fd, bytes, 0) == 0);
    int twin = dup(fd), other = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    CHECK(twin >= 0 && other >= 0 && twin != other);
    CHECK((fcntl(other, F_GETFD) & FD_CLOEXEC) && !(fcntl(twin, F_GETFD) & FD_CLOEXEC));
    logged(twin, 'd', 2);
    CHECK(close(fd) == 0);
    CHECK(write(fd, bytes, 100) == -1 && errno == EBADF);
    logged(other, 'e', 2);
    int again = open("a.log", O_WRONLY | O_APPEND | O_DSYNC);
    CHECK(again >= 0);
    CHECK((fcntl(again, F_GETFL) & (O_APPEND | O_DSYNC | O_ACCMODE)) ==
          (O_APPEND | O_DSYNC | O_WRONLY));
    CHECK(write(again, bytes, 100) == 100);
    CHECK(fallocate(other, 0, 0, 4000) == 0);
    CHECK(write(again, bytes, 100) == 100);
    CHECK(fsync(twin) == 0);
}

static void names(void) {
    int fd = open("a.tmp.log", O_RDWR | O_CREAT | O_EXCL, 0600);
    CHECK(fd >= 0);
    CHECK(open("a.tmp.log", O_RDWR | O_CREAT | O_EXCL, 0600) == -1 && errno == EEXIST);
    logged(fd, 'a', 5);
    CHECK(link("a.tmp.log", "a.link.log") == 0);
    CHECK(link("a.tmp.log", "a.link.log") == -1 && errno == EEXIST);
    logged(fd, 'l', 1);
    CHECK(unlink("a.link.log") == 0);
    CHECK(rename("a.tmp.log", "a.log") == 0);
    logged(fd, 'b', 5);
    CHECK(rename("a.tmp.log", "a.log") == -1 && errno == ENOENT);
    int other = open("b.log", O_RDWR | O_CREAT, 0600);
    CHECK(other >= 0);
    logged(other, 'x', 5);
    CHECK(unlink("b.log") == 0);
    CHECK(access("b.log", F_OK) == -1);
    CHECK(mkdir("dir", 0700) == 0);
    int dir = open("dir", O_RDONLY | O_DIRECTORY);
    int below = openat(dir, "c.log", O_RDWR | O_CREAT, 0600);
    CHECK(below >= 0);
    logged(below, 'c', 3);
    CHECK(renameat(dir, "c.log", AT_FDCWD, "c.log") == 0);
    CHECK(truncate("a.log", 900) == 0);
    struct timespec times[2] = {{1, 0}, {2, 0}};
    CHECK(utimensat(AT_FDCWD, "c.log", times, 0) == 0);
    logged(fd, 'd', 1);
}

/* A log gets a number that it may not have, or is mapped: its file is plain from then on. */
static void plain(void) {
    int fd = opened(0);
    logged(fd, 'a', 5);
    CHECK(dup2(fd, 5) == 5);
    logged(5, 'b', 5);
    logged(fd, 'c', 5);
    char bytes[100];
    fill(bytes, 'd');
    CHECK(pwrite(5, bytes, 100, 0) == 100);
    CHECK(fdatasync(5) == 0);
}

static void mapped(void) {
    int fd = opened(0);
    logged(fd, 'a', 50);
    char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(map != MAP_FAILED);
    memset(map, 'm', 100);
    CHECK(msync(map, 4096, MS_SYNC) == 0);
    logged(fd, 'b', 5);
}

/* A pipe and a socket have the number of a log that was to be synced with each write. */
static void reused(void) {
    char bytes[100];
    fill(bytes, 'r');
    int pipes[2], sockets[2], fd = -1;
    CHECK(pipe(pipes) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    CHECK(fcntl(pipes[1], F_SETFL, O_APPEND) == 0);
    for (int i = 0; i < 4; i++) {
        int to = i % 2 ? sockets[0] : pipes[1], from = i % 2 ? sockets[1] : pipes[0];
        fd = opened(O_DSYNC | O_APPEND);
        CHECK(fd >= 512 && write(fd, bytes, 100) == 100 && close(fd) == 0);
        CHECK((i < 2 ? dup2(to, fd) : fcntl(to, F_DUPFD, fd)) == fd);
        CHECK(write(fd, bytes, 100) == 100 && read(from, bytes, 100) == 100);
        CHECK(close(fd) == 0);
    }
    fd = opened(O_DSYNC | O_APPEND);
    CHECK(write(fd, bytes, 100) == 100 && dup2(pipes[1], fd) == fd);
    CHECK(close(pipes[0]) == 0 && signal(SIGPIPE, SIG_IGN) != SIG_ERR);
    CHECK(write(fd, bytes, 100) == -1 && errno == EPIPE);
    /* A file of its own that is none of the run's. */
    int other = open("other", O_RDWR | O_CREAT, 0600);
    CHECK(other >= 0 && dup2(other, fd) == fd);
    CHECK(write(fd, bytes, 100) == 100 && lseek(other, 0, SEEK_CUR) == 100);
    CHECK(close(fd) == 0);
    logged(opened(O_APPEND), 'a', 5);
}

/* A kernel that refuses the user leaves all as it is. */
static void refused(void) {
    int fd = opened(0);
    logged(fd, 'a', 5);
    CHECK(setuid(1000) == -1 && errno == EPERM);
    CHECK(syscall(SYS_setresgid, -1, 1000, -1) == -1 && errno == EPERM);
    logged(fd, 'b', 5);
}

/* With so many credentials before the descriptor. */
static void sent(int credentials) {
    int fd = opened(0), ends[2];
    logged(fd, 'a', 5);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    struct ucred own = {getpid(), getuid(), getgid()};
    size_t size = credentials * CMSG_SPACE(sizeof own) + CMSG_SPACE(sizeof(int));
    char byte = 'x', *control = calloc(1, size);
    struct iovec part = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = size};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    for (; credentials > 0; credentials--) {
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_CREDENTIALS;
        head->cmsg_len = CMSG_LEN(sizeof own);
        memcpy(CMSG_DATA(head), &own, sizeof own);
        head = (struct cmsghdr *)((char *)head + CMSG_SPACE(sizeof own));
    }
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    CHECK(sendmsg(ends[0], &message, 0) == 1);
    message.msg_controllen = size;
    CHECK(recvmsg(ends[1], &message, 0) == 1);
    int got;
    memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof got);
    logged(got, 'b', 5);
    CHECK(close(fd) == 0);
    logged(got, 'c', 5);
}

/* Children, which have the log by the same number, before and after they execute a program. */
static void forked(char **arguments) {
    int fd = opened(0);
    logged(fd, 'a', 5);
    for (int i = 0; i < 3; i++) {
        pid_t child = fork();
        if (child == 0) {
            logged(fd, 'b' + i, 5);
            if (i == 1)
                close(fd);
            if (i == 2) {
                char number[20];
                snprintf(number, sizeof number, "%d", fd);
                execl(arguments[0], arguments[0], "inherited", number, NULL);
            }
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    logged(fd, 'z', 5);
    pid_t child = fork();
    if (child == 0) {
        usleep(100000);
        logged(fd, 'y', 5);
        cut();
    }
    close(fd);
    pause();
}

static void *writer(void *argument) {
    int fd = *(int *)argument;
    char bytes[64];
    memset(bytes, 'a' + fd % 26, 64);
    for (int i = 0; i < 300; i++) {
        CHECK(write(fd, bytes, 64) == 64);
        CHECK(fdatasync(fd) == 0);
    }
    return NULL;
}

static void on_signal(int signal) { (void)signal; }

/* Many threads, which signals interrupt all the time: each call happens once. */
static void threads(void) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    pthread_t ids[8];
    int fds[8];
    for (int i = 0; i < 8; i++) {
        fds[i] = opened(O_APPEND);
        CHECK(pthread_create(&ids[i], NULL, writer, &fds[i]) == 0);
    }
    for (int i = 0; i < 3000; i++) {
        pthread_kill(ids[i % 8], SIGUSR1);
        usleep(20);
    }
    for (int i = 0; i < 8; i++)
        pthread_join(ids[i], NULL);
    struct stat stat;
    CHECK(fstat(fds[0], &stat) == 0 && stat.st_size == 8 * 300 * 64);
}

/* Closes all numbers that it may have, as daemons do. */
static void closes_all(void) {
    int fd = opened(0);
    logged(fd, 'a', 5);
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    for (rlim_t number = 3; number < limit.rlim_cur; number++)
        close(number);
    CHECK(write(fd, "x", 1) == -1 && errno == EBADF);
    fd = opened(0);
    CHECK(lseek(fd, 0, SEEK_END) == 500);
    logged(fd, 'b', 5);
}

/* Locks of its own end with its last descriptor, also with that of a child that died. */
static void locks(void) {
    int fd = opened(0);
    struct flock lock = {.l_type = F_WRLCK};
    CHECK(fcntl(fd, F_OFD_SETLK, &lock) == 0);
    int second = opened(0);
    CHECK(fcntl(second, F_OFD_SETLK, &lock) == -1);
    CHECK(close(fd) == 0);
    CHECK(fcntl(second, F_OFD_SETLK, &lock) == 0);
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    CHECK(waitpid(child, NULL, 0) == child);
    close(second);
    child = fork();
    if (child == 0) {
        int own = opened(0);
        CHECK(fcntl(own, F_OFD_SETLK, &lock) == 0);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    fd = opened(0);
    CHECK(fcntl(fd, F_OFD_SETLK, &lock) == 0);
    logged(fd, 'a', 5);
}

/* Goes on, whatever becomes of those above: `kill` by the test. Says how far it is. */
static void goes_on(char **arguments) {
    int flags = arguments[2] && strcmp(arguments[2], "dsync") == 0 ? O_DSYNC : 0;
    int fd = opened(flags);
    for (int i = 0; i < 200; i++) {
        char line[64];
        int length = snprintf(line, sizeof line, "%d\n", i);
        CHECK(write(fd, line, length) == length);
        if (!flags)
            CHECK(fdatasync(fd) == 0);
        CHECK(write(1, line, length) == length);
        char name[32];
        snprintf(name, sizeof name, "b%d.log", i % 7);
        int other = open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
        CHECK(other >= 0 && write(other, line, length) == length && fsync(other) == 0);
        char link[32];
        snprintf(link, sizeof link, "/proc/self/fd/%d", other);
        CHECK(linkat(AT_FDCWD, link, AT_FDCWD, "d.log", AT_SYMLINK_FOLLOW) == 0);
        CHECK(unlink("d.log") == 0);
        CHECK(close(other) == 0 && rename(name, "c.log") == 0 && unlink("c.log") == 0);
        usleep(1000);
    }
    exit(42);
}

/* Threads that close logs while others open them: nobody's log is closed but one's own. */
static void *closer(void *argument) {
    char name[32], bytes[32], found[32];
    int own = (int)(intptr_t)argument;
    for (int i = 0; i < 150; i++) {
        snprintf(name, sizeof name, "%d.log", own);
        int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
        CHECK(fd >= 0);
        int length = snprintf(bytes, sizeof bytes, "%d of %d", i, own);
        CHECK(write(fd, bytes, length) == length);
        CHECK(pread(fd, found, length, 0) == length && memcmp(found, bytes, length) == 0);
        if (i % 3 == 0) {
            int null = open("/dev/null", O_RDONLY);
            CHECK(null >= 0 && dup2(null, fd) == fd && close(null) == 0);
        }
        CHECK(close(fd) == 0);
    }
    return NULL;
}

static void closing(void) {
    pthread_t ids[8];
    for (int i = 0; i < 8; i++)
        CHECK(pthread_create(&ids[i], NULL, closer, (void *)(intptr_t)(i + 1)) == 0);
    for (int i = 0; i < 8; i++)
        pthread_join(ids[i], NULL);
    logged(opened(0), 'a', 5);
}

/* The program has a number of its own where a log would come, and then lowers its limit. */
static void numbers(void) {
    int fd = opened(0), null = open("/dev/null", O_RDONLY);
    logged(fd, 'a', 5);
    int own = fcntl(null, F_DUPFD, fd + 1);
    CHECK(own == fd + 1);
    int second = open("b.log", O_RDWR | O_CREAT, 0600);
    CHECK(second > own);
    logged(second, 'b', 5);
    char byte;
    CHECK(read(own, &byte, 1) == 0);
    struct rlimit limit = {512, 512};
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    int third = open("c.log", O_RDWR | O_CREAT | O_EXCL, 0600);
    CHECK(third >= 0 && third < 512);
    logged(third, 'c', 5);
    int twin = dup(fd);
    CHECK(twin >= 0 && twin < 512);
    logged(twin, 'd', 5);
    logged(fd, 'e', 5);
}

/* Duplicates of other things to where logs are, while logs come and go there. */
static void *duplicator(void *argument) {
    int least = *(int *)argument, null = open("/dev/null", O_RDONLY);
    for (int i = 0; i < 300; i++) {
        char byte;
        int made = fcntl(null, i % 2 ? F_DUPFD : F_DUPFD_CLOEXEC, least + i % 3);
        CHECK(made >= least && fcntl(made, F_GETFD) == (i % 2 ? 0 : FD_CLOEXEC));
        CHECK(read(made, &byte, 1) == 0 && lseek(made, 0, SEEK_END) == 0);
        CHECK(close(made) == 0);
    }
    return NULL;
}

static void duplicates(void) {
    int fd = opened(0), null = open("/dev/null", O_RDONLY);
    pthread_t ids[8];
    for (int i = 0; i < 8; i++)
        CHECK(pthread_create(&ids[i], NULL, i % 2 ? closer : duplicator,
                             i % 2 ? (void *)(intptr_t)(i + 1) : &fd) == 0);
    for (int i = 0; i < 8; i++)
        pthread_join(ids[i], NULL);
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    CHECK(fcntl(null, F_DUPFD, (int)limit.rlim_cur) == -1 && errno == EINVAL);
    int last = limit.rlim_cur - 1;
    CHECK(fcntl(null, F_DUPFD, last) == last);
    CHECK(fcntl(null, F_DUPFD, last) == -1 && errno == EMFILE);
    CHECK(fcntl(12345, F_DUPFD, last) == -1 && errno == EBADF);
    CHECK(fcntl(12345, F_DUPFD, last + 1) == -1 && errno == EBADF);
    logged(fd, 'a', 5);
}

/* The kernel knows that each write to it is to be synced. */
static int is_synced_really(int fd) {
    char name[64], said[256], *flags;
    snprintf(name, sizeof name, "/proc/self/fdinfo/%d", fd);
    int info = open(name, O_RDONLY);
    CHECK(info >= 0);
    ssize_t bytes = read(info, said, sizeof said - 1);
    CHECK(bytes > 0 && close(info) == 0);
    said[bytes] = 0;
    CHECK((flags = strstr(said, "flags:")) != NULL);
    return (strtol(flags + 6, NULL, 8) & O_DSYNC) != 0;
}

/* Becomes a process that nobody may look at. What is to be synced with each write still is. */
static void unseen(void) {
    char bytes[100];
    fill(bytes, 'u');
    int fd = opened(0), synced = open("b.log", O_RDWR | O_CREAT | O_DSYNC, 0600);
    logged(fd, 'a', 5);
    CHECK(synced >= 0 && write(synced, bytes, 100) == 100);
    CHECK(setuid(getuid()) == 0 && setresgid(-1, getgid(), -1) == 0);
    struct flock lock = {.l_type = F_WRLCK};
    CHECK(fcntl(synced, F_OFD_SETLK, &lock) == 0);
    CHECK(prctl(PR_SET_DUMPABLE, 0) == -1 && errno == EOPNOTSUPP);
    lock.l_type = F_UNLCK;
    CHECK(fcntl(synced, F_OFD_SETLK, &lock) == 0);
    /* A child that would make its parent invisible, too. */
    int status, before = is_synced_really(synced);
    pid_t child = vfork();
    if (child == 0) {
        close(synced);
        _exit(prctl(PR_SET_DUMPABLE, 0) == -1 && errno == EOPNOTSUPP ? 0 : 1);
    }
    CHECK(!before && waitpid(child, &status, 0) == child && status == 0);
    CHECK(write(synced, bytes, 100) == 100);
    CHECK(prctl(PR_SET_DUMPABLE, 0) == 0 && is_synced_really(synced));
    CHECK(fcntl(synced, F_GETFL) & O_DSYNC);
    CHECK(write(synced, bytes, 100) == 100 && lseek(synced, 0, SEEK_END) == 300);
    logged(fd, 'b', 5);
    int late = open("c.log", O_RDWR | O_CREAT | O_DSYNC, 0600);
    CHECK(late >= 0 && write(late, bytes, 100) == 100 && is_synced_really(late));
    child = fork();
    if (child == 0) {
        logged(fd, 'c', 5);
        CHECK(write(synced, bytes, 100) == 100 && is_synced_really(synced));
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(close(synced) == 0);
    logged(fd, 'd', 5);
}

/* The times of a log, by the calls that older programs make. */
static void times(void) {
    int fd = opened(0), dir = open(".", O_RDONLY | O_DIRECTORY);
    struct stat stat;
    logged(fd, 'a', 5);
    long pair[4] = {1, 2, 3, 4};
#ifdef SYS_utime
    CHECK(syscall(SYS_utime, "a.log", pair) == 0);
    CHECK(fstat(fd, &stat) == 0 && stat.st_atim.tv_sec == 1 && stat.st_mtim.tv_sec == 2);
    logged(fd, 'b', 5);
    CHECK(syscall(SYS_utimes, "a.log", pair) == 0);
    CHECK(fstat(fd, &stat) == 0 && stat.st_atim.tv_nsec == 2000 && stat.st_mtim.tv_sec == 3);
    logged(fd, 'c', 5);
    CHECK(syscall(SYS_futimesat, dir, "a.log", NULL) == 0);
    CHECK(fstat(fd, &stat) == 0 && stat.st_mtim.tv_sec > 1000);
    CHECK(syscall(SYS_futimesat, fd, NULL, pair) == 0);
    pair[1] = 1000000;
    CHECK(syscall(SYS_utimes, "a.log", pair) == -1 && errno == EINVAL);
    CHECK(fstat(fd, &stat) == 0 && stat.st_mtim.tv_sec == 3);
#endif
    CHECK(close(dir) == 0 && pair[0] == 1 && fstat(fd, &stat) == 0);
}

/* What was to be synced with each write still is by a number that no agent sees. */
static void dsync(void) {
    char bytes[100];
    fill(bytes, 'a');
    int fd = opened(O_DSYNC);
    CHECK(write(fd, bytes, 100) == 100);
    /* What the kernel refuses closes nothing. */
    CHECK(dup2(-1, fd) == -1 && errno == EBADF);
    CHECK(dup3(2, fd, O_APPEND) == -1 && errno == EINVAL);
    CHECK(syscall(SYS_close_range, fd, fd, 99) == -1 && errno == EINVAL);
    CHECK(fcntl(fd, F_GETFL) & O_DSYNC);
    CHECK(dup2(fd, 5) == 5);
    CHECK(fcntl(5, F_GETFL) & O_DSYNC && fcntl(fd, F_GETFL) & O_DSYNC);
    CHECK(lseek(5, 0, SEEK_CUR) == 100 && write(5, bytes, 100) == 100);
    CHECK(lseek(fd, 0, SEEK_CUR) == 200 && write(fd, bytes, 100) == 100);
    CHECK(lseek(5, 0, SEEK_CUR) == 300);
    /* It is plain by now, and its duplicates stay duplicates. */
    CHECK(dup2(fd, 6) == 6 && lseek(6, 10, SEEK_SET) == 10);
    CHECK(lseek(5, 0, SEEK_CUR) == 10 && lseek(fd, 300, SEEK_SET) == 300);
    CHECK(lseek(5, 0, SEEK_CUR) == 300 && close(6) == 0);
    int other = open("b.log", O_RDWR | O_CREAT | O_DSYNC, 0600);
    struct flock lock = {.l_type = F_WRLCK};
    CHECK(other >= 0 && fcntl(other, F_OFD_SETLK, &lock) == 0);
    CHECK(dup2(other, 6) == -1 && errno == EOPNOTSUPP);
    CHECK(write(other, bytes, 100) == 100);
}

/* A path below another root: `a.log` of `dir`, and not of the machine's. */
static void below(void) {
    CHECK(mkdir("dir", 0700) == 0);
    int dir = open("dir", O_RDONLY | O_DIRECTORY);
    int fd = openat(dir, "a.log", O_RDWR | O_CREAT, 0600);
    CHECK(dir >= 0 && fd >= 0);
    logged(fd, 'a', 5);
    uint64_t how[3] = {O_RDWR, 0, 0x10};
    int same = syscall(SYS_openat2, dir, "/a.log", how, sizeof how);
    CHECK(same >= 0);
    struct stat one, other;
    CHECK(fstat(fd, &one) == 0 && fstat(same, &other) == 0 && one.st_ino == other.st_ino);
    CHECK(lseek(same, 0, SEEK_END) == 500);
    logged(same, 'b', 5);
    CHECK(renameat(dir, "a.log", AT_FDCWD, "a.log") == 0);
    logged(opened(0), 'c', 1);
}

/* `O_DIRECT`: what is aligned is written, also from a copy of it. */
static void direct(void) {
    int fd = opened(O_DIRECT);
    char *bytes = aligned_alloc(4096, 8192);
    memset(bytes, 'a', 8192);
    CHECK(write(fd, bytes, 8192) == 8192);
    CHECK(pwrite(fd, bytes, 4096, 8192) == 4096);
    CHECK(fdatasync(fd) == 0);
    CHECK(lseek(fd, 0, SEEK_SET) == 0 && read(fd, bytes, 4096) == 4096 && bytes[4095] == 'a');
}

/* Restricts itself, and may not unlink any more what an agent could. */
static void restricted(void) {
    int fd = opened(0);
    logged(fd, 'a', 5);
    uint64_t rules[1] = {1 << 5};
    int set = syscall(444, rules, sizeof rules, 0);
    if (set < 0)
        return;
    CHECK(syscall(SYS_prctl, 38, 1, 0, 0, 0) == 0 && syscall(446, set, 0) == 0);
    CHECK(unlink("a.log") == -1 && errno == EACCES);
    logged(fd, 'b', 5);
}

/* Executes a program in what is like a container: without `kcmp` and `unshare`. */
static void contained(char **arguments) {
    /* The number; two that are refused with EPERM; all others are allowed. */
    struct {
        unsigned short code;
        unsigned char yes, no;
        unsigned k;
    } steps[] = {{0x20, 0, 0, 0},
                 {0x15, 1, 0, SYS_kcmp},
                 {0x15, 0, 1, SYS_unshare},
                 {0x06, 0, 0, 0x00050000 | EPERM},
                 {0x06, 0, 0, 0x7FFF0000}};
    struct {
        unsigned short count;
        void *steps;
    } filter = {sizeof steps / sizeof *steps, steps};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, 2, &filter) == 0);
    execv(arguments[2], arguments + 2);
    CHECK(0);
}

/* Another program in its place, when it has written a log. */
static void executes(char **arguments) {
    logged(opened(O_CLOEXEC), 'e', 1);
    execv(arguments[2], arguments + 2);
    CHECK(0);
}

static int compare(const void *a, const void *b) {
    return (*(double *)a > *(double *)b) - (*(double *)a < *(double *)b);
}

/* How long a write and its sync take. */
static void timed(void) {
    int fd = opened(0);
    char bytes[100];
    fill(bytes, 't');
    static double took[20000];
    for (int i = 0; i < 20000; i++) {
        struct timespec begun, ended;
        clock_gettime(CLOCK_MONOTONIC, &begun);
        CHECK(write(fd, bytes, 100) == 100 && fdatasync(fd) == 0);
        clock_gettime(CLOCK_MONOTONIC, &ended);
        took[i] = (ended.tv_sec - begun.tv_sec) * 1e6 + (ended.tv_nsec - begun.tv_nsec) / 1e3;
    }
    qsort(took, 20000, sizeof *took, compare);
    printf("p50 %.1f us, p99 %.1f us\n", took[10000], took[19800]);
    exit(0);
}

int main(int count, char **arguments) {
    const char *what = count > 1 ? arguments[1] : "";
    alarm(120);
    if (strcmp(what, "data") == 0)
        data();
    else if (strcmp(what, "names") == 0)
        names();
    else if (strcmp(what, "plain") == 0)
        plain();
    else if (strcmp(what, "mapped") == 0)
        mapped();
    else if (strcmp(what, "sent") == 0)
        sent(0);
    else if (strcmp(what, "sent-behind") == 0)
        sent(2500);
    else if (strcmp(what, "reused") == 0)
        reused();
    else if (strcmp(what, "refused") == 0)
        refused();
    else if (strcmp(what, "duplicates") == 0)
        duplicates();
    else if (strcmp(what, "unseen") == 0)
        unseen();
    else if (strcmp(what, "times") == 0)
        times();
    else if (strcmp(what, "forked") == 0)
        forked(arguments);
    else if (strcmp(what, "inherited") == 0) {
        logged(atoi(arguments[2]), 'i', 5);
        return 0;
    } else if (strcmp(what, "threads") == 0)
        threads();
    else if (strcmp(what, "closes-all") == 0)
        closes_all();
    else if (strcmp(what, "locks") == 0)
        locks();
    else if (strcmp(what, "closing") == 0)
        closing();
    else if (strcmp(what, "numbers") == 0)
        numbers();
    else if (strcmp(what, "dsync") == 0)
        dsync();
    else if (strcmp(what, "below") == 0)
        below();
    else if (strcmp(what, "direct") == 0)
        direct();
    else if (strcmp(what, "restricted") == 0)
        restricted();
    else if (strcmp(what, "contained") == 0)
        contained(arguments);
    else if (strcmp(what, "executes") == 0)
        executes(arguments);
    else if (strcmp(what, "goes-on") == 0)
        goes_on(arguments);
    else if (strcmp(what, "timed") == 0)
        timed();
    else
        return 2;
    if (count > 2)
        return atoi(arguments[2]);
    cut();
}
