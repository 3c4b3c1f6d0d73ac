/* LMDB under the driver of `forebay-lab ycsb`: a transaction for each put, which all threads take in turn, and a reader for each
 * thread, which is renewed for each read. Unsynced it is MDB_NOSYNC. Its cache is the kernel's.
 */
#include <lmdb.h>
#include "ycsb.h"

/* Address space, not memory. */
#define MAP_BYTES ((size_t)256 << 30)
#define READERS_MAX 1024

struct store {
    MDB_env *env;
    MDB_dbi pairs;
};

/* A process has one store. */
static __thread MDB_txn *reader;

static void check(int code) {
    if (code != 0) {
        fprintf(stderr, "lmdb: %s\n", mdb_strerror(code));
        exit(1);
    }
}

void *ycsb_open(const char *dir, int synced, int apart, uint64_t cache_bytes) {
    (void)apart, (void)cache_bytes;
    MDB_txn *txn;
    struct store *store = malloc(sizeof *store);
    if (store == NULL)
        exit(1);
    check(mdb_env_create(&store->env));
    check(mdb_env_set_mapsize(store->env, MAP_BYTES));
    check(mdb_env_set_maxreaders(store->env, READERS_MAX));
    check(mdb_env_open(store->env, dir, synced ? 0 : MDB_NOSYNC, 0644));
    check(mdb_txn_begin(store->env, NULL, 0, &txn));
    check(mdb_dbi_open(txn, NULL, 0, &store->pairs));
    check(mdb_txn_commit(txn));
    return store;
}

void ycsb_load(void *opened, size_t pairs, const char *keys, size_t key_bytes, const char *values, size_t value_bytes) {
    struct store *store = opened;
    MDB_txn *txn;
    check(mdb_txn_begin(store->env, NULL, 0, &txn));
    for (size_t at = 0; at < pairs; at++) {
        MDB_val key = {key_bytes, (void *)(keys + at * key_bytes)};
        MDB_val value = {value_bytes, (void *)(values + at * value_bytes)};
        check(mdb_put(txn, store->pairs, &key, &value, 0));
    }
    check(mdb_txn_commit(txn));
}

void ycsb_put(void *opened, const char *key, size_t key_bytes, const char *value, size_t value_bytes) {
    ycsb_load(opened, 1, key, key_bytes, value, value_bytes);
}

static void begin_read(struct store *store) {
    if (reader == NULL)
        check(mdb_txn_begin(store->env, NULL, MDB_RDONLY, &reader));
    else
        check(mdb_txn_renew(reader));
}

int64_t ycsb_get(void *opened, const char *key, size_t key_bytes, char *value, size_t room) {
    struct store *store = opened;
    MDB_val wanted = {key_bytes, (void *)key}, found;
    int64_t bytes = -1;
    begin_read(store);
    int code = mdb_get(reader, store->pairs, &wanted, &found);
    if (code != MDB_NOTFOUND) {
        check(code);
        bytes = (int64_t)copy_value(value, room, found.mv_data, found.mv_size);
    }
    mdb_txn_reset(reader);
    return bytes;
}

uint64_t ycsb_scan(void *opened, const char *key, size_t key_bytes, uint64_t records, char *value, size_t room, uint64_t *bytes) {
    struct store *store = opened;
    MDB_val at = {key_bytes, (void *)key}, found;
    MDB_cursor *cursor;
    uint64_t count = 0;
    *bytes = 0;
    begin_read(store);
    check(mdb_cursor_open(reader, store->pairs, &cursor));
    int code = mdb_cursor_get(cursor, &at, &found, MDB_SET_RANGE);
    while (code == 0) {
        *bytes += at.mv_size + copy_value(value, room, found.mv_data, found.mv_size);
        if (++count == records)
            break;
        code = mdb_cursor_get(cursor, &at, &found, MDB_NEXT);
    }
    if (code != MDB_NOTFOUND)
        check(code);
    mdb_cursor_close(cursor);
    mdb_txn_reset(reader);
    return count;
}

void ycsb_sync(void *opened) {
    struct store *store = opened;
    check(mdb_env_sync(store->env, 1));
}

void ycsb_close(void *opened) {
    struct store *store = opened;
    mdb_env_close(store->env);
    free(store);
}
