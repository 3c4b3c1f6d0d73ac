/* LevelDB's side of `forebay-lab fam` and of the peers in `forebay-lab wisckey`. Built with cc when it is needed (peers.rs).
 *
 *   leveldb DIR fam PAIRS PAIR_BYTES SEED
 *       P5's workloads, each in a database of its own below DIR but for the gets, which read what random_put wrote.
 *   leveldb DIR put OPS SECONDS VALUE_BYTES SEED SYNC CACHE_BYTES
 *       Puts of new 8-byte keys in random order, until OPS are done or SECONDS have passed (0: no such limit); then what is in
 *       memory is written to a table.
 *
 * Prints one JSON object a line for each workload.
 */
#define _GNU_SOURCE
#include <leveldb/c.h>
#include "puts.h"

static void check(char *error) {
    if (error != NULL) {
        fprintf(stderr, "leveldb: %s\n", error);
        exit(1);
    }
}

static leveldb_t *open_database(const char *dir, const char *name, size_t cache_bytes) {
    char path[4096], *error = NULL;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    leveldb_options_t *options = leveldb_options_create();
    leveldb_options_set_create_if_missing(options, 1);
    leveldb_options_set_compression(options, leveldb_no_compression);
    if (cache_bytes > 0)
        leveldb_options_set_cache(options, leveldb_cache_create_lru(cache_bytes));
    leveldb_t *database = leveldb_open(options, path, &error);
    check(error);
    return database;
}

static leveldb_writeoptions_t *write_options(int sync) {
    leveldb_writeoptions_t *options = leveldb_writeoptions_create();
    leveldb_writeoptions_set_sync(options, (unsigned char)sync);
    return options;
}

/* Number `at` of a round of `count` keys: in order, or each once in an order without a pattern. */
static uint64_t in_order(const uint64_t *order, uint64_t at) {
    return order == NULL ? at : order[at];
}

static uint64_t *shuffled(uint64_t count, uint64_t seed) {
    uint64_t *order = malloc(count * sizeof *order);
    if (order == NULL)
        exit(1);
    for (uint64_t at = 0; at < count; at++)
        order[at] = at;
    for (uint64_t at = count; at > 1; at--) {
        uint64_t other = mix(seed + at) % at, kept = order[at - 1];
        order[at - 1] = order[other];
        order[other] = kept;
    }
    return order;
}

static void say(const char *workload, uint64_t ops, uint64_t ns) {
    printf("{\"workload\":\"%s\",\"ops\":%lu,\"seconds\":%.9f}\n", workload, (unsigned long)ops, (double)ns * 1e-9);
    fflush(stdout);
}

static void put_all(leveldb_t *database, const uint64_t *order, uint64_t pairs, size_t value_bytes, int sync,
                    const char *workload) {
    char key[KEY_BYTES], *error = NULL;
    leveldb_writeoptions_t *options = write_options(sync);
    uint64_t start = now_ns();
    for (uint64_t at = 0; at < pairs; at++) {
        put_big_endian(in_order(order, at), key);
        leveldb_put(database, options, key, KEY_BYTES, values + at % WINDOWS * STRIDE, value_bytes, &error);
        check(error);
    }
    say(workload, pairs, now_ns() - start);
}

static void get_all(leveldb_t *database, const uint64_t *order, uint64_t pairs, size_t value_bytes, const char *workload) {
    char key[KEY_BYTES], *error = NULL;
    leveldb_readoptions_t *options = leveldb_readoptions_create();
    uint64_t start = now_ns();
    for (uint64_t at = 0; at < pairs; at++) {
        size_t found = 0;
        put_big_endian(in_order(order, at), key);
        char *value = leveldb_get(database, options, key, KEY_BYTES, &found, &error);
        check(error);
        if (value == NULL || found != value_bytes) {
            fprintf(stderr, "leveldb: a pair that was put is not there\n");
            exit(1);
        }
        leveldb_free(value);
    }
    uint64_t took = now_ns() - start;
    if (workload != NULL)
        say(workload, pairs, took);
}

static int fam(const char *dir, char **arguments) {
    uint64_t pairs = strtoull(arguments[0], NULL, 10), seed = strtoull(arguments[2], NULL, 10);
    size_t value_bytes = strtoull(arguments[1], NULL, 10) - KEY_BYTES;
    uint64_t *order = shuffled(pairs, seed), *other = shuffled(pairs, seed + pairs);
    make_values(value_bytes, seed);
    leveldb_t *database = open_database(dir, "sequential", 0);
    put_all(database, NULL, pairs, value_bytes, 0, "sequential_put");
    leveldb_close(database);
    database = open_database(dir, "sync", 0);
    put_all(database, order, pairs, value_bytes, 1, "random_put_sync");
    leveldb_close(database);
    database = open_database(dir, "random", 0);
    put_all(database, order, pairs, value_bytes, 0, "random_put");
    /* Opened again: what its log held comes into a table, so that gets read the device and not the memtable. */
    leveldb_close(database);
    database = open_database(dir, "random", 0);
    /* Once over everything first, as the other side does. */
    get_all(database, NULL, pairs, value_bytes, NULL);
    get_all(database, NULL, pairs, value_bytes, "sequential_get");
    get_all(database, other, pairs, value_bytes, "random_get");
    leveldb_close(database);
    return 0;
}

static int put(const char *dir, char **arguments) {
    char key[KEY_BYTES], *value, *error = NULL;
    struct puts puts = puts_of(arguments);
    leveldb_t *database = open_database(dir, "put", puts.cache_bytes);
    leveldb_writeoptions_t *options = write_options(puts.sync);
    start_puts(&puts);
    while (next_put(&puts, key, &value)) {
        leveldb_put(database, options, key, KEY_BYTES, value, puts.value_bytes, &error);
        check(error);
        time_put(&puts);
    }
    /* A compaction of the range that is empty writes the memtable first, and merges nothing else. */
    leveldb_compact_range(database, "", 0, "", 0);
    print_puts("leveldb", &puts);
    leveldb_close(database);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 6 && strcmp(argv[2], "fam") == 0)
        return fam(argv[1], argv + 3);
    if (argc == 9 && strcmp(argv[2], "put") == 0)
        return put(argv[1], argv + 3);
    fprintf(stderr, "leveldb: see the comment at the top of leveldb.c for the arguments\n");
    return 2;
}
