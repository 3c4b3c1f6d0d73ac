/* Says how many bytes of a thread's stack each call on files takes: "CALL BYTES" a line. The stack is painted before, and what of it is another colour
 * afterwards was used. Each call is made of a log and of a file that is none. `stacks handler` opens and writes a log in a signal handler with a stack
 * of 8 KiB, below which there is no memory, instead. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STACK = 256 << 10, PAINT = 0x5A, MANY = 1000 };

extern char **environ;
static const char *name, *other;
static int fd, pair[2];
static struct iovec parts[MANY];
static char *begun;

static int opened(int flags) { return open(name, O_RDWR | O_CREAT | flags, 0600); }

static int first_open(void) { return (fd = opened(0)) < 0; }
static int open_again(void) { return close(opened(0)); }
static int open_cut(void) { return close(opened(O_TRUNC)); }
static int open_synced(void) { return close(opened(O_DSYNC)); }
static int open_by_stream(void) { FILE *file = fopen(other, "a"); return !file || fclose(file); }
static int write_one(void) { return write(fd, "x", 1) != 1; }
static int write_block(void) { static char block[16384]; return pwrite(fd, block, sizeof block, 100) != sizeof block; }
static int write_few(void) { return writev(fd, parts, 3) != 24; }
static int write_some(void) { return writev(fd, parts, 64) != 512; }
static int write_many(void) { return pwritev(fd, parts, MANY, 0) != MANY * 8; }
static int write_by_number(void) { return syscall(SYS_write, fd, "x", 1) != 1; }
static int write_flags(void) { return pwritev2(fd, parts, 3, 0, RWF_DSYNC) != 24; }
static int synced(void) { return fsync(fd) || fdatasync(fd) || sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE); }
static int all_synced(void) { return syncfs(fd); }
static int read_one(void) { char byte; return lseek(fd, 0, SEEK_SET) || read(fd, &byte, 1) != 1 || pread(fd, &byte, 1, 0) != 1; }
static int cut_open(void) { return ftruncate(fd, 50); }
static int cut_named(void) { return truncate(name, 40); }
static int room(void) { return fallocate(fd, 0, 0, 8192) || posix_fallocate(fd, 0, 9000); }
static int timed(void) { struct timespec now[2] = {{0, UTIME_NOW}, {0, UTIME_NOW}}; return futimens(fd, now) || utimensat(AT_FDCWD, name, now, 0); }
static int doubled(void) { int again = dup(fd); return again < 0 || dup2(fd, again) != again || fcntl(again, F_SETFL, fcntl(again, F_GETFL)) || close(again); }
static int renamed(void) { return rename(name, other) || rename(other, name); }
static int dir_renamed(void) { return mkdir("dir", 0700) || rename("dir", "dir2") || rmdir("dir2"); }
static int linked(void) { return link(name, other) || unlink(other); }
static int gone(void) { int new = open(other, O_WRONLY | O_CREAT, 0600); return new < 0 || unlink(other) || close(new); }
static int removed(void) { int new = creat(other, 0600); return new < 0 || remove(other) || close(new); }
static int replaced(void) { int new = creat(other, 0600); return new < 0 || rename(other, name) || close(new); }
static int forked(void) { int child = fork(), status; if (!child) _exit(write(fd, "c", 1) != 1); return waitpid(child, &status, 0) != child || status; }
static int spawned(void) { char *words[] = {"true", 0}; pid_t child; int status; return posix_spawnp(&child, "true", 0, 0, words, environ) || waitpid(child, &status, 0) != child || status; }
static int executed(void) { char *words[] = {"true", 0}; int child = vfork(), status; if (!child) { execvp("true", words); _exit(1); } return waitpid(child, &status, 0) != child || status; }
static int printed(void) { return dprintf(fd, "%d\n", 7) != 2; }
static int passed(void) {
    char control[CMSG_SPACE(sizeof fd)] = {0};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET; head->cmsg_type = SCM_RIGHTS; head->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    return sendmsg(pair[0], &message, 0) != 8;
}
static int copied(void) { off_t from = 0; return sendfile(fd, fd, &from, 4) < 0; }
static int mapped(void) { char *memory = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0); return memory == MAP_FAILED || msync(memory, 4096, MS_SYNC) || munmap(memory, 4096); }
static int closed(void) { return close(fd); }

#define CALL(of) {#of, of}
static const struct { const char *said; int (*of)(void); } CALLS[] = {
    CALL(first_open), CALL(open_again), CALL(open_cut), CALL(open_synced), CALL(write_one), CALL(write_block), CALL(write_few), CALL(write_some),
    CALL(write_many), CALL(write_by_number), CALL(write_flags), CALL(synced), CALL(all_synced), CALL(read_one), CALL(cut_open), CALL(cut_named),
    CALL(room), CALL(timed), CALL(doubled), CALL(renamed), CALL(dir_renamed), CALL(linked), CALL(gone), CALL(removed), CALL(spawned), CALL(executed),
    CALL(forked), CALL(open_by_stream), CALL(printed), CALL(passed), CALL(copied), CALL(mapped), CALL(replaced), CALL(closed),
};

static void *called(void *at) {
    volatile char here = 0;
    begun = (char *)&here;
    return (void *)(intptr_t)CALLS[(size_t)at].of();
}

static int measured(size_t at, char *stack) {
    pthread_attr_t attributes;
    pthread_t thread;
    void *failed;
    memset(stack, PAINT, STACK);
    if (pthread_attr_init(&attributes) || pthread_attr_setstack(&attributes, stack, STACK)) return 1;
    if (pthread_create(&thread, &attributes, called, (void *)at) || pthread_join(thread, &failed)) return 1;
    char *lowest = stack;
    while (*lowest == PAINT) lowest++;
    printf("%s:%s %ld\n", name, CALLS[at].said, (long)(begun - lowest));
    if (failed) perror(CALLS[at].said);
    return failed != 0;
}

static volatile int done;
static void handler(int number) {
    int log = open("h.log", O_WRONLY | O_CREAT, 0600);
    done = number && log >= 0 && write(log, "x", 1) == 1 && fsync(log) == 0 && close(log) == 0 && rename("h.log", "i.log") == 0 && unlink("i.log") == 0;
}

static int handled(void) {
    enum { ROOM = 8192, GUARD = 65536 };
    char *memory = mmap(0, GUARD + ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack_t stack = {.ss_sp = memory + GUARD, .ss_size = ROOM};
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    if (memory == MAP_FAILED || mprotect(memory, GUARD, PROT_NONE) || sigaltstack(&stack, 0) || sigaction(SIGUSR1, &action, 0) || raise(SIGUSR1)) return 1;
    return !done;
}

int main(int count, char **words) {
    static const char *names[][2] = {{"plain", "plain2"}, {"a.log", "b.log"}};
    char *stack = mmap(0, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    for (int n = 0; n < MANY; n++) parts[n] = (struct iovec){"a part.", 8};
    if (count > 1 && !strcmp(words[1], "handler")) return handled();
    if (stack == MAP_FAILED || socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return 1;
    for (int which = 0; which < 2; which++)
        for (size_t at = 0; at < sizeof CALLS / sizeof *CALLS; at++) {
            name = names[which][0], other = names[which][1];
            if (measured(at, stack)) return 1;
        }
    return 0;
}
