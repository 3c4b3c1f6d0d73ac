/* LMDB's side of the peers in `forebay-lab wisckey`. Built with cc when it is needed (peers/other.rs).
 *
 *   lmdb DIR put OPS SECONDS VALUE_BYTES SEED SYNC CACHE_BYTES
 *       Puts of new 8-byte keys in random order, a transaction each, until OPS are done or SECONDS have passed (0: no such limit); then a
 *       sync. LMDB's cache is the kernel's: CACHE_BYTES is not used.
 *
 * Prints one JSON object.
 */
#define _GNU_SOURCE
#include <lmdb.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define KEY_BYTES 8
#define WINDOWS 4096
#define STRIDE 64
/* Address space, not memory. */
#define MAP_BYTES ((size_t)256 << 30)

static void check(int code) {
    if (code != 0) {
        fprintf(stderr, "lmdb: %s\n", mdb_strerror(code));
        exit(1);
    }
}

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

static int by_size(const void *one, const void *other) {
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return a < b ? -1 : a > b;
}

int main(int argc, char **argv) {
    if (argc != 9 || strcmp(argv[2], "put") != 0) {
        fprintf(stderr, "lmdb: see the comment at the top of lmdb.c for the arguments\n");
        return 2;
    }
    uint64_t ops_max = strtoull(argv[3], NULL, 10), seed = strtoull(argv[6], NULL, 10);
    double seconds_max = strtod(argv[4], NULL);
    size_t value_bytes = strtoull(argv[5], NULL, 10), all = value_bytes + (size_t)WINDOWS * STRIDE;
    int sync = atoi(argv[7]);
    uint64_t room = 1 << 20, ops = 0;
    uint64_t *latencies = malloc(room * sizeof *latencies);
    char *values = malloc(all + sizeof(uint64_t));
    if (latencies == NULL || values == NULL)
        return 1;
    for (size_t at = 0; at < all; at += sizeof(uint64_t)) {
        uint64_t word = mix(seed + at);
        memcpy(values + at, &word, sizeof word);
    }
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi database;
    check(mdb_env_create(&env));
    check(mdb_env_set_mapsize(env, MAP_BYTES));
    check(mdb_env_open(env, argv[1], sync ? 0 : MDB_NOSYNC, 0644));
    check(mdb_txn_begin(env, NULL, 0, &txn));
    check(mdb_dbi_open(txn, NULL, 0, &database));
    check(mdb_txn_commit(txn));
    uint64_t start = now_ns(), last = start, end = UINT64_MAX;
    if (seconds_max > 0)
        end = start + (uint64_t)(seconds_max * 1e9);
    while ((ops_max == 0 || ops < ops_max) && last < end) {
        char bytes[KEY_BYTES];
        uint64_t number = mix(seed ^ mix(ops));
        for (int at = KEY_BYTES - 1; at >= 0; at--, number >>= 8)
            bytes[at] = (char)(number & 0xFF);
        MDB_val key = {KEY_BYTES, bytes}, value = {value_bytes, values + ops % WINDOWS * STRIDE};
        check(mdb_txn_begin(env, NULL, 0, &txn));
        check(mdb_put(txn, database, &key, &value, 0));
        check(mdb_txn_commit(txn));
        if (ops == room) {
            room *= 2;
            latencies = realloc(latencies, room * sizeof *latencies);
            if (latencies == NULL)
                return 1;
        }
        uint64_t now = now_ns();
        latencies[ops++] = now - last;
        last = now;
    }
    check(mdb_env_sync(env, 1));
    uint64_t took = now_ns() - start;
    qsort(latencies, ops, sizeof *latencies, by_size);
    printf("{\"name\":\"lmdb\",\"mode\":\"%s\",\"ops\":%lu,\"seconds\":%.9f,\"p50_us\":%.3f,\"p99_us\":%.3f,\"p999_us\":%.3f,\"max_us\":%.3f}\n",
           sync ? "sync" : "nosync", (unsigned long)ops, (double)took * 1e-9, latencies[ops / 2] * 1e-3,
           latencies[ops * 99 / 100] * 1e-3, latencies[ops * 999 / 1000] * 1e-3, latencies[ops - 1] * 1e-3);
    mdb_env_close(env);
    return 0;
}
