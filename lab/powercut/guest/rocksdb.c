/* RocksDB, every write batch with sync. Small memtables, so that logs come and go; those that are done with are renamed into archive/. */
#include "engine.h"
#include <rocksdb/c.h>
#include <stdlib.h>

static rocksdb_t *db;
static rocksdb_writeoptions_t *synced;
static rocksdb_readoptions_t *reading;

static void check(char *error) {
    if (error != NULL)
        die("rocksdb", error);
}

void engine_open(const char *directory) {
    char *error = NULL;
    rocksdb_options_t *options = rocksdb_options_create();
    rocksdb_options_set_create_if_missing(options, 1);
    rocksdb_options_set_write_buffer_size(options, 256 << 10);
    rocksdb_options_set_paranoid_checks(options, 1);
    rocksdb_options_set_WAL_ttl_seconds(options, 4);
    rocksdb_options_set_compression(options, rocksdb_no_compression);
    db = rocksdb_open(options, directory, &error);
    check(error);
    synced = rocksdb_writeoptions_create();
    rocksdb_writeoptions_set_sync(synced, 1);
    reading = rocksdb_readoptions_create();
}

void engine_apply(const struct change *changes, size_t count) {
    char *error = NULL;
    rocksdb_writebatch_t *batch = rocksdb_writebatch_create();
    for (size_t i = 0; i < count; i++) {
        const struct change *c = &changes[i];
        if (c->value != NULL)
            rocksdb_writebatch_put(batch, c->key, c->key_length, c->value, c->value_length);
        else
            rocksdb_writebatch_delete(batch, c->key, c->key_length);
    }
    rocksdb_write(db, synced, batch, &error);
    check(error);
    rocksdb_writebatch_destroy(batch);
}

char *engine_get(const char *key, size_t key_length, size_t *value_length) {
    char *error = NULL;
    char *value = rocksdb_get(db, reading, key, key_length, value_length, &error);
    check(error);
    return value;
}

long engine_count(void) {
    char *error = NULL;
    long count = 0;
    rocksdb_iterator_t *all = rocksdb_create_iterator(db, reading);
    for (rocksdb_iter_seek_to_first(all); rocksdb_iter_valid(all); rocksdb_iter_next(all))
        count++;
    rocksdb_iter_get_error(all, &error);
    check(error);
    rocksdb_iter_destroy(all);
    return count;
}
