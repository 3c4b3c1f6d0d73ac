/* A LevelDB database that acknowledges what it wrote, for run_leveldb.rs.
 *
 *   leveldb DIR write FROM   writes pairs FROM, FROM + 1, … with sync, and prints the number of each once it is written
 *   leveldb DIR count        checks every pair from 0 on, prints their number, and fails if one is wrong or is there after a gap
 */
#include <leveldb/c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VALUE_MAX 3000

static void check(char *error) {
    if (error != NULL) {
        fprintf(stderr, "leveldb: %s\n", error);
        exit(1);
    }
}

/* The pair of a number; returns the length of its value. */
static size_t pair(unsigned long n, char key[24], char value[VALUE_MAX]) {
    size_t length = n * 2654435761u % VALUE_MAX;
    snprintf(key, 24, "key %016lu", n);
    memset(value, 'a' + (int)(n % 26), length);
    return length;
}

int main(int argc, char **argv) {
    char key[24], value[VALUE_MAX];
    char *error = NULL;
    if (argc < 3)
        return 2;
    leveldb_options_t *options = leveldb_options_create();
    leveldb_options_set_create_if_missing(options, 1);
    /* Small, so that logs come and go. */
    leveldb_options_set_write_buffer_size(options, 256 << 10);
    leveldb_t *db = leveldb_open(options, argv[1], &error);
    check(error);
    if (strcmp(argv[2], "write") == 0) {
        leveldb_writeoptions_t *sync = leveldb_writeoptions_create();
        leveldb_writeoptions_set_sync(sync, 1);
        for (unsigned long n = strtoul(argv[3], NULL, 10);; n++) {
            size_t length = pair(n, key, value);
            leveldb_put(db, sync, key, strlen(key), value, length, &error);
            check(error);
            printf("%lu\n", n);
            fflush(stdout);
        }
    }
    leveldb_readoptions_t *read = leveldb_readoptions_create();
    leveldb_readoptions_set_verify_checksums(read, 1);
    leveldb_iterator_t *at = leveldb_create_iterator(db, read);
    unsigned long n = 0;
    for (leveldb_iter_seek_to_first(at); leveldb_iter_valid(at); leveldb_iter_next(at), n++) {
        size_t length = pair(n, key, value), found;
        const char *bytes = leveldb_iter_key(at, &found);
        if (found != strlen(key) || memcmp(bytes, key, found) != 0) {
            fprintf(stderr, "leveldb: instead of %s there is %.*s\n", key, (int)found, bytes);
            return 1;
        }
        bytes = leveldb_iter_value(at, &found);
        if (found != length || memcmp(bytes, value, found) != 0) {
            fprintf(stderr, "leveldb: %s has a wrong value\n", key);
            return 1;
        }
    }
    leveldb_iter_get_error(at, &error);
    check(error);
    leveldb_iter_destroy(at);
    leveldb_close(db);
    printf("%lu\n", n);
    return 0;
}
