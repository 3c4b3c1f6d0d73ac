/* RocksDB under the driver of `forebay-lab ycsb`.
 *
 * Not its defaults: a block cache of the size that all stores' caches have, blooms of 10 bits a key and levels of dynamic sizes, which
 * its tuning guide recommends and newer versions have; no compression, which would gain nothing on values of random bytes. With values
 * apart (BlobDB) those of 512 bytes and more go to blob files, which are collected, and are kept in the same cache.
 */
#include <rocksdb/c.h>
#include "ycsb.h"

#define BLOOM_BITS 10
#define BLOB_BYTES_MIN 512

struct store {
    rocksdb_t *database;
    rocksdb_writeoptions_t *put, *load;
    rocksdb_readoptions_t *read;
};

static void check(char *error) {
    if (error != NULL) {
        fprintf(stderr, "rocksdb: %s\n", error);
        exit(1);
    }
}

static rocksdb_options_t *options(int apart, uint64_t cache_bytes) {
    rocksdb_options_t *options = rocksdb_options_create();
    rocksdb_block_based_table_options_t *table = rocksdb_block_based_options_create();
    rocksdb_cache_t *cache = rocksdb_cache_create_lru(cache_bytes);
    rocksdb_options_set_create_if_missing(options, 1);
    rocksdb_options_set_compression(options, rocksdb_no_compression);
    rocksdb_options_set_level_compaction_dynamic_level_bytes(options, 1);
    rocksdb_block_based_options_set_block_cache(table, cache);
    rocksdb_block_based_options_set_filter_policy(table, rocksdb_filterpolicy_create_bloom(BLOOM_BITS));
    rocksdb_options_set_block_based_table_factory(options, table);
    if (apart) {
        rocksdb_options_set_enable_blob_files(options, 1);
        rocksdb_options_set_min_blob_size(options, BLOB_BYTES_MIN);
        rocksdb_options_set_enable_blob_gc(options, 1);
        rocksdb_options_set_blob_cache(options, cache);
    }
    return options;
}

void *ycsb_open(const char *dir, int synced, int apart, uint64_t cache_bytes) {
    char *error = NULL;
    struct store *store = malloc(sizeof *store);
    if (store == NULL)
        exit(1);
    store->database = rocksdb_open(options(apart, cache_bytes), dir, &error);
    check(error);
    store->put = rocksdb_writeoptions_create();
    rocksdb_writeoptions_set_sync(store->put, (unsigned char)synced);
    store->load = rocksdb_writeoptions_create();
    store->read = rocksdb_readoptions_create();
    return store;
}

void ycsb_load(void *opened, size_t pairs, const char *keys, size_t key_bytes, const char *values, size_t value_bytes) {
    struct store *store = opened;
    char *error = NULL;
    rocksdb_writebatch_t *batch = rocksdb_writebatch_create();
    for (size_t at = 0; at < pairs; at++)
        rocksdb_writebatch_put(batch, keys + at * key_bytes, key_bytes, values + at * value_bytes, value_bytes);
    rocksdb_write(store->database, store->load, batch, &error);
    check(error);
    rocksdb_writebatch_destroy(batch);
}

void ycsb_put(void *opened, const char *key, size_t key_bytes, const char *value, size_t value_bytes) {
    struct store *store = opened;
    char *error = NULL;
    rocksdb_put(store->database, store->put, key, key_bytes, value, value_bytes, &error);
    check(error);
}

int64_t ycsb_get(void *opened, const char *key, size_t key_bytes, char *value, size_t room) {
    struct store *store = opened;
    char *error = NULL;
    rocksdb_pinnableslice_t *found = rocksdb_get_pinned(store->database, store->read, key, key_bytes, &error);
    check(error);
    if (found == NULL)
        return -1;
    size_t bytes;
    const char *at = rocksdb_pinnableslice_value(found, &bytes);
    copy_value(value, room, at, bytes);
    rocksdb_pinnableslice_destroy(found);
    return (int64_t)bytes;
}

uint64_t ycsb_scan(void *opened, const char *key, size_t key_bytes, uint64_t records, char *value, size_t room, uint64_t *bytes) {
    struct store *store = opened;
    char *error = NULL;
    uint64_t count = 0;
    *bytes = 0;
    rocksdb_iterator_t *found = rocksdb_create_iterator(store->database, store->read);
    for (rocksdb_iter_seek(found, key, key_bytes); count < records && rocksdb_iter_valid(found); rocksdb_iter_next(found), count++) {
        size_t its_key_bytes, its_value_bytes;
        rocksdb_iter_key(found, &its_key_bytes);
        const char *at = rocksdb_iter_value(found, &its_value_bytes);
        *bytes += its_key_bytes + copy_value(value, room, at, its_value_bytes);
    }
    rocksdb_iter_get_error(found, &error);
    check(error);
    rocksdb_iter_destroy(found);
    return count;
}

void ycsb_sync(void *opened) {
    struct store *store = opened;
    char *error = NULL;
    rocksdb_flush_wal(store->database, 1, &error);
    check(error);
}

void ycsb_close(void *opened) {
    struct store *store = opened;
    rocksdb_close(store->database);
    free(store);
}
