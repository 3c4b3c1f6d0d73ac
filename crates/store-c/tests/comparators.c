/* Comparators under the library that stands in LevelDB's place: one of bytes, one of numbers, one that knows no case. */
#include <leveldb/c.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define CHECK(what)                                                     \
    do {                                                                \
        if (!(what)) {                                                  \
            fprintf(stderr, "line %d: not so: %s\n", __LINE__, #what); \
            exit(1);                                                    \
        }                                                               \
    } while (0)

static void nothing(void *state) { (void)state; }

static int by_bytes(void *state, const char *a, size_t a_len, const char *b, size_t b_len) {
    int order = memcmp(a, b, a_len < b_len ? a_len : b_len);
    (void)state;
    return order ? order : (a_len > b_len) - (a_len < b_len);
}

static int number(const char *key, size_t len) {
    char text[16] = "";
    memcpy(text, key, len < 15 ? len : 15);
    return atoi(text);
}

static int by_number(void *state, const char *a, size_t a_len, const char *b, size_t b_len) {
    (void)state;
    return number(a, a_len) - number(b, b_len);
}

static int without_case(void *state, const char *a, size_t a_len, const char *b, size_t b_len) {
    int order = strncasecmp(a, b, a_len < b_len ? a_len : b_len);
    (void)state;
    return order ? order : (a_len > b_len) - (a_len < b_len);
}

static const char *name(void *state) { return state; }

static leveldb_options_t *options;
static leveldb_comparator_t *comparator;

static leveldb_t *opened(const char *path, char *named,
                         int (*compare)(void *, const char *, size_t, const char *, size_t)) {
    char *error = NULL;
    leveldb_t *db;
    options = leveldb_options_create();
    comparator = leveldb_comparator_create(named, nothing, compare, name);
    leveldb_options_set_create_if_missing(options, 1);
    leveldb_options_set_comparator(options, comparator);
    db = leveldb_open(options, path, &error);
    if (error) fprintf(stderr, "%s\n", error);
    CHECK(db && !error);
    return db;
}

static void ended(leveldb_t *db, const char *path) {
    char *error = NULL;
    leveldb_close(db);
    leveldb_destroy_db(options, path, &error);
    CHECK(!error);
    leveldb_options_destroy(options);
    leveldb_comparator_destroy(comparator);
}

/* True if the put was refused for its key's order. */
static int refused(leveldb_t *db, const char *key) {
    leveldb_writeoptions_t *how = leveldb_writeoptions_create();
    leveldb_readoptions_t *now = leveldb_readoptions_create();
    char *error = NULL, *ignored = NULL, *found;
    size_t len;
    int is_refused;
    leveldb_put(db, how, key, strlen(key), "value", 5, &error);
    is_refused = error && strstr(error, "comparator") && strstr(error, "bytes");
    CHECK(is_refused || !error);
    found = leveldb_get(db, now, key, strlen(key), &len, &ignored);
    CHECK(!!found == !is_refused);
    leveldb_free(found);
    leveldb_free(ignored);
    leveldb_free(error);
    leveldb_writeoptions_destroy(how);
    leveldb_readoptions_destroy(now);
    return is_refused;
}

int main(int argc, char **argv) {
    char path[4096], *error = NULL;
    leveldb_t *db;
    leveldb_writebatch_t *batch = leveldb_writebatch_create();
    leveldb_writeoptions_t *how = leveldb_writeoptions_create();
    leveldb_readoptions_t *now = leveldb_readoptions_create();
    leveldb_iterator_t *iter;
    int i;
    CHECK(argc == 2);
    snprintf(path, sizeof path, "%s/store", argv[1]);

    db = opened(path, "bytes", by_bytes);
    for (i = 0; i < 300; i++) {
        char key[16];
        snprintf(key, sizeof key, "%d", i * 7919 % 1000);
        CHECK(!refused(db, key));
    }
    ended(db, path);

    db = opened(path, "numbers", by_number);
    CHECK(!refused(db, "2") && !refused(db, "3") && !refused(db, "10") == 0);
    CHECK(!refused(db, "7"));
    /* Of a batch that has such a key nothing is done. */
    leveldb_writebatch_put(batch, "80", 2, "", 0);
    leveldb_writebatch_put(batch, "9", 1, "", 0);
    leveldb_writebatch_delete(batch, "2", 1);
    leveldb_write(db, how, batch, &error);
    CHECK(error && strstr(error, "comparator numbers"));
    leveldb_free(error);
    iter = leveldb_create_iterator(db, now);
    for (i = 0, leveldb_iter_seek_to_first(iter); leveldb_iter_valid(iter); leveldb_iter_next(iter)) i++;
    CHECK(i == 3);
    leveldb_iter_destroy(iter);
    ended(db, path);

    db = opened(path, "no case", without_case);
    CHECK(!refused(db, "boat") && !refused(db, "ship") && refused(db, "BOAT"));
    ended(db, path);

    /* Keys that were written without it: an iterator says so. */
    db = opened(path, "bytes", by_bytes);
    CHECK(!refused(db, "9") && !refused(db, "10"));
    leveldb_close(db);
    leveldb_options_destroy(options);
    leveldb_comparator_destroy(comparator);
    db = opened(path, "numbers", by_number);
    iter = leveldb_create_iterator(db, now);
    leveldb_iter_seek_to_first(iter);
    CHECK(leveldb_iter_valid(iter));
    leveldb_iter_next(iter);
    error = NULL;
    leveldb_iter_get_error(iter, &error);
    CHECK(!leveldb_iter_valid(iter) && error && strstr(error, "comparator numbers"));
    leveldb_free(error);
    leveldb_iter_destroy(iter);
    ended(db, path);

    leveldb_writebatch_destroy(batch);
    leveldb_writeoptions_destroy(how);
    leveldb_readoptions_destroy(now);
    printf("as it should\n");
    return 0;
}
