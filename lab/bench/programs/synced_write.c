/* What `forebay-lab synced-write` runs (lab/bench/src/synced_write.rs), built twice: linked dynamically and statically.
 *
 *   synced_write FILE BYTES SECONDS
 *       Appends BYTES to FILE by write(2) and syncs them by fdatasync(2), again and again for SECONDS. A fifth of that more, which comes first,
 *       does not count.
 *
 * Prints one JSON object.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "synced_write: FILE BYTES SECONDS\n");
        return 2;
    }
    size_t bytes = strtoull(argv[2], NULL, 10);
    double seconds = strtod(argv[3], NULL);
    /* More than any round has. */
    uint64_t room = 1 << 24, count = 0;
    uint32_t *times = malloc(room * sizeof *times);
    char *record = malloc(bytes);
    int file = open(argv[1], O_WRONLY | O_CREAT | O_APPEND, 0600);
    check(times && record && bytes > 0, "synced_write: memory");
    check(file >= 0, "synced_write: open");
    memset(record, 'x', bytes);
    uint64_t last = now_ns(), counted = last + (uint64_t)(seconds * 2e8), begun = counted, end = counted + (uint64_t)(seconds * 1e9);
    while (last < end && count < room) {
        check(write(file, record, bytes) == (ssize_t)bytes, "synced_write: write");
        check(fdatasync(file) == 0, "synced_write: fdatasync");
        uint64_t now = now_ns(), took = now - last;
        if (last >= counted)
            times[count++] = took < UINT32_MAX ? (uint32_t)took : UINT32_MAX;
        else
            begun = now;
        last = now;
    }
    check(count > 0, "synced_write: no write in time");
    qsort(times, count, sizeof *times, by_size);
    printf("{\"ops\":%llu,\"seconds\":%.9f,\"p50_us\":%.3f,\"p99_us\":%.3f,\"p999_us\":%.3f,\"max_us\":%.3f}\n", (unsigned long long)count,
           (last - begun) / 1e9, at_us(times, count, 0.5), at_us(times, count, 0.99), at_us(times, count, 0.999), at_us(times, count, 1.0));
    return 0;
}
