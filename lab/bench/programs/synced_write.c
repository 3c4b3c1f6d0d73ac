/* What `forebay-lab synced-write` runs (lab/bench/src/synced_write.rs), built twice: linked dynamically and statically.
 *
 *   synced_write FILE BYTES SECONDS OPERATION
 *       Does OPERATION again and again for SECONDS. A fifth of that more, which comes first, does not count. FILE is opened, appended to and
 *       synced in each case. OPERATION is one of
 *           write   appends BYTES to FILE by write(2) and syncs them by fdatasync(2); FILE is emptied whenever it has 32 MiB, untimed
 *           read    reads BYTES by pread(2) from FILE.data, which is in the page cache
 *           ping    sends BYTES through a TCP connection to itself and receives them
 *
 * Prints one JSON object.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int by_size(const void *one, const void *other) {
    uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;
    return a < b ? -1 : a > b;
}

static void check(int is_done, const char *what) {
    if (!is_done) {
        perror(what);
        exit(1);
    }
}

static double at_us(const uint32_t *times, uint64_t count, double share) {
    uint64_t at = (uint64_t)(share * (double)count);
    return times[at < count ? at : count - 1] / 1e3;
}

enum { LOG_MAX = 32 << 20, DATA_SIZE = 1 << 20 };

/* What an operation works on. */
struct place {
    char *record;
    size_t bytes;
    int log, data, sends, receives;
    uint64_t length, position;
};

static void append_synced(struct place *at) {
    check(write(at->log, at->record, at->bytes) == (ssize_t)at->bytes, "synced_write: write");
    check(fdatasync(at->log) == 0, "synced_write: fdatasync");
    at->length += at->bytes;
}

static void read_data(struct place *at) {
    check(pread(at->data, at->record, at->bytes, (off_t)at->position) == (ssize_t)at->bytes, "synced_write: pread");
    at->position = (at->position + 4096) % (DATA_SIZE - at->bytes);
}

static void ping(struct place *at) {
    check(send(at->sends, at->record, at->bytes, 0) == (ssize_t)at->bytes, "synced_write: send");
    check(recv(at->receives, at->record, at->bytes, MSG_WAITALL) == (ssize_t)at->bytes, "synced_write: recv");
}

static void make_data(struct place *at, const char *log) {
    char path[4096];
    check(snprintf(path, sizeof path, "%s.data", log) < (int)sizeof path, "synced_write: path");
    at->data = open(path, O_RDWR | O_CREAT, 0600);
    check(at->data >= 0 && at->bytes < DATA_SIZE, "synced_write: data");
    for (int written = 0; written < DATA_SIZE; written += 4096) {
        char page[4096] = {1};
        check(write(at->data, page, sizeof page) == sizeof page, "synced_write: data");
    }
}

static void connect_to_itself(struct place *at) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), now = 1;
    check(bind(listener, (struct sockaddr *)&address, size) == 0 && listen(listener, 1) == 0, "synced_write: listen");
    check(getsockname(listener, (struct sockaddr *)&address, &size) == 0, "synced_write: getsockname");
    at->sends = socket(AF_INET, SOCK_STREAM, 0);
    check(connect(at->sends, (struct sockaddr *)&address, size) == 0, "synced_write: connect");
    check(setsockopt(at->sends, IPPROTO_TCP, TCP_NODELAY, &now, sizeof now) == 0, "synced_write: setsockopt");
    at->receives = accept(listener, NULL, NULL);
    check(at->receives >= 0, "synced_write: accept");
}

int main(int argc, char **argv) {
    void (*operation)(struct place *) = NULL;
    if (argc == 5)
        operation = !strcmp(argv[4], "write") ? append_synced : !strcmp(argv[4], "read") ? read_data : !strcmp(argv[4], "ping") ? ping : NULL;
    if (!operation) {
        fprintf(stderr, "synced_write: FILE BYTES SECONDS write|read|ping\n");
        return 2;
    }
    struct place at = {.bytes = strtoull(argv[2], NULL, 10)};
    double seconds = strtod(argv[3], NULL);
    /* More than any round has. */
    uint64_t room = 1 << 24, count = 0;
    uint32_t *times = malloc(room * sizeof *times);
    at.record = malloc(at.bytes);
    check(times && at.record && at.bytes > 0, "synced_write: memory");
    memset(at.record, 'x', at.bytes);
    at.log = open(argv[1], O_WRONLY | O_CREAT | O_APPEND, 0600);
    check(at.log >= 0, "synced_write: open");
    append_synced(&at);
    if (operation == read_data)
        make_data(&at, argv[1]);
    if (operation == ping)
        connect_to_itself(&at);
    uint64_t last = now_ns(), counted = last + (uint64_t)(seconds * 2e8), begun = counted, end = counted + (uint64_t)(seconds * 1e9);
    while (last < end && count < room) {
        operation(&at);
        uint64_t now = now_ns(), took = now - last;
        if (last >= counted)
            times[count++] = took < UINT32_MAX ? (uint32_t)took : UINT32_MAX;
        else
            begun = now;
        last = now;
        if (at.length >= LOG_MAX) {
            check(ftruncate(at.log, 0) == 0, "synced_write: ftruncate");
            at.length = 0;
            last = now_ns();
        }
    }
    check(count > 0, "synced_write: no operation in time");
    qsort(times, count, sizeof *times, by_size);
    printf("{\"ops\":%llu,\"seconds\":%.9f,\"p50_us\":%.3f,\"p99_us\":%.3f,\"p999_us\":%.3f,\"max_us\":%.3f}\n", (unsigned long long)count,
           (last - begun) / 1e9, at_us(times, count, 0.5), at_us(times, count, 0.99), at_us(times, count, 0.999), at_us(times, count, 1.0));
    return 0;
}
