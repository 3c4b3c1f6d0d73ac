/*
 * leveldb/c.h on libforebay_store: a library that a program of LevelDB's C interface is linked with
 * in LevelDB's place. docs/store-c.md, "In LevelDB's place", says what is different.
 *
 * It is C and not Rust, so that the compiler checks every function against LevelDB's own header.
 *
 * A comparator is a caller's order of keys, and the store has one order, that of their bytes. A
 * comparator of that order is taken, and watched: a key is compared with its two neighbours in the
 * store before it is written or looked up. If each key was in order among those before it, all are;
 * so a comparator of another order is found by the first key that shows it, and that is refused.
 */
#include <forebay/store.h>
#include <leveldb/c.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct leveldb_comparator_t {
    void *state;
    void (*destructor)(void *);
    int (*compare)(void *, const char *, size_t, const char *, size_t);
    const char *(*name)(void *);
};

/* Never called: it could only save work, and the index has filters of its own. */
struct leveldb_filterpolicy_t {
    void *state;
    void (*destructor)(void *);
};

struct leveldb_cache_t {
    size_t capacity;
};

struct leveldb_env_t {
    char unused;
};

struct leveldb_options_t {
    forebay_options_t *rep;
    leveldb_comparator_t *comparator;
    /* What a setter could not do, said by leveldb_open. */
    char *refused;
};

struct leveldb_t {
    forebay_t *rep;
    leveldb_comparator_t *comparator;
    forebay_readoptions_t *now;
    forebay_writeoptions_t *synced;
    /* Held from the look at a key's neighbours until it is written. */
    pthread_mutex_t watched;
};

struct leveldb_snapshot_t {
    const forebay_snapshot_t *rep;
    /* Why there is none: LevelDB's function cannot fail, and what reads as of it does. */
    char *refused;
};

struct leveldb_readoptions_t {
    forebay_readoptions_t *rep;
    const leveldb_snapshot_t *snapshot;
};

struct leveldb_writeoptions_t {
    char unused;
};

struct leveldb_writebatch_t {
    forebay_writebatch_t *rep;
};

struct leveldb_iterator_t {
    forebay_iterator_t *rep;
    leveldb_comparator_t *comparator;
    /* What went wrong, until the next seek; and the key before, if there is a comparator. */
    char *refused;
    char *last;
    size_t last_len;
};

static void *allocate(size_t bytes) {
    void *memory = calloc(1, bytes ? bytes : 1);
    if (!memory) {
        fputs("libforebay_leveldb: no memory\n", stderr);
        abort();
    }
    return memory;
}

static char *copy(const char *bytes, size_t len) {
    char *memory = allocate(len + 1);
    if (len) memcpy(memory, bytes, len);
    return memory;
}

/* Puts a message of malloc() into *errptr. */
static void fail(char **errptr, char *message) {
    free(*errptr);
    *errptr = message;
}

/* For LevelDB's functions that cannot fail. */
static void complain(const char *doing, char *message) {
    if (message) fprintf(stderr, "libforebay_leveldb: %s: %s\n", doing, message);
    free(message);
}

/* --- The order of keys ------------------------------------------------------------------------ */

/* True if the comparator has `a` before `b`, as their bytes have; otherwise *errptr says so. */
static int in_order(leveldb_comparator_t *by, const char *a, size_t a_len, const char *b,
                    size_t b_len, char **errptr) {
    char *message;
    const char *name = by->name(by->state);
    if (by->compare(by->state, a, a_len, b, b_len) < 0) return 1;
    message = allocate(strlen(name) + 400);
    sprintf(message,
            "Not implemented: the comparator %s does not have two keys (of %zu and %zu bytes) in the "
            "order of their bytes, and this store has no other. Choose keys whose bytes sort so (for "
            "numbers: big-endian), or use LevelDB",
            name, a_len, b_len);
    fail(errptr, message);
    return 0;
}

/* True if the key is in order with its neighbours among the keys that are read so. */
static int is_watched(leveldb_t *db, const forebay_readoptions_t *as_of, const char *key,
                      size_t len, char **errptr) {
    char *refused = NULL;
    const char *other;
    size_t other_len;
    int agrees = 1;
    forebay_iterator_t *at;
    if (!db->comparator) return 1;
    at = forebay_create_iterator(db->rep, as_of, &refused);
    if (at) {
        forebay_iter_seek(at, key, len);
        if (forebay_iter_valid(at)) {
            other = forebay_iter_key(at, &other_len);
            if (other_len != len || memcmp(other, key, len) != 0)
                agrees = in_order(db->comparator, key, len, other, other_len, errptr);
        }
        forebay_iter_get_error(at, &refused);
        if (agrees && !refused) {
            forebay_iter_seek_for_prev(at, key, len);
            other = forebay_iter_key(at, &other_len);
            if (other && other_len == len && memcmp(other, key, len) == 0) {
                forebay_iter_prev(at);
                other = forebay_iter_key(at, &other_len);
            }
            if (other) agrees = in_order(db->comparator, other, other_len, key, len, errptr);
            forebay_iter_get_error(at, &refused);
        }
        forebay_iter_destroy(at);
    }
    if (!refused) return agrees;
    fail(errptr, refused);
    return 0;
}

/* The keys of a batch, to be sorted by their bytes. */
struct batch_keys {
    struct batch_key {
        const char *key;
        size_t len;
    } *keys;
    size_t count, room;
};

static void keep_key(void *state, const char *key, size_t len) {
    struct batch_keys *keys = state;
    if (keys->count == keys->room) {
        keys->room = keys->room ? 2 * keys->room : 16;
        keys->keys = realloc(keys->keys, keys->room * sizeof *keys->keys);
        if (!keys->keys) abort();
    }
    keys->keys[keys->count].key = key;
    keys->keys[keys->count++].len = len;
}

static void keep_put(void *state, const char *key, size_t len, const char *value, size_t vlen) {
    (void)value, (void)vlen;
    keep_key(state, key, len);
}

static int by_bytes(const void *a, const void *b) {
    const struct batch_key *x = a, *y = b;
    size_t least = x->len < y->len ? x->len : y->len;
    int order = least ? memcmp(x->key, y->key, least) : 0;
    return order ? order : (x->len > y->len) - (x->len < y->len);
}

/* True if the keys of a batch are in order with the store's, and among each other. */
static int is_batch_watched(leveldb_t *db, const forebay_writebatch_t *batch, char **errptr) {
    struct batch_keys keys = {NULL, 0, 0};
    size_t i;
    int agrees = 1;
    if (!db->comparator) return 1;
    forebay_writebatch_iterate(batch, &keys, keep_put, keep_key);
    if (keys.count) qsort(keys.keys, keys.count, sizeof *keys.keys, by_bytes);
    for (i = 0; agrees && i < keys.count; i++) {
        struct batch_key *key = &keys.keys[i];
        agrees = is_watched(db, db->now, key->key, key->len, errptr);
        if (agrees && i && by_bytes(key - 1, key) != 0)
            agrees = in_order(db->comparator, key[-1].key, key[-1].len, key->key, key->len, errptr);
    }
    free(keys.keys);
    return agrees;
}

/* --- Stores ----------------------------------------------------------------------------------- */

/* What a program that was written for LevelDB cannot say, its environment may. */
static int from_environment(forebay_options_t *options, char **errptr) {
    const char *pool = getenv("FOREBAY_POOL"), *kind = getenv("FOREBAY_POOL_KIND");
    const char *durability = getenv("FOREBAY_DURABILITY");
    char *refused = NULL;
    if (pool) forebay_options_set_pool(options, pool, &refused);
    if (durability && !refused) forebay_options_set_durability(options, durability, &refused);
    if (kind && !refused) {
        int number = !strcmp(kind, "disk")       ? FOREBAY_POOL_DISK
                     : !strcmp(kind, "memory")   ? FOREBAY_POOL_MEMORY
                     : !strcmp(kind, "emulated") ? FOREBAY_POOL_EMULATED
                                                 : -1;
        forebay_options_set_pool_kind(options, number, 64 << 20, &refused);
    }
    if (!refused) return 1;
    fail(errptr, refused);
    return 0;
}

leveldb_t *leveldb_open(const leveldb_options_t *options, const char *name, char **errptr) {
    leveldb_t *db;
    forebay_t *rep;
    char *refused = NULL;
    if (options->refused) {
        fail(errptr, copy(options->refused, strlen(options->refused)));
        return NULL;
    }
    if (!from_environment(options->rep, errptr)) return NULL;
    rep = forebay_open(options->rep, name, &refused);
    if (!rep) {
        fail(errptr, refused);
        return NULL;
    }
    db = allocate(sizeof *db);
    db->rep = rep;
    db->comparator = options->comparator;
    db->now = forebay_readoptions_create();
    db->synced = forebay_writeoptions_create();
    pthread_mutex_init(&db->watched, NULL);
    return db;
}

void leveldb_close(leveldb_t *db) {
    char *refused = NULL;
    if (!db) return;
    forebay_close_checked(db->rep, &refused);
    complain("closing", refused);
    forebay_readoptions_destroy(db->now);
    forebay_writeoptions_destroy(db->synced);
    pthread_mutex_destroy(&db->watched);
    free(db);
}

/*
 * Each write is synced, whatever the options say: LevelDB keeps one that is not synced when the
 * process is killed, and this store does not promise that of one.
 */
void leveldb_put(leveldb_t *db, const leveldb_writeoptions_t *options, const char *key,
                 size_t keylen, const char *val, size_t vallen, char **errptr) {
    (void)options;
    if (db->comparator) pthread_mutex_lock(&db->watched);
    if (is_watched(db, db->now, key, keylen, errptr))
        forebay_put(db->rep, db->synced, key, keylen, val, vallen, errptr);
    if (db->comparator) pthread_mutex_unlock(&db->watched);
}

void leveldb_delete(leveldb_t *db, const leveldb_writeoptions_t *options, const char *key,
                    size_t keylen, char **errptr) {
    (void)options;
    if (is_watched(db, db->now, key, keylen, errptr))
        forebay_delete(db->rep, db->synced, key, keylen, errptr);
}

void leveldb_write(leveldb_t *db, const leveldb_writeoptions_t *options,
                   leveldb_writebatch_t *batch, char **errptr) {
    (void)options;
    if (db->comparator) pthread_mutex_lock(&db->watched);
    if (is_batch_watched(db, batch->rep, errptr))
        forebay_write(db->rep, db->synced, batch->rep, errptr);
    if (db->comparator) pthread_mutex_unlock(&db->watched);
}

/* True unless the options have a snapshot that could not be made. */
static int can_read(const leveldb_readoptions_t *options, char **errptr) {
    if (!options->snapshot || !options->snapshot->refused) return 1;
    fail(errptr, copy(options->snapshot->refused, strlen(options->snapshot->refused)));
    return 0;
}

char *leveldb_get(leveldb_t *db, const leveldb_readoptions_t *options, const char *key,
                  size_t keylen, size_t *vallen, char **errptr) {
    *vallen = 0;
    if (!can_read(options, errptr) || !is_watched(db, options->rep, key, keylen, errptr))
        return NULL;
    return forebay_get(db->rep, options->rep, key, keylen, vallen, errptr);
}

const leveldb_snapshot_t *leveldb_create_snapshot(leveldb_t *db) {
    leveldb_snapshot_t *snapshot = allocate(sizeof *snapshot);
    snapshot->rep = forebay_create_snapshot(db->rep, &snapshot->refused);
    return snapshot;
}

void leveldb_release_snapshot(leveldb_t *db, const leveldb_snapshot_t *snapshot) {
    if (!snapshot) return;
    forebay_release_snapshot(db->rep, snapshot->rep);
    free(snapshot->refused);
    free((void *)snapshot);
}

char *leveldb_property_value(leveldb_t *db, const char *propname) {
    return strcmp(propname, "leveldb.stats") ? NULL
                                             : forebay_property_value(db->rep, "forebay.stats");
}

void leveldb_approximate_sizes(leveldb_t *db, int num_ranges, const char *const *range_start_key,
                               const size_t *range_start_key_len,
                               const char *const *range_limit_key,
                               const size_t *range_limit_key_len, uint64_t *sizes) {
    char *refused = NULL;
    forebay_approximate_sizes(db->rep, num_ranges, range_start_key, range_start_key_len,
                              range_limit_key, range_limit_key_len, sizes, &refused);
    complain("leveldb_approximate_sizes", refused);
}

/* All of the store: what is collected is files of the log, and no range of keys. */
void leveldb_compact_range(leveldb_t *db, const char *start_key, size_t start_key_len,
                           const char *limit_key, size_t limit_key_len) {
    char *refused = NULL;
    (void)start_key, (void)start_key_len, (void)limit_key, (void)limit_key_len;
    forebay_collect(db->rep, &refused);
    complain("leveldb_compact_range", refused);
}

void leveldb_destroy_db(const leveldb_options_t *options, const char *name, char **errptr) {
    if (from_environment(options->rep, errptr)) forebay_destroy_db(options->rep, name, errptr);
}

void leveldb_repair_db(const leveldb_options_t *options, const char *name, char **errptr) {
    if (!from_environment(options->rep, errptr)) return;
    complain("given up by leveldb_repair_db", forebay_repair_db(options->rep, name, errptr));
}

/* --- Iterators -------------------------------------------------------------------------------- */

leveldb_iterator_t *leveldb_create_iterator(leveldb_t *db, const leveldb_readoptions_t *options) {
    leveldb_iterator_t *iter = allocate(sizeof *iter);
    iter->comparator = db->comparator;
    if (can_read(options, &iter->refused))
        iter->rep = forebay_create_iterator(db->rep, options->rep, &iter->refused);
    return iter;
}

static void forget(leveldb_iterator_t *iter) {
    free(iter->last);
    iter->last = NULL;
    iter->last_len = 0;
}

void leveldb_iter_destroy(leveldb_iterator_t *iter) {
    if (!iter) return;
    forebay_iter_destroy(iter->rep);
    free(iter->refused);
    forget(iter);
    free(iter);
}

uint8_t leveldb_iter_valid(const leveldb_iterator_t *iter) {
    return iter->rep && !iter->refused && forebay_iter_valid(iter->rep);
}

/* Keeps the key that it is at. */
static void keep(leveldb_iterator_t *iter) {
    const char *key;
    size_t len;
    if (!iter->comparator || !leveldb_iter_valid(iter)) return;
    key = forebay_iter_key(iter->rep, &len);
    forget(iter);
    iter->last = copy(key, len);
    iter->last_len = len;
}

/* True if it can be moved elsewhere: what went wrong before is over then. */
static int seeks(leveldb_iterator_t *iter) {
    if (!iter->rep) return 0;
    free(iter->refused);
    iter->refused = NULL;
    return 1;
}

void leveldb_iter_seek_to_first(leveldb_iterator_t *iter) {
    if (seeks(iter)) forebay_iter_seek_to_first(iter->rep);
}

void leveldb_iter_seek_to_last(leveldb_iterator_t *iter) {
    if (seeks(iter)) forebay_iter_seek_to_last(iter->rep);
}

void leveldb_iter_seek(leveldb_iterator_t *iter, const char *k, size_t klen) {
    const char *key;
    size_t len;
    if (!seeks(iter)) return;
    forebay_iter_seek(iter->rep, k, klen);
    if (!iter->comparator || !forebay_iter_valid(iter->rep)) return;
    key = forebay_iter_key(iter->rep, &len);
    if (len != klen || memcmp(key, k, len) != 0)
        in_order(iter->comparator, k, klen, key, len, &iter->refused);
}

void leveldb_iter_next(leveldb_iterator_t *iter) {
    const char *key;
    size_t len;
    if (!leveldb_iter_valid(iter)) return;
    keep(iter);
    forebay_iter_next(iter->rep);
    if (!iter->comparator || !forebay_iter_valid(iter->rep)) return;
    key = forebay_iter_key(iter->rep, &len);
    in_order(iter->comparator, iter->last, iter->last_len, key, len, &iter->refused);
}

void leveldb_iter_prev(leveldb_iterator_t *iter) {
    const char *key;
    size_t len;
    if (!leveldb_iter_valid(iter)) return;
    keep(iter);
    forebay_iter_prev(iter->rep);
    if (!iter->comparator || !forebay_iter_valid(iter->rep)) return;
    key = forebay_iter_key(iter->rep, &len);
    in_order(iter->comparator, key, len, iter->last, iter->last_len, &iter->refused);
}

const char *leveldb_iter_key(const leveldb_iterator_t *iter, size_t *klen) {
    *klen = 0;
    return leveldb_iter_valid(iter) ? forebay_iter_key(iter->rep, klen) : NULL;
}

const char *leveldb_iter_value(const leveldb_iterator_t *iter, size_t *vlen) {
    *vlen = 0;
    return leveldb_iter_valid(iter) ? forebay_iter_value(iter->rep, vlen) : NULL;
}

void leveldb_iter_get_error(const leveldb_iterator_t *iter, char **errptr) {
    if (iter->refused)
        fail(errptr, copy(iter->refused, strlen(iter->refused)));
    else
        forebay_iter_get_error(iter->rep, errptr);
}

/* --- Batches ---------------------------------------------------------------------------------- */

leveldb_writebatch_t *leveldb_writebatch_create(void) {
    leveldb_writebatch_t *batch = allocate(sizeof *batch);
    batch->rep = forebay_writebatch_create();
    return batch;
}

void leveldb_writebatch_destroy(leveldb_writebatch_t *batch) {
    if (!batch) return;
    forebay_writebatch_destroy(batch->rep);
    free(batch);
}

void leveldb_writebatch_clear(leveldb_writebatch_t *batch) { forebay_writebatch_clear(batch->rep); }

void leveldb_writebatch_put(leveldb_writebatch_t *batch, const char *key, size_t klen,
                            const char *val, size_t vlen) {
    forebay_writebatch_put(batch->rep, key, klen, val, vlen);
}

void leveldb_writebatch_delete(leveldb_writebatch_t *batch, const char *key, size_t klen) {
    forebay_writebatch_delete(batch->rep, key, klen);
}

void leveldb_writebatch_iterate(const leveldb_writebatch_t *batch, void *state,
                                void (*put)(void *, const char *, size_t, const char *, size_t),
                                void (*deleted)(void *, const char *, size_t)) {
    forebay_writebatch_iterate(batch->rep, state, put, deleted);
}

void leveldb_writebatch_append(leveldb_writebatch_t *destination,
                               const leveldb_writebatch_t *source) {
    forebay_writebatch_append(destination->rep, source->rep);
}

/* --- Options ---------------------------------------------------------------------------------- */

leveldb_options_t *leveldb_options_create(void) {
    leveldb_options_t *options = allocate(sizeof *options);
    options->rep = forebay_options_create();
    return options;
}

void leveldb_options_destroy(leveldb_options_t *options) {
    if (!options) return;
    forebay_options_destroy(options->rep);
    free(options->refused);
    free(options);
}

void leveldb_options_set_comparator(leveldb_options_t *options, leveldb_comparator_t *comparator) {
    options->comparator = comparator;
}

void leveldb_options_set_create_if_missing(leveldb_options_t *options, uint8_t create) {
    forebay_options_set_create_if_missing(options->rep, create);
}

void leveldb_options_set_error_if_exists(leveldb_options_t *options, uint8_t is_error) {
    forebay_options_set_error_if_exists(options->rep, is_error);
}

void leveldb_options_set_write_buffer_size(leveldb_options_t *options, size_t bytes) {
    forebay_options_set_write_buffer_size(options->rep, bytes < 65536 ? 65536 : bytes);
}

void leveldb_options_set_max_open_files(leveldb_options_t *options, int files) {
    forebay_options_set_max_open_files(options->rep, files < 16 ? 16 : files);
}

void leveldb_options_set_cache(leveldb_options_t *options, leveldb_cache_t *cache) {
    if (cache) forebay_options_set_cache_size(options->rep, cache->capacity);
}

void leveldb_options_set_env(leveldb_options_t *options, leveldb_env_t *env) {
    (void)options, (void)env; /* there is only the default one */
}

void leveldb_options_set_info_log(leveldb_options_t *options, leveldb_logger_t *log) {
    static const char refused[] =
        "Not implemented: an info log; a store says what is wrong by leveldb_property_value, "
        "\"leveldb.stats\": pass NULL";
    free(options->refused);
    options->refused = log ? copy(refused, sizeof refused - 1) : NULL;
}

/* What the tables of LevelDB are made like; the store's are as they are. */
void leveldb_options_set_filter_policy(leveldb_options_t *options, leveldb_filterpolicy_t *policy) {
    (void)options, (void)policy;
}

void leveldb_options_set_block_size(leveldb_options_t *options, size_t bytes) {
    (void)options, (void)bytes;
}

void leveldb_options_set_block_restart_interval(leveldb_options_t *options, int interval) {
    (void)options, (void)interval;
}

void leveldb_options_set_max_file_size(leveldb_options_t *options, size_t bytes) {
    (void)options, (void)bytes;
}

void leveldb_options_set_compression(leveldb_options_t *options, int kind) {
    (void)options, (void)kind;
}

/* All that is read is checked, always. */
void leveldb_options_set_paranoid_checks(leveldb_options_t *options, uint8_t paranoid) {
    (void)options, (void)paranoid;
}

leveldb_comparator_t *leveldb_comparator_create(
    void *state, void (*destructor)(void *),
    int (*compare)(void *, const char *, size_t, const char *, size_t),
    const char *(*name)(void *)) {
    leveldb_comparator_t *comparator = allocate(sizeof *comparator);
    comparator->state = state;
    comparator->destructor = destructor;
    comparator->compare = compare;
    comparator->name = name;
    return comparator;
}

void leveldb_comparator_destroy(leveldb_comparator_t *comparator) {
    if (!comparator) return;
    comparator->destructor(comparator->state);
    free(comparator);
}

leveldb_filterpolicy_t *leveldb_filterpolicy_create(
    void *state, void (*destructor)(void *),
    char *(*create_filter)(void *, const char *const *, const size_t *, int, size_t *),
    uint8_t (*key_may_match)(void *, const char *, size_t, const char *, size_t),
    const char *(*name)(void *)) {
    leveldb_filterpolicy_t *policy = allocate(sizeof *policy);
    (void)create_filter, (void)key_may_match, (void)name;
    policy->state = state;
    policy->destructor = destructor;
    return policy;
}

void leveldb_filterpolicy_destroy(leveldb_filterpolicy_t *policy) {
    if (!policy) return;
    if (policy->destructor) policy->destructor(policy->state);
    free(policy);
}

leveldb_filterpolicy_t *leveldb_filterpolicy_create_bloom(int bits_per_key) {
    (void)bits_per_key;
    return allocate(sizeof(leveldb_filterpolicy_t));
}

leveldb_readoptions_t *leveldb_readoptions_create(void) {
    leveldb_readoptions_t *options = allocate(sizeof *options);
    options->rep = forebay_readoptions_create();
    return options;
}

void leveldb_readoptions_destroy(leveldb_readoptions_t *options) {
    if (!options) return;
    forebay_readoptions_destroy(options->rep);
    free(options);
}

void leveldb_readoptions_set_verify_checksums(leveldb_readoptions_t *options, uint8_t verify) {
    (void)options, (void)verify; /* always */
}

void leveldb_readoptions_set_fill_cache(leveldb_readoptions_t *options, uint8_t fill) {
    (void)options, (void)fill; /* the cache takes what is read more than once */
}

void leveldb_readoptions_set_snapshot(leveldb_readoptions_t *options,
                                      const leveldb_snapshot_t *snapshot) {
    options->snapshot = snapshot;
    forebay_readoptions_set_snapshot(options->rep, snapshot ? snapshot->rep : NULL);
}

leveldb_writeoptions_t *leveldb_writeoptions_create(void) {
    return allocate(sizeof(leveldb_writeoptions_t));
}

void leveldb_writeoptions_destroy(leveldb_writeoptions_t *options) { free(options); }

void leveldb_writeoptions_set_sync(leveldb_writeoptions_t *options, uint8_t sync) {
    /* Each write is synced. */
    (void)options, (void)sync;
}

leveldb_cache_t *leveldb_cache_create_lru(size_t capacity) {
    leveldb_cache_t *cache = allocate(sizeof *cache);
    cache->capacity = capacity;
    return cache;
}

void leveldb_cache_destroy(leveldb_cache_t *cache) { free(cache); }

leveldb_env_t *leveldb_create_default_env(void) { return allocate(sizeof(leveldb_env_t)); }

void leveldb_env_destroy(leveldb_env_t *env) { free(env); }

/* Where LevelDB has it. */
char *leveldb_env_get_test_directory(leveldb_env_t *env) {
    const char *given = getenv("TEST_TMPDIR");
    char *path = allocate(64 + (given ? strlen(given) : 0));
    (void)env;
    if (given && *given)
        strcpy(path, given);
    else
        sprintf(path, "/tmp/leveldbtest-%d", (int)geteuid());
    if (mkdir(path, 0755) == 0 || errno == EEXIST) return path;
    free(path);
    return NULL;
}

void leveldb_free(void *ptr) { free(ptr); }

int leveldb_major_version(void) { return 1; }

int leveldb_minor_version(void) { return 23; }
