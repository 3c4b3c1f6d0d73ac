/* What the programs of the peers in C share: keys and values of Puts, and the times that they take.
 *
 * A program is built with this file beside it (peers.rs).
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define KEY_BYTES 8
#define WINDOWS 4096
#define STRIDE 64

static char *values;

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* As lab/bench/src/data.rs: a bijection without a pattern. */
static uint64_t mix(uint64_t number) {
    uint64_t x = number + 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

static void put_big_endian(uint64_t number, char key[KEY_BYTES]) {
    for (int at = KEY_BYTES - 1; at >= 0; at--, number >>= 8)
        key[at] = (char)(number & 0xFF);
}

/* The value of a Put begins at one of WINDOWS places in `values`. */
static void make_values(size_t bytes, uint64_t seed) {
    size_t all = bytes + (size_t)WINDOWS * STRIDE;
    values = malloc(all + sizeof(uint64_t));
    if (values == NULL)
        exit(1);
    for (size_t at = 0; at < all; at += sizeof(uint64_t)) {
        uint64_t word = mix(seed + at);
        memcpy(values + at, &word, sizeof word);
    }
}

/* The arguments of workload put, and the times of its Puts so far. */
struct puts {
    uint64_t ops_max, seed, ops, room, start, last, end;
    size_t value_bytes, cache_bytes;
    int sync;
    uint64_t *latencies;
};

/* Reads OPS SECONDS VALUE_BYTES SEED SYNC CACHE_BYTES, and makes the values. The clock starts with start_puts. */
static struct puts puts_of(char **arguments) {
    struct puts puts = {.ops_max = strtoull(arguments[0], NULL, 10), .room = 1 << 20, .end = UINT64_MAX};
    double seconds_max = strtod(arguments[1], NULL);
    if (seconds_max > 0)
        puts.end = (uint64_t)(seconds_max * 1e9);
    puts.value_bytes = strtoull(arguments[2], NULL, 10);
    puts.seed = strtoull(arguments[3], NULL, 10);
    puts.sync = atoi(arguments[4]);
    puts.cache_bytes = strtoull(arguments[5], NULL, 10);
    puts.latencies = malloc(puts.room * sizeof *puts.latencies);
    make_values(puts.value_bytes, puts.seed);
    return puts;
}

static void start_puts(struct puts *puts) {
    puts->start = puts->last = now_ns();
    if (puts->end != UINT64_MAX)
        puts->end += puts->start;
}

/* True if there is another Put, whose key and value these are. */
static int next_put(const struct puts *puts, char key[KEY_BYTES], char **value) {
    put_big_endian(mix(puts->seed ^ mix(puts->ops)), key);
    *value = values + puts->ops % WINDOWS * STRIDE;
    return (puts->ops_max == 0 || puts->ops < puts->ops_max) && puts->last < puts->end;
}

static void time_put(struct puts *puts) {
    if (puts->ops == puts->room) {
        puts->room *= 2;
        puts->latencies = realloc(puts->latencies, puts->room * sizeof *puts->latencies);
    }
    if (puts->latencies == NULL)
        exit(1);
    uint64_t now = now_ns();
    puts->latencies[puts->ops++] = now - puts->last;
    puts->last = now;
}

static int by_size(const void *one, const void *other) {
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return a < b ? -1 : a > b;
}

/* The row of all Puts, once what they left in memory is written too. */
static void print_puts(const char *name, struct puts *puts) {
    uint64_t took = now_ns() - puts->start, ops = puts->ops, *latencies = puts->latencies;
    qsort(latencies, ops, sizeof *latencies, by_size);
    printf("{\"name\":\"%s\",\"mode\":\"%s\",\"ops\":%lu,\"seconds\":%.9f,\"p50_us\":%.3f,\"p99_us\":%.3f,\"p999_us\":%.3f,\"max_us\":%.3f}\n",
           name, puts->sync ? "sync" : "nosync", (unsigned long)ops, (double)took * 1e-9, latencies[ops / 2] * 1e-3,
           latencies[ops * 99 / 100] * 1e-3, latencies[ops * 999 / 1000] * 1e-3, latencies[ops - 1] * 1e-3);
}
