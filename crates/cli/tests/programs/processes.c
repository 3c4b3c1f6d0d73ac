/* Processes that make random calls on files, several at a time, and die at any of them.
 *
 * `processes crew SEED` begins LIVES lives at a time. A life is a row of steps: each is a call, or some, on three logs that it has alone, on
 * shared.log, to which all append, or on its own place in slots.log. What the steps are is drawn from the seed and the numbers of crew, life and step,
 * so no other process has a part in what they return and leave. A life is also a fork that goes on instead of its parent, and this program executed anew.
 * It ends by SIGKILL: of the crew, at any moment, or of the kernel, at a system call that it is denied.
 *
 * Each step is said on standard output: who, life, step, what, which log, what was returned, in one line. With CUT_OFF_PLAIN in the environment nothing
 * that returned when the disk was cut off already is said to have succeeded.
 *
 * `processes replay SEED WHO LIFE STEPS` makes the same calls in one process, which is not killed; after each step it says what its logs are: "=", the
 * step, the log, its name, its bytes, and their hash. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LIVES = 5, FILES = 3, STEPS_MAX = 400, RECORD = 256, PAGE = 4096, WRITE_MAX = 700 };

struct log {
    int number, renames, fd, flags;
};

static uint64_t seed;
static long who, life, step;
static struct log logs[FILES];
static int numbers, shared = -1, slots = -1;
/* A file on the disk that is cut off in the end, if syncs are the kernel's by then. */
static int disk = -1;
static int replays;
static const char *program;
/* By crew number: the process that its life is. */
static volatile pid_t *pids;

static uint64_t mixed(uint64_t value) {
    value += 0x9e3779b97f4a7c15;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
    value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
    return value ^ (value >> 31);
}

static uint64_t state;
static uint64_t draw(uint64_t below) { return (state = mixed(state)) % below; }

static uint64_t hash(const char *bytes, size_t length) {
    uint64_t hash = 0xcbf29ce484222325;
    for (size_t at = 0; at < length; at++)
        hash = (hash ^ (unsigned char)bytes[at]) * 0x100000001b3;
    return hash;
}

static void fail(const char *what) {
    fprintf(stderr, "processes: %ld %ld %ld: %s: %s\n", who, life, step, what, strerror(errno));
    exit(1);
}

/* An ext4 that is cut off (`xfs_io -c shutdown`) takes for durable what it gave up just then: `fsync` that was under way returns 0. From then on it refuses
 * every read, also of a page that it has in memory. No power cut is like that: who has its answer from a file system that is cut off by now has none. */
static int is_cut_off(void) {
    char byte;
    return disk >= 0 && read(disk, &byte, 1) < 0 && errno == EIO;
}

static void say(const char *what, int log, long returned) {
    char line[128];
    if (returned >= 0 && is_cut_off())
        returned = -1;
    int length = snprintf(line, sizeof line, "%ld %ld %ld %s %d %ld\n", who, life, step, what, log, returned < 0 ? -(long)errno : returned);
    if (write(STDOUT_FILENO, line, (size_t)length) != length)
        _exit(0);
    /* Only a disk that is cut off refuses a call: what would be done after that is compared with nothing. */
    if (returned < 0)
        _exit(1);
}

static char *name_of(const struct log *log) {
    static char name[64];
    snprintf(name, sizeof name, "%ld-%ld-%d.%d.log", who, life, log->number, log->renames);
    return name;
}

/* Never over the end of a page: what is killed in the middle of a write leaves all of it or nothing. */
static size_t up_to_page(off_t at, size_t bytes) {
    size_t left = PAGE - (size_t)(at % PAGE);
    return bytes < left ? bytes : left;
}

static long write_some(struct log *log) {
    char bytes[WRITE_MAX];
    size_t length = 1 + draw(WRITE_MAX);
    for (size_t at = 0; at < length; at++)
        bytes[at] = (char)('a' + draw(26));
    struct stat stat;
    if (fstat(log->fd, &stat) != 0)
        return -1;
    if (log->flags & O_APPEND)
        return write(log->fd, bytes, up_to_page(stat.st_size, length));
    if (draw(2) == 0) {
        off_t at = (off_t)draw((uint64_t)stat.st_size + 1);
        return pwrite(log->fd, bytes, up_to_page(at, length), at);
    }
    return write(log->fd, bytes, up_to_page(lseek(log->fd, 0, SEEK_CUR), length));
}

static long read_all(struct log *log) {
    static char bytes[1 << 20];
    ssize_t length = pread(log->fd, bytes, sizeof bytes, 0);
    return length < 0 ? -1 : (long)(hash(bytes, (size_t)length) >> 2);
}

static void open_next(struct log *log) {
    static const int some[] = {0, O_APPEND, O_APPEND, O_APPEND | O_DSYNC, O_DSYNC};
    *log = (struct log){.number = numbers++, .flags = some[draw(5)]};
    log->fd = open(name_of(log), O_RDWR | O_CREAT | O_EXCL | log->flags, 0600);
    say("open", log->number, log->fd < 0 ? -1 : 0);
}

static void open_again(struct log *log) {
    close(log->fd);
    log->fd = open(name_of(log), O_RDWR | log->flags);
    say("again", log->number, log->fd < 0 ? -1 : 0);
}

static void rename_log(struct log *log) {
    char from[64];
    strcpy(from, name_of(log));
    log->renames++;
    say("rename", log->number, rename(from, name_of(log)));
}

static void unlink_log(struct log *log) {
    long done = unlink(name_of(log));
    close(log->fd);
    log->fd = -1;
    say("unlink", log->number, done);
}

static void child_writes(struct log *log) {
    if (replays) {
        say("child", log->number, write_some(log));
        return;
    }
    pid_t child = fork();
    if (child < 0)
        fail("fork");
    if (child == 0) {
        say("child", log->number, write_some(log));
        _exit(0);
    }
    int status;
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        kill(getpid(), SIGKILL);
}

/* The child goes on, and this process ends. */
static void go_on_in_a_child(void) {
    if (!replays) {
        pid_t child = fork();
        if (child < 0)
            fail("fork");
        if (child > 0)
            _exit(0);
        pids[who] = getpid();
    }
    say("fork", 0, 0);
}

/* What is executed does not know which of its descriptors were opened with O_DSYNC (docs/files-limits.md, "Not seen"), and has to sync. */
static void execute(void) {
    for (int i = 0; i < FILES; i++)
        logs[i].flags &= ~O_DSYNC;
    if (replays) {
        say("exec", 0, 0);
        return;
    }
    char text[512];
    int length = snprintf(text, sizeof text, "%llu %ld %ld %ld %d %d %d", (unsigned long long)seed, who, life, step, numbers, shared, slots);
    for (int i = 0; i < FILES; i++)
        length += snprintf(text + length, sizeof text - (size_t)length, " %d %d %d %d", logs[i].number, logs[i].renames, logs[i].fd, logs[i].flags);
    execl(program, program, "goes-on", text, (char *)NULL);
    fail("exec");
}

static void begin_again(const char *text) {
    unsigned long long was;
    int used;
    if (sscanf(text, "%llu %ld %ld %ld %d %d %d%n", &was, &who, &life, &step, &numbers, &shared, &slots, &used) != 7)
        fail("its state");
    seed = was;
    for (int i = 0; i < FILES; i++) {
        int more;
        struct log *log = &logs[i];
        if (sscanf(text += used, "%d %d %d %d%n", &log->number, &log->renames, &log->fd, &log->flags, &more) != 4)
            fail("its state");
        used = more;
    }
    say("exec", 0, 0);
    step++;
}

/* A record of the log that all append to, or of the life's own place: who, life and step, and a hash. */
static void fill(char record[RECORD]) {
    memset(record, '.', RECORD);
    int length = snprintf(record, RECORD, "%ld %ld %ld ", who, life, step);
    record[length] = '.';
    snprintf(record + RECORD - 18, 18, "%016llx", (unsigned long long)hash(record, RECORD - 18));
    record[RECORD - 1] = '\n';
    record[RECORD - 2] = '>';
}

static void append_shared(void) {
    char record[RECORD];
    fill(record);
    long done = write(shared, record, RECORD);
    if (done == RECORD && draw(4) != 0)
        say("shared-synced", 0, draw(2) ? fsync(shared) : fdatasync(shared));
    else
        say("shared", 0, done);
}

static void write_slot(void) {
    char record[RECORD];
    fill(record);
    long done = pwrite(slots, record, RECORD, (life * LIVES + who) * RECORD);
    say("slot-synced", 0, done == RECORD ? fdatasync(slots) : -1);
}

/* The next call of this kind is the last. */
static void deny(int number) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog all = {sizeof filter / sizeof *filter, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all) != 0)
        fail("a filter of calls");
}

/* The kernel has the record, and this process dies when it asks where it went. */
static void die_in_an_append(void) {
    char record[RECORD];
    fill(record);
    deny(SYS_lseek);
    _exit(write(shared, record, RECORD) != RECORD);
}

/* Half of the lives end at a system call that they are denied. */
static void perhaps_die(void) {
    static const int calls[] = {SYS_write,  SYS_pwrite64, SYS_lseek,    SYS_fstat,  SYS_newfstatat, SYS_fdatasync, SYS_fsync, SYS_ftruncate, SYS_openat,
                                SYS_close,  SYS_fcntl,    SYS_sendmsg,  SYS_recvmsg, SYS_futex,     SYS_mmap,      SYS_munmap, SYS_execve,
                                SYS_rt_sigprocmask, SYS_pread64, SYS_pwritev2, SYS_flistxattr};
    uint64_t drawn = mixed(mixed(seed ^ (uint64_t)who << 40) ^ (uint64_t)life);
    if (replays || (uint64_t)step != drawn / 4 % 60)
        return;
    if (drawn % 4 == 0)
        die_in_an_append();
    if (drawn % 4 == 1)
        deny(calls[drawn / 256 % (sizeof calls / sizeof *calls)]);
}

static void take_step(void) {
    state = mixed(mixed(mixed(seed) + (uint64_t)who) + (uint64_t)life) + (uint64_t)step;
    struct log *log = &logs[draw(FILES)];
    uint64_t what = draw(100);
    if (what < 22)
        append_shared();
    else if (what < 32)
        write_slot();
    else if (what < 34)
        go_on_in_a_child();
    else if (what < 36)
        execute();
    else if (log->fd < 0)
        open_next(log);
    else if (what < 65)
        say(log->flags & O_DSYNC ? "written-synced" : "written", log->number, write_some(log));
    else if (what < 78)
        say("synced", log->number, draw(2) ? fsync(log->fd) : fdatasync(log->fd));
    else if (what < 84)
        say("truncated", log->number, ftruncate(log->fd, (off_t)draw(4 * WRITE_MAX)));
    else if (what < 88)
        rename_log(log);
    else if (what < 90)
        unlink_log(log);
    else if (what < 93)
        say("read", log->number, read_all(log));
    else if (what < 97)
        child_writes(log);
    else
        open_again(log);
}

static void list(void) {
    static char bytes[1 << 20];
    for (int i = 0; i < FILES; i++) {
        if (logs[i].fd < 0)
            continue;
        ssize_t length = pread(logs[i].fd, bytes, sizeof bytes, 0);
        printf("= %ld %d %s %zd %016llx\n", step, logs[i].number, name_of(&logs[i]), length, (unsigned long long)hash(bytes, (size_t)length));
    }
}

static void live(long steps) {
    for (; step < steps; step++) {
        perhaps_die();
        take_step();
        if (replays) {
            list();
            fflush(stdout);
        }
    }
    _exit(0);
}

static void begin(void) {
    for (int i = 0; i < FILES; i++)
        logs[i] = (struct log){.fd = -1};
    shared = open("shared.log", O_WRONLY | O_APPEND | O_CREAT, 0600);
    slots = open("slots.log", O_WRONLY | O_CREAT, 0600);
    if (shared < 0 || slots < 0)
        fail("opening");
}

static void share_pids(void) {
    int file = open("pids", O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, PAGE) != 0)
        fail("pids");
    pids = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (pids == MAP_FAILED)
        fail("pids");
    if (getenv("CUT_OFF_PLAIN") != NULL && (disk = open("pids", O_RDONLY | O_CLOEXEC)) < 0)
        fail("pids");
}

static void lead_the_crew(void) {
    static long lives[LIVES];
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    state = seed;
    for (;;) {
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
        for (who = 0; who < LIVES; who++) {
            if (pids[who] != 0 && kill(pids[who], 0) == 0)
                continue;
            life = lives[who]++;
            pid_t child = fork();
            if (child < 0)
                fail("fork");
            if (child == 0) {
                pids[who] = getpid();
                step = 0;
                begin();
                live(STEPS_MAX);
            }
            pids[who] = child;
        }
        usleep((useconds_t)draw(20000));
        if (draw(3) == 0)
            kill(pids[draw(LIVES)], SIGKILL);
    }
}

int main(int count, char **words) {
    program = words[0];
    if (count == 3 && strcmp(words[1], "crew") == 0) {
        seed = strtoull(words[2], NULL, 10);
        share_pids();
        lead_the_crew();
    } else if (count == 3 && strcmp(words[1], "goes-on") == 0) {
        share_pids();
        begin_again(words[2]);
        live(STEPS_MAX);
    } else if (count == 6 && strcmp(words[1], "replay") == 0) {
        replays = 1;
        seed = strtoull(words[2], NULL, 10);
        who = atol(words[3]);
        life = atol(words[4]);
        begin();
        live(atol(words[5]));
    }
    fprintf(stderr, "usage: processes crew SEED | processes replay SEED WHO LIFE STEPS\n");
    return 2;
}
